r"""Expectation propagation: sites that give each uniform the moments that the box would give.

Without its own site the distribution of ``u_k`` is normal, the *cavity*; restricted to (-1, 1) it
has a mean and a variance (`tilted_moments`), and the site is changed so that the normal
distribution matches them. All sites are changed at once, pass after pass (T. Minka, Expectation
propagation for approximate Bayesian inference, 2001; for boxes J. Cunningham, P. Hennig and S.
Lacoste-Julien, arXiv:1111.6832).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.quadrature_nodes import legendre
from nn_uq_dist.basics.row_algebra import matmul, matvec
from nn_uq_dist.box_gaussian._gaussian_part import Gaussian, Problem, Sites, gaussian

_MOST_PASSES = 60
_FREE_PASSES = 3  # that are not damped
_LEAST_DAMPING = 0.05
_RECOVERY = 1.1  # of the damping, after a pass that does not reverse the last one
# Largest remaining change of a site, relative to its marginal, before the last pass. A log density
# is off by its square, below rounding, and a gradient by 2e-4 of its size (1e-3 at worst, of eight
# shapes of 1 to 12 outputs); moments need more, and 10 passes for 7.
_TOLERANCE = {"float32": 1e-4, "float64": 1e-7}
_TOLERANCE_OF_DENSITY = {"float32": 1e-3, "float64": 1e-7}
# Changes above this count as not converged, unless the log density is so large that their effect,
# which is of second order, is below its rounding. Eight deviations out, with noise of 1e-4 standard
# deviations, rounding in single precision leaves changes of .02 to 1.
_ACCEPTABLE = {"float32": 5e-2, "float64": 1e-3}


class TiltedMoments(NamedTuple):
    """Logarithm of the mass, mean and variance, all of the same shape."""

    log_mass: Array
    mean: Array
    variance: Array


def tilted_moments(precision: Array, slope: Array, low: Array, high: Array) -> TiltedMoments:
    r"""Mass, mean and variance of ``exp(slope v - precision v^2/2)`` on ``(low, high)``.

    Parameters
    ----------
    precision : Array, shape (...)
        Non-negative; zero gives an exponential distribution, or a uniform one if the slope is zero.
    slope : Array, shape (...)
    low, high : Array, shape (...)
        Ends of the interval, ``low <= 0 <= high``.

    Notes
    -----
    Gauss-Legendre quadrature on the part of the interval where the integrand matters: around its
    largest value, at the peak of the parabola or at an end, until it has fallen to the accuracy of
    the type. Closed forms, which are differences of error functions, cancel if the parabola is
    wide, and need series there; the quadrature is accurate for all arguments.
    """
    nodes, values = _at_nodes(precision, slope, low, high)
    # All sums are one product with a matrix of numbers. Relative to the middle, second moments have
    # at most 40 times the variance (an exponential distribution; 200 times in double precision).
    places, weights = np.polynomial.legendre.leggauss(len(values))
    powers = weights * places ** np.arange(3)[:, None]
    sums = matmul(jnp.asarray(powers, values.dtype), values.reshape(len(values), -1))
    total, mean, square = sums.reshape(3, *values.shape[1:])
    mean, square = mean / total, square / total
    return TiltedMoments(
        jnp.log(total * nodes.half) + nodes.log_peak,
        nodes.peak + (nodes.middle + nodes.half * mean),
        nodes.half**2 * (square - mean**2),
    )


class _Nodes(NamedTuple):
    """Gauss-Legendre quadrature on a part of an interval.

    Attributes
    ----------
    middle, half : Array, shape (...)
        Of the part, relative to the peak, and half its length.
    peak, log_peak : Array, shape (...)
        Where the integrand is largest, and its logarithm there.
    """

    middle: Array
    half: Array
    peak: Array
    log_peak: Array


def _at_nodes(precision: Array, slope: Array, low: Array, high: Array) -> tuple[_Nodes, Array]:
    """Nodes, and the integrand there over its largest value, shape ``(k, ...)``."""
    # If the integrand falls by exp(-fall) on either side, this many nodes are exact to that level.
    count, fall = (16, 15.0) if slope.dtype == jnp.float32 else (28, 30.0)
    curved = precision > 0
    peak = jnp.where(curved, slope / jnp.where(curved, precision, 1.0), slope * jnp.inf)
    peak = jnp.clip(jnp.where(slope == 0, 0.0, peak), low, high)
    slope_there = slope - precision * peak
    # Solves slope t + precision t^2/2 = fall; practically infinite if slope and precision are zero.
    steep = jnp.abs(slope_there)
    reach = 2.0 * fall / (steep + jnp.sqrt(steep * steep + 2.0 * fall * precision) + 1e-30)
    start = jnp.maximum(low - peak, -reach)
    half = 0.5 * (jnp.minimum(high - peak, reach) - start)
    nodes = _Nodes(start + half, half, peak, peak * (slope - 0.5 * precision * peak))
    points = nodes.middle + half * legendre(count, slope)[0]
    return nodes, jnp.exp(points * (slope_there - 0.5 * precision * points))


class Cavity(NamedTuple):
    """Each uniform without its site, relative to a point of the interval near its mean.

    Near the mean no large numbers cancel: if the outputs determine an input, precisions and slopes
    relative to zero are as large as one over the variance of the noise.

    Attributes
    ----------
    point : Array, shape (..., n)
        Point in [-1, 1].
    precision, slope : Array, shape (..., n)
        Precision and slope of the cavity at the point.
    marginal_precision, marginal_slope : Array, shape (..., n)
        The same with the site; the slope is zero unless the mean lies outside.
    """

    point: Array
    precision: Array
    slope: Array
    marginal_precision: Array
    marginal_slope: Array

    @property
    def _parabola(self) -> tuple[Array, ...]:
        return self.precision, self.slope, -1.0 - self.point, 1.0 - self.point

    def moments(self) -> TiltedMoments:
        """Moments of the cavity in the box; the mean is relative to the point."""
        return tilted_moments(*self._parabola)

    def skewness_and_kurtosis(self) -> tuple[Array, Array]:
        """Standardized third and fourth cumulants of the cavity in the box."""
        _, mass = _at_nodes(*self._parabola)
        places, weights = legendre(len(mass), self.slope)
        mass = mass * weights
        mass = mass / jnp.sum(mass, axis=0)
        gap = places - jnp.sum(mass * places, axis=0)
        gap = gap / jnp.sqrt(jnp.sum(mass * gap**2, axis=0))
        return jnp.sum(mass * gap**3, axis=0), jnp.sum(mass * gap**4, axis=0) - 3.0


class FixedPoint(NamedTuple):
    """Sites after the last pass, and the normal distribution under them.

    Attributes
    ----------
    sites : Sites
    gaussian : Gaussian
    cavity : Cavity
    converged : Array of bool, shape (...)
    outside : Array of bool, shape (...)
        True where a direction was found in which the support ends before the point.
    """

    sites: Sites
    gaussian: Gaussian
    cavity: Cavity
    converged: Array
    outside: Array


class _State(NamedTuple):
    """After some passes; `offset` and `change` are those of the last one.

    A pass would change the sites by `change`, in units of the marginals, and by `error` at most.
    """

    number: Array
    sites: Sites
    offset: Array
    change: Array
    error: Array
    damping: Array
    outside: Array


def fixed_point(problem: Problem, *, for_density: bool = False) -> FixedPoint:
    """Iterate from sites with the variance of the uniforms, as far as is needed."""
    covariance = problem.covariance
    shape, dtype = problem.start.shape, problem.target.dtype
    zeros = jnp.zeros(shape, dtype)
    tolerance = (_TOLERANCE_OF_DENSITY if for_density else _TOLERANCE)[dtype.name]

    def waiting(state: _State) -> Array:
        # Do not wait for NaN.
        return (state.error > tolerance) & ~state.outside

    def unfinished(state: _State) -> Array:
        return (state.number < _MOST_PASSES) & jnp.any(waiting(state))

    def one_pass(state: _State) -> _State:
        distribution = gaussian(problem, state.sites, state.offset)
        step, change = _step(problem, state.sites, _cavity(distribution, state.sites))
        error = jnp.max(jnp.abs(change), axis=(0, -1))
        damping = _damped(state, change, error)
        moves = waiting(state)
        length = jnp.where(moves, damping, 0.0)[..., None]
        sites = Sites(*[old + length * move for old, move in zip(state.sites, step, strict=True)])
        error = jnp.where(moves, error, state.error)
        outside = state.outside
        if covariance is None:
            outside = outside | (moves & _is_outside(problem, distribution))
        return _State(state.number + 1, sites, distribution.offset, change, error, damping, outside)

    final = lax.while_loop(
        unfinished,
        one_pass,
        _State(
            number=jnp.asarray(0),
            sites=Sites(jnp.full(shape, 3.0, dtype), zeros),
            offset=zeros,
            change=jnp.zeros((2, *shape), dtype),
            error=jnp.full(shape[:-1], jnp.inf, dtype),
            damping=jnp.ones(shape[:-1], dtype),
            outside=jnp.zeros(shape[:-1], bool),
        ),
    )
    distribution = gaussian(problem, final.sites, final.offset)
    rounding = float(jnp.finfo(dtype).eps) * jnp.abs(
        distribution.log_determinant + distribution.quadratic
    )
    converged = final.error < jnp.maximum(_ACCEPTABLE[dtype.name], jnp.sqrt(rounding))
    if covariance is None:
        # Next to the edge of the support, where means next to 1 have no digits, passes may settle
        # on a density that is off by orders of magnitude.
        converged &= jnp.max(final.sites.precision, axis=-1) < _finest(dtype)
    outside = final.outside
    if covariance is not None and not problem.by_inputs:
        # Not in the passes, which need no residual: there it takes .07 s more to compile.
        outside = _is_outside(problem, distribution)
    cavity = _cavity(distribution, final.sites)
    return FixedPoint(final.sites, distribution, cavity, converged, outside)


def _damped(state: _State, change: Array, error: Array) -> Array:
    """Share of its change by which a pass moves the sites, less where passes oscillate.

    A site that an early pass made far too narrow widens steadily, although its error, in units of
    its marginal, does not decrease. A change that reverses the last one tells with which damping it
    would have been zero (J. Barzilai and J. Borwein, IMA J. Numer. Anal. 8 (1988)), a quarter fewer
    passes than by halves. Far out passes also run in circles of three, in which no change reverses
    the last one, but the error grows from 2e3 to 5e4 marginal deviations.
    """
    turn = jnp.sum(change * state.change, axis=(0, -1))
    past = jnp.sum(state.change**2, axis=(0, -1))
    divisor = jnp.where(turn < 0, 1.0 - turn / past, 1.0 / _RECOVERY)
    grows = error > jnp.maximum(2.0 * state.error, 1.0)
    damping = state.damping / jnp.where(grows, 2.0, divisor)
    return jnp.clip(jnp.where(state.number < _FREE_PASSES, 1.0, damping), _LEAST_DAMPING, 1.0)


def _cavity(distribution: Gaussian, sites: Sites) -> Cavity:
    """Take each site out of its marginal."""
    point = jnp.clip(distribution.mean, -1.0, 1.0)
    precision = distribution.cavity_precision + sites.precision
    slope = (distribution.mean - point) * precision
    return Cavity(
        point,
        distribution.cavity_precision,
        slope - sites.slope + sites.precision * point,
        precision,
        slope,
    )


def _is_outside(problem: Problem, distribution: Gaussian) -> Array:
    """Whether the support ends before the point in the direction of its residual.

    Along some directions a normal part of less than full rank has no share, up to rounding. There
    its quadratic form, one over nothing, is noise of either sign: log densities of 6e14 came of it.
    """
    target, weights, covariance = problem[:3]
    direction = distribution.residual
    reach = jnp.sum(jnp.abs(matvec(weights.mT, direction)), axis=-1)
    is_beyond = jnp.sum(direction * target, axis=-1) > reach
    if covariance is None:
        return is_beyond
    # By outputs the quadratic form is that of the direction.
    sd = jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1))
    most = 16.0 * jnp.finfo(sd.dtype).eps * jnp.sum(jnp.abs(direction) * sd, axis=-1) ** 2
    return is_beyond & (distribution.quadratic <= most)


def _step(problem: Problem, sites: Sites, cavity: Cavity) -> tuple[Sites, Array]:
    """How a pass would change the sites, and the same in units of the marginals."""
    moments = cavity.moments()
    eps = float(jnp.finfo(moments.mean.dtype).eps)
    precision = 1.0 / moments.variance - cavity.precision
    shift = cavity.precision * moments.mean - cavity.slope
    # Differences of rounding size are none: noise of 1e-16 would make them slopes of order one.
    is_none = precision < 8.0 * eps * cavity.precision
    precision, shift = (jnp.where(is_none, 0.0, part) for part in (precision, shift))
    precision = _resolved(precision, cavity, problem)
    # The slope, relative to zero, that gives the marginal the same mean as the box.
    slope = precision * (cavity.point + moments.mean) + shift
    step = Sites(precision - sites.precision, slope - sites.slope)
    around = (step.slope - step.precision * cavity.point) / jnp.sqrt(cavity.marginal_precision)
    return step, jnp.stack([step.precision / cavity.marginal_precision, around])


def _resolved(precision: Array, cavity: Cavity, problem: Problem) -> Array:
    """Precisions of sites, limited to what the normal distribution resolves."""
    eps = float(jnp.finfo(precision.dtype).eps)
    least: Array | float = 0.0
    if not problem.by_inputs:
        # In the form of the outputs, a marginal whose precision is `f` times that of the site has a
        # relative error of `f eps`; the site itself contributes a share `1/f`. Without noise the
        # outputs may determine an input: a site with more precision than the uniform itself would
        # amplify its own rounding errors.
        most = 3.0 if problem.covariance is None else eps**-0.5
        # The form takes differences of its inverse. A site held at the floor causes an error of the
        # size of the floor in the gradient, and rounding an error of `eps` over the floor: 1e-6 in
        # float64.
        floor = 1e-5 if precision.dtype == jnp.float64 else 1e-3
        least = jnp.clip(eps**0.5 * cavity.precision, floor, most)
    most = jnp.maximum(1e2 * cavity.precision, _finest(precision.dtype))
    return jnp.clip(precision, least, most)


def _finest(dtype: jnp.dtype) -> float:
    """Largest precision of a uniform at an end of the box: a mean next to 1 has no more digits."""
    return float(1e3 * jnp.finfo(dtype).eps) ** -2
