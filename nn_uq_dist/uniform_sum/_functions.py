r"""The distribution of ``sum_k w_k U_k + s N`` as functions, with the names of ``scipy.stats``.

``U_k ~ Uniform(-1, 1)`` and ``N ~ Normal(0, 1)`` are independent. All functions take
``(x, weights, normal_scale=None)`` with ``weights`` of shape ``(..., n)`` whose leading axes
broadcast against ``x`` and ``normal_scale``.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics.checks import as_numeric, at_least_single
from nn_uq_dist.basics.concrete import as_results, nan_unless, runs_in_numpy, with_nan_gradients
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._choice_of_method import evaluate, magnitude
from nn_uq_dist.uniform_sum._each_point import BOTH, DENSITY, SURVIVAL, Orders
from nn_uq_dist.uniform_sum.quantiles import (
    at_most_half,
    resolved_scale,
    score_at,
    score_of_tail,
    value_at_score,
)


class Arguments(NamedTuple):
    """Checked arguments of one floating-point type: NumPy arrays if all are known, else JAX ones.

    Arithmetic with NumPy compiles nothing, whatever the shapes are.
    """

    x: Any
    weights: Any
    normal_scale: Any
    given: tuple[Any, ...]

    def evaluate(self, orders: Orders) -> Any:
        """Log density, log tail probability beyond ``|x|``, or both."""
        return evaluate(orders, self.x, self.weights, self.normal_scale)

    def log_survival(self) -> Any:
        """``log P(X > x)``."""
        return _from_upper_half(self.x, self.evaluate(SURVIVAL)[0])

    def results(self, values: Any) -> Any:
        """JAX arrays for users, whose gradients are NaN where the values are."""
        return as_results(with_nan_gradients(values), *self.given)


def prepare(
    name: str, x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None
) -> Arguments:
    """Common floating-point type and checked shapes."""
    given = {name: x, "weights": weights, "normal_scale": normal_scale}
    parts = [as_numeric(label, part) for label, part in given.items() if part is not None]
    dtype = at_least_single(*parts)
    xp: Any = np if runs_in_numpy(*parts) else jnp
    arrays = [xp.asarray(part, dtype) for part in parts]
    x_array, weights_array = arrays[:2]
    scale_array = arrays[2] if len(arrays) > 2 else None
    if weights_array.ndim == 0 or weights_array.shape[-1] == 0:
        raise ValueError(
            f"weights must have shape (..., n) with n >= 1, got {weights_array.shape}; "
            "pass an array whose last axis is summed over, for one component weights=[w]"
        )
    scale_shape = () if scale_array is None else scale_array.shape
    try:
        jnp.broadcast_shapes(x_array.shape, weights_array.shape[:-1], scale_shape)
    except ValueError as error:
        raise ValueError(
            f"{name}, weights without their last axis and normal_scale must broadcast, got shapes "
            f"{x_array.shape}, {weights_array.shape[:-1]} and {scale_shape}; to evaluate points of "
            "one distribution give weights shape (n,), for a grid per distribution weights (m, 1, "
            f"n) and {name} (p,)"
        ) from error
    if scale_array is not None:
        with np.errstate(invalid="ignore"):
            scale_array = nan_unless(scale_array >= 0, scale_array)
            scale_array = resolved_scale(scale_array, weights_array)
    return Arguments(x_array, weights_array, scale_array, (x, weights, normal_scale))


def _from_upper_half(x: Any, log_tail: Any) -> Any:
    log_tail = at_most_half(x, log_tail)
    xp = namespace(log_tail)
    # log(1 - exp(log_tail)) for log_tail <= log(1/2)
    return xp.where(x < 0, xp.log1p(-xp.exp(log_tail)), log_tail)


def logpdf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    r"""Log density of a linear combination of uniforms and a normal.

    Parameters
    ----------
    x : array_like, shape (...)
        Points.
    weights : array_like, shape (..., n)
        Weights of the uniforms on [-1, 1]; any sign, zeros allowed.
    normal_scale : array_like, shape (...), optional
        Standard deviation of the normal part, non-negative. Default: no normal part. One below the
        rounding of ``sum |w|`` counts as none.

    Returns
    -------
    Array, shape (...)
        ``-inf`` outside the support; NaN where a parameter is NaN or infinite, where
        ``normal_scale`` is negative, and for a point mass (all weights and the scale zero).

    Raises
    ------
    ValueError
        If the shapes do not broadcast or ``weights`` has no last axis.
    TypeError
        If an argument is complex.

    Notes
    -----
    .. math::
        p(x) = \frac{e^{K(t) - t x}}{\pi} \int_0^\infty
               \operatorname{Re}\left[e^{K(t + ia) - K(t) - iax}\right] da,
        \qquad K(z) = \sum_k \log\frac{\sinh w_k z}{w_k z} + \frac{s^2 z^2}{2}

    with ``t`` near the saddlepoint (Daniels 1954), so that the accuracy is relative up to the
    edge of the support. It is the density of the paper's ``eq:FINAL_PDF`` with the prefactor
    corrected. Distributions with few or dominating weights are conditioned on those exactly.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> float(uniform_sum.pdf(0.0, [1.0, 1.0]))
    0.5
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(a.evaluate(DENSITY)[0])


def pdf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    """Density: the exponential of `logpdf`, where arguments and errors are described.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> float(uniform_sum.pdf(0.25, [0.5]))
    1.0
    """
    a = prepare("x", x, weights, normal_scale)
    with np.errstate(over="ignore"):  # infinite where the type has no such number
        return a.results(namespace(a.x).exp(a.evaluate(DENSITY)[0]))


