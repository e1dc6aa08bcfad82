r"""The distribution of the inputs of a linearized network, given its outputs.

The input is :math:`\mu + A u + B v` with uniform `u` and normal `v`; outputs minus their means are
:math:`r = W u + G v + e` with :math:`W = J A` and :math:`G = J B`. Given `u`, the distribution of
`v` is normal, in closed form. That of `u` comes from expectation propagation, whose standard
deviations are off by 5 to 16% near corners. So mean and variance of each input are those of its own
density, which is its density before times that of the outputs with this input held fixed.
"""

import dataclasses
import math
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist import uniform_sum
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now, fewest_columns
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import (
    binary_unit,
    gram,
    in_squared_units,
    joined,
    matmul,
    matvec,
    norm,
    products,
    symmetric_root,
)
from nn_uq_dist.basics.summary_line import number_table, summary_line, to_error
from nn_uq_dist.box_gaussian import (
    NormalsGivenOutputs,
    OwnDensity,
    by_own_density,
    corrected_log_evidence,
    input_draws,
    log_evidence,
    normals_given_outputs,
    posterior_moments,
    uniform_moments,
)
from nn_uq_dist.distributions.linear_image import LinearImage, output_noise
from nn_uq_dist.inputs import Input
from nn_uq_dist.sampling.flat_network import OutputNumbers, by_names


