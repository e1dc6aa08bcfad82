"""Monte Carlo with several processes: each one has the numbers of a single process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import InputLaw, monte_carlo

# The option is of this program alone: how processes on one machine exchange numbers.
SCRIPT = """
import sys
import jax
import jax.numpy as jnp
import numpy as np

number, rank, address, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if number > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, number, rank, initialization_timeout=60)
from nn_uq_dist import InputLaw, linearize, monte_carlo, monte_carlo_statistics, paired_draws

assert jax.process_count() == number
matrix = jnp.arange(6.0).reshape(3, 2) / 4
net = lambda x: jnp.tanh(matrix @ x)
law, key = InputLaw(jnp.ones(2), 0.5), jax.random.key(1)
options = {"progress": False, "batch_size": 500}
few = monte_carlo(net, law, key, 3, **options)  # not a group for each process
draws = monte_carlo(net, law, key, 2100, **options)
alone = monte_carlo(net, law, key, 700, devices=jax.local_devices(), progress=False)
statistics = monte_carlo_statistics(net, law, key, 2100, num_bins=64, **options)
pairs = paired_draws(net, linearize(net, law), key, 300, progress=False)
if number > 1:
    others = [device for device in jax.devices() if device.process_index != rank]
    try:
        monte_carlo(net, law, key, 10, devices=others)
    except ValueError as error:
        assert f"none of process {rank}" in str(error)
np.savez(
    path, few=few, draws=draws, alone=alone, mean=statistics.mean, counts=statistics.bin_counts,
    extreme=statistics.maximum, network=pairs.network, linear=pairs.linear,
)
"""
TIMEOUT = 240


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def run(number, folder):
    """Results of each of so many processes, two devices each where they are several."""
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={min(number, 2)}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    address = f"localhost:{free_port()}"
    paths = [folder / f"{number}_{rank}.npz" for rank in range(number)]
    processes = [
        subprocess.Popen(  # noqa: S603 - the program is the constant above
            [sys.executable, "-c", SCRIPT, str(number), str(rank), address, str(path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate(paths)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return [np.load(path) for path in paths]


@pytest.mark.slow
def test_each_process_has_the_numbers_of_one(tmp_path):
    (one,) = run(1, tmp_path)
    for result in run(2, tmp_path):
        for name in one.files:
            np.testing.assert_array_equal(result[name], one[name], err_msg=name)


def test_devices_of_other_processes_alone_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match=r"got none of process 1; pass jax.devices\(\)"):
        monte_carlo(jnp.sin, InputLaw(np.ones(2), 0.5), jax.random.key(0), 5, devices=jax.devices())
