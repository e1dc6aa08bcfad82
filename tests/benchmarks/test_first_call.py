"""The benchmark of first calls measures what it claims to measure."""

import pytest

from tests.benchmarks import _first_call_jobs, bench_first_call


def test_a_first_call_in_a_fresh_process():
    job = next(iter(_first_call_jobs.JOBS))
    call = bench_first_call.first_call(job, bench_first_call.ROOT)
    assert call.seconds > 0.0
    assert call.cpu_seconds > 0.0
    # The density, its method for hard points, and the zeros that the job makes.
    assert 1 <= call.programs <= 3


@pytest.mark.slow
def test_kernels_of_the_programs():
    counts = bench_first_call.kernels(bench_first_call.ROOT)
    assert 0 < counts["value"] < counts["value and gradient"]


def test_the_readme_has_an_example(monkeypatch):
    monkeypatch.chdir(bench_first_call.ROOT)
    assert callable(_first_call_jobs.readme())
