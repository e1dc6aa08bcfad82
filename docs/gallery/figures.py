"""Every figure of the gallery, as a function of a case; the page shows their code."""

from collections.abc import Callable
from typing import Any

from cases import Case

import nn_uq_dist as nuq


def output_band(case: Case) -> Any:
    unit = "" if case.unit is None else f" ({case.unit})"
    return nuq.plots.plot_output_band(
        case.lin,
        case.draws,
        output_names=case.output_names,
        ylabel=f"deviation from the mean{unit}",
        deviation=True,
    )


def marginals(case: Case) -> Any:
    return nuq.plots.plot_marginals(
        case.lin, case.draws, output_names=case.output_names, xlabel=case.unit
    )


def tails(case: Case) -> Any:
    return nuq.plots.plot_tails(
        case.lin, case.draws, output_names=case.output_names, outputs=[0, 1, 2]
    )


def pit(case: Case) -> Any:
    return nuq.plots.plot_pit(
        case.lin, case.draws, output_names=case.output_names, outputs=[0, 1, 2]
    )


def joint(case: Case) -> Any:
    return nuq.plots.plot_joint(
        case.lin,
        case.draws,
        outputs=[0, 1, 2, 3],
        output_names=case.output_names,
        unit=case.unit,
    )


def sensitivity(case: Case) -> Any:
    return nuq.plots.plot_sensitivity(
        case.lin, output_names=case.output_names, input_names=case.input_names
    )


FIGURES: tuple[Callable[[Case], Any], ...] = (
    output_band, marginals, tails, pit, joint, sensitivity,
)  # fmt: skip
