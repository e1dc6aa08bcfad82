"""The joint distribution of outputs of a linearized network, and sampling through its inputs."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array, lax, random
from jax.typing import ArrayLike
from numpyro.infer.reparam import Reparam

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import fewest_columns
from nn_uq_dist.basics.row_algebra import gram, in_squared_units, matvec
from nn_uq_dist.box_gaussian import rosenblatt_scores, second_order
from nn_uq_dist.distributions._box_gaussian_distribution import BoxGaussianDistribution, Parameters
from nn_uq_dist.distributions._contract import pass_validation, rebuilt, validate_sample
from nn_uq_dist.distributions._contract_joint import (
    JointDistribution,
    observed_outputs,
)
from nn_uq_dist.distributions._linearized_conditional import LinearizedConditional
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions.linear_image import LinearImage


class LinearizedJoint(BoxGaussianDistribution, JointDistribution):
    r"""Joint distribution of ``loc + W u + B n``: `u` uniform on a box, `n` standard normal.

    This is the distribution of the outputs of a linearized network. Draws, moments and marginals
    are exact; the density is the probability of a box under a normal distribution, by expectation
    propagation.

    Parameters
    ----------
    loc : array_like, shape (..., d)
        Means of the outputs.
    weights : array_like, shape (..., d, n)
        ``W``, a column for each uniform on [-1, 1]; ``jnp.zeros((d, 1))`` for none.
    normal_weights : array_like, shape (..., d, m), optional
        ``B``, a column for each standard normal variable, such as of normal inputs and of noise:
        ``jnp.diag(scale)`` for independent noise, ``jnp.linalg.cholesky(covariance)`` for a
        covariance. Default: no normal part.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or there are fewer columns than outputs; with validation on, if a
        parameter is NaN or infinite, or some outputs are functions of others up to rounding: then
        there is no density, and under ``jit`` it is NaN.

    Notes
    -----
    .. math:: p(\mathrm{loc} + r) =
        \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(r;\, W u,\, B B^T)\, du

    The log density is off by a few thousandths if the weights have as large a rank as there are
    inputs, and exact if each output has an input of its own. Weights of a smaller rank (fewer
    outputs than inputs, equal or nearly equal columns) and little noise give corners, at which it
    is off by .01 to .1 on average and by at most .2, however many outputs there are. See
    `nn_uq_dist.box_gaussian.log_evidence`. Gradients are of first order only. Without a normal part
    the support is a zonotope, and ``support`` the box around it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> joint = nuq.LinearizedJoint(jnp.zeros(2), [[1.0, 1.0], [1.0, -1.0]])
    >>> round(float(jnp.exp(joint.log_prob(jnp.zeros(2)))), 4)  # uniform on a square of area 8
    0.125
    """

    reparametrized_params: ClassVar[list[str]] = ["loc", "weights", "normal_weights"]
    kind = "linear joint"

    def __init__(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_weights: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        shape = self._keep(loc, weights, normal_weights)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @classmethod
    def of_image(cls, loc: Array, image: LinearImage) -> "LinearizedJoint":
        """The joint distribution of outputs with these means and columns."""
        return cls(loc, image.weights, fewest_columns(image.normal_weights))

    @property
    def marginals(self) -> LinearizedMarginal:
        """Distributions of the single outputs, exact: ``batch_shape + (d,)``."""
        return self._prior

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape + (d,)``."""
        key, sample_shape = checks.as_sampling(key, sample_shape)
        key_uniform, key_normal = random.split(key)
        loc, weights, normal_weights = self._arrays()
        shape = (*sample_shape, *self.batch_shape)
        uniform = random.uniform(
            key_uniform, (*shape, weights.shape[-1]), loc.dtype, minval=-1.0, maxval=1.0
        )
        draws = loc + matvec(weights, uniform)
        if normal_weights is None:
            return draws
        normal = random.normal(key_normal, (*shape, normal_weights.shape[-1]), loc.dtype)
        return draws + matvec(normal_weights, normal)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density by expectation propagation; ``-inf`` outside of the support."""
        return _log_density(self, self._fitting_outputs(value))

    def log_prob_correction(self, value: ArrayLike) -> Array:
        """What the next order of the expansion adds to `log_prob`: an estimate of its error.

        Parameters
        ----------
        value : array_like, shape (..., d)

        Raises
        ------
        NotImplementedError
            For derivatives.

        Notes
        -----
        It removes most of the error (`nn_uq_dist.box_gaussian.second_order`), but has no gradients.
        Draws from a posterior computed with `log_prob` are corrected by the weights ``exp(sum of
        log_prob_correction)`` over the observations.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> joint = nuq.LinearizedJoint(jnp.zeros(1), [[1.0, 1.0]])  # a triangle, log(1/8)
        >>> print(f"{joint.log_prob([1.5]):.3f} {joint.log_prob_correction([1.5]):.3f}")
        -1.995 -0.097
        """
        deviation, parameters = _deviation(self, self._fitting_outputs(value))
        return second_order(deviation, parameters.weights, parameters.normal_weights)

    @property
    def covariance_matrix(self) -> Array:
        """``W W^T/3 + B B^T``, shape ``batch_shape + (d, d)``.

        NaN where the type has no such number.
        """
        return jnp.broadcast_to(_covariance(self), (*self.shape(), *self.event_shape))

    def marginalize(self, indices: int | Sequence[int]) -> "LinearizedJoint":
        """The exact joint distribution of some outputs, in the order of ``indices``."""
        return rebuilt(self, **self._of_outputs(checks.as_indices(indices, self.event_shape[0])))

    def rosenblatt(self, value: ArrayLike) -> Array:
        """Scores by quadrature over conditional densities: 48 densities for each output."""
        deviation, parameters = _deviation(self, self._fitting_outputs(value))
        columns = parameters.weights, parameters.normal_weights
        shape = jnp.broadcast_shapes(deviation.shape, self.shape())
        deviation = jnp.broadcast_to(deviation, shape)
        if not self.batch_shape:
            flat = deviation.reshape(-1, shape[-1])
            return rosenblatt_scores(flat, *columns).reshape(shape)
        count = math.prod(self.batch_shape)
        draws = math.prod(shape[: -len(self.shape())])
        flat = jnp.moveaxis(deviation.reshape(draws, count, shape[-1]), 1, 0)

        def of_each(matrix: Array) -> Array:
            wide = jnp.broadcast_to(matrix, (*self.batch_shape, *matrix.shape[-2:]))
            return wide.reshape(count, *matrix.shape[-2:])

        each = flat, *jax.tree.map(of_each, columns)
        scores = lax.map(lambda arguments: rosenblatt_scores(*arguments), each)
        return jnp.moveaxis(scores, 0, 1).reshape(shape)

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> LinearizedConditional:
        """The distribution of the other outputs, given these.

        Parameters
        ----------
        indices : int or sequence of int
            Which outputs are known.
        values : array_like, shape (..., len(indices))
            Their values; the leading axes broadcast against ``batch_shape``.

        Returns
        -------
        LinearizedConditional
            Over the other outputs, in their order.

        Raises
        ------
        TypeError, ValueError
            If an index is traced, not an integer, out of range or repeated, if all outputs are
            given, or if a known value is outside its output's support. For values that no input can
            produce together, moments, draws and densities are NaN.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> joint = nuq.LinearizedJoint(jnp.zeros(2), [[1.0, 1.0], [1.0, 0.0]], 0.1 * jnp.eye(2))
        >>> rest = joint.condition(0, 1.5)  # one of two terms, given a sum near 1.5
        >>> print(f"{rest.mean[0]:.2f}")
        0.74
        >>> low, high = jnp.quantile(
        ...     rest.sample(jax.random.key(0), (2000,)), jnp.array([0.05, 0.95])
        ... )
        >>> bool(0.4 < low < 0.6), bool(0.9 < high < 1.1)
        (True, True)
        """
        observed, remaining, _, values = observed_outputs(self.marginals, indices, values)
        parts = self._of_outputs((*observed, *remaining))
        return pass_validation(self, LinearizedConditional(values, **parts, validate_args=False))


# Programs of the distribution as a whole: an eager call does not compile each operation separately.
@jax.jit
def _log_density(joint: LinearizedJoint, value: Array) -> Array:
    return joint.parameters(value).log_density(value)


@jax.jit
def _deviation(joint: LinearizedJoint, value: Array) -> tuple[Array, Parameters]:
    """Standardized differences from the means, and parameters."""
    parameters = joint.parameters(value)
    return parameters.deviation(value), parameters


@jax.jit
def _covariance(joint: LinearizedJoint) -> Array:
    parameters = joint.parameters()
    total = gram(parameters.weights) / 3.0
    if parameters.normal_weights is not None:
        total = total + gram(parameters.normal_weights)
    return in_squared_units(total, parameters.unit)


class InputReparam(Reparam):
    r"""Sample the variables of a linear distribution in place of its outputs (non-centered).

    For a latent `LinearizedMarginal` or `LinearizedJoint` :math:`y = \mathrm{loc} + W u + B n` the
    sites are :math:`u`, uniform on (-1, 1), and :math:`n`, standard normal; the outputs follow. No
    site has bounds that move with parameters, which autoguides keep from the first trace, and no
    density of a sum is evaluated.

    Raises
    ------
    ValueError
        If the site is observed: then the density of the outputs is needed.
    TypeError
        If the site has another distribution.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> def model():
    ...     width = numpyro.sample("width", dist.HalfNormal(1.0))
    ...     y = numpyro.sample("y", nuq.LinearizedMarginal(0.0, width * jnp.ones(3)))
    ...     numpyro.sample("seen", dist.Normal(y, 0.1), obs=1.0)
    >>> through_inputs = numpyro.handlers.reparam(model, {"y": nuq.distributions.InputReparam()})
    >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(through_inputs, 0)).get_trace()
    >>> list(trace)
    ['width', 'y_uniform', 'y', 'seen']
    """

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Array]:
        """Replace the site by those of its variables; NumPyro calls it."""
        if obs is not None:
            raise ValueError(
                f"InputReparam needs a latent site, but {name!r} is observed or substituted; leave "
                f"it out, or substitute {name}_uniform and {name}_normal"
            )
        outputs, shape, event_dim = self._unwrap(fn)
        if isinstance(outputs, LinearizedMarginal):
            scale = outputs.normal_scale
            columns = None if scale is None else jnp.asarray(scale)[..., None]
        elif isinstance(outputs, LinearizedJoint):
            columns = outputs.normal_weights
        else:
            raise TypeError(
                f"InputReparam needs a LinearizedMarginal or LinearizedJoint, but {name!r} is a "
                f"{type(outputs).__name__}; leave it out (of copulas take TransformReparam, for a "
                f"mask numpyro.handlers.mask)"
            )
        num_event_axes = event_dim - outputs.event_dim  # of `to_event`
        value = jnp.asarray(outputs.loc)
        for kind, weights, variable in (
            ("uniform", outputs.weights, dist.Uniform(-1.0, 1.0)),
            ("normal", columns, dist.Normal(0.0, 1.0)),
        ):
            if weights is None:
                continue
            rows = jnp.asarray(weights)
            variables = variable.expand((*shape, rows.shape[-1])).to_event(1 + num_event_axes)
            draws = numpyro.sample(f"{name}_{kind}", variables)
            value = value + (matvec(rows, draws) if outputs.event_dim else (rows * draws).sum(-1))
        return None, value
