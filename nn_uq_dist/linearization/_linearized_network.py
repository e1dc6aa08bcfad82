"""A network linearized at the mean of a random input, with the moments of its outputs."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import matvec
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.distributions import LinearImage, LinearizedJoint, LinearizedMarginal
from nn_uq_dist.inputs import Input
from nn_uq_dist.inputs.parameter_checks import in_one_batch
from nn_uq_dist.linearization._corrected_linearization import CorrectedLinearization
from nn_uq_dist.linearization._correction import correction, require_pairs
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_input_posterior import (
    LinearizedInputPosterior,
    linearized_input_posterior,
)
from nn_uq_dist.sampling import PairedDraws
from nn_uq_dist.sampling.flat_network import OutputNumbers, OutputStructure, by_names


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Linearization(LinearModel):
    r"""The random vector :math:`m + J (f - \mu)`, a network linearized at the mean of its input.

    Usually made by `linearize`. All moments are closed forms in :math:`J`, the half-widths
    :math:`\beta` and the factor :math:`L` of the input distribution:
    :math:`\mathrm{Cov} = J\,(\mathrm{diag}(\beta^2)/3 + L L^T)\,J^T`.
    The object is an immutable pytree.

    Parameters
    ----------
    loc
        Network output at the mean input, shape ``(..., N_y)``.
    jacobian
        Jacobian :math:`J` there, shape ``(..., N_y, N_x)``.
    input
        Distribution of the random input with ``N_x`` inputs.
    output_structure
        Structure of what the network returns if that is not a vector, for `unravel`; set by
        `linearize`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, shapes do not fit, or known values hold NaN or infinity.

    Examples
    --------
    >>> from nn_uq_dist import Input, Linearization
    >>> distribution = Input.box([0.0, 0.0], half_width=3.0)
    >>> lin = Linearization([1.0], [[1.0, 2.0]], distribution)
    >>> float(lin.variance[0])
    15.0
    """

    loc: Array
    jacobian: Array
    input: Input
    output_structure: OutputStructure | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    def __repr__(self) -> str:
        return summary_line(self)

    def __init__(
        self,
        loc: ArrayLike,
        jacobian: ArrayLike,
        input: Input,  # noqa: A002
        *,
        output_structure: OutputStructure | None = None,
    ) -> None:
        if not isinstance(input, Input):
            raise TypeError(
                f"input must be an nn_uq_dist.Input, got {type(input).__name__}; pass "
                f"nn_uq_dist.inputs.as_input(f)"
            )
        loc = checks.as_finite("loc", loc)
        jacobian = checks.as_finite("jacobian", jacobian)
        loc_shape, jacobian_shape = np.shape(loc), np.shape(jacobian)
        if len(loc_shape) == 0:
            raise ValueError("loc must have shape (..., N_y), got shape (); pass a vector")
        event_shape = (loc_shape[-1], input.num_inputs)
        if jacobian_shape[-2:] != event_shape:
            raise ValueError(
                f"jacobian must have shape (..., N_y, N_x) with (N_y, N_x) = {event_shape} as "
                f"loc and input, got shape {jacobian_shape}; pass one row per output"
            )
        self._set(loc, jacobian, input, output_structure)

    def _set(
        self,
        loc: ArrayLike,
        jacobian: ArrayLike,
        distribution: Input,
        structure: OutputStructure | None,
    ) -> None:
        sizes = np.shape(jacobian)[-2:]
        arrays = in_one_batch(
            loc=(loc, sizes[:1]), jacobian=(jacobian, sizes), input=(distribution.mean, sizes[1:])
        )
        expanded = distribution.expand(arrays.pop("input").shape[:-1])
        # Past the assignment that a frozen object refuses.
        vars(self).update(arrays, input=expanded, output_structure=structure)

    @classmethod
    def of_parts(
        cls, loc: Array, jacobian: Array, distribution: Input, structure: OutputStructure | None
    ) -> "Linearization":
        """Return the model of arrays whose shapes fit, and whose values are not checked."""
        made = object.__new__(cls)
        made._set(loc, jacobian, distribution, structure)
        return made

    @property
    def mean(self) -> Array:
        """Mean, shape ``batch_shape + (N_y,)``."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_y,)``."""
        return self.image().variance

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``batch_shape + (N_y, N_y)``."""
        return self.image().covariance

    def _correlation(
        self, noise_scale: OutputNumbers | None, noise_covariance: ArrayLike | None
    ) -> Array:
        # From the columns: a variance may underflow where the correlation is well defined.
        return self.image(noise_scale, noise_covariance).correlation

    def image(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearImage:
        r"""Return the distribution of :math:`J (f - \mu)`, the basis of moments and distributions.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `marginals`.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> lin = nuq.Linearization([1.0], [[1.0, 2.0]], nuq.Input.box([0.0, 0.0], 3.0))
        >>> print(f"{lin.image(noise_scale=1.0).standard_deviation[0]:.3f}")
        4.000
        """
        image = LinearImage(*self.input.columns(self.jacobian))
        if noise_scale is None and noise_covariance is None:
            return image
        scale = by_names("noise_scale", noise_scale, self.output_structure)
        return image.with_noise(scale, noise_covariance)

    def marginals(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearizedMarginal:
        r"""Return the distributions of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Output :math:`j` has a weight for each uniform variable of the input, :math:`J_{jk} \beta_k`
        for a box (one zero weight without any), and the normal scale
        :math:`\sqrt{\|(J L)_j\|^2 + \sigma_j^2}`, ``None`` if there is neither a normal part nor
        noise. See `image`.

        Parameters
        ----------
        noise_scale
            Standard deviation :math:`\sigma \ge 0` of independent normal noise added to each
            output; broadcasts against ``(..., N_y)``. Of outputs in a dict it may be a dict.
            ``None`` for none.
        noise_covariance
            Covariance of correlated normal noise, shape ``(..., N_y, N_y)``. ``None`` for none.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, or is known and no standard deviation or covariance, or if
            an output is known to be constant: a point mass has no density.

        Examples
        --------
        >>> from nn_uq_dist import Input, Linearization
        >>> lin = Linearization([1.0], [[1.0, 2.0]], Input.box([0.0, 0.0], half_width=3.0))
        >>> lin.marginals(noise_scale=0.1).weights
        Array([[3., 6.]], dtype=float32)
        """
        image = self.image(noise_scale, noise_covariance)
        weights, normal_scale = image.weights, image.normal_scale
        if checks.is_concrete(weights, normal_scale):
            # In NumPy, which compiles nothing.
            scale = np.asarray(0.0 if normal_scale is None else normal_scale)
            constant = (np.asarray(weights) == 0).all(axis=-1) & (scale == 0)
            if constant.any():
                *batch, output = checks.first_index(constant)
                where = f" of batch entry {tuple(batch)}" if batch else ""
                where += f" and {constant.sum() - 1} more" if constant.sum() > 1 else ""
                raise ValueError(
                    f"every output must vary with the input, got zero sensitivity for output "
                    f"{self.output_names[output]}{where}: a constant has no "
                    f"density; pass noise_scale > 0, leave the output out of the "
                    f"network, or ask the linearization as corrected by paired draws"
                )
        return LinearizedMarginal(self.loc, weights, normal_scale)

    def joint(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearizedJoint:
        r"""Return the joint distribution of the outputs, for likelihoods and for conditioning.

        Draws, moments and marginals are exact. The density is computed by expectation propagation:
        typically off by 0 to .04 nats, see `nn_uq_dist.LinearizedJoint`.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `marginals`.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, or the outputs have no joint density: if there are fewer
            inputs than outputs, or some outputs are functions of others, pass noise.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import Input, Linearization
        >>> distribution = Input.box(jnp.zeros(2), half_width=1.0)
        >>> lin = Linearization([0.0, 0.0], [[1.0, 1.0], [1.0, -1.0]], distribution)
        >>> joint = lin.joint()
        >>> round(float(joint.log_prob(jnp.array([0.5, 0.5]))), 4)  # log(1/8)
        -2.0794
        """
        image = self.image(noise_scale, noise_covariance)
        return LinearizedJoint.of_image(self.loc, image)

    def input_posterior(
        self,
        y: OutputNumbers,
        noise_scale: OutputNumbers | None = None,
        noise_covariance: ArrayLike | None = None,
    ) -> LinearizedInputPosterior:
        r"""Return the distribution of the inputs given observed outputs, under the linear model.

        Exact for Gaussian inputs. For boxes means and variances are quadratures of the density of
        each variable, and draws come from chains: see `LinearizedInputPosterior.sample`.

        Parameters
        ----------
        y
            Observed outputs, shape ``(..., N_y)``; leading axes broadcast against the batch shape.
            Of outputs in a dict it may be a dict, of arrays with these axes in front.
        noise_scale, noise_covariance
            Of the observations, as for `marginals`.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit, `y` is known and not finite, or there are fewer random
            variables than outputs, and no noise.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> lin = nuq.Linearization([0.0], [[1.0, 2.0]], nuq.Input.normal([1.0, 1.0], [1.0, 1.0]))
        >>> posterior = lin.input_posterior([5.0], noise_scale=0.1)
        >>> print(posterior.mean.round(2))  # most of it by the input with the larger effect
        [2. 3.]
        """
        return linearized_input_posterior(self, y, noise_scale, noise_covariance)

    def corrected(self, pairs: PairedDraws) -> CorrectedLinearization:
        """Return distributions closer to the network, from its outputs at some random inputs.

        Parameters
        ----------
        pairs : PairedDraws
            From ``paired_draws(network, linearization, key, num_samples)``: a hundred help, a
            thousand help a lot. Traced pairs, as those of a model, correct `joint` and
            `input_posterior` alone.

        Raises
        ------
        TypeError, ValueError
            If `pairs` is no `PairedDraws`, or one of another linearization, or fewer than eight of
            its draws are finite.

        Notes
        -----
        Quantile functions are averaged over about ``sqrt(n)`` bins of the normal score, with
        control variates, and smoothed as much as their noise requires
        (`nn_uq_dist.paired_samples`). A polynomial of the inputs predicts the differences, if it
        can; not for a batch of points: one that matters is nearer as
        ``linearization[i].corrected(pairs[i])``.

        NaN and infinite outputs are left out, output by output: marginals and moments are those of
        the finite values of each output, as `remarks` says. `joint` and `input_posterior` leave
        out the pairs in which any output is NaN or infinite.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> lin = nuq.linearize(jnp.sinh, nuq.Input.box([1.0], half_width=1.0))
        >>> pairs = nuq.paired_draws(jnp.sinh, lin, jax.random.key(0), 500, progress=False)
        >>> distribution = lin.corrected(pairs).marginals()
        >>> print(f"{distribution.cdf(jnp.sinh(jnp.array([1.6])))[0]:.2f}")  # (1.6 - 0)/2
        0.80
        """
        require_pairs(self, pairs)
        if not checks.is_concrete(pairs):
            return CorrectedLinearization(pairs)
        with evaluated_now():
            return CorrectedLinearization(pairs, *correction(pairs))

    def select(self, outputs: int | str | Sequence[int | str]) -> "Linearization":
        """Return the model of some outputs, by index or by name, in this order.

        Parameters
        ----------
        outputs
            One output or several; names are those of `output_names`, which the result keeps.

        Raises
        ------
        TypeError, ValueError
            If an output is unknown, or named twice.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> network = lambda x: {"load": x.sum(), "level": x[0], "flow": x[1] ** 2}
        >>> lin = nuq.linearize(network, nuq.Input.box([1.0, 2.0], half_width=0.1))
        >>> some = lin.select(["load", "flow"])
        >>> print(some.output_names, some.mean)
        ['load', 'flow'] [3. 4.]
        """
        names = self.output_names
        rows = np.array(checks.as_indices(outputs, self.num_outputs, "outputs", names))
        structure = OutputStructure.of_numbers([names[row] for row in rows])
        arrays = self.loc[..., rows], self.jacobian[..., rows, :]
        return Linearization.of_parts(*arrays, self.input, structure)

    def sample_pairs(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Draw vectors of the input, as `sample` does, with the outputs of the linear model."""
        deviation = self.input.sample_deviation(key, sample_shape)
        return self.input.mean + deviation, self.loc + matvec(self.jacobian, deviation)

    def moved(self, shift: Array, slopes: Array | float) -> "Linearization":
        """Return the model with a linear function of the input added, by its value at the mean."""
        arrays = self.loc + shift, self.jacobian + slopes
        return Linearization.of_parts(*arrays, self.input, self.output_structure)

    @property
    def num_coordinates(self) -> int:
        """Coordinates of the points that `pairs_at` takes, one for each random variable."""
        # One without effect if all inputs are known: a point needs at least one coordinate.
        return max(1, sum(self.input.num_standard_variables))

    def pairs_at(self, points: Array) -> tuple[Array, Array]:
        """Inputs and outputs of the linear model at points of the unit cube, ``(..., D)``."""
        deviation = self.input.deviation_at_points(points)
        return self.input.mean + deviation, self.loc + matvec(self.jacobian, deviation)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A text for each output, point by point; ``""`` if exact for a linear network."""
        return (self.input.remark,) * self.loc.size

    def __call__(self, x: ArrayLike) -> Array:
        r"""Evaluate the linear surrogate :math:`m + J (x - \mu)`.

        Parameters
        ----------
        x
            Inputs, shape ``(..., N_x)``; leading axes broadcast against the batch shape.
        """
        size, remedy = self.input.num_inputs, "pass one entry per network input"
        x = checks.as_vectors("x", x, "N_x", size, remedy, self.batch_shape)
        return self.loc + matvec(self.jacobian, jnp.asarray(x) - self.input.mean)
