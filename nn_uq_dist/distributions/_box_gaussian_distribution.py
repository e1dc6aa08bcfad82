"""Parameters of distributions of outputs that are images of a box plus a normal vector."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.row_algebra import binary_unit, namespace
from nn_uq_dist.box_gaussian import log_evidence
from nn_uq_dist.distributions._contract import Distribution
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._support import support_of_event
from nn_uq_dist.inputs.parameter_checks import is_positive_definite, require_covariance


class Parameters(NamedTuple):
    """Parameters of ``loc + scale (W u + e)``, `u` uniform on a box and `e` normal.

    Attributes
    ----------
    loc : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
    scale : Array, shape (..., d)
    """

    loc: Array
    weights: Array
    covariance: Any
    scale: Any

    def of_outputs(self, chosen: slice | np.ndarray) -> "Parameters":
        """The parameters of some outputs."""
        covariance, scale = self.covariance, self.scale
        return Parameters(
            self.loc[..., chosen],
            self.weights[..., chosen, :],
            None if covariance is None else covariance[..., chosen, :][..., chosen],
            None if scale is None else scale[..., chosen],
        )

    def standardized(self) -> "Parameters":
        """The same with rows of `weights` and of the normal part near one.

        In single precision the square of 1e-19 is zero and that of 1e20 infinite, and outputs of
        one distribution may have such different sizes.
        """
        loc, weights, covariance, scale = self
        size = jnp.max(jnp.abs(weights), axis=-1)
        if covariance is not None:
            diagonal = jnp.diagonal(lax.stop_gradient(covariance), axis1=-2, axis2=-1)
            size = jnp.maximum(size, jnp.sqrt(diagonal))
        own = binary_unit(size)
        if covariance is not None:
            # One unit at a time, because their product may over- or underflow.
            covariance = covariance / own[..., None] / own[..., None, :]
        return Parameters(loc, weights / own[..., None], covariance, own * scale)

    def deviation(self, value: Array) -> Array:
        """Differences from the means, in the units of the weights."""
        return (value - self.loc) / self.scale

    def log_density(self, value: Array) -> Array:
        """Log density at outputs, for standardized parameters."""
        # Outputs so far out that the density is zero in the type, whatever the others are.
        limit = 2.0 * jnp.sum(jnp.abs(self.weights), axis=-1)  # twice: rounding at the edge
        if self.covariance is not None:
            # Here the log of the density of the output alone is below the least number.
            variance = jnp.diagonal(self.covariance, axis1=-2, axis2=-1)
            limit = limit + jnp.sqrt(2.0 * variance) * math.sqrt(jnp.finfo(self.loc.dtype).max)
        beyond = jnp.abs(self.deviation(value)) > limit
        # Replaced first: infinite differences would give NaN, in derivatives as well.
        value = jnp.where(beyond, self.loc, value)
        logs = log_evidence(self.deviation(value), self.weights, self.covariance)
        logs = logs - jnp.sum(jnp.log(self.scale), axis=-1)
        is_zero = jnp.any(beyond, axis=-1) & ~jnp.isnan(logs)
        return jnp.where(is_zero, -jnp.inf, logs)


class BoxGaussianDistribution(Distribution):
    """Abstract distribution of outputs ``loc + s (W u + e)``, `u` uniform on a box, `e` normal.

    Its constructor calls `_keep`, which sets the parameters.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real_vector,
        "weights": constraints.real_matrix,
        "normal_covariance": constraints.positive_definite,
        "scale": constraints.independent(constraints.positive, 1),
    }

    def _keep(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_covariance: ArrayLike | None,
        scale: ArrayLike | None,
        **others: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Set the parameters, of equal rank; return batch shape and number of outputs as one tuple.

        Parameters
        ----------
        loc, weights, normal_covariance, scale
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
        loc, weights = checks.as_numeric("loc", loc), checks.as_numeric("weights", weights)
        scale = scale if scale is None else checks.as_numeric("scale", scale)
        if jnp.ndim(weights) < 2 or 0 in jnp.shape(weights)[-2:]:
            raise ValueError(
                f"weights must have shape (..., d, n), a row for each output and a column for each "
                f"uniform, got {jnp.shape(weights)}; for one output use LinearizedMarginal"
            )
        num_outputs, count = jnp.shape(weights)[-2:]
        covariance_shape: tuple[int, ...] = ()
        if normal_covariance is not None:
            normal_covariance = checks.as_numeric("normal_covariance", normal_covariance)
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
        shape = checks.broadcast_shapes(
            f"loc, scale, weights without their last axis{named} and normal_covariance must "
            "broadcast",
            loc=jnp.shape(loc) or (1,),
            scale=() if scale is None else jnp.shape(scale) or (1,),
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
        loc, scale = jax.tree.map(
            lambda part: namespace(part).broadcast_to(part, (*jnp.shape(part)[:-1], num_outputs)),
            (loc, scale),
        )
        self._set_parameters(
            shape[:-1], loc=loc, weights=weights, normal_covariance=normal_covariance, scale=scale
        )
        return shape

    def validate_args(self, strict: bool = True) -> None:
        """Check as NumPyro does; known parameters, up to rounding, must also give a density.

        They must be finite, the covariance symmetric and positive semidefinite up to rounding, and
        no output a function of the others.
        """
        given = self.get_args()
        if not checks.is_concrete(given):
            if strict:
                super().validate_args(strict)
            return
        for name, value in given.items():
            checks.require_finite(name, value)
        if self.scale is not None and not np.all(np.asarray(self.scale) > 0):
            raise ValueError(f"scale must be positive, got {self.scale}; leave it out for ones")
        columns = np.asarray(self.weights, np.float64)
        total = columns @ columns.mT / 3.0
        rounding = 4.0 * float(jnp.finfo(self._dtype).eps) * columns.shape[-2]
        if self.normal_covariance is not None:
            covariance = np.asarray(self.normal_covariance, np.float64)
            require_covariance("normal_covariance", covariance, 1e-3, 1e2 * rounding)
            total = total + covariance
        # Allows for rounded parameters, and for rounded eigenvalues of exactly dependent outputs.
        _require_independent(total, max(rounding**2, 1e-15 * columns.shape[-2]))

    def parameters(self, *values: Array) -> Parameters:
        """Arrays of one type, that of the distribution or what `values` have with it."""
        dtype, scale = jnp.result_type(self._dtype, *values), self.scale
        scale = np.ones(jnp.shape(self.weights)[-2:-1]) if scale is None else scale
        given = Parameters(self.loc, self.weights, self.normal_covariance, scale)
        return jax.tree.map(lambda part: jnp.asarray(part, dtype), given)

    @property
    def _prior(self) -> LinearizedMarginal:
        """Distributions of the single outputs that are described, if none is known."""
        described = self.parameters().of_outputs(slice(-self.event_shape[0], None))
        loc, weights, covariance, unit = described
        scale = None
        if covariance is not None:
            variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
            # The square root has no finite slope at zero.
            scale = jnp.where(variance == 0, 0.0, jnp.sqrt(jnp.where(variance == 0, 1.0, variance)))
            scale = scale * unit
        return LinearizedMarginal(loc, weights * unit[..., None], scale, validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.normal_covariance is not None:
            return constraints.real_vector
        return support_of_event(self._prior.support, 1)

    def _of_outputs(self, order: Sequence[int]) -> dict[str, Any]:
        """The parameters of some outputs, in this order."""
        given = Parameters(self.loc, self.weights, self.normal_covariance, self.scale)
        chosen = jax.tree.map(jnp.asarray, given).of_outputs(np.asarray(order))
        names = ("loc", "weights", "normal_covariance", "scale")
        return dict(zip(names, chosen, strict=True))


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
        if len(involved) == 1:
            found = f"vary, got output {involved[0]}, which is constant"
        else:
            found = (
                f"not be functions of each other, got outputs {', '.join(involved[:8])}{more}, "
                "which are linearly dependent"
            )
        raise ValueError(
            f"outputs must {found}: there is no density; pass normal_covariance (noise_scale in "
            "Linearization.joint) or leave one out with marginalize"
        )
