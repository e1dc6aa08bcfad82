"""How probable it is that an output of a network exceeds a limit, or that an event happens."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.inference._estimate import Estimate, estimate, most_probable
from nn_uq_dist.inference._linear_network import exact_log_probability
from nn_uq_dist.inference._questions import BeyondLimits, IsEvent, Question
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.inputs._flat_network import FlatNetwork, flat_network

type Array = NDArray[np.float64]

_LEAST_RUNS, _MOST_RUNS = 1000, 10**10
# Fewer effective draws do not show how large their weights may become.
_LEAST_EFFECTIVE = 100.0
# What the search and the final sample may differ by: standard errors, and a share, as the search
# is adapted to its own draws.
_MOST_ERRORS, _MOST_DIFFERENCE = 4.5, 0.5
# For the points of a linear network, whose number is not asked for.
_RUNS_FOR_POINT = 100.0
# Quantile of a one-sided 95% bound.
_BOUND_SCORE = 1.6448536269514722


@dataclasses.dataclass(frozen=True, eq=False)
class FailureProbability:
    """What `failure_probability` found.

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
        Inputs that fail, as vectors ``(S, N_x)``, at any of the limits.
    weights
        Their weights, ``(..., S)`` with the shape of the limit in front, with sum one.

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
    draws: NDArray[Any]
    weights: Array

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        if np.ndim(self.probability):
            count = f"{np.sum(self.converged)} of {np.size(self.converged)}"
            return "", {"limits": self.probability.shape, "converged": count}
        numbers = {"probability": self.probability, "standard_error": self.standard_error}
        shown: dict[str, object] = {name: f"{value:.3g}" for name, value in numbers.items()}
        return "", shown | {"converged": self.converged, "num_runs": self.num_runs}


def failure_probability(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    key: jax.Array,
    limit: ArrayLike | None = None,
    *,
    output: int = 0,
    upper: bool = True,
    event: Callable[[Any], Any] | None = None,
    num_runs: int = 10_000,
    progress: bool = True,
) -> FailureProbability:
    r"""Probability that an output of the network itself exceeds a limit, however rare that is.

    Importance sampling: the inputs are drawn where the network fails, and weighted by the ratio of
    the densities. Where to draw is searched for with part of the runs, and the estimate is made
    from the others. It is unbiased, and its standard error is estimated from the same draws. A
    network that is linear, as far as 160 runs show, has its exact probability.

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
        What the output is compared to: a number, or an array whose entries share the runs.
    output
        Index of the output, in the order of ``jax.tree.leaves`` if the network returns a structure.
    upper
        Whether the output fails above the limit; below it otherwise.
    event
        In place of `limit`: a function of the network's outputs, in its own structure, that returns
        one boolean, such as ``lambda y: (y[0] > 3.0) & (y[1] < 0.0)``. It is traced by JAX. It does
        not say how near a run is to the event, so for rare ones a limit of a continuous margin is
        better: ``lambda x: jnp.minimum(g(x)[0] - 3.0, -g(x)[1])[None]`` with limit zero.
    num_runs
        Runs of the network in all, at least 1000; a gradient counts as three. They are used up,
        unless the network is linear.
    progress
        Whether a progress bar may appear, which it does after a second of work.

    Returns
    -------
    FailureProbability
        With arrays shaped as `limit`.

    Raises
    ------
    TypeError
        If neither or both of `limit` and `event` are given, `event` returns no boolean, `key` is
        not a random key, `output` or `num_runs` not an integer, `f` has no standard variables, or
        the function is called under ``jit``.
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
    :math:`2 \Phi(z) - 1`. Each search draws from mixtures of normal laws that come nearer to the
    limit, level by level (R. Y. Rubinstein and D. P. Kroese, The Cross-Entropy Method, 2004): one
    begins with the law of the input and wider ones, one with the points at which tangents reach the
    limit, from zero and from draws near to it. All their draws :math:`z_i` have weights
    :math:`\phi(z_i) / \sum_b \frac{n_b}{n} q_b(z_i)` over all mixtures :math:`q_b` that were drawn
    from (A. Owen and Y. Zhou, J. Am. Stat. Assoc. 95, 2000). A mixture fitted to those that fail,
    refitted three times, is the :math:`q` of the estimate from `n` new draws,

    .. math:: \hat P = \frac{1}{n} \sum_i \frac{\phi(z_i)}{q(z_i)}
        1[g(z_i) > l], \qquad z_i \sim q.

    The result has not ``converged`` if fewer than 100 effective draws
    :math:`(\sum w_i)^2 / \sum w_i^2` fail, or the estimate of the search differs by more than half
    of the probability and 4.5 standard errors. A region that no search has entered is in neither;
    a second key is a test for it.

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
    >>> found = nuq.failure_probability(network, f, key, 30.0, progress=False)
    >>> off = (found.probability - jnp.exp(-15.0)) / found.standard_error
    >>> found.converged, bool(abs(off) < 4)
    (True, True)
    """
    law, flat, question, shape = _checked(network, f, key, limit, output, upper, event)
    num_runs = _checks.positive_int("num_runs", num_runs, _MOST_RUNS)
    if num_runs < _LEAST_RUNS:
        raise ValueError(
            f"num_runs must be at least {_LEAST_RUNS}, got {num_runs}; the default is 10_000"
        )
    from tqdm import tqdm

    rng = np.random.default_rng(np.asarray(jax.random.key_data(_checks.as_key("key", key))))
    size = math.prod(shape)
    with tqdm(total=num_runs, unit="run", unit_scale=True, delay=1.5, disable=not progress) as bar:
        space = StandardSpace(flat, question.read, bar.update)
        if space.num_variables == 0:
            raise ValueError(
                "f must be random, got only known values; give an input a half-width or a scale"
            )
        if isinstance(question, BeyondLimits) and not law.is_transformed:
            exact = exact_log_probability(space, question, rng)
            if exact is not None:
                return _exact(space, question, *exact, shape)
        found = estimate(space, question, size, num_runs, rng)
    return _result(space, found, shape)


