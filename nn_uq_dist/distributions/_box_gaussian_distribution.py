"""Parameters of distributions of outputs that are images of a box plus a normal vector."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.basics.row_algebra import binary_unit, joined, namespace, norm
from nn_uq_dist.box_gaussian import log_evidence
from nn_uq_dist.distributions._axes import support_of_event
from nn_uq_dist.distributions._contract import Distribution
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.inputs.parameter_checks import is_positive_definite


class Parameters(NamedTuple):
    """Parameters of ``loc + unit (W u + B n)``, with `u` uniform on a box and `n` standard normal.

    Rows of the weights are near one, so that their squares have numbers: in single precision the
    square of 1e-19 is zero and that of 1e20 infinite, and outputs of one distribution may have such
    different sizes.

    Attributes
    ----------
    loc, unit : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    normal_weights : Array, shape (..., d, m), or None
    """

    loc: Array
    unit: Array
    weights: Array
    normal_weights: Any

    def of_outputs(self, chosen: slice) -> "Parameters":
        """The parameters of some outputs."""
        normal = self.normal_weights
        return Parameters(
            self.loc[..., chosen],
            self.unit[..., chosen],
            self.weights[..., chosen, :],
            None if normal is None else normal[..., chosen, :],
        )

    def deviation(self, value: Array) -> Array:
        """Differences from the means, in the units of the weights."""
        return (value.astype(self.loc.dtype) - self.loc) / self.unit

    def log_density(self, value: Array) -> Array:
        """Log density at outputs."""
        # Outputs so far out that the density is zero in the type, whatever the others are.
        limit = 2.0 * jnp.sum(jnp.abs(self.weights), axis=-1)  # twice: rounding at the edge
        if self.normal_weights is not None:
            # Here the log of the density of the output alone is below the least number.
            scale = norm(self.normal_weights)
            limit = limit + math.sqrt(2.0) * scale * math.sqrt(jnp.finfo(self.loc.dtype).max)
        beyond = jnp.abs(self.deviation(value)) > limit
        # Replaced first: infinite differences would give NaN, in derivatives as well.
        value = jnp.where(beyond, self.loc, value.astype(self.loc.dtype))
        logs = log_evidence(self.deviation(value), self.weights, self.normal_weights)
        logs = logs - jnp.sum(jnp.log(self.unit), axis=-1)
        is_zero = jnp.any(beyond, axis=-1) & ~jnp.isnan(logs)
        return jnp.where(is_zero, -jnp.inf, logs)


class BoxGaussianDistribution(Distribution):
    """Abstract distribution of outputs ``loc + W u + B n``, `u` uniform on a box, `n` normal.

    Its constructor calls `_keep`, which sets the parameters.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real_vector,
        "weights": constraints.real_matrix,
        "normal_weights": constraints.real_matrix,
    }

    def _keep(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_weights: ArrayLike | None,
        **others: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Set the parameters, of equal rank; return batch shape and number of outputs as one tuple.

        Parameters
        ----------
        loc, weights, normal_weights
            As for `LinearizedJoint`.
        **others
            Batch shapes of further arguments.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If shapes do not fit, or there are fewer columns than outputs.
        """
        loc, weights = checks.as_numeric("loc", loc), checks.as_numeric("weights", weights)
        if jnp.ndim(weights) < 2 or 0 in jnp.shape(weights)[-2:]:
            raise ValueError(
                f"weights must have shape (..., d, n), a row for each output and a column for each "
                f"uniform, got {jnp.shape(weights)}; for one output use LinearizedMarginal"
            )
        num_outputs, num_uniforms = jnp.shape(weights)[-2:]
        if jnp.shape(loc)[-1:] not in ((), (1,), (num_outputs,)):
            raise ValueError(
                f"loc must have shape (..., {num_outputs}), an entry for each row of weights, got "
                f"{jnp.shape(loc)}; pass one mean per output"
            )
        normal_shape: tuple[int, ...] = ()
        if normal_weights is not None:
            normal_weights = checks.as_numeric("normal_weights", normal_weights)
            normal_shape = jnp.shape(normal_weights)
            if len(normal_shape) < 2 or normal_shape[-2] != num_outputs or normal_shape[-1] == 0:
                raise ValueError(
                    f"normal_weights must have shape (..., {num_outputs}, m), a row for each "
                    f"output and a column for each normal variable, got {normal_shape}; for "
                    f"independent noise pass jnp.diag(scale), for a covariance its Cholesky factor"
                )
        num_normals = normal_shape[-1] if normal_shape else 0
        if num_uniforms + num_normals < num_outputs:
            raise ValueError(
                f"weights and normal_weights must have at least as many columns together as rows, "
                f"got {num_outputs} outputs of {num_uniforms} uniforms and {num_normals} normal "
                f"variables, which have no joint density; pass normal_weights (noise_scale in "
                f"Linearization.joint)"
            )
        named = "".join(f", the leading axes of {name}" for name in others)
        shape = checks.broadcast_shapes(
            f"loc, weights without their last axis{named} and normal_weights must broadcast",
            loc=jnp.shape(loc) or (1,),
            weights=jnp.shape(weights)[:-1],
            normal_weights=normal_shape[:-1],
            **{name: (*lead, 1) for name, lead in others.items()},
        )
        # Known numbers stay known under `jit`, where values are checked against the support.
        loc = namespace(loc).broadcast_to(loc, (*jnp.shape(loc)[:-1], num_outputs))
        self._set_parameters(shape[:-1], loc=loc, weights=weights, normal_weights=normal_weights)
        return shape

    def validate_args(self, strict: bool = True) -> None:
        """Check as NumPyro does; known parameters must also be finite and give a density.

        No output may be a function of the others, up to rounding.
        """
        super().validate_args(strict)
        both = self.weights, self.normal_weights
        if checks.is_concrete(both):
            columns = joined(jax.tree.leaves(in_float64(both)))
            least = 4.0 * float(jnp.finfo(self._dtype).eps) * columns.shape[-2]
            _require_independent(columns, least)

    def _arrays(self, *values: Array) -> tuple[Array, Array, Array | None]:
        """Parameters of one type, that of the distribution or what `values` have with it."""
        dtype = checks.float_dtype(self._dtype, *values)
        loc, weights = jnp.asarray(self.loc, dtype), jnp.asarray(self.weights, dtype)
        normal = self.normal_weights
        return loc, weights, None if normal is None else jnp.asarray(normal, dtype)

    def parameters(self, *values: Array) -> Parameters:
        """Parameters of one type, that of the distribution or what `values` have with it."""
        loc, weights, normal = self._arrays(*values)
        size = norm(weights) if normal is None else norm(joined([weights, normal]))
        unit = binary_unit(size)
        normal = None if normal is None else normal / unit[..., None]
        return Parameters(loc, unit, weights / unit[..., None], normal)

    @property
    def _prior(self) -> LinearizedMarginal:
        """Distributions of the single outputs that are described, if none is known."""
        described = slice(-self.event_shape[0], None)
        loc, weights, normal = self._arrays()
        scale = None if normal is None else norm(normal)[..., described]
        return LinearizedMarginal(
            loc[..., described], weights[..., described, :], scale, validate_args=False
        )

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.normal_weights is not None:
            return constraints.real_vector
        return support_of_event(self._prior.support, 1)

    def _of_outputs(self, order: Sequence[int]) -> dict[str, Any]:
        """The parameters of some outputs, in this order."""
        rows = np.asarray(order)
        loc, weights, normal = self._arrays()
        return {
            "loc": loc[..., rows],
            "weights": weights[..., rows, :],
            "normal_weights": None if normal is None else normal[..., rows, :],
        }


def _require_independent(columns: Any, tolerance: float) -> None:
    """Raise ``ValueError`` if a combination of outputs is below rounding."""
    size = norm(columns)
    rows = columns / np.where(size > 0, size, 1)[..., None]
    # A factor of the Gram matrix takes far less time than singular values. In float64 it tells
    # combinations down to 1e-8.
    least = max(tolerance**2, 1e-15 * rows.shape[-2])
    if is_positive_definite(rows @ rows.mT, -2.0 * least):
        return
    vectors, values, _ = np.linalg.svd(rows, full_matrices=False)
    flat = values[..., -1] <= tolerance
    if flat.any():
        share = np.abs(vectors[checks.first_index(flat)][:, -1])
        involved = [str(j) for j in np.flatnonzero(share > 1e-3)]
        raise ValueError(
            "outputs must not be constant or functions of each other, got no density, up to "
            f"rounding, of outputs {', '.join(involved[:8])}{', ...' * (len(involved) > 8)}; pass "
            "normal_weights (noise_scale in Linearization.joint), a larger one, or fewer outputs "
            "(Linearization.select)"
        )
