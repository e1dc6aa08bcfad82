"""What everything downstream asks of the law of a random input, as an abstract class."""

import abc
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import as_covariance, as_variances, one_program
from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.inputs import _terms
from nn_uq_dist.inputs._linear_image import LinearImage
from nn_uq_dist.inputs._names import names_of_entries
from nn_uq_dist.inputs._terms import InputTerm


class AbstractInputLaw(abc.ABC):
    r"""Abstract distribution of a random input :math:`f = \mu + A U + B N`.

    :math:`U` has independent entries, uniform on (-1, 1), :math:`N` independent standard normal
    ones; there may be more of them than inputs. Linearization, Monte Carlo, tables and figures use
    only what is defined here.

    A subclass is final, an immutable pytree with arrays as its leaves, each with the batch shape in
    front, and defines

    - ``loc``: the mean :math:`\mu`, shape ``batch_shape + (N_x,)``;
    - ``terms``: the terms of :math:`A U + B N`, an `InputTerm` for each matrix of few columns and
      for each diagonal, so that no matrix of all inputs by all inputs is needed. Tables and figures
      ask a copy with NumPy arrays in float64: written with operators, they stay in float64 there.

    The network is called with ``network_input(x)`` for a vector ``x`` of ``N_x`` numbers. Here that
    is ``x`` itself; `MappedInput` wraps a law for a network that takes something else. A dataclass
    keeps the one-line `repr` of this class if it is made with ``repr=False``.

    A family that is a sum of boxes and Gaussian parts needs no subclass: see `InputSum`.

    Examples
    --------
    Inputs that all have the same error, uniform on ``(-width, width)``:

    >>> import dataclasses
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> @jax.tree_util.register_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class CommonError(nuq.inputs.AbstractInputLaw):
    ...     loc: jax.Array
    ...     width: jax.Array
    ...
    ...     @property
    ...     def terms(self):
    ...         factor = 0 * self.loc[..., None] + self.width[..., None, None]
    ...         return (nuq.inputs.InputTerm(factor, is_uniform=True),)
    >>> law = CommonError(jnp.array([1.0, 2.0]), jnp.array(3.0))
    >>> print(nuq.linearize(lambda x: jnp.array([x[0] + x[1], x[0]]), law).variance)
    [12.  3.]
    """

    loc: Array

    @property
    @abc.abstractmethod
    def terms(self) -> tuple[InputTerm, ...]:
        r"""The terms of :math:`A U + B N`, independent of each other."""

    def columns(self, jacobian: Array) -> tuple[Array | None, Array | None]:
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
            where there are no columns. Both are None if nothing is random.
        """
        return one_program(_terms.columns)(jacobian, self.terms)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of laws: the leading axes of `loc`."""
        return self.loc.shape[:-1]

    @property
    def num_inputs(self) -> int:
        """Number of inputs ``N_x``."""
        return self.loc.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point dtype of the parameters and of the draws."""
        return self.loc.dtype

    @property
    def names(self) -> list[str]:
        """A name for each of the ``N_x`` numbers: keys of dicts and trees, else ``f[0]``, ..."""
        return names_of_entries("f", (self.num_inputs,))

    @property
    def mean(self) -> Array:
        """Mean, shape ``batch_shape + (N_x,)``."""
        return self.loc

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations, ``batch_shape + (N_x,)``, also where a variance would underflow."""
        return one_program(_terms.standard_deviation)(self.loc, self.terms)

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_x,)``; NaN where the type has no such number."""
        return as_variances(*one_program(_terms.variance)(self.loc, self.terms))

    @property
    def covariance(self) -> Array:
        """Covariance, ``batch_shape + (N_x, N_x)``; NaN where the type has no such number."""
        return as_covariance(*one_program(_terms.covariance)(self.loc, self.terms))

    @property
    def half_range(self) -> Array | None:
        """Half-width of the uniform part at each input, shaped as `loc`; None without that part."""
        return _terms.half_range(self.loc, self.terms)

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the Gaussian part of each input, shaped as `loc`, or ``None``."""
        return _terms.normal_scale(self.loc, self.terms)

    @property
    def has_independent_entries(self) -> bool:
        """Whether the inputs are independent of each other; of known values only."""
        return _terms.are_independent(self.terms)

    def image(self, jacobian: ArrayLike) -> LinearImage:
        r"""Return the law of :math:`J (f - \mu)`, the deviation of linear outputs from their mean.

        Parameters
        ----------
        jacobian
            Matrix :math:`J`, shape ``(..., N_y, N_x)``; leading axes broadcast against the batch
            shape.

        Returns
        -------
        LinearImage
            With what `columns` returns.

        Raises
        ------
        TypeError
            If `jacobian` is not an array of real numbers.
        ValueError
            If its last axis is not ``N_x`` or its leading axes do not broadcast.

        Examples
        --------
        >>> from nn_uq_dist import InputLaw
        >>> law = InputLaw([0.0, 0.0], half_width=[1.0, 0.0], scale=[0.0, 2.0])
        >>> image = law.image([[3.0, 2.0]])
        >>> print(image.weights, image.normal_scale)
        [[3. 0.]] [4.]
        """
        given = _checks.as_numeric("jacobian", jacobian)
        shape = np.shape(given)
        if len(shape) < 2 or shape[-1] != self.num_inputs:
            raise ValueError(
                f"jacobian must have shape (..., N_y, N_x) with N_x = {self.num_inputs}, got shape "
                f"{shape}; pass one row per output"
            )
        _checks.broadcast_shapes(
            "the leading axes of jacobian must broadcast against the batch shape",
            jacobian=shape[:-2],
            batch_shape=self.batch_shape,
        )
        # A NumPy array stays one: a law in float64 (`in_float64`) then gives an image in float64.
        rows: Any = given if isinstance(given, np.ndarray) else jnp.asarray(given)
        uniform, normal = self.columns(rows)
        if uniform is None and normal is None:
            # Of known inputs. Where a Jacobian holds NaN the outputs are no constants.
            uniform = rows[..., :1] * 0
        return LinearImage(uniform, normal)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """Return the same law with its arrays broadcast to `batch_shape`.

        Raises
        ------
        ValueError
            If the present batch shape does not broadcast to `batch_shape`.

        Examples
        --------
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw([0.0, 1.0], half_width=1.0).expand((4, 3)).batch_shape
        (4, 3)
        """
        batch_shape = tuple(batch_shape)
        expected = "batch_shape must be one that the law's batch_shape broadcasts to"
        joined = _checks.broadcast_shapes(expected, requested=batch_shape, present=self.batch_shape)
        if joined != batch_shape:
            raise ValueError(
                f"{expected}, got requested {batch_shape}, present {self.batch_shape}; "
                f"pass a batch_shape that ends in the present one"
            )
        present = len(self.batch_shape)
        expanded: Self = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, batch_shape + leaf.shape[present:]), self
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
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw([0.0, 1.0], half_width=1.0).sample(jax.random.key(0), (10,)).shape
        (10, 2)
        """
        return self.loc + self.sample_deviation(key, sample_shape)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``, without the rounding error that adding a large `loc` would cause."""
        return _terms.draw_deviation(*_checks.as_sampling(key, sample_shape), self.loc, self.terms)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """How many uniform and how many normal variables the law is made of."""
        return _terms.num_variables(self.terms)

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """``A U + B N`` at given values of the standard variables.

        Parameters
        ----------
        uniform, normal
            Shapes ``(..., n)`` and ``(..., m)`` with the numbers of `num_standard_variables`.
        """
        return _terms.deviation(uniform, normal, self.loc, self.terms)

    def deviation_at_points(self, points: Array) -> Array:
        """``f - loc`` at points of the unit cube, shape ``(..., n + m)``: for quasi-random points.

        The first ``n`` coordinates are probabilities of the uniform variables, the others of the
        normal ones.
        """
        count = self.num_standard_variables[0]
        return self.deviation_at(*_terms.standard_values(points, count))

    def network_input(self, x: Array) -> Any:
        """Return what the network is called with: here the vector itself.

        Parameters
        ----------
        x
            Values of the ``N_x`` numbers, shape ``(..., *batch_shape, N_x)``, such as draws of
            `sample`.

        Returns
        -------
        Array or pytree of Array
            With the leading axes of `x` in front.
        """
        return x

    def taken(self, x: Array) -> Array:
        """Return the random numbers that the network takes, as vectors: here those of `x`."""
        return x

    def structured(self, numbers: Any, *, is_spread: bool = False) -> Any:
        """Return numbers of `taken`, or their spread, as the network takes them."""
        del is_spread
        return numbers

    @property
    def taken_names(self) -> list[str]:
        """Names of the numbers of `taken`."""
        return self.names

    @property
    def is_vector(self) -> bool:
        """Whether the network takes the vector of ``N_x`` numbers itself."""
        return True

    @property
    def is_transformed(self) -> bool:
        """Whether `network_input` is nonlinear: then not even a linear network is exact."""
        return False

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        sizes: dict[str, object] = {
            "num_inputs": self.num_inputs,
            "batch_shape": self.batch_shape,
            "dtype": self.dtype,
        }
        return self._description, sizes

    @property
    def _description(self) -> str:
        """What kind of law it is, in a few words."""
        return ""
