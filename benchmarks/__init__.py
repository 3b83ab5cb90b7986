"""Benchmarks: safereplay beside plain Python and beside other libraries."""
