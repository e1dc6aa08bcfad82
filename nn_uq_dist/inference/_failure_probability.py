"""How probable it is that an output of a network exceeds a limit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.summary_line import number_table
from nn_uq_dist.inference._failure_claims import claims, reach
from nn_uq_dist.inference._failure_estimate import FinalSample
from nn_uq_dist.inference._failure_search import probes, searched
from nn_uq_dist.inference._limit_state import Limits, design_points
from nn_uq_dist.inference._search_state import Problem
from nn_uq_dist.inference._standard_space import StandardSpace, known_flat_network
from nn_uq_dist.inputs import Input

_LEAST_RUNS, _MOST_RUNS = 500, 10**10
# Share of the runs on rays to the most probable failing input.
_RAYS_SHARE = 0.02
# The probability above which what does not fail is counted.
_OFTEN = 0.5
# Share of the runs for climbs that look for regions that the mixture does not know.
_PROBES_SHARE = 0.02
# Outputs that are NaN are told of if they are at least this part of the probability.
_LEAST_NAN = 0.001
_RUNS_OF_TARGET = 1500  # of each limit that is searched for on its own
_LEAST_FINAL = 50  # draws of the estimate


@dataclasses.dataclass(frozen=True, eq=False)
class FailureProbability:
    """Result of `failure_probability`; ``print`` shows a table of several limits.

    Attributes
    ----------
    limit
        As given.
    probability, log_probability, standard_error
        Estimates, shaped as the limit; the standard error is that of the probability.
    upper_bound
        Upper 95% bound of the probability, if the failing regions are in half-spaces nearer than
        `reach`. If `converged` is false it is at least `plain_bound`, or the bound of a limit that
        is exceeded more often.
    plain_bound
        Upper 95% bound from the runs whose inputs were drawn from the distribution of the input,
        which holds whatever was missed: about 3 over their number where none of them fails. They
        are 5% of all runs, more where nothing fails.
    reach
        Distance in standard deviations at which wide draws still enter a failing half-space, but
        for a chance of 1%.
    converged
        Whether estimate and standard error can be trusted, as far as the runs show.
    num_runs
        Inputs that the network was computed at; a value with its gradient counts as three.
    effective_draws
        How many failing draws with equal weights would be worth as much.
    point
        The failing input nearest to the median in standard normal variables that was found (about
        the design point of FORM), as the network takes it, with the shape of the limit in front;
        NaN where no run failed.
    draws
        Inputs that fail at any of the limits, as the network takes them, with an axis of length
        ``S`` in front: shape ``(S, N_x)`` for a network of a vector.
    weights
        Their weights, ``(..., S)`` with the shape of the limit in front, with sum one; zero where
        no run failed.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.normal(jnp.zeros(2), 1.0)
    >>> found = nuq.failure_probability(
    ...     lambda x: x[:1] * x[1:], f, jax.random.key(0), 8.0, progress=False
    ... )
    >>> mean_if_it_fails = found.weights @ found.draws
    >>> found.weights.shape == found.draws.shape[:1], bool(abs(found.point).min() > 2.5)
    (True, True)
    """

    limit: Any
    probability: Any
    log_probability: Any
    standard_error: Any
    upper_bound: Any
    plain_bound: Any
    reach: float
    converged: Any
    num_runs: int
    effective_draws: Any
    point: Any
    draws: Any
    weights: FloatArray

    def __repr__(self) -> str:
        if np.ndim(self.probability):
            return (
                f"FailureProbability(limits={self.probability.shape}, "
                f"num_converged={int(np.sum(self.converged))})"
            )
        # A standard error that cannot be trusted is not shown.
        name = "standard_error" if self.converged else "upper_bound"
        return (
            f"FailureProbability(probability={self.probability:.3g}, "
            f"{name}={getattr(self, name):.3g}, converged={self.converged}, "
            f"num_runs={self.num_runs})"
        )

    def __str__(self) -> str:
        if not np.ndim(self.limit):
            return repr(self)
        names = [f"{limit:.6g}" for limit in self.limit.flat]
        # As in a line, a standard error that cannot be trusted is not shown.
        judged = zip(self.standard_error.flat, self.converged.flat, strict=True)
        errors = [f"{error:.3g}" if is_so else "not converged" for error, is_so in judged]
        headings = "limit", "probability", "standard error", "upper bound"
        return number_table(headings, names, self.probability.flat, errors, self.upper_bound.flat)


@checks.third_is_key
def failure_probability(
    network: Callable[[Any], Any],
    f: Distribution | Input | Any,
    key: jax.Array,
    limit: ArrayLike,
    *,
    output: int | str | None = None,
    upper: bool = True,
    num_runs: int = 10_000,
    progress: bool = True,
) -> FailureProbability:
    r"""Probability that an output of the network itself exceeds a limit, however rare that is.

    Importance sampling: the inputs are drawn where the network fails, and weighted by the ratio of
    the densities. Where to draw is searched for with part of the runs, and the estimate is made
    from the others. Its standard error is estimated from the same draws.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`. It runs in its own type; near an extreme
        of the output, float32 may not resolve a very rare limit.
    f
        Distribution of the input, as for `linearize`: everything that `nn_uq_dist.inputs.as_input`
        accepts, without batch axes.
    key
        A JAX random key. The result depends on it alone, on one kind of device.
    limit
        What the output is compared to: a number, or an array whose entries share the runs. For an
        event of several outputs make the network return a margin that is positive where it happens,
        such as ``lambda x: jnp.minimum(g(x)[0] - 3.0, -g(x)[1])[None]``, and pass the limit zero.
    output
        The output, by position or by name, as `Linearization.output_names` lists them. Needed if
        there are several.
    upper
        Whether the output fails above the limit; below it otherwise.
    num_runs
        Runs of the network in all, at least 500. They are used up, and up to 1% more where the last
        batch is filled up. A value with its gradient counts as three.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    FailureProbability
        With arrays shaped as `limit`.

    Raises
    ------
    TypeError
        If `network` returns booleans, `limit` is no number, `key` is not a random key, `output` or
        `num_runs` not an integer, `upper` no boolean, `f` has no standard variables, or the
        function is called under ``jit``.
    ValueError
        If a limit is not finite, `output` is out of range or missing, `num_runs` is below 500, `f`
        has batch axes, or `network` fails on one input.

    Warns
    -----
    RuntimeWarning
        If outputs are NaN with more than a thousandth of the probability of any of the limits.
        They do not count as failures.

    Notes
    -----
    The variables of the input become standard normal ones :math:`z`, uniform ones by
    :math:`2 \Phi(z) - 1`. The search draws them with standard deviations of 1 to 3.5, and goes on
    by subset simulation (S. K. Au and J. L. Beck, Probabilistic Engineering Mechanics 16, 2001).
    Tangents at failing draws give half-spaces, and corners where several components have to fail
    together; a mixture of standard normal distributions beyond them has bounded weights where they
    hold all that fails (A. B. Owen, Y. Maximov and M. Chertkov, Electron. J. Stat. 13, 2019). To it
    come normal distributions fitted to failing draws, and to slopes where draws are few for the
    number of variables (C. M. Stein, Ann. Stat. 9, 1981). The mixture is drawn from in rounds and
    made anew; draws of all rounds have weights over all their mixtures. Failing draws that no
    corner holds, and climbs from new draws, lead to further ones. The last mixture is the :math:`q`
    of the estimate from `n` new draws, 3% of which are the input's own and 4% wider ones.

    .. math:: \hat P = \frac{1}{n} \sum_i \frac{\phi(z_i)}{q(z_i)}
        1[g(z_i) > l], \qquad z_i \sim q.

    The result has not ``converged`` if fewer than 100 effective draws
    :math:`(\sum w_i)^2 / \sum w_i^2` fail; if one has 10% of all weight; if the Pareto distribution
    of their largest weights has a shape of .7 or more, so that the standard error cannot be trusted
    (A. Vehtari et al., J. Mach. Learn. Res. 25, 2024); if the estimate of the search differs by
    more than a tenth of the probability and 4.5 standard errors; if the one of the subset
    simulation is larger by 3.5; if 5% of its failing inputs would weigh more than any draw; or if
    half of the draws would beyond a corner that climbs found after the mixture was made. A small
    region without a slope toward it that no run has entered shows in none of these, nor a
    half-space beyond `reach`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.normal(jnp.zeros(2), 1.0)
    >>> network = lambda x: jnp.sum(x**2, keepdims=True)  # exp(-limit / 2)
    >>> key = jax.random.key(0)
    >>> found = nuq.failure_probability(network, f, key, 30.0, num_runs=20_000, progress=False)
    >>> off = (found.probability - jnp.exp(-15.0)) / found.standard_error
    >>> found.converged, bool(abs(off) < 4)
    (True, True)
    """
    key = checks.as_key("key", key)
    flat = known_flat_network("failure_probability", network, f, key, limit)
    num_runs = checks.positive_int("num_runs", num_runs, _MOST_RUNS, minimum=_LEAST_RUNS)
    limits = Limits(flat, limit, output, upper, num_runs // _RUNS_OF_TARGET)
    from tqdm import tqdm

    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    with tqdm(total=num_runs, unit="run", unit_scale=True, delay=2, disable=not progress) as bar:
        space = StandardSpace(flat, limits.read, num_runs, bar.update)
        problem = Problem(space, limits, num_runs, rng)
        search = searched(problem)
        mixture = search.proposal()
        # What did not choose the mixture may contradict it.
        for_each = _PROBES_SHARE * num_runs / len(search.targets)
        probed = [probes(problem, target, for_each) for target in search.targets]
        candidates, nearest = search.candidates(), search.nearest()
        points = design_points(space, limits, candidates, nearest, _RAYS_SHARE * num_runs)
        expected = search.probability[0]
        control = np.where(expected > _OFTEN, np.minimum(expected, 1), 0)
        final = FinalSample(space, limits, control, points)
        left = max(num_runs - space.num_runs, _LEAST_FINAL)
        while left > 0:
            final.draw(mixture, min(left, final.portion()), rng)
            left = num_runs - space.num_runs
    nan, least = final.nan_weight / final.count, final.probability.min()
    if nan > _LEAST_NAN * least:
        checks.warn(
            f"{final.num_nan} of {final.count} outputs drawn are NaN, with a probability of "
            f"{nan:.1g}, and the rarest failure has {least:.1g}; NaN counts as no failure: check "
            f"the network over the range of its input"
        )
    claimed = claims(search, final, mixture, probed)
    by_limit = {name: array.reshape(limits.shape)[()] for name, array in claimed._asdict().items()}
    if not limits.shape:
        by_limit["converged"] = bool(by_limit["converged"])
    draws, weights = final.failing_draws()
    point = space.inputs(final.nearest)
    return FailureProbability(
        limit=np.asarray(limit)[()],
        **by_limit,
        num_runs=space.num_runs,
        reach=reach(num_runs, final.count),
        point=space.distribution.structured(point.reshape(*limits.shape, -1)),
        draws=space.distribution.structured(space.inputs(draws)),
        weights=weights.reshape(*limits.shape, len(draws)),
    )