class InputMoments(NamedTuple):
    """Means of the inputs, and a root of their covariance."""

    mean: Array  # shape (..., N_x)
    root: Array  # shape (..., N_x, k): the covariance is `root root^T`


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearizedInputPosterior:
    r"""Distribution of the inputs given the outputs of a linear model, with its evidence.

    Made by `nn_uq_dist.Linearization.input_posterior`. Given the uniform variables of the input,
    the normal ones are normal, in closed form; the distribution of the uniform ones comes from
    expectation propagation (moments) and hit-and-run (draws).

    Draws and moments have the units and the structure of what the network takes: a vector, or such
    as a dict of arrays, each with ``batch_shape`` in front. Known inputs are in it, with variance
    0. Of a transformed input (`nn_uq_dist.Input.is_transformed`) moments have no
    closed form: take those of draws, or of `base`. ``print`` shows a table of moments, if there are
    any and no batch.

    Attributes
    ----------
    input : Input
        Distribution of the input before anything was observed.
    jacobian : Array, shape batch_shape + (N_y, N_x)
        Of the linear model.
    deviation : Array, shape batch_shape + (N_y,)
        Observed outputs minus their means.
    noise : Array, shape batch_shape + (N_y, q)
        A root of the covariance of the noise; ``q`` is 0 without noise.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> f = nuq.Input.join(nuq.Input.box([0.0], 1.0), nuq.Input.normal([0.0], 1.0))
    >>> lin = nuq.Linearization([0.0], [[1.0, 1.0]], f)  # the sum of both
    >>> posterior = lin.input_posterior(jnp.array([2.5]), noise_scale=0.1)
    >>> print(posterior.mean.round(2), (posterior.variance**0.5).round(2))
    [0.56 1.92] [0.37 0.38]
    >>> posterior.sample(jax.random.key(0), (100,)).shape
    (100, 2)

    An input that is positive and one that is not:

    >>> import numpyro.distributions as dist
    >>> f = {"rate": dist.LogNormal(0.0, 0.5), "time": dist.Uniform(1.0, 2.0)}
    >>> network = lambda x: jnp.atleast_1d(x["rate"] * x["time"])
    >>> posterior = nuq.linearize(network, f).input_posterior(jnp.array([3.0]), noise_scale=0.1)
    >>> draws = posterior.sample(jax.random.key(0), (1000,))
    >>> draws["rate"].shape, bool((draws["rate"] > 0).all())
    ((1000,), True)
    >>> posterior.base.mean.shape  # of the logarithm of the rate, and of the time
    (2,)
    """

    input: Input
    jacobian: Array
    deviation: Array
    noise: Array

    def __repr__(self) -> str:
        return summary_line(self, "input", "batch_shape")

    def __str__(self) -> str:
        if self.batch_shape or self.input.is_transformed or not checks.is_concrete(self):
            return repr(self)
        moments = self._taken
        sd = np.asarray(norm(moments.root))
        means = to_error(moments.mean, sd)
        table = number_table(("input", "mean", "sd"), self.input.taken_names, means, sd)
        return f"Inputs given the outputs, log evidence {self.log_evidence:.3g}\n\n{table}"

    @cached_property
    def _moments(self) -> InputMoments:
        """Mean, variance and covariance of the vector take one computation."""
        with evaluated_now(self):  # what is traced would outlive the trace
            return moments_of(self)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch: leading axes of the observed outputs and of the model."""
        return self.deviation.shape[:-1]

    @property
    def base(self) -> "LinearizedInputPosterior":
        """Its value for vectors of the input, ``(..., N_x)``, before they are transformed."""
        return dataclasses.replace(self, input=self.input.base)

    @property
    def _taken(self) -> InputMoments:
        """Moments of the random numbers that the network takes."""
        if self.input.is_transformed:
            raise TypeError(
                f"input must be mapped linearly to what the network takes for moments in closed "
                f"form, got {self.input}; take moments of draws, sample(key, (10_000,)), or those "
                f"before the map, base.mean"
            )
        moments = self._moments
        is_known = checks.is_concrete(moments.mean)
        if is_known and (count := np.isnan(np.asarray(moments.mean)).any(axis=-1).sum()):
            checks.warn(
                f"moments are NaN for {count} of {math.prod(self.batch_shape)} observations: no "
                f"input of the support gives these outputs, or expectation propagation does not "
                f"converge; pass noise_scale > 0, or a larger one"
            )
        return moments if self.input.is_vector else _mapped(self.input, moments)

    @property
    def mean(self) -> Any:
        """Means of the inputs; NaN where none gives the outputs, or the passes do not converge."""
        return self.input.structured(self._taken.mean)

    @property
    def variance(self) -> Any:
        """Variances of the inputs; NaN where the type has no such number."""
        return jax.tree.map(products, self.standard_deviation)

    @property
    def standard_deviation(self) -> Any:
        """Standard deviations of the inputs, also where a variance would underflow."""
        return self.input.structured(norm(self._taken.root), is_spread=True)

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the random numbers that the network takes, ``batch_shape + (N, N)``.

        In the order of ``jax.tree.leaves`` and of ``input.taken_names``, without the known parts of
        a dict; NaN where the type has no such number.
        """
        root = self._taken.root
        unit = binary_unit(norm(root))
        return in_squared_units(gram(root / unit[..., None]), unit)

    @property
    def log_evidence(self) -> Array:
        """Log density of the observed outputs, shape ``batch_shape``: that of `joint`."""
        if self.input.num_standard_variables[0] == 0:
            return _normals(self).log_density(self.deviation)
        deviation, weights, normal_weights, unit = _parts(self)
        logs = log_evidence(deviation, weights, normal_weights)
        return logs - jnp.sum(jnp.log(unit), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw inputs, with ``sample_shape + batch_shape`` in front.

        Draws are independent. Those of normal variables are exact; those of uniform ones come from
        chains of 32 hit-and-run steps for each of them, of which the standard deviation was off by
        at most 3%.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws.
        """
        key, sample_shape = checks.as_sampling(key, sample_shape)
        key_uniform, key_normal = jax.random.split(key)
        count = self.input.num_standard_variables[0]
        shape = (*sample_shape, *self.batch_shape, count)
        uniforms = jnp.zeros(shape, self.deviation.dtype)
        if count:
            number = math.prod(sample_shape)
            uniforms = input_draws(key_uniform, *_parts(self)[:3], number).reshape(shape)
        return self.input.network_input(_completed(self, uniforms, key_normal))


def linearized_input_posterior(
    model: Any,
    y: OutputNumbers,
    noise_scale: OutputNumbers | None,
    noise_covariance: ArrayLike | None,
    of_model: LinearImage | None = None,
) -> LinearizedInputPosterior:
    """Check the arguments: see `nn_uq_dist.Linearization.input_posterior`.

    The noise `of_model` is added to that of the arguments.
    """
    size, remedy = model.num_outputs, "pass the observed value of each output"
    structure = model.output_structure
    numbers: Any = checks.in_type(by_names("y", y, structure, each=True), model.mean.dtype)
    y = checks.as_vectors("y", numbers, "N_y", size, remedy, model.batch_shape)
    checks.require_finite("y", y, "leave the output out of the network where it is missing")
    batch_shape = np.broadcast_shapes(np.shape(y)[:-1], model.batch_shape)
    scale = by_names("noise_scale", noise_scale, structure)
    noise = output_noise(scale, noise_covariance, (*batch_shape, size), model.mean)
    if of_model is not None:
        noise = of_model if noise is None else noise.plus(of_model)
    is_noisy = noise is not None and not (
        checks.is_concrete(noise) and np.any(np.asarray(noise.is_constant))
    )
    count = sum(model.input.num_standard_variables)
    if not is_noisy and count < size:
        raise ValueError(
            f"noise must be positive where outputs outnumber the random variables of the input, "
            f"got {size} outputs of {count} variables: no input reproduces them exactly; pass "
            f"noise_scale > 0"
        )
    root: Any = None if noise is None else fewest_columns(noise.root)
    root = jnp.zeros((size, 0), model.mean.dtype) if root is None else root
    batch_shape = np.broadcast_shapes(batch_shape, root.shape[:-2])
    return LinearizedInputPosterior(
        model.input.expand(batch_shape),
        jnp.broadcast_to(model.jacobian, (*batch_shape, *model.jacobian.shape[-2:])),
        jnp.broadcast_to(jnp.asarray(y, model.mean.dtype) - model.mean, (*batch_shape, size)),
        jnp.broadcast_to(root, (*batch_shape, *root.shape[-2:])),
    )


def _columns(seen: LinearizedInputPosterior) -> tuple[Array, Array]:
    """``W`` and ``G``, shapes ``(..., N_y, n)`` and ``(..., N_y, m)``."""
    uniform, normal = seen.input.columns(seen.jacobian)
    none = seen.jacobian[..., :0]
    return none if uniform is None else uniform, none if normal is None else normal


@jax.jit
def _parts(seen: LinearizedInputPosterior) -> tuple[Array, Array, Array | None, Array]:
    """Deviations, ``W``, and columns of the normal part if any, in units; and these units."""
    uniform, normal = _columns(seen)
    root = joined([normal, seen.noise])
    unit = binary_unit(norm(joined([uniform, root])))
    root = root / unit[..., None]
    columns = root if root.shape[-1] else None
    return seen.deviation / unit, uniform / unit[..., None], columns, unit


def moments_of(seen: LinearizedInputPosterior) -> InputMoments:
    """Of the inputs given the outputs."""
    if seen.input.num_standard_variables[0] == 0:
        none = seen.deviation[..., :0]
        return _given_uniforms(seen, none, jnp.zeros((*none.shape, 0), none.dtype))
    separate = _separate(seen.input)
    # Where inputs share uniform variables, each of these by its own density.
    of_uniforms = jax.jit(uniform_moments) if separate else posterior_moments
    uniforms = of_uniforms(*_parts(seen)[:3])
    roughly = _given_uniforms(seen, uniforms.mean, uniforms.covariance)
    if not separate:
        return roughly
    density = _by_density(seen, roughly)
    return InputMoments(roughly.mean + density.shift, roughly.root * density.factor[..., None])


@jax.jit
def _mapped(distribution: Input, moments: InputMoments) -> InputMoments:
    """Moments of the numbers that the network takes, by a linear map and its derivatives."""
    columns = jnp.moveaxis(moments.root, -1, 0)
    point = jnp.broadcast_to(moments.mean, columns.shape)
    _, moved = jax.jvp(distribution.taken, (point,), (columns,))
    return InputMoments(distribution.taken(moments.mean), jnp.moveaxis(moved, 0, -1))


def _separate(distribution: Input) -> bool:
    """Whether no two inputs share a variable, so that each has its own density."""
    if checks.is_concrete(distribution):
        return distribution.has_independent_entries
    return all(term.is_diagonal for term in distribution.terms)


@jax.jit
def _by_density(seen: LinearizedInputPosterior, roughly: InputMoments) -> OwnDensity:
    """Corrections of the moments by the density of each input."""
    distribution, size = seen.input, seen.input.num_inputs
    deviation, _, _, units = _parts(seen)
    jacobian, noise = seen.jacobian / units[..., None], seen.noise / units[..., None]
    identity = jnp.eye(size, dtype=jacobian.dtype)
    uniform, normal = _columns(dataclasses.replace(seen, jacobian=identity))
    scale = norm(normal) if normal.shape[-1] else None
    # Row `i` of each matrix without input `i`.
    without = jacobian[..., None, :, :] * (1.0 - identity)[:, None, :]
    weights = matmul(without, uniform[..., None, :, :])
    moved = matmul(without, normal[..., None, :, :])
    columns = joined([moved, noise[..., None, :, :]])

    def log_density(values: Array) -> Array:
        before = uniform_sum.logpdf(values, uniform, scale)
        rest = deviation[..., None, :] - values[..., None] * jacobian.mT
        return before + corrected_log_evidence(
            rest, weights, columns if columns.shape[-1] else None
        )

    end = jnp.abs(uniform).sum(axis=-1)
    if scale is not None:
        end = jnp.where(scale > 0, jnp.inf, end)
    center = roughly.mean - distribution.mean
    return by_own_density(center, norm(roughly.root), log_density, (-end, end))


@jax.jit
def _normals(seen: LinearizedInputPosterior) -> NormalsGivenOutputs:
    uniform, normal = _columns(seen)
    return normals_given_outputs(normal, seen.noise, uniform)


def _inputs(seen: LinearizedInputPosterior, uniforms: Array, around: Array | None = None) -> Array:
    """Inputs at uniform variables, and at or around the means of the normal ones given these."""
    rest = seen.deviation - matvec(_columns(seen)[0], uniforms)
    normals = matvec(_normals(seen).gain, rest)
    normals = normals if around is None else normals + around
    return seen.input.mean + seen.input.deviation_at(uniforms, normals)


@jax.jit
def _given_uniforms(seen: LinearizedInputPosterior, mean: Array, covariance: Array) -> InputMoments:
    """Moments of the inputs by those of the uniform variables."""
    normals, uniform = _normals(seen), _columns(seen)[0]
    # Columns of the variables: of the normal ones alone, and of what moves the uniform ones.
    moved = symmetric_root(covariance) if uniform.shape[-1] else covariance
    pushed = -matmul(normals.gain, matmul(uniform, moved))
    still = jnp.zeros((*moved.shape[:-1], normals.root.shape[-1]), moved.dtype)
    of_uniform, of_normal = joined([still, moved]), joined([normals.root, pushed])
    columns = (jnp.moveaxis(array, -1, 0) for array in (of_uniform, of_normal))
    root = jnp.moveaxis(seen.input.deviation_at(*columns), 0, -1)
    return InputMoments(_inputs(seen, mean), root)


@jax.jit
def _completed(seen: LinearizedInputPosterior, uniforms: Array, key: Array) -> Array:
    """Inputs with draws of the normal variables given the uniform ones."""
    root = _normals(seen).root
    shape = (*uniforms.shape[:-1], root.shape[-1])
    return _inputs(seen, uniforms, matvec(root, jax.random.normal(key, shape, root.dtype)))
