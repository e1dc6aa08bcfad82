"""Errors for derivatives that would be wrong or are not available."""

from typing import Any

import jax

from nn_uq_dist.box_gaussian._gaussian_part import Problem


@jax.custom_jvp
def undifferentiated(problem: Problem) -> Problem:
    """The same, with derivatives refused: the passes are a loop of unknown length."""
    return problem


@undifferentiated.defjvp
def _refuse(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    msg = (
        "derivatives of moments, scores and draws given outputs are not implemented: expected "
        "values and parameters that are not differentiated; use finite differences, or log_prob, "
        "which has gradients"
    )
    raise NotImplementedError(msg)
