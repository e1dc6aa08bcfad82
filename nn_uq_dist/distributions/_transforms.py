"""Increasing maps: of the line onto itself in closed form, of normal scores to outputs."""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform
from numpyro.distributions.util import array_equiv

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.normal_scores import from_normal_score, normal_score
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.pytree import in_order
from nn_uq_dist.basics.row_algebra import binary_unit, namespace
from nn_uq_dist.basics.summary_line import summary_line


class _OfParameters(Transform):
    """A transform with array parameters, whose two directions broadcast to one shape."""

    _names: tuple[str, ...]

    def __repr__(self) -> str:
        return summary_line(self, *self._names)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the arguments for values of this shape."""
        return self.forward_shape(shape)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return tuple(in_order(getattr(self, name)) for name in self._names), (self._names, {})

    def eq(self, other: object, static: bool = False) -> Array | bool:
        """Whether both have the same type, and parameters of the same structure and values."""
        if len({jax.tree.structure(tree) for tree in (self, other)}) > 1:
            return False
        leaves, others = jax.tree.leaves(self), jax.tree.leaves(other)
        same = [array_equiv(*pair, static=static) for pair in zip(leaves, others, strict=True)]
        return functools.reduce(operator.and_, same, True)


class MonotoneSpline(_OfParameters):
    r"""Increasing rational quadratic spline through knots, linear beyond them.

    Parameters
    ----------
    knots, images : array_like, shape (..., k)
        Arguments and values of the map, both strictly ascending along the last axis, at least two.
    slopes : array_like, shape (..., k)
        Derivatives at the knots, positive. Default: weighted harmonic means of the slopes of the
        chords, as in F. N. Fritsch and J. Butland (SIAM J. Sci. Stat. Comput. 5 (1984)).

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, there are fewer than two knots, known values are NaN or infinite,
        known knots do not ascend or known slopes are not positive. Traced values that violate this
        give NaN or a map that does not increase.

    Notes
    -----
    Between two knots, with :math:`t = (x - x_k)/(x_{k+1} - x_k)` and the chord's slope `s`,

    .. math::
        y = y_k + (y_{k+1} - y_k)
            \frac{s t^2 + d_k t (1 - t)}{s + (d_k + d_{k+1} - 2 s)\, t (1 - t)},

    increasing for any positive slopes (J. A. Gregory and R. Delbourgo, IMA J. Numer. Anal. 2
    (1982)); the inverse solves a quadratic equation. Value and slope are continuous.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> spline = nuq.distributions.MonotoneSpline(
    ...     jnp.array([-1.0, 0.0, 2.0]), jnp.array([-2.0, 0.0, 1.0])
    ... )
    >>> print(f"{spline(1.0):.3f} {spline(5.0):.3f} {spline.inv(spline(7.0)):.3f}")
    0.576 2.500 7.000
    """

    _names = "knots", "images", "slopes"

    def __init__(
        self, knots: ArrayLike, images: ArrayLike, slopes: ArrayLike | None = None
    ) -> None:
        knots, images = checks.as_finite("knots", knots), checks.as_finite("images", images)
        arrays = {"knots": knots, "images": images}
        if slopes is not None:
            slopes = arrays["slopes"] = checks.as_finite("slopes", slopes)
        shapes = {name: np.shape(values) for name, values in arrays.items()}
        for name, shape in shapes.items():
            if len(shape) == 0 or shape[-1] < 2 or shape[-1] != shapes["knots"][-1]:
                raise ValueError(
                    f"{name} must have shape (..., k) with k >= 2 knots, got {shape}; pass one "
                    f"value per knot"
                )
            values = arrays[name]
            is_known = name != "slopes" and checks.is_concrete(values)
            if is_known and not np.all(np.diff(np.asarray(values)) > 0):
                raise ValueError(f"{name} must ascend strictly, got {values}; sort the knots")
        checks.broadcast_shapes("knots, images and slopes must broadcast", **shapes)
        if slopes is None:
            slopes = _harmonic_slopes(knots, images)
        else:
            checks.refuse("slopes", slopes, lambda s: s > 0, "be positive", "leave them out")
        self.knots, self.images, self.slopes = knots, images, slopes

    @property
    def parameters(self) -> tuple[Any, Any, Any]:
        """The knots, their images and the slopes."""
        return self.knots, self.images, self.slopes

    def __call__(self, x: ArrayLike) -> Array:
        """Values of the map; shape of ``x`` broadcast against the leading axes of the knots."""
        return _value(_array(x), *self.parameters)

    def _inverse(self, y: ArrayLike) -> Array:
        return _inverse(_array(y), *self.parameters)

    def log_abs_det_jacobian(self, x: ArrayLike, y: ArrayLike, intermediates: Any = None) -> Array:
        """Log of the derivative at ``x``."""
        del y, intermediates
        return _log_slope(_array(x), *self.parameters)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the values for arguments of this shape."""
        knots = jnp.broadcast_shapes(
            *(jnp.shape(values) for values in (self.knots, self.images, self.slopes))
        )
        return jnp.broadcast_shapes(shape, knots[:-1])