def logsf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    r"""Log survival function, ``log P(X > x)``; arguments and errors as in `logpdf`.

    The upper tail has relative accuracy up to the edge of the support. Below the center the value
    is ``log1p(-exp(.))`` of the mirrored tail.

    Notes
    -----
    The contour integral of `logpdf` with ``1/z`` in the integrand, at a real part of at least
    about one over the standard deviation (Lugannani and Rice 1980).

    Examples
    --------
    >>> import math
    >>> from nn_uq_dist import uniform_sum
    >>> value = uniform_sum.logsf(1.0, [1.0, 1.0])  # P = 1/8
    >>> round(math.exp(float(value)), 6)
    0.125
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(a.log_survival())


def logpdf_and_logsf(
    x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None
) -> tuple[Array, Array]:
    """`logpdf` and `logsf` at once, for little more than the cost of one.

    Parameters and errors as in `logpdf`. The integrands differ by the factor ``1/z`` only.

    Returns
    -------
    tuple of Array, shape (...)
        Log density and log survival.

    Examples
    --------
    >>> import math
    >>> from nn_uq_dist import uniform_sum
    >>> values = uniform_sum.logpdf_and_logsf(1.0, [1.0, 1.0])  # 1/4 and 1/8
    >>> print([round(math.exp(float(value)), 6) for value in values])
    [0.25, 0.125]
    """
    a = prepare("x", x, weights, normal_scale)
    logs, tail = a.evaluate(BOTH)
    return a.results((logs, _from_upper_half(a.x, tail)))


def logcdf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    """Log distribution function, `logsf` at ``-x``; arguments and errors as in `logpdf`.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> round(float(uniform_sum.logcdf(0.0, [1.0, 1.0])), 6)
    -0.693147
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(a._replace(x=-a.x).log_survival())


def sf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    """Survival function, the exponential of `logsf`; arguments and errors as in `logpdf`.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> float(uniform_sum.sf(0.0, [3.0, 0.2, 1.0], 0.5))
    0.5
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(namespace(a.x).exp(a.log_survival()))


def cdf(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    """Distribution function, exponential of `logcdf`; arguments and errors as in `logpdf`.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> float(uniform_sum.cdf(-0.5, [1.0]))
    0.25
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(namespace(a.x).exp(a._replace(x=-a.x).log_survival()))


def ppf(q: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    """Quantile function, the inverse of `cdf`.

    Parameters
    ----------
    q : array_like, shape (...)
        Probabilities in [0, 1]. Lower tail probabilities down to the smallest number of the type
        are resolved; for the upper tail use the symmetry ``ppf(1 - q) = -ppf(q)``.
    weights, normal_scale
        As in `logpdf`.

    Returns
    -------
    Array, shape (...)
        NaN where ``q`` is outside [0, 1] or the distribution is not valid; the ends of the support
        at 0 and 1.

    Raises
    ------
    ValueError, TypeError
        As in `logpdf`.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> round(float(uniform_sum.ppf(0.125, [1.0, 1.0])), 6)
    -1.0
    """
    a = prepare("q", q, weights, normal_scale)
    xp = namespace(a.x)
    valid = (a.x >= 0) & (a.x <= 1)
    q_array = nan_unless(valid, a.x)
    lower = q_array < 0.5
    inside = (q_array > 0) & (q_array < 1)
    safe = xp.where(inside, q_array, 0.25)
    log_tail = xp.where(lower, xp.log(xp.where(lower, safe, 0.25)), xp.log1p(-safe))
    log_tail = xp.where(inside, log_tail, xp.where(valid, -xp.inf, xp.nan)).astype(q_array.dtype)
    x = value_at_score(score_of_tail(log_tail), a.weights, a.normal_scale)
    return a.results(xp.where(lower, -x, x))


def normal_score(x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    r"""Normal score ``Phi^{-1}(F(x))``, accurate in both tails.

    Parameters and errors as in `logpdf`. Infinite at and beyond the edge of the support.

    Notes
    -----
    Solved from the log tail probability of the side on which ``x`` lies; a score of 30 in
    float32 is as accurate as one of 1, where ``Phi^{-1}`` of a probability is infinite from 5.4 on.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> float(uniform_sum.normal_score(0.0, [1.0, 0.3]))
    0.0
    """
    a = prepare("x", x, weights, normal_scale)
    return a.results(score_at(a.x, a.evaluate(SURVIVAL)[0]))


def normal_score_and_logpdf(
    x: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None
) -> tuple[Array, Array]:
    """`normal_score` and `logpdf` at once, for little more than the cost of one.

    Parameters and errors as in `logpdf`. The density of a copula needs both.

    Returns
    -------
    tuple of Array, shape (...)
        Normal score and log density.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> score, log_density = uniform_sum.normal_score_and_logpdf(0.0, [1.0, 1.0])
    >>> float(score), round(float(log_density), 4)
    (0.0, -0.6931)
    """
    a = prepare("x", x, weights, normal_scale)
    logs, tail = a.evaluate(BOTH)
    return a.results((score_at(a.x, tail), logs))


def from_normal_score(
    z: ArrayLike, weights: ArrayLike, normal_scale: ArrayLike | None = None
) -> Array:
    """Inverse of `normal_score`: ``F^{-1}(Phi(z))``, accurate in both tails.

    ``z`` has the shape of ``x`` in `logpdf`, where other arguments and errors are described.

    Examples
    --------
    >>> from nn_uq_dist import uniform_sum
    >>> score = uniform_sum.normal_score(0.9, [0.5, 0.3, 0.2])
    >>> round(float(uniform_sum.from_normal_score(score, [0.5, 0.3, 0.2])), 5)
    0.9
    """
    a = prepare("z", z, weights, normal_scale)
    x = value_at_score(magnitude(a.x), a.weights, a.normal_scale)
    return a.results(namespace(a.x).where(a.x < 0, -x, x))
