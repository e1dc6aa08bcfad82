r"""Expectation propagation: sites that give each uniform the moments that the box would give.

Without its own site the law of ``u_k`` is normal, the *cavity*; restricted to (-1, 1) it has a mean
and a variance (`tilted_moments`), and the site is changed so that the normal law matches them. All
sites are changed at once, pass after pass (T. Minka, Expectation propagation for approximate
Bayesian inference, 2001; for boxes J. Cunningham, P. Hennig and S. Lacoste-Julien,
arXiv:1111.6832).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.box_gaussian._gaussian_part import (
    Posterior,
    Problem,
    Sites,
    Whitened,
    posterior,
    whiten,
)
from nn_uq_dist.box_gaussian._tilted_moments import (
    TiltedMoments,
    skewness_and_kurtosis,
    tilted_moments,
)

_MOST_PASSES = 60
# Largest remaining change of a site, relative to its marginal. The error of the evidence is of
# second order in it.
_TOLERANCE = {"float32": 1e-4, "float64": 1e-7}
# Changes above this count as not converged, unless the log density is so large that their effect,
# which is of second order, is below its rounding. With noise of 1e-4 standard deviations, rounding
# in single precision leaves changes of .01 in the bulk, and of .02 to 1 at eight deviations.
_ACCEPTABLE = {"float32": 5e-2, "float64": 1e-3}
# Largest ratio of the precisions of a site by the secant and by a plain step. Between 2 and 20 it
# changes the number of passes by less than a tenth; without it some problems take a fifth more.
_FURTHEST = 5.0


class Cavity(NamedTuple):
    """The law of each uniform without its site, relative to a point of the interval near its mean.

    Near the mean no large numbers cancel: if the outputs determine an input, precisions and slopes
    relative to zero are as large as one over the variance of the noise.

    Attributes
    ----------
    point : Array, shape (..., n)
        Point in [-1, 1].
    precision, slope : Array, shape (..., n)
        Precision and slope of the cavity at the point.
    slope_of_marginal : Array, shape (..., n)
        Slope of the marginal at the point: zero unless its mean lies outside.
    """

    point: Array
    precision: Array
    slope: Array
    slope_of_marginal: Array

    def moments(self) -> TiltedMoments:
        """Moments of the cavity in the box; the mean is relative to the point."""
        return tilted_moments(self.precision, self.slope, -1.0 - self.point, 1.0 - self.point)

    def skewness_and_kurtosis(self) -> tuple[Array, Array]:
        """Standardized third and fourth cumulants of the cavity in the box."""
        return skewness_and_kurtosis(
            self.precision, self.slope, -1.0 - self.point, 1.0 - self.point
        )


def cavity(law: Posterior, sites: Sites) -> Cavity:
    """Take each site out of its marginal."""
    point = jnp.clip(law.mean, -1.0, 1.0)
    marginal = (law.mean - point) * law.precision
    return Cavity(
        point,
        jnp.maximum(law.precision - sites.precision, 0.0),
        marginal - sites.slope + sites.precision * point,
        marginal,
    )


class FixedPoint(NamedTuple):
    """Sites after the last pass, and the normal law under them.

    Attributes
    ----------
    whitened : Whitened
    sites : Sites
    law : Posterior
    converged : Array of bool, shape (...)
    outside : Array of bool, shape (...)
        True where a direction was found in which the support ends before the point.
    """

    whitened: Whitened
    sites: Sites
    law: Posterior
    converged: Array
    outside: Array


class _State(NamedTuple):
    number: Array
    sites: Sites
    before: Sites
    # The last pass would have changed `before` by this, and in units of the marginals.
    step: Sites
    change: Array
    error: Array
    damping: Array
    outside: Array


def fixed_point(problem: Problem) -> FixedPoint:
    """Iterate from sites with the variance of the uniforms."""
    whitened = whiten(problem)
    deviation, weights, _ = problem
    shape = (*deviation.shape[:-1], weights.shape[-1])
    dtype = deviation.dtype
    tolerance = _TOLERANCE[dtype.name]
    zeros = jnp.zeros(shape, dtype)
    uniform = Sites(jnp.full(shape, 3.0, dtype), zeros)
    start = _State(
        jnp.asarray(0),
        uniform,
        uniform,
        Sites(zeros, zeros),
        jnp.zeros((2, *shape), dtype),
        jnp.full(shape[:-1], jnp.inf, dtype),
        jnp.ones(shape[:-1], dtype),
        jnp.zeros(shape[:-1], bool),
    )

    def waiting(state: _State) -> Array:
        # Do not wait for NaN.
        return (state.error > tolerance) & ~state.outside

    def unfinished(state: _State) -> Array:
        return (state.number < _MOST_PASSES) & jnp.any(waiting(state))

    def one_pass(state: _State) -> _State:
        step, change, outside = _step(problem, whitened, state.sites)
        error = jnp.max(jnp.abs(change), axis=(0, -1))
        # Damp only if the passes oscillate without converging: a site that an early pass made far
        # too narrow widens steadily, although its error, in units of its marginal, does not
        # decrease. Far out they also run in circles of three, in which no change reverses the last
        # one, but the error grows from 2e3 to 5e4 marginal deviations.
        back = jnp.sum(change * state.change, axis=(0, -1)) < 0
        grows = error > jnp.maximum(2.0 * state.error, 1.0)
        oscillates = grows | (back & (error > 0.9 * state.error))
        slower = jnp.where(oscillates, 0.5 * state.damping, 1.1 * state.damping)
        damping = jnp.clip(jnp.where(state.number < 3, 1.0, slower), 0.05, 1.0)
        # Where passes contract steadily, look ahead.
        usable = (state.number > 0) & (error < state.error)
        mix = jnp.where(usable, _mix(change, state.change), 0.0)
        sites = _ahead(state, step, damping[..., None], mix[..., None])
        go_on = waiting(state)
        moves = go_on[..., None]
        return _State(
            state.number + 1,
            Sites(*(jnp.where(moves, *pair) for pair in zip(sites, state.sites, strict=True))),
            state.sites,
            step,
            change,
            jnp.where(go_on, error, state.error),
            damping,
            state.outside | (go_on & outside),
        )

    found = lax.while_loop(unfinished, one_pass, start)
    law = posterior(problem, whitened, found.sites)
    rounding = float(jnp.finfo(dtype).eps) * jnp.abs(law.log_determinant + law.quadratic)
    converged = found.error < jnp.maximum(_ACCEPTABLE[dtype.name], jnp.sqrt(rounding))
    return FixedPoint(whitened, found.sites, law, converged, found.outside)


def _mix(change: Array, before: Array) -> Array:
    """Multiple of the last difference that makes the change smallest.

    If a pass multiplies the change by `r`, this is ``r / (r - 1)``: 1/2 where it only changes its
    sign, and -20 where it falls by a twentieth; of smaller falls two passes tell little.
    """
    bend = change - before
    length = jnp.sum(bend * bend, axis=(0, -1))
    share = jnp.sum(change * bend, axis=(0, -1)) / jnp.where(length > 0, length, 1.0)
    return jnp.clip(share, -20.0, 0.5)


def _ahead(state: _State, step: Sites, damping: Array, mix: Array) -> Sites:
    """The next sites, by the secant through the last two passes (D. G. Anderson, J. ACM 12, 1965).

    With a memory of one pass this takes three quarters of the passes. A site whose precision would
    become negative, or differ from that of a plain step by more than `_FURTHEST`, takes the plain
    step: it is determined by the outputs, and its precision is mostly rounding.
    """
    plain = Sites(*(at + damping * move for at, move in zip(state.sites, step, strict=True)))
    parts = zip(plain, state.sites, state.before, step, state.step, strict=True)
    ahead = Sites(*(p - mix * (at - last + move - moved) for p, at, last, move, moved in parts))
    fits = (_FURTHEST * ahead.precision > plain.precision) & (
        ahead.precision < _FURTHEST * plain.precision
    )
    return Sites(*(jnp.where(fits, a, p) for a, p in zip(ahead, plain, strict=True)))


def _step(problem: Problem, whitened: Whitened, sites: Sites) -> tuple[Sites, Array, Array]:
    """How a pass would change the sites, the same in units of the marginals, and `outside`."""
    law = posterior(problem, whitened, sites)
    hole = cavity(law, sites)
    moments = hole.moments()
    precision = _resolved(1.0 / moments.variance - hole.precision, hole, problem)
    # The slope, relative to zero, that gives the marginal the same mean as the box.
    mean = hole.point + moments.mean
    slope = precision * mean + (hole.precision * moments.mean - hole.slope)
    change = Sites(precision - sites.precision, slope - sites.slope)
    # In units of the marginals.
    relative = jnp.stack(
        [
            change.precision / law.precision,
            (change.slope - change.precision * hole.point) / jnp.sqrt(law.precision),
        ]
    )
    outside = jnp.zeros(law.pull.shape[:-1], bool)
    if problem.covariance is None:
        # The support extends this far in the direction of the pull.
        reach = jnp.sum(jnp.abs(matvec(problem.weights.mT, law.pull)), axis=-1)
        outside = jnp.sum(law.pull * problem.deviation, axis=-1) > reach
    return change, relative, outside


def _resolved(precision: Array, hole: Cavity, problem: Problem) -> Array:
    """Precisions of sites, limited to what the normal law resolves."""
    eps = float(jnp.finfo(precision.dtype).eps)
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
        precision = jnp.maximum(precision, jnp.clip(eps**0.5 * hole.precision, floor, most))
    # A uniform may be pushed to an end of the box: a mean next to 1 has no more digits.
    most = jnp.maximum(1e2 * hole.precision, (1e3 * eps) ** -2)
    return jnp.minimum(precision, most)
