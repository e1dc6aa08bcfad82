"""The joint law of several outputs of a linearized network as a NumPyro distribution."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import (
    as_numeric,
    broadcast_shapes,
    float_dtype,
    is_concrete,
)
from nn_uq_dist.basics._indices import as_indices
from nn_uq_dist.basics._row_algebra import gram, matvec
from nn_uq_dist.box_gaussian import (
    Moments,
    conditional_scores,
    input_moments,
    log_evidence,
)
from nn_uq_dist.distributions._density_checks import require_density
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._vector_support import vector_support
from nn_uq_dist.laws._abstract import validate_sample
from nn_uq_dist.laws._choose_outputs import take_matrix
from nn_uq_dist.laws._joint_law import JointLaw


class LinearizedJoint(JointLaw):
    r"""Joint law of ``loc + W u + e``: ``u`` uniform on a box, ``e`` normal.

    This is the law of the outputs of a linearized network. Draws, moments and marginals are exact;
    the density is the probability of a box under a normal law, by expectation propagation.

    Parameters
    ----------
    loc : array_like, shape (..., d)
        Means of the outputs.
    weights : array_like, shape (..., d, n)
        A column for each uniform on [-1, 1].
    normal_covariance : array_like, shape (..., d, d), optional
        Covariance of the normal part, such as of normal inputs and of noise. Symmetric, positive
        semidefinite. Default: no normal part, which takes as many uniforms as outputs.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or outputs without a normal part outnumber the uniforms; with
        validation on, if a parameter is NaN or infinite, the covariance not symmetric or not
        positive semidefinite, or some outputs are functions of others: there is no density then,
        and under ``jit`` it is NaN.

    Notes
    -----
    .. math:: p(y) = \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(y;\, \mathrm{loc} + W u,\, S_0)\, du

    The density errs by a few thousandths in its logarithm, at most .2 in laws of two or three
    outputs with as many inputs and little noise; it is exact where each output has an input for
    itself. See `nn_uq_dist.box_gaussian.log_evidence`. Gradients are of first order only. Without
    a normal part the support is a zonotope, and ``support`` the box around it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> joint = nuq.LinearizedJoint(jnp.zeros(2), [[1.0, 1.0], [1.0, -1.0]])
    >>> round(float(jnp.exp(joint.log_prob(jnp.zeros(2)))), 4)  # uniform on a square of area 8
    0.125
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real_vector,
        "weights": constraints.real_matrix,
        "normal_covariance": constraints.positive_definite,
    }
    reparametrized_params: ClassVar[list[str]] = ["loc", "weights", "normal_covariance"]
    pytree_data_fields = ("loc", "weights", "normal_covariance")
    kind = "linear joint"

    def __init__(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_covariance: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        loc, weights = as_numeric("loc", loc), as_numeric("weights", weights)
        if jnp.ndim(weights) < 2 or 0 in jnp.shape(weights)[-2:]:
            msg = (
                f"weights must have shape (..., d, n), a row for each output and a column for each "
                f"uniform, got {jnp.shape(weights)}; for one output use LinearizedMarginal"
            )
            raise ValueError(msg)
        num_outputs, count = jnp.shape(weights)[-2:]
        if normal_covariance is not None:
            normal_covariance = as_numeric("normal_covariance", normal_covariance)
            if jnp.shape(normal_covariance)[-2:] != (num_outputs, num_outputs):
                msg = (
                    f"normal_covariance must have shape (..., {num_outputs}, {num_outputs}), "
                    f"got {jnp.shape(normal_covariance)}; "
                    "for independent noise pass jnp.diag(scale**2)"
                )
                raise ValueError(msg)
        elif count < num_outputs:
            msg = (
                f"weights must have as many columns as rows without a normal part, got "
                f"{num_outputs} outputs of {count} uniforms, which have no density together; "
                "pass normal_covariance (noise_scale in Linearization.linear_joint)"
            )
            raise ValueError(msg)
        covariance_shape = () if normal_covariance is None else jnp.shape(normal_covariance)
        shape = broadcast_shapes(
            "loc, weights without their last axis and normal_covariance must broadcast",
            loc=jnp.shape(loc) or (1,),
            weights=jnp.shape(weights)[:-1],
            normal_covariance=covariance_shape[:-1],
        )
        if shape[-1] != num_outputs:
            msg = (
                f"loc must have shape (..., {num_outputs}), an entry for each row of weights, got "
                f"{jnp.shape(loc)}; pass one mean per output"
            )
            raise ValueError(msg)
        batch_shape = shape[:-1]
        # Known numbers stay known under `jit`, where values are checked against the support.
        xp = np if isinstance(loc, np.ndarray) else jnp
        loc = xp.broadcast_to(xp.asarray(loc), (*jnp.shape(loc)[:-1], num_outputs))
        (self.loc,) = promote_shapes(loc, shape=shape)
        (self.weights,) = promote_shapes(weights, shape=(*shape, count))
        self.normal_covariance = None
        if normal_covariance is not None:
            (self.normal_covariance,) = promote_shapes(
                normal_covariance, shape=(*shape, num_outputs)
            )
        super().__init__(batch_shape, (num_outputs,), validate_args=validate_args)

    def get_args(self) -> dict[str, Any]:
        """Parameters, without a normal part that is not there."""
        given = {name: self.__dict__[name] for name in self.arg_constraints}
        return {name: value for name, value in given.items() if value is not None}

    def validate_args(self, strict: bool = True) -> None:
        """As NumPyro's; known parameters with room for rounding, and for a density."""
        if is_concrete(self.get_args()):
            parts = self.loc, self.weights, self.normal_covariance
            require_density(*parts, self._dtype)
        else:
            super().validate_args(strict)

    @property
    def _dtype(self) -> jnp.dtype:
        dtype = float_dtype(*self.get_args().values())
        return jnp.promote_types(dtype, jnp.float32)

    def _parts(self) -> tuple[Array, Array, Array | None]:
        covariance = self.normal_covariance
        return (
            jnp.asarray(self.loc, self._dtype),
            jnp.asarray(self.weights, self._dtype),
            None if covariance is None else jnp.asarray(covariance, self._dtype),
        )

    @property
    def marginals(self) -> LinearizedMarginal:
        """Laws of the single outputs, exact: ``batch_shape + (d,)``."""
        covariance = self.normal_covariance
        scale = None
        if covariance is not None:
            diagonal = jnp.diagonal(jnp.asarray(covariance, self._dtype), axis1=-2, axis2=-1)
            # The root has no slope at zero.
            scale = jnp.where(diagonal == 0, 0.0, jnp.sqrt(jnp.where(diagonal == 0, 1.0, diagonal)))
        return LinearizedMarginal(self.loc, self.weights, scale, validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.normal_covariance is not None:
            return constraints.real_vector
        return vector_support(self.marginals.support)

    def _validate_sample(self, value: ArrayLike) -> Array:
        # As in `LinearizedMarginal`: NumPy values and traced bounds.
        with jax.ensure_compile_time_eval():
            return super()._validate_sample(jnp.asarray(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape + (d,)``."""
        loc, weights, covariance = self._parts()
        key_uniform, key_normal = random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        uniform = random.uniform(
            key_uniform, (*shape, weights.shape[-1]), self._dtype, minval=-1.0, maxval=1.0
        )
        draws = loc + matvec(weights, uniform)
        if covariance is not None:
            normal = random.normal(key_normal, (*shape, *self.event_shape), self._dtype)
            draws = draws + matvec(_root(covariance), normal)
        return draws

    def _deviation(self, value: ArrayLike) -> Array:
        given = jnp.asarray(as_numeric("value", value))
        if given.shape[-1:] != self.event_shape:
            raise ValueError(
                f"value must have shape (..., {self.event_shape[0]}), one entry per output, got "
                f"shape {given.shape}; for some outputs use marginalize(indices)"
            )
        try:
            jnp.broadcast_shapes(given.shape, self.shape())
        except ValueError as error:
            raise ValueError(
                f"value must broadcast against batch_shape + event_shape {self.shape()}, got shape "
                f"{given.shape}; insert axes of size 1 in front of the last one"
            ) from error
        dtype = jnp.promote_types(jnp.result_type(given, self._dtype), jnp.float32)
        return given.astype(dtype) - jnp.asarray(self.loc, dtype)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density by expectation propagation; ``-inf`` outside of the support."""
        deviation = self._deviation(value)
        _, weights, covariance = self._parts()
        weights = weights.astype(deviation.dtype)
        if covariance is not None:
            covariance = covariance.astype(deviation.dtype)
        return log_evidence(deviation, weights, covariance)

    @property
    def covariance_matrix(self) -> Array:
        """``W W^T/3`` and the covariance of the normal part, ``batch_shape + (d, d)``."""
        _, weights, covariance = self._parts()
        total = gram(weights) / 3.0
        total = total if covariance is None else total + covariance
        return jnp.broadcast_to(total, (*self.shape(), *self.event_shape))

    def marginalize(self, indices: int | Sequence[int]) -> "LinearizedJoint":
        """The exact joint law of some outputs, in the order of ``indices``."""
        kept = as_indices(indices, self.event_shape[0])
        rows = np.asarray(kept)
        covariance = self.normal_covariance
        if covariance is not None:
            covariance = take_matrix(jnp.asarray(covariance), kept, kept)
        part = LinearizedJoint(
            jnp.asarray(self.loc)[..., rows],
            jnp.asarray(self.weights)[..., rows, :],
            covariance,
            validate_args=False,
        )
        return self._pass_validation(part)

    def rosenblatt(self, value: ArrayLike) -> Array:
        """Scores by quadrature over conditional densities: 48 densities for each output."""
        deviation = self._deviation(value)
        shape = jnp.broadcast_shapes(deviation.shape, self.shape())
        deviation = jnp.broadcast_to(deviation, shape)
        _, weights, covariance = self._parts()
        if not self.batch_shape:
            flat = deviation.reshape(-1, shape[-1])
            return conditional_scores(flat, weights, covariance).reshape(shape)
        count = int(np.prod(self.batch_shape))
        flat = jnp.moveaxis(deviation.reshape(-1, count, shape[-1]), 1, 0)
        parts = [
            jnp.broadcast_to(part, (*self.batch_shape, *part.shape[-2:])).reshape(
                count, *part.shape[-2:]
            )
            for part in (weights, covariance)
            if part is not None
        ]
        found = lax.map(
            lambda at: conditional_scores(at[0], at[1], at[2] if len(at) > 2 else None),
            (flat, *parts),
        )
        return jnp.moveaxis(found, 0, 1).reshape(shape)

    def input_posterior(self, value: ArrayLike) -> Moments:
        """Mean and covariance of the uniforms behind observed outputs.

        Parameters
        ----------
        value : array_like, shape (..., d)

        Returns
        -------
        Moments
            ``mean``, shape ``(..., n)``, in units of the half-widths, and ``covariance``; by
            expectation propagation. NaN without convergence and outside of the support.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> joint = nuq.LinearizedJoint(jnp.zeros(1), jnp.ones((1, 2)), 1e-4 * jnp.eye(1))
        >>> found = joint.input_posterior(jnp.array([1.0]))
        >>> bool(jnp.allclose(found.mean, 0.5, atol=1e-3))  # two inputs share what was seen
        True
        """
        deviation = self._deviation(value)
        _, weights, covariance = self._parts()
        shape = jnp.broadcast_shapes(deviation.shape, self.shape())[:-1]

        def wide(part: Array, rank: int) -> Array:
            return jnp.broadcast_to(part, (*shape, *part.shape[part.ndim - rank :]))

        weights = wide(weights.astype(deviation.dtype), 2)
        if covariance is not None:
            covariance = wide(covariance.astype(deviation.dtype), 2)
        return input_moments(wide(deviation, 1), weights, covariance)

    def expand(self, batch_shape: Sequence[int]) -> "LinearizedJoint":
        """The same law with a larger batch shape."""
        shape = self._expanded_shape(batch_shape)
        xp = np if isinstance(self.loc, np.ndarray) else jnp
        loc = xp.broadcast_to(xp.asarray(self.loc), (*shape, *self.event_shape))
        wide = LinearizedJoint(loc, self.weights, self.normal_covariance, validate_args=False)
        return self._pass_validation(wide)

    @staticmethod
    def infer_shapes(
        loc: tuple[int, ...],
        weights: tuple[int, ...],
        normal_covariance: tuple[int, ...] | None = None,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shape from the shapes of the parameters."""
        covariance = () if normal_covariance is None else normal_covariance[:-1]
        shape = jnp.broadcast_shapes(loc, weights[:-1], covariance)
        return shape[:-1], shape[-1:]


def _root(covariance: Array) -> Array:
    """A matrix with ``R R^T`` the covariance, also where that is singular."""
    factor = jnp.linalg.cholesky(covariance)
    values, vectors = jnp.linalg.eigh(lax.stop_gradient(covariance))
    singular = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]
    regular = ~jnp.any(jnp.isnan(factor), axis=(-2, -1), keepdims=True)
    return jnp.where(regular, factor, singular)


@vmap_over.register
def _vmap_over_linearized_joint(
    d: LinearizedJoint,
    loc: int | None = None,
    weights: int | None = None,
    normal_covariance: int | None = None,
) -> LinearizedJoint:
    default = vmap_over.dispatch(dist.Distribution)
    return default(d, loc=loc, weights=weights, normal_covariance=normal_covariance)


@promote_batch_shape.register
def _promote_linearized_joint(d: LinearizedJoint) -> LinearizedJoint:
    wide = LinearizedJoint(d.loc, d.weights, d.normal_covariance, validate_args=False)
    return d._pass_validation(wide)  # noqa: SLF001 (the class's own)
