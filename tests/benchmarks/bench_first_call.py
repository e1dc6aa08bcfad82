"""How long the first calls take: tracing, compiling and running, each in a fresh process.

Run with ``python -m tests.benchmarks.bench_first_call [BASELINE]`` or
``make bench BENCH=bench_first_call BENCH_ARGS=BASELINE``. ``BASELINE`` is a git revision: then its
first calls are timed in the same run, in turns with those of the working tree. Programs are not
kept from one process to the next. Importing and the arrays of the inputs are not timed. A second
table has the number of fused kernels, with which the time to compile goes.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import _first_call_jobs

ROOT = Path(__file__).parents[2]
NUM_ROUNDS = 2
# What would hide compilation or change it.
SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")


@dataclass(frozen=True)
class FirstCall:
    """What one first call took."""

    seconds: float
    cpu_seconds: float
    programs: int


def first_call(job: str, checkout: Path) -> FirstCall:
    """One job with the package of one checkout, in a fresh process."""
    return FirstCall(**in_fresh_process(checkout, job))


def kernels(checkout: Path) -> dict[str, int]:
    """Fused kernels of the programs of a likelihood, with the package of one checkout."""
    return in_fresh_process(checkout)


def in_fresh_process(checkout: Path, *job: str) -> Any:
    """What the module of the jobs prints last."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment["PYTHONPATH"] = str(checkout)
    # The command is this interpreter and a module of the repository.
    child = subprocess.run(  # noqa: S603
        [sys.executable, str(Path(_first_call_jobs.__file__)), *job],
        cwd=checkout,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(child.stdout.splitlines()[-1])


def fastest(job: str, checkouts: list[Path]) -> list[FirstCall]:
    """The least disturbed of a few rounds for each checkout, in turns."""
    rounds = [[first_call(job, checkout) for checkout in checkouts] for _ in range(NUM_ROUNDS)]
    return [min(calls, key=lambda call: call.seconds) for calls in zip(*rounds, strict=True)]


def clone(revision: str, folder: Path) -> None:
    """Check out a revision of this repository into an empty folder."""
    commit = git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder))
    git("-C", str(folder), "checkout", "--quiet", "--detach", commit)


def git(*arguments: str) -> str:
    """What git prints."""
    # Revisions come from the command line of whoever runs this.
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return done.stdout.strip()


def table() -> None:
    """The working tree alone."""
    print("\n## First calls\n")
    print("| job | seconds | CPU seconds | programs |\n|---|---:|---:|---:|")
    for job in _first_call_jobs.JOBS:
        (call,) = fastest(job, [ROOT])
        print(
            f"| {job} | {call.seconds:.2f} | {call.cpu_seconds:.2f} | {call.programs} |", flush=True
        )


def table_of_kernels(checkouts: list[Path]) -> None:
    """How many kernels the compiler makes of a likelihood of 180 distributions of 12 weights."""
    print("\n## Fused kernels of a likelihood with a noise scale\n")
    print("| program | kernels |\n|---|---:|")
    counts = [kernels(checkout) for checkout in checkouts]
    for program in counts[0]:
        print(f"| {program} | " + " -> ".join(str(count[program]) for count in counts) + " |")


def table_of_ratios(revision: str) -> None:
    """The working tree and a revision, and the ratio of now to before."""
    with tempfile.TemporaryDirectory() as folder:
        baseline = Path(folder)
        clone(revision, baseline)
        print(f"\n## First calls, {revision} -> working tree\n")
        print("| job | seconds | ratio | CPU seconds | ratio | programs |")
        print("|---|---:|---:|---:|---:|---:|")
        for job in _first_call_jobs.JOBS:
            before, now = fastest(job, [baseline, ROOT])
            cells = (
                f"{before.seconds:.2f} -> {now.seconds:.2f}",
                f"{now.seconds / before.seconds:.2f}",
                f"{before.cpu_seconds:.2f} -> {now.cpu_seconds:.2f}",
                f"{now.cpu_seconds / before.cpu_seconds:.2f}",
                f"{before.programs} -> {now.programs}",
            )
            print(f"| {job} | " + " | ".join(cells) + " |", flush=True)
        table_of_kernels([baseline, ROOT])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        table_of_ratios(sys.argv[1])
    else:
        table()
        table_of_kernels([ROOT])
