"""Sweeps: one small file describes many runs. Threads, a cluster and a GPU give the same numbers."""
