"""What tables, figures and models ask of a network that was replaced by linear functions."""

import abc
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.pytree import entries
from nn_uq_dist.basics.row_algebra import gram, norm
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.distributions import (
    GaussianCopulaJoint,
    JointDistribution,
    LinearizedMarginal,
    nataf_by_kurtosis,
    nataf_correlation,
)
from nn_uq_dist.distributions.correlation_matrices import (
    checked_floor,
    clipped_correlation,
    require_positive_definite,
)
from nn_uq_dist.distributions.linear_image import output_noise
from nn_uq_dist.inputs import Input
from nn_uq_dist.inputs.input_map import names_of_entries
from nn_uq_dist.sampling.flat_network import OutputNumbers, OutputStructure, by_names


class CopulaCorrelation(NamedTuple):
    """Result of `Linearization.copula_correlation`.

    Attributes
    ----------
    matrix : Array, shape (..., N_y, N_y)
        Correlation of the normal scores, as `Linearization.gaussian_copula` uses it.
    target : Array, shape (..., N_y, N_y)
        Correlation of the outputs under the linear distribution, noise included.
    attainable : Array of bool, shape (..., N_y, N_y)
        False where no Gaussian copula can give the outputs that correlation.
    moved : Array, shape (...)
        Largest change that the repair made to an entry.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import Input, Linearization
    >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], Input.box(jnp.zeros(2), 1.0))
    >>> fit = lin.copula_correlation()
    >>> print(fit.target[0, 1].round(3), fit.matrix[0, 1].round(3), fit.moved)
    0.8 0.804 0.0
    """

    matrix: Array
    target: Array
    attainable: Array
    moved: Array

    def __repr__(self) -> str:
        return summary_line(self)


@jax.jit
def _largest_change(matrix: Array, before: Array) -> Array:
    return jnp.max(jnp.abs(matrix - before), axis=(-2, -1))


