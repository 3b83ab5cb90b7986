"""Sweeps: many runs described by one small file, done by threads, a cluster or a GPU, with the same numbers."""
