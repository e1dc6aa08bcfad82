"""Large problems: bounded memory for many distributions, and many weights in one distribution."""

import os
import subprocess
import sys

import pytest

MANY_LAWS = """
import pathlib
import resource
import jax
import numpy as np
from nn_uq_dist import uniform_sum as lc

def memory(field):
    # Linux keeps in ru_maxrss what the parent process held when it started this one.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith(field))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT

generator = np.random.default_rng(0)
weights = generator.standard_normal((1_000_000, 31), np.float32)
x = np.float32(0.3) * np.abs(weights).sum(-1)
weights, x = jax.block_until_ready((jax.numpy.asarray(weights), jax.numpy.asarray(x)))
# Not the peak so far: making the weights takes more than evaluating a program from a cache.
before = memory("VmRSS")
values = jax.block_until_ready(jax.jit(lc.logpdf)(x, weights))
assert np.isfinite(values).all()
print(memory("VmHWM") - before)
""".replace("UNIT", "1" if sys.platform == "darwin" else "1024")


@pytest.mark.slow
def test_a_million_distributions_of_31_weights_take_less_than_a_gigabyte():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",  # as users compile; and a long loop
    }
    done = subprocess.run(  # noqa: S603 - the program is the constant above
        [sys.executable, "-c", MANY_LAWS],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    growth = int(done.stdout)
    assert 4_000_000 <= growth <= 1e9  # the values alone are 4 MB
