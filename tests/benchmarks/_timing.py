"""Time several callables side by side in one process, and print the result as a table.

On a shared machine the speed drifts by more than the differences of interest. So the callables are
interleaved: each round times all of them, and a ratio is the median of the rounds' ratios.
"""

import math
import statistics
import subprocess
import sys
import time
import timeit
from dataclasses import dataclass
from pathlib import Path

import jax

from tests.benchmarks._command_line import head, row


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one callable: the first call alone, then one value per round."""

    first_call: float
    rounds: tuple[float, ...]

    @property
    def median(self):
        return statistics.median(self.rounds)

    def ratio_to(self, peer):
        """Median over the rounds of this time divided by the peer's in the same round."""
        return statistics.median(a / b for a, b in zip(self.rounds, peer.rounds, strict=True))


def time_interleaved(callables, *, num_rounds=7, min_seconds=0.05):
    """A `Timing` of each callable by name, in turns, each round starting with another one.

    Results are waited for. A callable that is faster than `min_seconds` is called repeatedly within
    a round. The first call of each (trace and compile, for a jitted function) and the warm-up are
    not among the rounds.
    """
    first_calls = {name: _seconds(call, 1) for name, call in callables.items()}
    numbers = {
        name: max(1, math.ceil(min_seconds / max(_seconds(call, 1), 1e-9)))
        for name, call in callables.items()
    }
    rounds = {name: [] for name in callables}
    names = list(callables)
    for i in range(num_rounds):
        start = i % len(names)
        for name in names[start:] + names[:start]:
            rounds[name].append(_seconds(callables[name], numbers[name]))
    return {name: Timing(first_calls[name], tuple(rounds[name])) for name in names}


def print_timings(timings, *, relative_to):
    """Print the table of timings; the last column divides by the peer `relative_to`."""
    head("", "first call", "median", f"time / {relative_to}")
    for name, t in timings.items():
        ratio = f"{t.ratio_to(timings[relative_to]):.3g}"
        row(name, _show(t.first_call), _show(t.median), ratio)


def timed(call):
    """The result of a call, and its seconds."""
    start = time.perf_counter()
    return jax.block_until_ready(call()), time.perf_counter() - start


def first_and_later(call, num_calls):
    """The result of a call, and the seconds of the first and of the fastest of the later calls."""
    found = [timed(call) for _ in range(num_calls)]
    return found[-1][0], found[0][1], min(seconds for _, seconds in found[1:])


def peak_megabytes():
    """Peak resident memory of this process so far (Linux), NaN where the system does not tell.

    Not ``ru_maxrss``: on Linux that starts from the peak of the parent process.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return math.nan


def run_alone(module, argument):
    """What a benchmark module prints in a process of its own, for its peak memory."""
    command = [sys.executable, "-m", module, argument]
    # The command is this interpreter and a module of the repository.
    child = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return child.stdout.strip()


def _seconds(call, number):
    """Seconds per call over ``number`` calls."""
    return timeit.timeit(lambda: jax.block_until_ready(call()), number=number) / number


def _show(seconds):
    """Three significant digits in a unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
