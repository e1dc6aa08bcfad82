"""Write the pictures and tables of the gallery page, and the picture of the README.

`make gallery` runs it (about two minutes).
"""

import argparse
import contextlib
import io
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
from cases import Case, seasons, untrained
from figures import FIGURES
from PIL import Image
from tqdm import tqdm

import nn_uq_dist as nuq

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "_static" / "gallery"
DOTS_PER_INCH = 200
MOST_BYTES = 200_000


def words(case: Case) -> str:
    """Return the tables as they are printed."""
    joint = nuq.diagnostics.joint_summary(
        case.lin,
        case.draws,
        jax.random.key(5),
        joint=case.lin.gaussian_copula(),
        output_names=case.output_names,
        progress=False,
    )
    table = nuq.diagnostics.summary(
        case.lin, case.draws, output_names=case.output_names, joint=joint, progress=False
    )
    return "".join(f"{line.rstrip()}\n" for line in f"{table!r}\n\n{joint}".splitlines())


def example_of_readme(file: Path, num_draws: int) -> None:
    """Draw the tails of the README's example, linearized and corrected, over its draws."""
    example: Any = {}
    page = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(code, example)  # noqa: S102 (the repository's own page)
    network, keys = example["network"], jax.random.split(jax.random.key(6))
    tangent = nuq.linearize(network, example["f"])
    pairs = nuq.paired_draws(network, tangent, keys[0], 1000, progress=False)
    draws = nuq.monte_carlo(network, example["f"], keys[1], num_draws, progress=False)
    models = {"linearized": tangent, "corrected by 1,000 runs": tangent.corrected(pairs)}
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.4), sharex=True, layout="constrained")
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        nuq.plots.plot_tails(model, draws, output_names=["deflection (mm)"], limits=14.0, ax=axis)
        axis.set_title(name)
    figure.savefig(file, dpi=DOTS_PER_INCH)


def main(argv: Sequence[str] | None = None) -> None:
    """Draw every figure of both cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder; README's goes beside it")
    parser.add_argument("--num-draws", type=int, default=100_000, help="Monte Carlo draws")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    seconds = {}
    cases = [make(arguments.num_draws) for make in (seasons, untrained)]
    work = [(case, draw) for case in cases for draw in FIGURES]
    for case, draw in tqdm(work, "figures", disable=arguments.no_progress):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = draw(case)
            file = arguments.out / f"{case.name}_{draw.__name__}.png"
            figure.savefig(file, dpi=DOTS_PER_INCH)
            if file.stat().st_size > MOST_BYTES:  # heat maps need more colors
                Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)
        plt.close("all")
        seconds[file.stem] = time.perf_counter() - start
    example_of_readme(arguments.out.parent / "deflection.png", 3 * arguments.num_draws)
    for case in cases:
        (arguments.out / f"{case.name}.txt").write_text(words(case))
    print("\n".join(f"{name:28} {value:5.1f} s" for name, value in seconds.items()))


if __name__ == "__main__":
    main()