class LinearModel(abc.ABC):
    """Abstract model of a network with a random input, whose outputs have known distributions.

    `Linearization` and `CorrectedLinearization` are such models. Tables and figures take any.

    A subclass is final and defines

    - ``input``: the distribution of the random input, a `nn_uq_dist.Input`;
    - ``mean``, shape ``batch_shape + (N_y,)``, and ``covariance``, ``batch_shape + (N_y, N_y)``;
    - ``marginals(noise_scale, noise_covariance)``: distributions of the single outputs, batch shape
      ``batch_shape + (N_y,)``;
    - ``joint(noise_scale, noise_covariance)``: their joint distribution, a
      `nn_uq_dist.distributions.JointDistribution`;
    - ``sample_pairs(key, sample_shape)``: random inputs, and the outputs of the model for them.

    The rest follows, and may be overridden by what is faster or more accurate: ``batch_shape``,
    ``num_outputs``, ``variance``, ``correlation``, ``copula_correlation``, ``gaussian_copula``,
    ``sample``, ``unravel``, ``remarks``, and ``model[index]`` for a pytree whose leaves all lead
    with the batch axes.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.Linearization([1.0], [[1.0, 2.0]], nuq.Input.box([0.0, 0.0], half_width=3.0))
    >>> isinstance(lin, nuq.linearization.LinearModel), lin.num_outputs
    (True, 1)
    """

    input: Input
    output_structure: OutputStructure | None = None

    @property
    @abc.abstractmethod
    def mean(self) -> Array:
        """Means of the outputs, shape ``batch_shape + (N_y,)``."""

    @property
    @abc.abstractmethod
    def covariance(self) -> Array:
        """Covariance of the outputs, shape ``batch_shape + (N_y, N_y)``."""

    @abc.abstractmethod
    def marginals(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> dist.Distribution:
        """Return the distributions of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Parameters
        ----------
        noise_scale
            Standard deviation of independent normal noise added to each output; broadcasts against
            ``(..., N_y)``. Of outputs in a dict it may be a dict. ``None`` for none.
        noise_covariance
            Covariance of correlated normal noise, shape ``(..., N_y, N_y)``. ``None`` for none.
        """

    @abc.abstractmethod
    def joint(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> JointDistribution:
        """Return the joint distribution of the outputs. Noise as for `marginals`."""

    @abc.abstractmethod
    def sample_pairs(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Draw vectors of the input distribution, with the outputs of the model for them."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch: the leading axes of `mean`."""
        return self.mean.shape[:-1]

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self.mean.shape[-1]

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_y,)``."""
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1)

    @property
    def correlation(self) -> Array:
        """Correlation matrix, shape ``batch_shape + (N_y, N_y)``; NaN for constant outputs."""
        return self._correlation(None, None)

    def _correlation(
        self, noise_scale: OutputNumbers | None, noise_covariance: ArrayLike | None
    ) -> Array:
        """Correlation of the outputs with noise."""
        total, matrix = self._spread()
        scale = by_names("noise_scale", noise_scale, self.output_structure)
        noise = output_noise(scale, noise_covariance, total.shape, total)
        if noise is not None:
            both = jnp.broadcast_arrays(total, noise.standard_deviation)
            total = norm(jnp.stack(both, axis=-1))
            unit = jnp.where(total > 0, total, 1)
            share = (both[0] / unit)[..., None]
            matrix = matrix * share * share.mT + gram(noise.in_units(unit).root)
        matrix = jnp.where(jnp.eye(self.num_outputs, dtype=bool), 1, jnp.clip(matrix, -1, 1))
        varies = total > 0
        return jnp.where(varies[..., None] & varies[..., None, :], matrix, jnp.nan)

    def _spread(self) -> tuple[Array, Array]:
        """Standard deviations and correlations of the outputs; a model may know them better."""
        covariance = self.covariance
        variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
        # The square root has no finite slope at zero.
        is_zero = variance == 0
        unit = jnp.sqrt(jnp.where(is_zero, 1, variance))
        correlation = covariance / unit[..., None] / unit[..., None, :]
        return jnp.where(is_zero, 0, unit), correlation

    def copula_correlation(
        self,
        noise_scale: OutputNumbers | None = None,
        noise_covariance: ArrayLike | None = None,
        *,
        min_eigenvalue: ArrayLike | None = 1e-4,
    ) -> CopulaCorrelation:
        """Return the correlation of the normal scores that `gaussian_copula` uses, and its repair.

        Parameters, errors and notes as for `gaussian_copula`.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import Input, Linearization
        >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0], [2.0, 4.0]], Input.box(jnp.zeros(2), 1.0))
        >>> fit = lin.copula_correlation()  # the outputs are proportional
        >>> print(f"{fit.matrix[0, 1]:.4f} {fit.moved:.1e} {fit.attainable.all()}")
        0.9999 1.0e-04 True
        """
        return self._copula(noise_scale, noise_covariance, min_eigenvalue)[1]

    def _copula(
        self,
        noise_scale: OutputNumbers | None,
        noise_covariance: ArrayLike | None,
        min_eigenvalue: ArrayLike | None,
    ) -> tuple[dist.Distribution, CopulaCorrelation]:
        """Marginals, and the correlation of their scores with a floor under its eigenvalues."""
        marginals = self.marginals(noise_scale, noise_covariance)
        target = self._correlation(noise_scale, noise_covariance)
        floor = None if min_eigenvalue is None else checked_floor(min_eigenvalue, target.dtype)
        if isinstance(marginals, LinearizedMarginal) and not checks.is_concrete(
            marginals.mean, target
        ):
            # Quantiles of traced outputs take 500 times as long.
            matched = nataf_by_kurtosis(marginals.excess_kurtosis, target)
            attainable = jnp.abs(matched) <= 1
            matched = jnp.clip(matched, -1, 1)
        else:
            matched, attainable = nataf_correlation(marginals, target)
        matrix = matched if floor is None else clipped_correlation(matched, floor)
        if floor is None or (checks.is_concrete(floor) and floor == 0):
            require_positive_definite(
                "the correlation of the outputs",
                matrix,
                "pass min_eigenvalue > 0 to allow repair, noise_scale > 0, or fewer outputs",
            )
        change = _largest_change(matrix, matched)
        return marginals, CopulaCorrelation(matrix, target, attainable, change)

    def gaussian_copula(
        self,
        noise_scale: OutputNumbers | None = None,
        noise_covariance: ArrayLike | None = None,
        *,
        min_eigenvalue: ArrayLike | None = 1e-4,
    ) -> GaussianCopulaJoint:
        """Return the marginals, coupled by a Gaussian copula.

        It has quantile transforms, takes any marginals, and conditions in closed form. As a
        likelihood it is worse than `joint` where the outputs depend on few directions of the input
        and the noise is small: by 80 to 120 nats an observation for six outputs of the trained
        operators of the documentation.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `marginals`.
        min_eigenvalue
            Floor under the eigenvalues of the correlation of the scores, in ``[0, 1)``. With fewer
            inputs than outputs some eigenvalues are zero, and there is no density without a floor.
            Eigenvalues are clipped, and the diagonal is rescaled to one
            (`nn_uq_dist.distributions.clipped_correlation`). ``None`` forbids repair.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, an output is constant, or repair is needed but forbidden;
            under ``jit`` this gives NaN.

        Notes
        -----
        The scores have the correlation that gives the outputs theirs
        (`nn_uq_dist.distributions.nataf_correlation`): with known numbers to 1e-8 in float64. Of a
        linearization whose numbers are traced, as in models, it is found from kurtoses in closed
        form, which is off by 1.2e-3 at most and 2e-4 on average, and hundreds of times faster: for
        six outputs of three inputs with a noise of .2 sd, .1 nats an observation.
        `copula_correlation` reports how far the repair moved the matrix, and which correlations no
        Gaussian copula can attain.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import Input, Linearization
        >>> distribution = Input.box(jnp.zeros(3), half_width=1.0)
        >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], distribution)
        >>> copula = lin.gaussian_copula()
        >>> copula.sample(jax.random.key(0), (1000,)).shape
        (1000, 2)
        >>> print(f"{copula.covariance_matrix[0, 1]:.3f} {lin.covariance[0, 1]:.3f}")
        1.000 1.000
        """
        marginals, fit = self._copula(noise_scale, noise_covariance, min_eigenvalue)
        return GaussianCopulaJoint(marginals, fit.matrix)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw outputs of the model, shape ``sample_shape + batch_shape + (N_y,)``.

        They are those of `sample_pairs`.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws, in front of the batch shape.
        """
        return self.sample_pairs(key, sample_shape)[1]

    @property
    def output_names(self) -> list[str]:
        """A name for each output: keys of what the network returns, else ``y[0]``, ``y[1]``, ..."""
        if self.output_structure is None:
            return names_of_entries("y", (self.num_outputs,))
        return self.output_structure.names

    def unravel(self, values: ArrayLike) -> Any:
        """Return values of the outputs in the structure in which the network returns them.

        Parameters
        ----------
        values
            Shape ``(..., N_y)``: means, standard deviations, draws.

        Returns
        -------
        Array or pytree of Array
            Each array has the leading axes of `values` in front. Values of a network that returns a
            vector are returned unchanged.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> network = lambda x: {"level": x.sum(), "image": jnp.outer(x, x)}
        >>> lin = nuq.linearize(network, nuq.Input.box([1.0, 2.0], half_width=0.1))
        >>> mean = lin.unravel(lin.mean)
        >>> print(mean["level"], mean["image"].tolist())
        3.0 [[1.0, 2.0], [2.0, 4.0]]
        """
        remedy = "pass an array with an entry per output, such as the mean"
        values = checks.as_vectors("values", values, "N_y", self.num_outputs, remedy)
        return values if self.output_structure is None else self.output_structure.unravel(values)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A text for each output, point by point for a batch; ``""`` if there is nothing to say."""
        return ("",) * self.mean.size

    def __getitem__(self, index: Any) -> Self:
        """Return the model at some entries of the batch, indexed as a NumPy array of that shape.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> patients = nuq.Input.box(jnp.ones((50, 3)), half_width=0.1)
        >>> lin = nuq.linearize(jnp.cumsum, patients)
        >>> lin[13].mean.shape, lin[:5].batch_shape
        ((3,), (5,))
        """
        return entries(self, self.batch_shape, index)
