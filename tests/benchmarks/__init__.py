"""Benchmarks: `make bench` runs every module `bench_*.py` here and prints its tables.

``make bench BENCH=bench_name BENCH_ARGS="--option 3"`` or ``python -m tests.benchmarks.bench_name
--option 3`` runs one.
"""
