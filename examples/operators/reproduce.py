"""Redo every figure and table of the paper's results section, and those that it leaves out.

Run `python examples/operators/reproduce.py --help` for the arguments. The committed weights are
used; `train.py` makes them anew.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import error_tables
import jax
import matplotlib.pyplot as plt
import paper_figures as figures
import paper_tables as tables
from PIL import Image
from study import study

DOTS_PER_INCH = 200
MOST_BYTES = 200_000


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="Figures and tables of the paper, redone.")
    parser.add_argument("--out", type=Path, default=Path("operators_output"), help="folder")
    parser.add_argument("--num-draws", type=int, default=100_000, help="Monte Carlo draws")
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    parser.add_argument("--only", nargs="*", default=[], help="names of figures or tables")
    parser.add_argument("--no-progress", action="store_true", help="show no progress")
    arguments = parser.parse_args(argv)
    if arguments.num_draws < 1000:
        parser.error(f"--num-draws must be at least 1000, got {arguments.num_draws}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Write every figure as PNG and every table as Markdown."""
    arguments = parse_arguments(argv)
    count, progress = arguments.num_draws, not arguments.no_progress
    key = jax.random.key(arguments.seed)

    def case(name: str, amplitude: float) -> Any:
        return study(name, amplitude, key, count)

    pictures: dict[str, Callable[[], Any]] = {
        "inputs": lambda: figures.inputs(key),
        "corner": lambda: figures.corner(case("nonlinear_1", 1.5)),
        "band_nonlinear_0.1": lambda: figures.band(case("nonlinear_5", 0.1), deviation=True),
        "band_nonlinear_1": lambda: figures.band(case("nonlinear_5", 1.0)),
        "band_linear_2": lambda: figures.band(case("linear_5", 2.0)),
        "marginals_nonlinear_0.1": lambda: figures.marginals(case("nonlinear_5", 0.1)),
        "marginals_nonlinear_1": lambda: figures.marginals(case("nonlinear_5", 1.0)),
        "marginals_linear_2": lambda: figures.marginals(case("linear_5", 2.0)),
        "marginals_1_layer": lambda: figures.marginals(case("nonlinear_1", 1.5)),
        "marginals_20_layers": lambda: figures.marginals(case("nonlinear_20", 1.5)),
        "errors": lambda: figures.error_densities(key, 1.5),
        "correlation": lambda: figures.correlation_matrices(case("nonlinear_5", 1.5)),
        "two_point_nonlinear": lambda: figures.two_point(case("nonlinear_5", 1.5)),
        "two_point_linear": lambda: figures.two_point(case("linear_5", 1.5)),
        "three_point_nonlinear": lambda: figures.three_point(case("nonlinear_5", 1.5)),
        "three_point_linear": lambda: figures.three_point(case("linear_5", 1.5)),
        "three_point_copula": lambda: figures.three_point(case("nonlinear_5", 1.5), copula=True),
        "resnet": lambda: figures.marginals(case("nonlinear_resnet", 1.5)),
    }
    texts: dict[str, Callable[[], str]] = {
        "training": lambda: tables.training_errors(key, count),
        "correlation": lambda: tables.correlations(
            [case(name, 1.5) for name in ("nonlinear_1", "nonlinear_20", "nonlinear")]
        ),
        "errors": lambda: tables.linearization_errors(key),
        "agreement_nonlinear": lambda: tables.agreement("nonlinear", key, count, progress=progress),
        "agreement_linear": lambda: tables.agreement("linear", key, count, progress=progress),
        "resnet": lambda: tables.moments(case("nonlinear_resnet", 1.5)),
        "bounds": lambda: error_tables.bounds(key),
        "flips": lambda: error_tables.flips(key),
    }
    unknown = sorted(set(arguments.only) - set(pictures) - set(texts))
    if unknown:
        known = ", ".join(sorted({*pictures, *texts}))
        raise SystemExit(f"--only must name figures or tables, got {', '.join(unknown)}: {known}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    for name, draw in pictures.items():
        if not arguments.only or name in arguments.only:
            file = arguments.out / f"{name}.png"
            draw().savefig(file, dpi=DOTS_PER_INCH)
            if file.stat().st_size > MOST_BYTES:  # heat maps need more colors
                Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)
            plt.close("all")
            print(f"{time.perf_counter() - start:6.1f} s  {file}", flush=True)
    for name, write in texts.items():
        if not arguments.only or name in arguments.only:
            file = arguments.out / f"{name}.md"
            file.write_text(write(), encoding="utf-8")
            print(f"{time.perf_counter() - start:6.1f} s  {file}", flush=True)


if __name__ == "__main__":
    main()
