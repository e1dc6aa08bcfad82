"""What was found about a failure probability, and whether it can be trusted."""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.inference._estimate import Estimate, most_probable
from nn_uq_dist.inference._questions import BeyondLimits
from nn_uq_dist.inference._standard_space import StandardSpace

type Array = NDArray[np.float64]

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
            facts = {"limits": self.probability.shape, "num_converged": int(np.sum(self.converged))}
            return "", facts
        numbers = {"probability": self.probability, "standard_error": self.standard_error}
        shown: dict[str, object] = {name: f"{value:.3g}" for name, value in numbers.items()}
        return "", shown | {"converged": self.converged, "num_runs": self.num_runs}


def estimated_result(
    space: StandardSpace, found: Estimate, shape: tuple[int, ...]
) -> FailureProbability:
    """The result of an estimate."""
    final = found.final
    log_probability, log_error = final.log_probability, final.log_standard_error
    probability, error = np.exp(log_probability), np.exp(log_error)
    most = _MOST_ERRORS * np.hypot(error, found.pool_standard_error)
    agrees = np.abs(probability - found.pool_probability) <= most + _MOST_DIFFERENCE * probability
    settled = final.pareto_k < final.largest_pareto_k
    converged = (final.effective_draws >= _LEAST_EFFECTIVE) & settled & agrees
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


def exact_result(
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
