"""Benchmarks: `make bench` runs every module `bench_*.py` here and prints its table."""
