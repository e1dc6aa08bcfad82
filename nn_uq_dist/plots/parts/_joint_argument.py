"""Which joint law a figure draws: the argument ``law`` of the figures of several outputs."""

from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.distributions import GaussianCopulaJoint
from nn_uq_dist.laws import JointLaw
from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._drawn_copula import DrawnCopula
from nn_uq_dist.plots.parts._drawn_joint import DrawnJoint
from nn_uq_dist.plots.parts._drawn_law import DrawnLaw
from nn_uq_dist.plots.parts._drawn_linear import DrawnLinear
from nn_uq_dist.plots.parts._from_diagnostics import as_joint_law

Law = Literal["copula", "linear"] | JointLaw


def check_law(law: Law, num_outputs: int) -> None:
    """Raise unless the argument names a law or is a joint law of all outputs."""
    if isinstance(law, JointLaw):
        as_joint_law("law", law, num_outputs)
    elif not isinstance(law, str):
        raise TypeError(
            f"law must be 'copula', 'linear' or a JointLaw, got {type(law).__name__}; pass "
            "linearization.joint()"
        )
    elif law not in {"copula", "linear"}:
        raise ValueError(f"law must be 'copula' or 'linear', got {law!r}")


def drawn_law(
    law: Law,
    linearization: Linearization,
    shown: Sequence[int],
    names: Sequence[str],
    correlation: Literal["nataf", "linear"],
    min_eigenvalue: ArrayLike | None,
) -> DrawnLaw:
    """Return the law of the shown outputs that the argument names or contains.

    Parameters
    ----------
    law
        ``"copula"`` for `Linearization.joint`, ``"linear"`` for the exact law of the linear model,
        or any `JointLaw` of all outputs.
    linearization
        Linearization of all outputs.
    shown, names
        Positions and names of the shown outputs.
    correlation, min_eigenvalue
        For the copula, as in `Linearization.joint`.
    """
    origin = np.zeros(len(shown))
    if isinstance(law, str):
        if law == "linear":
            return DrawnLinear(linearization, shown, names)
        # Centered at zero, so that float32 resolves the deviations instead of the values.
        zeros = jnp.zeros_like(linearization.loc)
        about_zero = Linearization(zeros, linearization.jacobian, linearization.input)
        origin = np.asarray(linearization.loc, np.float64)[list(shown)]
        law = about_zero.joint(None, correlation, min_eigenvalue)
    part = law.marginalize(tuple(shown))
    return DrawnCopula(part, origin) if isinstance(part, GaussianCopulaJoint) else DrawnJoint(part)