def _array(value: ArrayLike) -> Any:
    """NumPy's arrays as they are: then NumPy computes, in their type."""
    return value if isinstance(value, np.ndarray) else jnp.asarray(value)


class _Piece(NamedTuple):
    """Start, width, rise and slopes of the piece of a spline in which a value lies."""

    x: Array
    y: Array
    width: Array
    rise: Array
    left: Array
    right: Array

    @property
    def chord(self) -> Array:
        """Slope of the chord."""
        return self.rise / self.width

    @property
    def bend(self) -> Array:
        """Sum of the differences between the slopes at the ends and the chord's."""
        return self.left + self.right - 2 * self.chord


def _piece(held: Array, along: Array, x: Array, y: Array, slopes: Array) -> _Piece:
    """The piece in which a value lies, located among the knots `along`."""
    xp: Any = namespace(held)
    index = xp.sum(held[..., None] >= along[..., 1:-1], axis=-1)
    # Rounding in other units may have made images equal: a chord without a slope divides by zero.
    rise = xp.maximum(xp.diff(y), xp.finfo(y.dtype).eps ** 2)
    parts = (x[..., :-1], y[..., :-1], xp.diff(x), rise, slopes[..., :-1], slopes[..., 1:])
    # A row for each piece, all in one table: a single gather, where each part would need its own.
    table = xp.stack(xp.broadcast_arrays(*parts), axis=-1)
    first = np.arange(0, table.size // 6, table.shape[-2]).reshape(table.shape[:-2])
    index = first + index
    rows = xp.take(table.reshape(-1, 6), index, axis=0, mode="clip")
    # JAX returns an empty table as it is, whatever the index.
    return _Piece(*xp.moveaxis(rows.reshape(*index.shape, 6), -1, 0))


def _in_units(x: Array, y: Array, slopes: Array) -> tuple[Array, Array, Array, Array, Array]:
    """A spline with knots and images in powers of two near their ranges, and these units.

    Squares of small or large values, in quadratic equations and in derivatives, stay finite.
    """
    x_unit, y_unit = (binary_unit(ends[..., -1] - ends[..., 0]) for ends in (x, y))
    slopes = slopes * x_unit[..., None] / y_unit[..., None]
    return x / x_unit[..., None], y / y_unit[..., None], slopes, x_unit, y_unit


@one_program
def _value(value: Array, x: Array, y: Array, slopes: Array) -> Array:
    xp: Any = namespace(value)
    x, y, slopes, x_unit, y_unit = _in_units(x, y, slopes)
    value = value / x_unit
    held = xp.clip(value, x[..., 0], x[..., -1])
    piece = _piece(held, x, x, y, slopes)
    t = (held - piece.x) / piece.width
    inside = piece.y + piece.rise * (piece.chord * t**2 + piece.left * t * (1 - t)) / (
        piece.chord + piece.bend * t * (1 - t)
    )
    return y_unit * _with_ends(value, inside, x, y, slopes)


@one_program
def _inverse(value: Array, x: Array, y: Array, slopes: Array) -> Array:
    xp: Any = namespace(value)
    x, y, slopes, x_unit, y_unit = _in_units(x, y, slopes)
    value = value / y_unit
    held = xp.clip(value, y[..., 0], y[..., -1])
    piece = _piece(held, y, x, y, slopes)
    rest = held - piece.y
    a = piece.rise * (piece.chord - piece.left) + rest * piece.bend
    b = piece.rise * piece.left - rest * piece.bend
    c = -piece.chord * rest
    # The root that does not cancel; `b` is positive where `rest` is zero.
    t = 2 * c / (-b - xp.sqrt(xp.maximum(b**2 - 4 * a * c, 0)))
    return x_unit * _with_ends(value, piece.x + piece.width * t, y, x, 1 / slopes)


@one_program
def _log_slope(value: Array, x: Array, y: Array, slopes: Array) -> Array:
    xp: Any = namespace(value)
    x, y, slopes, x_unit, y_unit = _in_units(x, y, slopes)
    # Beyond the knots the slope is that at the ends.
    held = xp.clip(value / x_unit, x[..., 0], x[..., -1])
    piece = _piece(held, x, x, y, slopes)
    t = (held - piece.x) / piece.width
    above = piece.right * t**2 + 2 * piece.chord * t * (1 - t) + piece.left * (1 - t) ** 2
    below = piece.chord + piece.bend * t * (1 - t)
    logs = 2 * xp.log(piece.chord) + xp.log(above) - 2 * xp.log(below)
    return logs + xp.log(y_unit) - xp.log(x_unit)


def _with_ends(value: Array, inside: Array, knots: Array, images: Array, slopes: Array) -> Any:
    """Values inside the knots, and straight lines beyond them."""
    xp: Any = namespace(value)
    first, last = (images[..., k] + slopes[..., k] * (value - knots[..., k]) for k in (0, -1))
    low, high = knots[..., 0], knots[..., -1]
    return xp.where(value < low, first, xp.where(value > high, last, inside))


def _harmonic_slopes(x: ArrayLike, y: ArrayLike) -> Any:
    """Slopes at the knots from the chords on both sides; at the ends that of the end chord."""
    # NumPy slopes for NumPy knots, so that NumPyro can compare them with those of another map.
    xp = namespace(x, y)
    width = xp.diff(x)
    chord = xp.diff(y) / width
    share = (width[..., :-1] + 2 * width[..., 1:]) / (3 * (width[..., :-1] + width[..., 1:]))
    inner = 1 / (share / chord[..., :-1] + (1 - share) / chord[..., 1:])
    return xp.concatenate([chord[..., :1], inner, chord[..., -1:]], axis=-1)


class NormalScoreTransform(_OfParameters):
    r"""Map normal scores to outputs, ``y_j = F_j^{-1}(Phi(z_j))`` (the Nataf transformation).

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., N_y)``: a `LinearizedMarginal` or any
        distribution with ``cdf``.

    Notes
    -----
    The inverse is the normal score ``z_j = Phi^{-1}(F_j(y_j))``, and

    .. math:: \log |\det \partial y / \partial z| = \sum_j \log \phi(z_j) - \log p_j(y_j),

    a difference of logarithms, so that nothing under- or overflows in the tails. Scores of
    the distributions of this package and of NumPyro's common families are accurate in both tails;
    those of the others that `nn_uq_dist.distributions.AdaptedDistribution` lists are capped at
    about 8 (float64) or 5 (float32) in the upper tail, where their ``cdf`` rounds to one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> transform = nuq.distributions.NormalScoreTransform(
    ...     nuq.LinearizedMarginal(jnp.zeros(2), [1.0, 0.5])
    ... )
    >>> y = transform(jnp.array([0.0, 6.0]))
    >>> print(transform.inv(y).round(4))
    [0. 6.]
    """

    domain = constraints.real_vector
    _names = ("marginals",)

    def __init__(self, marginals: dist.Distribution) -> None:
        self.marginals = marginals

    @property
    def codomain(self) -> constraints.Constraint:
        """The support of the outputs, a box for bounded marginals."""
        return constraints.independent(self.marginals.support, 1)

    def __call__(self, x: Array) -> Array:
        """Outputs with normal scores ``x``, shape ``(..., N_y)``."""
        return from_normal_score(self.marginals, x)

    def _inverse(self, y: Array) -> Array:
        return normal_score(self.marginals, y)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """``sum_j log phi(x_j) - log p_j(y_j)``."""
        del intermediates
        return jnp.sum(log_normal_density(x) - self.marginals.log_prob(y), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the outputs for scores of this shape."""
        return jnp.broadcast_shapes(shape, self.marginals.batch_shape)


@jax.jit
def log_density_of_outputs(
    values: Array,
    inside: Array,
    scores: Array,
    log_densities: Array,
    score_loc: Array,
    score_tril: Array,
) -> Array:
    """``log N(z; loc, L L^T) + sum_j [log p_j(y_j) - log phi(z_j)]``: ``eq:Gauss_copula``.

    NaN for values that are NaN. It is zero where not all outputs are ``inside`` of their supports.
    """
    if not values.size:  # by which number NumPyro's normal distribution divides
        return jnp.zeros(values.shape[:-1], log_densities.dtype)
    # At the very edge of the support the score is infinite.
    inside = inside & (jnp.isfinite(scores) | jnp.isnan(scores))
    scores = jnp.where(inside, scores, 0)
    terms = log_densities - log_normal_density(scores)
    base = dist.MultivariateNormal(score_loc, scale_tril=score_tril, validate_args=False)
    joint = base.log_prob(scores) + jnp.sum(jnp.where(inside, terms, 0), axis=-1)
    joint = jnp.where(jnp.all(inside, axis=-1), joint, -jnp.inf)
    # A sum with NaN is NaN and, unlike a constant, has the derivative NaN.
    return jnp.where(jnp.any(jnp.isnan(values), axis=-1), jnp.sum(values, axis=-1), joint)
