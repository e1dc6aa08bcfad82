"""The distribution of a network's inputs, given observed outputs."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution
from scipy.special import chdtrc

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray, fewest_columns
from nn_uq_dist.basics.summary_line import number_table, to_error
from nn_uq_dist.distributions.linear_image import LinearImage, output_noise
from nn_uq_dist.inference._importance_weights import systematic
from nn_uq_dist.inference._posterior_sampling import NUM_DRAWS, Draws, sample_posterior
from nn_uq_dist.inference._posterior_starts import Observation
from nn_uq_dist.inference._standard_space import StandardSpace, known_flat_network
from nn_uq_dist.inputs import Input
from nn_uq_dist.sampling.flat_network import OutputNumbers, by_names

if TYPE_CHECKING:
    import xarray as xr

# Mixtures have a covariance of all variables, and few draws say nothing about larger ones.
_MOST_VARIABLES = 200
_LEAST_RUNS, _MOST_RUNS = 20_000, 10**9
# Number of the generator of the shared draws; those of observations count from zero.
_SHARED_STREAM = 2**32 - 1
# Of the noise, in units of its standard deviations: below this a combination of outputs has none.
_LEAST_NOISE = 1e-7


@dataclasses.dataclass(frozen=True, eq=False)
class InputPosterior:
    """Distribution of the inputs of a network given its outputs, as `input_posterior` found it.

    Draws, mean and variance have the units and the structure of what the network takes: a vector,
    or such as a dict of arrays, each with the axes of the draws and of the batch in front. Known
    inputs are in it, with variance 0. ``print`` shows a table for a single observation.

    Attributes
    ----------
    covariance_matrix : array, shape batch_shape + (N, N)
        Of the random numbers that the network takes, in the order of `names`.
    log_evidence : array, shape batch_shape
        Log density of the observed outputs, estimated.
    p_value : array, shape batch_shape
        Probability, before anything was observed, of observations as far from what inputs and noise
        lead to expect as this one (G. E. P. Box, J. R. Stat. Soc. A 143, 1980), by the chi-squared
        distribution. For linear networks of normal inputs it is right to some 10%; for boxes it is
        too large, such as .17 for .085, .02 for .005. If it is tiny, the draws are merely the
        inputs that come closest.
    converged : array, shape batch_shape
        Whether the draws can be trusted, as far as the runs show.
    pareto_k, effective_draws : array, shape batch_shape
        Shape of the tail of the weights, and how many independent draws would be worth as much.
    num_runs : array, shape batch_shape
        Runs of the network, with a share of the 4000 that all observations have in common; a
        Jacobian counts as one more than the smaller of the numbers of inputs and outputs.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    >>> y = jnp.array([[0.5, 0.5], [0.0, -0.5]])  # two observations, each of an input of its own
    >>> found = nuq.input_posterior(jnp.tanh, f, y, noise_scale=0.1, key=jax.random.key(0))
    >>> found
    InputPosterior(num_inputs=2, batch_shape=(2,), num_converged=2, least_p_value=0.58)
    >>> found.sample(jax.random.key(1), (100,)).shape
    (100, 2, 2)
    """

    covariance_matrix: FloatArray
    log_evidence: FloatArray
    p_value: FloatArray
    converged: NDArray[np.bool_]
    pareto_k: FloatArray
    effective_draws: FloatArray
    num_runs: NDArray[np.int_]
    _mean: FloatArray
    _draws: NDArray[Any]
    _distribution: Input

    def __repr__(self) -> str:
        facts = f"converged={self.converged}"
        if self.batch_shape:
            facts = (
                f"batch_shape={self.batch_shape}, num_converged={int(np.sum(self.converged))}, "
                f"least_p_value={np.min(self.p_value):.2g}"
            )
        return f"InputPosterior(num_inputs={self._distribution.num_inputs}, {facts})"

    def __str__(self) -> str:
        if self.batch_shape:
            return repr(self)
        sd = np.sqrt(np.diagonal(self.covariance_matrix))
        means = to_error(self._mean, sd)
        return (
            f"Inputs given the outputs: {'' if self.converged else 'not '}converged, "
            f"{self.effective_draws:.0f} effective draws of {self.num_runs} runs,\n"
            f"log evidence {self.log_evidence:.3g}, p-value of the observation "
            f"{self.p_value:.2g}\n\n" + number_table(("input", "mean", "sd"), self.names, means, sd)
        )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of observations."""
        return self.converged.shape

    @property
    def names(self) -> list[str]:
        """Names of the random numbers, as in ``jax.tree.leaves``; known parts are left out."""
        return self._distribution.taken_names

    @property
    def mean(self) -> Any:
        """Means of the inputs; NaN where no run explains the observation at all.

        A run explains an observation if its outputs are less than some 1e7 standard deviations of
        the noise away: further out log densities have no digits after the point.
        """
        return self._distribution.structured(self._mean)

    @property
    def variance(self) -> Any:
        """Variances of the inputs."""
        return self._distribution.structured(
            np.diagonal(self.covariance_matrix, axis1=-2, axis2=-1), is_spread=True
        )

    @property
    def draws(self) -> Any:
        """4000 draws of equal weight; several are the same where few are effective."""
        return self._distribution.structured(self._draws)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw inputs, with ``sample_shape + batch_shape`` in front: of `draws`, at random.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws.
        """
        rows = jax.random.randint(*checks.as_sampling(key, sample_shape), 0, NUM_DRAWS)
        return self._distribution.structured(jnp.asarray(self._draws)[rows])

    def to_datatree(self) -> "xr.DataTree":
        """Return the draws as a tree for ArviZ: one chain of ``x`` in the group ``posterior``.

        The dimensions are chain, draw, those of the batch (``point``, or ``point_0``, ...) and
        ``input``, with `names`. Equal draws follow each other, so that ArviZ's effective sample
        size counts them as what they are. `converged`, `pareto_k`, `effective_draws`,
        `log_evidence`, `p_value` and `num_runs` are in the group ``convergence``.

        Raises
        ------
        ImportError
            If xarray is missing.
        """
        xarray = checks.require_extra("xarray", "to_datatree")
        rank = len(self.batch_shape)
        dims = ["point"] if rank == 1 else [f"point_{axis}" for axis in range(rank)]
        names = "converged", "pareto_k", "effective_draws", "log_evidence", "p_value", "num_runs"
        facts = {name: (dims, getattr(self, name)) for name in names}
        places = {name: np.arange(size) for name, size in zip(dims, self.batch_shape, strict=True)}
        draws = ("chain", "draw", *dims, "input"), self._draws[None]
        axes = {"chain": [0], "draw": np.arange(NUM_DRAWS), **places, "input": self.names}
        tree: xr.DataTree = xarray.DataTree.from_dict(
            {
                "posterior": xarray.Dataset({"x": draws}, axes),
                "convergence": xarray.Dataset(facts, places),
            }
        )
        tree.attrs["creation_library"] = "nn_uq_dist"
        return tree


def input_posterior(
    network: Callable[[Any], Any],
    f: Distribution | Input | Any,
    y: OutputNumbers,
    *,
    noise_scale: OutputNumbers | None = None,
    noise_covariance: ArrayLike | None = None,
    key: jax.Array,
    num_runs: int = 200_000,
    progress: bool = True,
) -> InputPosterior:
    r"""Distribution of the inputs of the network itself, given outputs observed with normal noise.

    Weighted draws of the posterior, without a tangent in the result: several peaks, ridges and
    bounds are found as far as the runs reach, and `InputPosterior.converged` says where they did
    not. `Linearization.input_posterior` does the same for the tangent, without runs.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`. It runs in its own type.
    f
        Distribution of the input before, as for `linearize`: everything that
        `nn_uq_dist.inputs.as_input` accepts, without batch axes.
    y
        Observed outputs, shape ``(..., N_y)``; each row is an observation of its own, of an input
        of its own. Of outputs in a dict it may be a dict, of arrays with the axes of the
        observations in front; a vector is in the order of ``jax.tree.leaves``.
    noise_scale
        Standard deviation of the noise; broadcasts against `y`, and may be a dict as `y`.
    noise_covariance
        Covariance of noise that outputs share, shape ``(..., N_y, N_y)``. Of both, the sum.
    key
        A JAX random key. The result depends on it and on the places of the observations alone, on
        one kind of device.
    num_runs
        Runs of the network for each observation after which no round begins, at least 20,000. Easy
        ones take 12,000 and hard ones all.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    InputPosterior
        With the batch shape of `y`.

    Raises
    ------
    ImportError
        If ArviZ is missing.
    TypeError
        If `key` is not a random key, `f` has no standard variables, or the function is called under
        ``jit``.
    ValueError
        If `y` or the noise does not fit, is not finite, or the noise not positive; if `f` has batch
        axes, no random variable or more than 200, or `network` fails on one input.

    Warns
    -----
    RuntimeWarning
        If outputs are NaN at inputs drawn from `f`.

    Notes
    -----
    The variables of the input become standard normal ones :math:`z`, uniform ones by
    :math:`2\Phi(z)-1`, so that no posterior has an edge. 128 minima of perturbed sums of squares
    (randomized maximum likelihood: D. S. Oliver, N. He and A. C. Reynolds 1996), half of them from
    good ones far from each other of 4000 draws of the input that all observations share, the others
    from draws whose standard deviation is :math:`1 + 1/d` times as large, start two mixtures of t
    distributions with 8 degrees of freedom, each with every other minimum. While the modes that one
    or two of them lie at have more than 2% of the posterior, or of a variance, there are more of
    them, up to a quarter of the runs: as much may be in modes where none lies (I. J. Good,
    Biometrika 40, 1953). In rounds of 4000 draws or more the mixtures are fitted to all draws,
    weighted over all mixtures :math:`q_t` (J.-M. Cornuet et al., Scand. J. Stat. 39, 2012), with
    the weights raised to a power below one while few are effective. Two halves of the draws have
    mixtures of their own, each fitted to the other half, as weights over a mixture that was fitted
    to the same draws are too small. Rounds end at 2500 effective draws; all draws are the result:

    .. math:: w_i \propto \frac{\phi(z_i) \exp(-|r(z_i)|^2 / 2)}{\sum_t n_t q_t(z_i)}, \qquad
        z_i \sim q_{t(i)},

    with the misfit :math:`r` in units of the noise. It is ``converged`` if at least 100 draws are
    effective, the Pareto shape of the weights is below 0.7 (A. Vehtari et al., J. Mach. Learn.
    Res. 25, 2024), if the evidence of the last round agrees with that of those before and that of
    the two halves with each other, and if so few modes were found by chance.
    A mode without any start may still be missing, and where it is far from the others, much of a
    standard deviation with it.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.normal(jnp.zeros(1), 1.0)
    >>> found = nuq.input_posterior(
    ...     lambda x: x**2, f, jnp.array([1.0]), noise_scale=0.1, key=jax.random.key(0)
    ... )
    >>> print(abs(found.draws).mean().round(1), (found.draws > 0).mean().round(1))  # two peaks
    1.0 0.5
    """
    checks.require_extra("arviz_stats.base", "input_posterior")
    key = checks.as_key("key", key)
    noise = noise_scale, noise_covariance
    flat = known_flat_network("input_posterior", network, f, y, *noise, key)
    num_runs = checks.positive_int("num_runs", num_runs, _MOST_RUNS, minimum=_LEAST_RUNS)
    space = StandardSpace(flat, lambda outputs: outputs, num_runs)
    if space.num_variables > _MOST_VARIABLES:
        raise ValueError(
            f"f must have at most {_MOST_VARIABLES} random variables, got {space.num_variables}; "
            f"linearize(network, f).input_posterior has no such limit"
        )
    structure, size = flat.output_structure, flat.num_outputs
    observed = _observed(by_names("y", y, structure, each=True), size)
    scale = by_names("noise_scale", noise_scale, structure)
    root = _noise_root(output_noise(scale, noise_covariance, observed.shape, observed))
    batch_shape = observed.shape[:-1]
    if np.broadcast_shapes(root.shape[:-2], batch_shape) != batch_shape:
        raise ValueError(
            f"y must have the batch axes of the noise, got batch shape {root.shape[:-2]} of the "
            f"noise, {batch_shape} of y; repeat y for each noise, as by jnp.broadcast_to"
        )
    from tqdm import tqdm

    outputs = observed.reshape(-1, size)
    roots = np.broadcast_to(root, (*observed.shape, size)).reshape(-1, size, size)
    seed = np.asarray(jax.random.key_data(key)).ravel()
    # Seeds are filled up with zeros: without a further number this would be the first row's.
    rng = np.random.default_rng([*seed, _SHARED_STREAM])
    points = rng.standard_normal((NUM_DRAWS, space.num_variables))
    shared = points, space.run(points)
    num_shared = math.ceil(space.num_runs / len(outputs))
    if num_nan := int(np.isnan(shared[1]).any(axis=1).sum()):
        checks.warn(
            f"outputs are NaN at {num_nan} of {NUM_DRAWS} inputs drawn from f, and such inputs "
            f"count as impossible; check the network over the range of its input"
        )
    ones = []
    with tqdm(total=len(outputs), unit="observation", delay=2, disable=not progress) as bar:
        for row, seen in enumerate(map(Observation, outputs, np.linalg.inv(roots))):
            first_run, rng = space.num_runs, np.random.default_rng([*seed, row])
            draws = sample_posterior(space, seen, shared, num_runs, rng)
            runs = num_shared + space.num_runs - first_run
            ones.append(_posterior_of(space, draws, size, runs, rng))
            bar.update()

    fields = {}
    for name in [field.name for field in dataclasses.fields(InputPosterior)][:-1]:
        stacked = np.stack([getattr(one, name) for one in ones])
        fields[name] = stacked.reshape(batch_shape + stacked.shape[1:])
    fields["_draws"] = np.moveaxis(fields["_draws"], len(batch_shape), 0)
    return InputPosterior(**fields, _distribution=space.distribution)


def _observed(y: Any, num_outputs: int) -> FloatArray:
    """Observed outputs, shape ``(..., num_outputs)``."""
    outputs = np.asarray(checks.as_numeric("y", y), np.float64)
    if outputs.shape[-1:] != (num_outputs,):
        raise ValueError(
            f"y must have shape (..., N_y) with N_y = {num_outputs}, got shape {outputs.shape}; "
            f"pass the observed value of each output along the last axis"
        )
    if outputs.size == 0:
        raise ValueError(f"y must hold an observation, got shape {outputs.shape}; pass a row")
    checks.require_finite("y", outputs, "leave the output out of the network where it is missing")
    return outputs


def _noise_root(noise: LinearImage | None) -> FloatArray:
    """A root of the covariance of the noise, with which the outputs have a density."""
    if noise is not None and not np.any(noise.is_constant):
        root: Any = fewest_columns(noise.root)
        correlated = root / noise.standard_deviation[..., None]
        if np.all(np.linalg.svd(correlated, compute_uv=False)[..., -1] >= _LEAST_NOISE):
            return root
    flaw = "none" if noise is None else "a standard deviation of zero or a singular covariance"
    raise ValueError(
        f"noise must be positive for every combination of outputs, got {flaw}; pass "
        f"noise_scale > 0: without noise the inputs have no density"
    )


def _posterior_of(
    space: StandardSpace, drawn: Draws, num_outputs: int, num_runs: int, rng: np.random.Generator
) -> InputPosterior:
    """The posterior of one observation, with 4000 draws of equal weight."""
    weights = np.exp(drawn.log_weights)
    inputs = space.inputs(drawn.points)
    # A transform may overflow at draws without weight.
    x = np.where(weights[:, None] > 0, inputs.astype(np.float64), 0.0)
    # In random order, so that equal draws follow each other, and nothing else.
    order = rng.permutation(len(x))
    draws = inputs[order[systematic(weights[order], NUM_DRAWS, rng)]]
    if math.isfinite(drawn.log_evidence):
        weights = weights / weights.sum()
    else:
        weights, draws = np.full_like(weights, np.nan), np.full_like(draws, np.nan)
    mean = weights @ x
    deviations = x - mean
    covariance = deviations.T @ (deviations * weights[:, None])
    return InputPosterior(
        covariance_matrix=covariance,
        log_evidence=np.asarray(drawn.log_evidence),
        p_value=np.asarray(chdtrc(num_outputs, drawn.squared_distance)),
        converged=np.asarray(drawn.converged),
        pareto_k=np.asarray(drawn.pareto_k),
        effective_draws=np.asarray(drawn.ess),
        num_runs=np.asarray(num_runs),
        _mean=mean,
        _draws=draws,
        _distribution=space.distribution,
    )