def _checked(
    network: Callable[[Any], Any],
    f: Any,
    key: Any,
    limit: ArrayLike | None,
    output: int,
    upper: bool,
    event: Callable[[Any], Any] | None,
) -> tuple[AbstractInputLaw, FlatNetwork, Question, tuple[int, ...]]:
    """Law, network, question, and the shape of the limit."""
    if (limit is None) == (event is None):
        both = "none" if limit is None else "both"
        raise TypeError(
            f"failure_probability needs either limit or event, got {both}; pass a limit for one "
            f"output, or a function of all outputs that returns a boolean"
        )
    _checks.as_key("key", key)
    if not _checks.is_concrete(key, f, limit):
        raise TypeError(
            "f, key and limit must hold numbers, got traced values; call failure_probability "
            "outside of jit, vmap and grad"
        )
    law = as_input_law(f)
    if law.batch_shape:
        raise ValueError(
            f"f must be one input law, got batch shape {law.batch_shape}; call failure_probability "
            f"for each of them in a loop, with keys of their own"
        )
    flat = flat_network(network, law)
    if limit is None:
        of_event: Question = IsEvent(flat, _checked_event(event, flat))
        return law, flat, of_event, ()
    limits = np.asarray(_checks.as_numeric("limit", limit), np.float64)
    _checks.require_finite("limit", limits, "pass a number that the output can reach")
    if limits.size == 0:
        raise ValueError(f"limit must hold a number, got shape {limits.shape}; pass at least one")
    (index,) = _checks.as_indices(output, flat.num_outputs, "output")
    return law, flat, BeyondLimits(index, limits.ravel(), upper=upper), limits.shape


def _checked_event(event: Any, flat: FlatNetwork) -> Callable[[Any], Any]:
    """The event, traced once to see what it returns."""
    vector = jnp.zeros(flat.num_outputs, flat.dtype)
    structure = flat.output_structure
    expected = "event must be a function of the outputs that returns one boolean"
    remedy = "pass such as lambda y: (y[0] > 3.0) & (y[1] < 0.0)"
    try:
        found = jax.eval_shape(event, vector if structure is None else structure.unravel(vector))
    except Exception as error:
        raise TypeError(f"{expected}, got {type(error).__name__} from it; {remedy}") from error
    if getattr(found, "shape", None) != () or found.dtype != np.bool_:
        raise TypeError(f"{expected}, got {found}; {remedy}")
    return event


def _result(space: StandardSpace, found: Estimate, shape: tuple[int, ...]) -> FailureProbability:
    final = found.final
    log_probability, log_error = final.log_probability, final.log_standard_error
    probability, error = np.exp(log_probability), np.exp(log_error)
    most = _MOST_ERRORS * np.hypot(error, found.pool_standard_error)
    agrees = np.abs(probability - found.pool_probability) <= most + _MOST_DIFFERENCE * probability
    converged = (final.effective_draws >= _LEAST_EFFECTIVE) & agrees
    with np.errstate(invalid="ignore", over="ignore"):
        relative = np.exp(log_error - log_probability)
        asymptotic = np.minimum(np.exp(log_probability + _BOUND_SCORE * relative), 1)
    bound = np.where(converged, asymptotic, np.fmax(asymptotic, final.plain_bound))
    if final.num_nan:
        warnings.warn(
            f"{final.num_nan} of {final.count} outputs drawn are NaN; check the network over the "
            f"range of its input",
            RuntimeWarning,
            stacklevel=3,
        )
    draws, weights = final.failing_draws()
    return _shaped(
        space,
        shape,
        found.points,
        probability=probability,
        log_probability=log_probability,
        standard_error=error,
        upper_bound=bound,
        converged=converged,
        effective_draws=final.effective_draws,
        draws=draws,
        weights=weights.reshape(*shape, len(draws)),
    )


def _exact(
    space: StandardSpace,
    question: BeyondLimits,
    logs: Array,
    points: Array,
    shape: tuple[int, ...],
) -> FailureProbability:
    """The result for a linear network."""
    return _shaped(
        space,
        shape,
        most_probable(space, question, logs.size, points, _RUNS_FOR_POINT),
        probability=np.exp(logs),
        log_probability=logs,
        standard_error=np.zeros(logs.size),
        upper_bound=np.exp(logs),
        converged=np.ones(logs.size, bool),
        effective_draws=np.where(np.isfinite(logs), np.inf, 0.0),
        draws=np.zeros((0, space.law.num_inputs), space.law.dtype),
        weights=np.zeros((*shape, 0)),
    )


def _shaped(
    space: StandardSpace,
    shape: tuple[int, ...],
    points: Array,
    *,
    draws: NDArray[Any],
    weights: Array,
    **values: NDArray[Any],
) -> FailureProbability:
    """Values in the shape of the limit, numbers as such, and the points as the network's inputs."""
    inputs = space.inputs(points)
    at = space.law.network_input(inputs.reshape(*shape, inputs.shape[-1]))
    given: dict[str, Any] = {name: part.reshape(shape) for name, part in values.items()}
    if not shape:
        given = {name: part[()] for name, part in given.items()}
        given["converged"] = bool(given["converged"])
    point = jax.tree.map(np.asarray, at)
    return FailureProbability(
        **given, num_runs=space.num_runs, point=point, draws=draws, weights=weights
    )
