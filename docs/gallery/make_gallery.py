"""Write the pictures and tables of the gallery page; `make gallery` runs it (about two minutes)."""

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax
import matplotlib.pyplot as plt
from cases import Case, seasons, untrained
from figures import FIGURES
from PIL import Image
from tqdm import tqdm

import nn_uq_dist as nuq

FOLDER = Path(__file__).parents[1] / "_static" / "gallery"
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


def main(argv: Sequence[str] | None = None) -> None:
    """Draw every figure of both cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of pictures and tables")
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
    for case in cases:
        (arguments.out / f"{case.name}.txt").write_text(words(case))
    print("\n".join(f"{name:28} {value:5.1f} s" for name, value in seconds.items()))


if __name__ == "__main__":
    main()
