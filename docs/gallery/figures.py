"""Every figure of the gallery, as a function of a case; the page shows their code."""

from collections.abc import Callable
from typing import Any

import jax
from cases import Case

import nn_uq_dist as nuq


def input_samples(case: Case) -> Any:
    return nuq.plots.plot_input_samples(
        case.f, jax.random.key(2), input_names=case.input_names, ylabel=case.unit or "value"
    )


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


def errors(case: Case) -> Any:
    return nuq.plots.plot_errors(
        case.net, case.lin, jax.random.key(3), output_names=case.output_names, outputs=[0, 1, 2]
    )


def joint(case: Case) -> Any:
    return nuq.plots.plot_joint(
        case.lin,
        case.draws,
        outputs=[0, 1, 2, 3],
        output_names=case.output_names,
        unit=case.unit,
    )


def correlation(case: Case) -> Any:
    return nuq.plots.plot_correlation(case.lin, case.draws, output_names=case.output_names)


def three_point(case: Case) -> Any:
    return nuq.plots.plot_three_point(
        case.lin,
        case.draws,
        outputs=[0, 1, 2],
        output_names=case.output_names,
        unit=case.unit,
    )


def sensitivity(case: Case) -> Any:
    return nuq.plots.plot_sensitivity(
        case.lin, output_names=case.output_names, input_names=case.input_names
    )


FIGURES: tuple[Callable[[Case], Any], ...] = (
    input_samples, output_band, marginals, tails, pit, errors, joint, correlation, three_point,
    sensitivity,
)  # fmt: skip
