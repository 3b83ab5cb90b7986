"""Benchmarks: safereplay compared with plain Python and other libraries."""
