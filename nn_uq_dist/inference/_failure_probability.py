"""How probable it is that an output of a network exceeds a limit."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.inference._cross_entropy import Pool, with_prior
from nn_uq_dist.inference._estimate import estimate, most_probable
from nn_uq_dist.inference._final_sample import FinalSample
from nn_uq_dist.inference._limit_state import BeyondLimits, exact_log_probability
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace, checked_law
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.inputs._flat_network import flat_network

_LEAST_RUNS, _MOST_RUNS = 1000, 10**10
# Fewer effective draws do not show how large their weights may become.
_LEAST_EFFECTIVE = 100.0
# What the search and the final sample may differ by: standard errors, and a share, as the search
# is adapted to its own draws.
_MOST_ERRORS, _MOST_DIFFERENCE = 4.5, 0.5
# Of a linear network: runs for the points, and for failing draws, whose numbers are not asked for.
_RUNS_FOR_POINT, _DRAWS_IF_LINEAR = 100.0, 1000
# Quantile of a one-sided 95% bound.
_BOUND_SCORE = 1.6448536269514722


@dataclasses.dataclass(frozen=True, eq=False)
class FailureProbability:
    """Result of `failure_probability`.

    Attributes
    ----------
    probability, log_probability, standard_error
        Estimates, shaped as the limit; the standard error is that of the probability.
    upper_bound
        Upper 95% bound of the probability. If `converged` is false it is at least that from the
        runs of the final sample whose inputs were drawn from the law of the input, which holds
        whatever was not found.
    converged
        Whether estimate and standard error can be trusted, as far as the runs show.
    num_runs
        Runs of the network; a gradient counts as three.
    effective_draws
        How many failing draws with equal weights would be worth as much.
    point
        The most probable failing input that was found, as the network takes it, with the shape of
        the limit in front; NaN where no run failed.
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
    >>> f = nuq.InputLaw(jnp.zeros(2), scale=1.0)
    >>> found = nuq.failure_probability(
    ...     lambda x: x[:1] * x[1:], f, jax.random.key(0), 8.0, progress=False
    ... )
    >>> mean_if_it_fails = found.weights @ found.draws
    >>> found.weights.shape == found.draws.shape[:1], bool(abs(found.point).min() > 2.5)
    (True, True)
    """

    probability: Any
    log_probability: Any
    standard_error: Any
    upper_bound: Any
    converged: Any
    num_runs: int
    effective_draws: Any
    point: Any
    draws: Any
    weights: Array

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        if np.ndim(self.probability):
            facts = {"limits": self.probability.shape, "num_converged": int(np.sum(self.converged))}
            return "", facts
        # A standard error that cannot be trusted is not shown.
        names = ("probability", "standard_error" if self.converged else "upper_bound")
        shown: dict[str, object] = {name: f"{getattr(self, name):.3g}" for name in names}
        return "", shown | {"converged": self.converged, "num_runs": self.num_runs}


@_checks.third_is_key
def failure_probability(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    key: jax.Array,
    limit: ArrayLike,
    *,
    output: int | str = 0,
    upper: bool = True,
    num_runs: int = 10_000,
    progress: bool = True,
) -> FailureProbability:
    r"""Probability that an output of the network itself exceeds a limit, however rare that is.

    Importance sampling: the inputs are drawn where the network fails, and weighted by the ratio of
    the densities. Where to draw is searched for with part of the runs, and the estimate is made
    from the others. It is unbiased, and its standard error is estimated from the same draws. A
    network that is linear, as far as 160 runs show, has its exact probability, and 1000 more runs
    give the draws.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`. It runs in its own type; near an extreme
        of the output, float32 may not resolve a very rare limit.
    f
        Law of the input, as for `linearize`: everything that `nn_uq_dist.inputs.as_input_law`
        accepts, without batch axes.
    key
        A JAX random key. The result depends on it alone, on one kind of device.
    limit
        What the output is compared to: a number, or an array whose entries share the runs. For an
        event of several outputs make the network return a margin that is positive where it happens,
        such as ``lambda x: jnp.minimum(g(x)[0] - 3.0, -g(x)[1])[None]``, and pass the limit zero.
    output
        The output, by position or by name, as `Linearization.output_names` lists them.
    upper
        Whether the output fails above the limit; below it otherwise.
    num_runs
        Runs of the network in all, at least 1000; a gradient counts as three. They are used up,
        unless the network is linear.
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
        If a limit is not finite, `output` is out of range, `num_runs` is below 1000, `f` has batch
        axes, or `network` fails on one input.

    Warns
    -----
    RuntimeWarning
        If some outputs are NaN. They do not count as failures.

    Notes
    -----
    The variables of the law become standard normal ones :math:`z`, uniform ones by
    :math:`2 \Phi(z) - 1`. The search draws from mixtures of normal laws that come nearer to the
    limit, level by level (R. Y. Rubinstein and D. P. Kroese, The Cross-Entropy Method, 2004),
    beginning with the law of the input and wider ones; then around the points at which tangents
    reach the limit, from zero and from draws near to it. All draws :math:`z_i` have weights
    :math:`\phi(z_i) / \sum_b \frac{n_b}{n} q_b(z_i)` over all mixtures :math:`q_b` that were drawn
    from (A. Owen and Y. Zhou, J. Am. Stat. Assoc. 95, 2000). A mixture fitted to those that fail,
    refitted up to three times, is the :math:`q` of the estimate from `n` new draws. Where failing
    draws are few for the number of variables, part of it is fitted to slopes of the output instead:
    the mean of a standard normal law beyond a limit is along the mean slope (C. M. Stein, Ann.
    Stat. 9, 1981).

    .. math:: \hat P = \frac{1}{n} \sum_i \frac{\phi(z_i)}{q(z_i)}
        1[g(z_i) > l], \qquad z_i \sim q.

    The result has not ``converged`` if fewer than 100 effective draws
    :math:`(\sum w_i)^2 / \sum w_i^2` fail; if the Pareto law of their largest weights has a shape
    of .7 or more, so that the standard error cannot be trusted (A. Vehtari et al., J. Mach. Learn.
    Res. 25, 2024); or if the estimate of the search differs by more than half of the probability
    and 4.5 standard errors. A region that no search has entered shows in none of these; a second
    key is a test for it.

    A network counts as linear if it differs from its tangent at the mean by no more than rounding
    at 64 draws of the input's law and of wider ones, and at points on the way to the most probable
    failing one, around and beyond it. A piecewise linear network may bend elsewhere.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.InputLaw(jnp.zeros(2), scale=1.0)
    >>> network = lambda x: jnp.sum(x**2, keepdims=True)  # exp(-limit / 2)
    >>> key = jax.random.key(0)
    >>> found = nuq.failure_probability(network, f, key, 30.0, num_runs=20_000, progress=False)
    >>> off = (found.probability - jnp.exp(-15.0)) / found.standard_error
    >>> found.converged, bool(abs(off) < 4)
    (True, True)
    """
    key = _checks.as_key("key", key)
    law = checked_law("failure_probability", f, key, limit)
    flat = flat_network(network, law)
    question = BeyondLimits(flat, limit, output, upper)
    num_runs = _checks.positive_int("num_runs", num_runs, _MOST_RUNS, minimum=_LEAST_RUNS)
    from tqdm import tqdm

    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    with tqdm(total=num_runs, unit="run", unit_scale=True, delay=2, disable=not progress) as bar:
        space = StandardSpace(flat, question.read, bar.update)
        if space.num_variables == 0:
            raise ValueError(
                "f must be random, got only known values; give an input a half-width or a scale"
            )
        if not law.is_transformed:
            exact = exact_log_probability(space, question, rng)
            if exact is not None:
                left = min(_DRAWS_IF_LINEAR, num_runs - space.num_runs)
                return _exact_result(space, question, *exact, left, rng)
        found = estimate(space, question, num_runs, rng)
    return _estimated_result(space, question, *found)


def _estimated_result(
    space: StandardSpace, question: BeyondLimits, final: FinalSample, pool: Pool, points: Array
) -> FailureProbability:
    """The result of an estimate."""
    log_probability, log_error = final.log_probability, final.log_standard_error
    probability, error = np.exp(log_probability), np.exp(log_error)
    expected, expected_error = pool.probability
    most = _MOST_ERRORS * np.hypot(error, expected_error)
    agrees = np.abs(probability - expected) <= most + _MOST_DIFFERENCE * probability
    converged = (final.effective_draws >= _LEAST_EFFECTIVE) & final.settles & agrees
    with np.errstate(invalid="ignore", over="ignore"):
        relative = np.exp(log_error - log_probability)
        asymptotic = np.minimum(np.exp(log_probability + _BOUND_SCORE * relative), 1)
    if final.num_nan:
        warnings.warn(
            f"{final.num_nan} of {final.count} outputs drawn are NaN; check the network over the "
            f"range of its input",
            RuntimeWarning,
            stacklevel=4,
        )
    bound = np.where(converged, asymptotic, np.fmax(asymptotic, final.plain_bound))
    return _shaped(
        space,
        question,
        points,
        *final.failing_draws(),
        # The weights of likely failures may add up to more than one.
        log_probability=np.minimum(log_probability, 0),
        standard_error=error,
        upper_bound=question.in_order(bound),
        converged=converged,
        effective_draws=final.effective_draws,
    )


def _exact_result(
    space: StandardSpace,
    question: BeyondLimits,
    logs: Array,
    points: Array,
    num_draws: int,
    rng: np.random.Generator,
) -> FailureProbability:
    """The result for a linear network."""
    around = NormalMixture.even(*map(Normal.around, points)) if len(points) else None
    final = FinalSample(space, question)
    final.draw(with_prior(around, space.num_variables), num_draws, rng)
    return _shaped(
        space,
        question,
        most_probable(space, question, points, _RUNS_FOR_POINT),
        *final.failing_draws(),
        log_probability=logs,
        standard_error=np.zeros(logs.size),
        upper_bound=np.exp(logs),
        converged=np.ones(logs.size, bool),
        effective_draws=np.where(np.isfinite(logs), np.inf, 0.0),
    )


def _shaped(
    space: StandardSpace,
    question: BeyondLimits,
    points: Array,
    draws: Array,
    weights: Array,
    **values: NDArray[Any],
) -> FailureProbability:
    """Values in the shape of the limit, numbers as such, and inputs as the network takes them."""
    at, shape = space.inputs(points), question.shape
    values["probability"] = np.exp(values["log_probability"])
    given: dict[str, Any] = {name: part.reshape(shape)[()] for name, part in values.items()}
    if not shape:
        given["converged"] = bool(given["converged"])
    return FailureProbability(
        **given,
        num_runs=space.num_runs,
        point=space.law.structured(at.reshape(*shape, at.shape[-1])),
        draws=space.law.structured(space.inputs(draws)),
        weights=weights.reshape(*shape, len(draws)),
    )
