"""A random vector as data: a mean, independent terms, and a map to what the network takes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import as_covariance, as_variances
from nn_uq_dist.inputs import parameter_checks, terms
from nn_uq_dist.inputs.input_map import InputMap
from nn_uq_dist.inputs.terms import InputTerm


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RandomVector:
    r"""The vector :math:`\mu + A U + B N` of an `nn_uq_dist.Input`: its moments and draws."""

    mean: Array
    terms: tuple[InputTerm, ...]
    input_map: InputMap

    def __init__(
        self, mean: ArrayLike, terms: Sequence[InputTerm] = (), input_map: InputMap | None = None
    ) -> None:
        mean, size = parameter_checks.as_mean(mean)
        factors: dict[str, Any] = {}
        for i, term in enumerate(terms):
            if not isinstance(term, InputTerm):
                raise TypeError(
                    f"terms[{i}] must be an InputTerm, got {type(term).__name__}; pass "
                    f"nn_uq_dist.inputs.InputTerm(matrix, is_uniform=True), or False if normal"
                )
            factor: Any = checks.as_numeric(f"the factor of terms[{i}]", term.factor)
            shape = np.shape(factor)
            if len(shape) < 2 - term.is_diagonal or term.stop > size:
                raise ValueError(
                    f"terms[{i}] must have rows of the {size} inputs, got a factor of shape "
                    f"{shape} from input {term.start} on; pass a row for each input that it moves"
                )
            factors[f"terms[{i}]"] = factor, shape[-1 if term.is_diagonal else -2 :]
        *placed, mean = parameter_checks.in_one_batch(**factors, mean=(mean, (size,))).values()
        pairs = zip(terms, placed, strict=True)
        placed_terms = tuple(dataclasses.replace(term, factor=factor) for term, factor in pairs)
        self._set(mean, placed_terms, input_map)

    def _set(
        self, mean: Array, terms: tuple[InputTerm, ...], input_map: InputMap | None = None
    ) -> None:
        # Past the assignment that a frozen object refuses.
        vars(self).update(
            mean=mean, terms=terms, input_map=input_map or InputMap.of_array(mean.shape[-1])
        )

    @classmethod
    def of_parts(
        cls, mean: Array, terms: Sequence[InputTerm], input_map: InputMap | None = None
    ) -> Self:
        """Return the input of arrays in one batch shape and dtype, which are not checked."""
        made = object.__new__(cls)
        made._set(mean, tuple(terms), input_map)
        return made

    def checked_for_rounding(self) -> Self:
        """The same, with a warning where its type is too coarse for the spread about the mean."""
        if checks.is_concrete(self):
            mean, terms_ = jax.tree.map(np.asarray, (self.mean, self.terms))  # compiles nothing
            parameter_checks.warn_of_rounding(mean, terms.standard_deviation(mean, terms_))
        return self

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of inputs: the leading axes of `mean`."""
        return self.mean.shape[:-1]

    @property
    def num_inputs(self) -> int:
        """Number of inputs ``N_x``."""
        return self.mean.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point dtype of the parameters and of the draws."""
        return self.mean.dtype

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations, ``batch_shape + (N_x,)``, also where a variance would underflow."""
        return terms.standard_deviation(self.mean, self.terms)

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_x,)``; NaN where the type has no such number."""
        return as_variances(*terms.variance(self.mean, self.terms))

    @property
    def covariance(self) -> Array:
        """Covariance, ``batch_shape + (N_x, N_x)``; NaN where the type has no such number."""
        return as_covariance(*terms.covariance(self.mean, self.terms))

    @property
    def half_width(self) -> Array | None:
        """Half-width of the uniform part at each input, shaped as `mean`; None without one."""
        return self._of_part(terms.half_width, is_uniform=True)

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the normal part at each input, as `mean`; None without one."""
        return self._of_part(terms.standard_deviation, is_uniform=False)

    def _of_part(self, function: Callable[..., Array], *, is_uniform: bool) -> Array | None:
        """What a function finds of the terms of one kind, None without any."""
        of_kind = tuple(term for term in self.terms if term.is_uniform == is_uniform)
        return function(self.mean, of_kind) if of_kind else None

    @property
    def has_independent_entries(self) -> bool:
        """Whether the inputs are independent of each other; of known values only."""
        return terms.are_independent(self.terms, np.ones(self.num_inputs, bool))

    def columns(self, jacobian: Any) -> tuple[Array | None, Array | None]:
        r"""Columns of the uniform and of the normal variables under a linear map.

        Parameters
        ----------
        jacobian
            Matrix :math:`J`, shape ``(..., N_y, N_x)``, already checked; leading axes broadcast
            against the batch shape.

        Returns
        -------
        tuple of Array or None
            :math:`J A`, shape ``(..., N_y, n)``, and :math:`J B`, shape ``(..., N_y, m)``; None
            where there are no columns. If nothing is random there is one normal column of zeros.
        """
        return terms.columns(jacobian, self.terms)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """Return the same input with its arrays broadcast to `batch_shape`.

        Raises
        ------
        ValueError
            If the present batch shape does not broadcast to `batch_shape`.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> nuq.Input.box([0.0, 1.0], 1.0).expand((4, 3)).batch_shape
        (4, 3)
        """
        batch_shape, present = tuple(batch_shape), self.batch_shape
        if batch_shape == present:
            return self
        ends = zip(reversed(present), reversed(batch_shape), strict=False)
        if len(present) > len(batch_shape) or any(old not in {1, new} for old, new in ends):
            raise ValueError(
                f"batch_shape must be one that the batch_shape of the input broadcasts to, got "
                f"requested {batch_shape}, present {present}; pass a batch_shape that ends in the "
                f"present one"
            )
        expanded: Self = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, batch_shape + leaf.shape[len(present) :]), self
        )
        return expanded

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors, shape ``sample_shape + batch_shape + (N_x,)``.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws, in front of the batch shape.

        Examples
        --------
        >>> import jax
        >>> import nn_uq_dist as nuq
        >>> nuq.Input.box([0.0, 1.0], 1.0).sample(jax.random.key(0), (10,)).shape
        (10, 2)
        """
        return self.mean + self.sample_deviation(key, sample_shape)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - mean``, without the rounding error that adding a large mean would cause."""
        return terms.draw_deviation(*checks.as_sampling(key, sample_shape), self.mean, self.terms)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """How many uniform and how many normal variables the input is made of."""
        return terms.num_variables(self.terms)

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """``A U + B N`` at given values of the standard variables.

        Parameters
        ----------
        uniform, normal
            Shapes ``(..., n)`` and ``(..., m)`` with the numbers of `num_standard_variables`.
        """
        return terms.deviation(uniform, normal, self.mean, self.terms)

    def deviation_at_points(self, points: Array) -> Array:
        """``f - mean`` at points of the unit cube, shape ``(..., n + m)``: for quasi-random points.

        The first ``n`` coordinates are probabilities of the uniform variables, the others of the
        normal ones.
        """
        # A point next to one may have rounded to it, where the normal variable is infinite.
        tiny, count = jnp.finfo(points.dtype).eps / 2, self.num_standard_variables[0]
        safe = jnp.clip(points, tiny, 1 - tiny)
        return self.deviation_at(2 * safe[..., :count] - 1, ndtri(safe[..., count:]))

    @property
    def is_vector(self) -> bool:
        """Whether the network takes the vector of ``N_x`` numbers itself."""
        steps, tree = self.input_map.steps, self.input_map.tree
        return steps == ((),) and jax.tree_util.treedef_is_leaf(tree)

    @property
    def is_transformed(self) -> bool:
        """Whether `network_input` is nonlinear: shapes of linear networks are not exact then."""
        return self.input_map.is_transformed

    @property
    def of_same_moments(self) -> Self:
        """The input with each family replaced by a linear map of its standard variables.

        Means and standard deviations are those of the family.

        Raises
        ------
        ValueError
            If the variance of a known family is infinite.
        """
        if self.is_vector:
            return self
        if checks.is_concrete(self.input_map):
            self.input_map.require_variance()
        return self.of_parts(self.mean, self.terms, self.input_map.of_same_moments)

    @property
    def varies_over_batch(self) -> bool:
        """Whether the map has parameters for each element of the batch."""
        return bool(self.batch_shape) and bool(jax.tree.leaves(self.input_map))

    @property
    def base(self) -> Self:
        """The distribution of the vector, without the map."""
        return self.of_parts(self.mean, self.terms)

    @property
    def names(self) -> list[str]:
        """A name for each of the ``N_x`` numbers: keys of dicts and trees, else ``f[0]``, ..."""
        return self.input_map.names(self._taken_shapes, taken=False)

    @property
    def taken_names(self) -> list[str]:
        """Names of the numbers of `taken`."""
        return self.input_map.names(self._taken_shapes, taken=True)

    def taken(self, x: Array) -> Array:
        """Return the random numbers that the network takes, as vectors: all parts in order."""
        if self.is_vector:
            return x
        return self.input_map.taken(self.network_input(x), jnp.shape(x)[:-1])

    def structured(self, numbers: Any, *, is_spread: bool = False) -> Any:
        """Return numbers of `taken`, or standard deviations of them, as the network takes them.

        Known arrays of a structure are put in by their values, or as standard deviations of zero.
        """
        return self.input_map.structured(numbers, self._taken_shapes, is_spread=is_spread)

    @property
    def example(self) -> Any:
        """Shapes and types of what the network takes, without the batch axes."""
        if self.is_vector:
            return jax.ShapeDtypeStruct(self.mean.shape[-1:], self.mean.dtype)
        taken, axes = jax.eval_shape(lambda f: f.network_input(f.mean), self), self.mean.ndim - 1
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), taken)

    @property
    def _taken_shapes(self) -> list[tuple[int, ...]]:
        return [leaf.shape for leaf in jax.tree.leaves(self.example)]

    def network_input(self, x: ArrayLike) -> Any:
        """Return what the network is called with: the vector itself, or what the map makes of it.

        Parameters
        ----------
        x
            Values of the ``N_x`` numbers, shape ``(..., *batch_shape, N_x)``, such as draws of
            `sample`.

        Returns
        -------
        Array or pytree of Array
            With the leading axes of `x` in front.

        Raises
        ------
        ValueError
            If the last axis is not ``N_x``, or the map differs over the batch and `x` has no batch
            axes.
        """
        return x if self.is_vector else self.input_map.at(jnp.asarray(x), self.batch_shape)
