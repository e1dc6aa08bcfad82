"""The joint law of several outputs of a linearized network, and that of some given others."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.basics._row_algebra import covariance_root, matvec
from nn_uq_dist.box_gaussian import (
    Moments,
    conditional_moments,
    conditional_scores,
    input_draws,
    log_evidence,
    log_evidence_of_shared_law,
    second_order,
)
from nn_uq_dist.box_gaussian._moments import regression
from nn_uq_dist.box_gaussian._own_units import in_own_units, joint_covariance
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._output_values import fitting_value, observed_outputs
from nn_uq_dist.distributions._vector_support import vector_support
from nn_uq_dist.inputs._parameter_checks import is_positive_definite, require_covariance
from nn_uq_dist.laws._abstract import Law, pass_validation, rebuilt, validate_sample
from nn_uq_dist.laws._batch_entries import take_matrix
from nn_uq_dist.laws._joint_law import JointLaw


class BoxGaussianLaw(Law):
    """Abstract law of some of the outputs ``loc + W u + e``, `u` uniform on a box and `e` normal.

    Its constructor calls `_keep`, which sets ``loc``, ``weights`` and ``normal_covariance``.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real_vector,
        "weights": constraints.real_matrix,
        "normal_covariance": constraints.positive_definite,
    }

    def _keep(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_covariance: ArrayLike | None,
        **others: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Set the parameters, of equal rank; return batch shape and number of outputs as one tuple.

        Parameters
        ----------
        loc, weights, normal_covariance
            As for `LinearizedJoint`.
        **others
            Batch shapes of further arguments.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If shapes do not fit, or there is no normal part and fewer uniforms than outputs.
        """
        loc, weights = _checks.as_numeric("loc", loc), _checks.as_numeric("weights", weights)
        if jnp.ndim(weights) < 2 or 0 in jnp.shape(weights)[-2:]:
            raise ValueError(
                f"weights must have shape (..., d, n), a row for each output and a column for each "
                f"uniform, got {jnp.shape(weights)}; for one output use LinearizedMarginal"
            )
        num_outputs, count = jnp.shape(weights)[-2:]
        covariance_shape: tuple[int, ...] = ()
        if normal_covariance is not None:
            normal_covariance = _checks.as_numeric("normal_covariance", normal_covariance)
            covariance_shape = jnp.shape(normal_covariance)
            if covariance_shape[-2:] != (num_outputs, num_outputs):
                raise ValueError(
                    f"normal_covariance must have shape (..., {num_outputs}, {num_outputs}), "
                    f"got {covariance_shape}; for independent noise pass jnp.diag(scale**2)"
                )
        elif count < num_outputs:
            raise ValueError(
                f"weights without a normal part must have at least as many columns as rows, got "
                f"{num_outputs} outputs of {count} uniforms, which have no joint density; "
                "pass normal_covariance (noise_scale in Linearization.joint)"
            )
        named = "".join(f", the leading axes of {name}" for name in others)
        shape = _checks.broadcast_shapes(
            f"loc, weights without their last axis{named} and normal_covariance must broadcast",
            loc=jnp.shape(loc) or (1,),
            weights=jnp.shape(weights)[:-1],
            normal_covariance=covariance_shape[:-1],
            **{name: (*lead, 1) for name, lead in others.items()},
        )
        if shape[-1] != num_outputs:
            raise ValueError(
                f"loc must have shape (..., {num_outputs}), an entry for each row of weights, got "
                f"{jnp.shape(loc)}; pass one mean per output"
            )
        # Known numbers stay known under `jit`, where values are checked against the support.
        xp = np if isinstance(loc, np.ndarray) else jnp
        loc = xp.broadcast_to(xp.asarray(loc), (*jnp.shape(loc)[:-1], num_outputs))
        (self.loc,) = promote_shapes(loc, shape=shape)
        (self.weights,) = promote_shapes(weights, shape=(*shape, count))
        self.normal_covariance = normal_covariance
        if normal_covariance is not None:
            (self.normal_covariance,) = promote_shapes(
                normal_covariance, shape=(*shape, num_outputs)
            )
        return shape

    def validate_args(self, strict: bool = True) -> None:
        """Check as NumPyro does; known parameters, up to rounding, must also give a density.

        They must be finite, the covariance symmetric and positive semidefinite up to rounding, and
        no output a function of the others.
        """
        given = self.get_args()
        if not _checks.is_concrete(given):
            super().validate_args(strict)
            return
        for name, value in given.items():
            _checks.require_finite(name, value)
        columns = np.asarray(self.weights, np.float64)
        total = columns @ columns.mT / 3.0
        rounding = 4.0 * float(jnp.finfo(self._dtype).eps) * columns.shape[-2]
        if self.normal_covariance is not None:
            covariance = np.asarray(self.normal_covariance, np.float64)
            require_covariance("normal_covariance", covariance, 1e-3, 1e2 * rounding)
            total = total + covariance
        # Allows for rounded parameters, and for rounded eigenvalues of exactly dependent outputs.
        _require_independent(total, max(rounding**2, 1e-15 * columns.shape[-2]))

    @property
    def _dtype(self) -> jnp.dtype:
        """Type of the results: at least single precision."""
        return jnp.promote_types(_checks.float_dtype(*self.get_args().values()), jnp.float32)

    def arrays(self, dtype: jnp.dtype | None = None) -> tuple[Array, Array, Array | None]:
        """The parameters as arrays of one type."""
        dtype = self._dtype if dtype is None else dtype
        covariance = self.normal_covariance
        covariance = None if covariance is None else jnp.asarray(covariance, dtype)
        return jnp.asarray(self.loc, dtype), jnp.asarray(self.weights, dtype), covariance

    def _rows(self, order: Sequence[int]) -> dict[str, Any]:
        """The parameters of some outputs, in this order."""
        rows, covariance = np.asarray(order), self.normal_covariance
        if covariance is not None:
            covariance = take_matrix(jnp.asarray(covariance), tuple(order), tuple(order))
        return {
            "loc": jnp.asarray(self.loc)[..., rows],
            "weights": jnp.asarray(self.weights)[..., rows, :],
            "normal_covariance": covariance,
        }


def _require_independent(total: FloatArray, tolerance: float) -> None:
    deviation = np.sqrt(np.diagonal(total, axis1=-2, axis2=-1))
    unit = np.where(deviation > 0, deviation, 1.0)
    scaled = total / unit[..., None] / unit[..., None, :]
    if is_positive_definite(scaled, -2.0 * tolerance):
        return
    values, vectors = np.linalg.eigh(scaled)
    flat = values[..., 0] <= tolerance
    if flat.any():
        where = tuple(int(i) for i in np.argwhere(flat)[0])
        involved = [str(j) for j in np.flatnonzero(np.abs(vectors[where][:, 0]) > 1e-3)]
        more = f" and {len(involved) - 8} more" if len(involved) > 8 else ""
        raise ValueError(
            f"outputs must not be functions of each other, got outputs "
            f"{', '.join(involved[:8])}{more}, which are linearly dependent: there is no "
            "density; pass normal_covariance (noise_scale in Linearization.joint) or "
            "leave one out with marginalize"
        )


class LinearizedJoint(BoxGaussianLaw, JointLaw):
    r"""Joint distribution of ``loc + W u + e``: ``u`` uniform on a box, ``e`` normal.

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
        semidefinite. Default: no normal part; then there must be at least as many uniforms as
        outputs.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or there is no normal part and fewer uniforms than outputs; with
        validation on, if a parameter is NaN or infinite, the covariance is not symmetric or not
        positive semidefinite, or some outputs are functions of others: then there is no density,
        and under ``jit`` it is NaN.

    Notes
    -----
    .. math:: p(y) = \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(y;\, \mathrm{loc} + W u,\, S_0)\, du

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
        shape = self._keep(loc, weights, normal_covariance)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def marginals(self) -> LinearizedMarginal:
        """Distributions of the single outputs, exact: ``batch_shape + (d,)``."""
        covariance, scale = self.arrays()[2], None
        if covariance is not None:
            variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
            # The square root has no finite slope at zero.
            scale = jnp.where(variance == 0, 0.0, jnp.sqrt(jnp.where(variance == 0, 1.0, variance)))
        return LinearizedMarginal(self.loc, self.weights, scale, validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.normal_covariance is not None:
            return constraints.real_vector
        return vector_support(self.marginals.support)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape + (d,)``."""
        loc, weights, covariance = self.arrays()
        key_uniform, key_normal = random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        uniform = random.uniform(
            key_uniform, (*shape, weights.shape[-1]), loc.dtype, minval=-1.0, maxval=1.0
        )
        draws = loc + matvec(weights, uniform)
        if covariance is not None:
            normal = random.normal(key_normal, (*shape, *self.event_shape), loc.dtype)
            draws = draws + matvec(covariance_root(covariance), normal)
        return draws

    def _deviation(self, value: ArrayLike) -> tuple[Array, Array, Array | None]:
        """Differences from the means, weights and covariance, in the type of the result."""
        given = fitting_value(value, self.shape())
        dtype = jnp.result_type(given, self._dtype)
        loc, weights, covariance = self.arrays(dtype)
        return given.astype(dtype) - loc, weights, covariance

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density by expectation propagation; ``-inf`` outside of the support."""
        return log_evidence_of_shared_law(*self._deviation(value))

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
        return second_order(*self._deviation(value))

    @property
    def covariance_matrix(self) -> Array:
        """``W W^T/3`` plus the covariance of the normal part, ``batch_shape + (d, d)``."""
        _, weights, covariance = self.arrays()
        total = joint_covariance(weights, covariance)
        return jnp.broadcast_to(total, (*self.shape(), *self.event_shape))

    def marginalize(self, indices: int | Sequence[int]) -> "LinearizedJoint":
        """The exact joint distribution of some outputs, in the order of ``indices``."""
        return rebuilt(self, **self._rows(_checks.as_indices(indices, self.event_shape[0])))

    def rosenblatt(self, value: ArrayLike) -> Array:
        """Scores by quadrature over conditional densities: 48 densities for each output."""
        deviation, weights, covariance = self._deviation(value)
        shape = jnp.broadcast_shapes(deviation.shape, self.shape())
        deviation = jnp.broadcast_to(deviation, shape)
        if not self.batch_shape:
            flat = deviation.reshape(-1, shape[-1])
            return conditional_scores(flat, weights, covariance).reshape(shape)
        count = int(np.prod(self.batch_shape))
        flat = jnp.moveaxis(deviation.reshape(-1, count, shape[-1]), 1, 0)

        def rows(part: Array) -> Array:
            wide = jnp.broadcast_to(part, (*self.batch_shape, *part.shape[-2:]))
            return wide.reshape(count, *part.shape[-2:])

        parts = flat, *jax.tree.map(rows, (weights, covariance))
        found = lax.map(lambda at: conditional_scores(*at), parts)
        return jnp.moveaxis(found, 0, 1).reshape(shape)

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> "LinearizedConditional":
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
        >>> joint = nuq.LinearizedJoint(jnp.zeros(2), [[1.0, 1.0], [1.0, 0.0]], 1e-2 * jnp.eye(2))
        >>> rest = joint.condition(0, 1.5)  # one of two terms, given a sum near 1.5
        >>> print(f"{rest.mean[0]:.2f}")
        0.74
        >>> low, high = jnp.quantile(
        ...     rest.sample(jax.random.key(0), (2000,)), jnp.array([0.05, 0.95])
        ... )
        >>> bool(0.4 < low < 0.6), bool(0.9 < high < 1.1)
        (True, True)
        """
        observed, remaining, _, values = observed_outputs(self, indices, values)
        parts = self._rows((*observed, *remaining))
        return pass_validation(self, LinearizedConditional(values, **parts, validate_args=False))


class LinearizedConditional(BoxGaussianLaw):
    r"""Distribution of the last entries of ``loc + W u + e``, given the first ones.

    Made by `LinearizedJoint.condition`. Draws follow the law itself, up to the bias of Markov
    chains of finite length; density and moments use expectation propagation.

    Parameters
    ----------
    values : array_like, shape (..., k)
        The first ``k`` outputs.
    loc : array_like, shape (..., k + d)
        Unconditional means of all outputs.
    weights : array_like, shape (..., k + d, n)
        A column for each uniform on [-1, 1].
    normal_covariance : array_like, shape (..., k + d, k + d), optional
        Covariance of the normal part. Default: no normal part.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError, ValueError
        As for `LinearizedJoint`, or if there are not fewer values than outputs.

    Notes
    -----
    The log density is the difference of two joint log densities. Draws are images of draws of the
    uniforms, made by hit-and-run with one chain for each draw. Mean and variance of each output are
    quadratures of joint densities if there is a normal part, and otherwise those of expectation
    propagation. Draws and moments have no derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> weights = jnp.array([[1.0, 1.0], [1.0, 0.0]])  # a sum, and one of its two terms
    >>> rest = nuq.distributions.LinearizedConditional(
    ...     [1.5], jnp.zeros(2), weights, 1e-2 * jnp.eye(2)
    ... )
    >>> print(f"{rest.mean[0]:.2f} {rest.variance[0]:.3f}")
    0.74 0.036
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "values": constraints.real_vector,
        **BoxGaussianLaw.arg_constraints,
    }
    pytree_data_fields = ("values", "loc", "weights", "normal_covariance")

    def __init__(
        self,
        values: ArrayLike,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_covariance: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        values = _checks.as_numeric("values", values)
        shape = self._keep(loc, weights, normal_covariance, values=jnp.shape(values)[:-1])
        if not (jnp.ndim(values) and 0 < jnp.shape(values)[-1] < shape[-1]):
            raise ValueError(
                f"values must have shape (..., k), fewer than the {shape[-1]} outputs, got "
                f"{jnp.shape(values)}; for none or all of them use LinearizedJoint"
            )
        known = jnp.shape(values)[-1]
        (self.values,) = promote_shapes(values, shape=(*shape[:-1], known))
        super().__init__(shape[:-1], (shape[-1] - known,), validate_args=validate_args)

    @property
    def _known(self) -> int:
        return jnp.shape(self.values)[-1]

    def _deviation(
        self, dtype: jnp.dtype | None = None
    ) -> tuple[Array, Array, Array, Array | None]:
        """Deviations of the known outputs, means of the others, weights and covariance of all."""
        loc, weights, covariance = self.arrays(dtype)
        seen = jnp.asarray(self.values, loc.dtype) - loc[..., : self._known]
        return seen, loc[..., self._known :], weights, covariance

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.normal_covariance is not None:
            return constraints.real_vector
        _, loc, weights, _ = self._deviation()
        entries = LinearizedMarginal(loc, weights[..., self._known :, :], validate_args=False)
        return vector_support(entries.support)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density: that of all outputs minus that of the known ones."""
        given = fitting_value(value, self.shape())
        dtype = jnp.result_type(given, self._dtype)
        seen, loc, weights, covariance = self._deviation(dtype)
        others = given.astype(dtype) - loc
        shape = jnp.broadcast_shapes(seen.shape[:-1], others.shape[:-1])
        parts = [jnp.broadcast_to(part, (*shape, part.shape[-1])) for part in (seen, others)]
        own = None if covariance is None else covariance[..., : self._known, : self._known]
        before = log_evidence(seen, weights[..., : self._known, :], own)
        return log_evidence(jnp.concatenate(parts, axis=-1), weights, covariance) - before

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws by Markov chains, shape ``sample_shape + batch_shape + (d,)``; no derivatives."""
        seen, loc, weights, covariance = self._deviation()
        seen, weights, covariance, units = in_own_units(seen, weights, covariance)
        key_inputs, key_normal = random.split(key)
        own = None if covariance is None else covariance[..., : self._known, : self._known]
        count = int(np.prod(sample_shape))
        inputs = input_draws(key_inputs, seen, weights[..., : self._known, :], own, count)
        others = regression(weights, covariance, self._known)
        moved = others.of_inputs(inputs, seen)
        moved = jnp.broadcast_to(moved, (count, *self.shape()))
        if others.spread is not None:
            normal = random.normal(key_normal, moved.shape, moved.dtype)
            moved = moved + matvec(covariance_root(others.spread), normal)
        draws = loc + units[..., self._known :] * moved
        return draws.reshape(*sample_shape, *self.shape())

    def _moments(self) -> Moments:
        seen, loc, weights, covariance = self._deviation()
        found = conditional_moments(seen, weights, covariance)
        spread = jnp.broadcast_to(found.covariance, (*self.shape(), *self.event_shape))
        return Moments(jnp.broadcast_to(loc + found.mean, self.shape()), spread)

    @property
    def mean(self) -> Array:
        """Means of the outputs, shape ``batch_shape + (d,)``."""
        return self._moments().mean

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the outputs, shape ``batch_shape + (d, d)``."""
        return self._moments().covariance

    @property
    def variance(self) -> Array:
        """Variances of the outputs, shape ``batch_shape + (d,)``."""
        return jnp.diagonal(self.covariance_matrix, axis1=-2, axis2=-1)

    def marginalize(self, indices: int | Sequence[int]) -> "LinearizedConditional":
        """The distribution of some of the unknown outputs, in the order of ``indices``."""
        chosen = _checks.as_indices(indices, self.event_shape[0])
        order = (*range(self._known), *(self._known + index for index in chosen))
        return rebuilt(self, **self._rows(order))
