"""Time several callables side by side in one process, and print the result as a table.

On a shared machine the speed drifts by more than the differences of interest. So the callables are
interleaved: each round times all of them, and a ratio is the median of the rounds' ratios.
"""

import gc
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one callable: the first call alone, then one value per round."""

    first_call: float
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def fastest(self) -> float:
        """Fastest round: the least disturbed by other users of the machine."""
        return min(self.rounds)

    def ratio_to(self, peer: "Timing") -> float:
        """Median over the rounds of this time divided by the peer's in the same round."""
        return statistics.median(a / b for a, b in zip(self.rounds, peer.rounds, strict=True))


def time_interleaved(
    callables: Mapping[str, Callable[[], Any]],
    *,
    num_rounds: int = 7,
    min_seconds: float = 0.05,
) -> dict[str, Timing]:
    """Time each callable ``num_rounds`` times, in turns.

    Parameters
    ----------
    callables
        What to time, by name. Called without arguments; the result is waited for
        (``jax.block_until_ready``), so arrays must be returned. Transfers of the arguments are
        timed too if the callable makes them.
    num_rounds
        Rounds; each times every callable once, starting with another one each time.
    min_seconds
        A callable that is faster than this is called repeatedly within a round.

    Returns
    -------
    dict
        A `Timing` per name. The first call of each (trace and compile, for a jitted function)
        and the warm-up are not among the rounds.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> x = jnp.ones(1000)
    >>> timings = time_interleaved({"sum": lambda: jnp.sum(x), "sort": lambda: jnp.sort(x)})
    >>> table = markdown_table(timings, relative_to="sum")
    """
    first_calls = {name: _seconds(call, 1) for name, call in callables.items()}
    numbers = {
        name: max(1, math.ceil(min_seconds / max(_seconds(call, 1), 1e-9)))
        for name, call in callables.items()
    }
    rounds: dict[str, list[float]] = {name: [] for name in callables}
    names = list(callables)
    for i in range(num_rounds):
        start = i % len(names)
        for name in names[start:] + names[:start]:
            rounds[name].append(_seconds(callables[name], numbers[name]))
    return {name: Timing(first_calls[name], tuple(rounds[name])) for name in names}


def markdown_table(
    timings: Mapping[str, Timing], *, relative_to: str, units: Mapping[str, int] | None = None
) -> str:
    """Format timings as a Markdown table.

    Parameters
    ----------
    timings
        What `time_interleaved` returned.
    relative_to
        Name of the peer that the last column divides by.
    units
        Number of units of work (points, say) in one call, by name: adds a column of time per unit.

    Returns
    -------
    str
        The table, without a newline at the end.

    Raises
    ------
    ValueError
        If ``relative_to`` is not among the timings.
    """
    if relative_to not in timings:
        raise ValueError(
            f"relative_to must be one of {sorted(timings)}, got {relative_to!r}; "
            "pass the name of a timed callable"
        )
    peer = timings[relative_to]
    header = ["", "first call", "median", "fastest", f"time / {relative_to}"]
    rows = [
        [name, _show(t.first_call), _show(t.median), _show(t.fastest), f"{t.ratio_to(peer):.3g}"]
        for name, t in timings.items()
    ]
    if units is not None:
        header.insert(3, "median per unit")
        for row, (name, t) in zip(rows, timings.items(), strict=True):
            row.insert(3, _show(t.median / units[name]) if name in units else "")
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def peak_megabytes() -> float:
    """Peak resident memory of this process so far (Linux), NaN where the system does not tell.

    Not ``ru_maxrss``: on Linux that starts from the peak of the parent process.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return math.nan


def run_alone(module: str, argument: str) -> str:
    """Run a benchmark module in a process of its own, for its peak memory; what it printed."""
    command = [sys.executable, "-m", module, argument]
    # The command is this interpreter and a module of the repository.
    child = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return child.stdout


def _seconds(call: Callable[[], Any], number: int) -> float:
    """Seconds per call over ``number`` calls, garbage collection off as in `timeit`."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(number):
            jax.block_until_ready(call())
        return (time.perf_counter() - start) / number
    finally:
        if enabled:
            gc.enable()


def _show(seconds: float) -> str:
    """Three significant digits in a unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
