"""Every figure of the gallery, as a function of a case."""

from collections.abc import Callable

from cases import Case
from matplotlib.figure import Figure

import nn_uq_dist as nuq


def marginals(case: Case) -> Figure:
    return nuq.plots.plot_marginals(
        case.lin, case.draws, limits=case.limits, units=case.unit, output_names=case.output_names
    )


def tails(case: Case) -> Figure:
    return nuq.plots.plot_tails(
        case.lin,
        case.draws,
        outputs=[0, 1, 2],
        limits=case.limits,
        units=case.unit,
        output_names=case.output_names,
    )


def calibration(case: Case) -> Figure:
    return nuq.plots.plot_calibration(
        case.lin, case.draws, outputs=[0, 1, 2], output_names=case.output_names
    )


def joint(case: Case) -> Figure:
    return nuq.plots.plot_joint(
        case.lin,
        case.draws,
        outputs=[0, 1, 2, 3],
        units=case.unit,
        output_names=case.output_names,
    )


def band(case: Case) -> Figure:
    return nuq.plots.plot_band(
        case.lin, case.draws, ylabel=case.ylabel, output_names=case.output_names
    )


def sensitivity(case: Case) -> Figure:
    return nuq.plots.plot_sensitivity(
        case.lin, output_names=case.output_names, input_names=case.input_names
    )


FIGURES: tuple[Callable[[Case], Figure], ...] = (
    marginals, tails, calibration, joint, band, sensitivity,
)  # fmt: skip
