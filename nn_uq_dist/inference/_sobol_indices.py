"""Sobol indices of the network itself, from runs at pairs of inputs that share some entries."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.summary_line import number_table
from nn_uq_dist.inference._standard_space import StandardSpace, known_flat_network
from nn_uq_dist.inputs import Input

# Fewest draws of which the standard errors are good, and most runs.
_LEAST_DRAWS, _MOST_RUNS = 100, 10**10
# Kurtosis above which fewer draws than these may not carry the variance, if indices have errors.
# With 50, up to a tenth are beyond 4.5 errors: an index of .05 rests on a twentieth of them.
_RARE, _FEWEST_CARRYING = 6.0, 150
_MOST_OUTPUTS = 5  # that are printed


@dataclasses.dataclass(frozen=True, eq=False)
class SobolIndices:
    """Result of `sobol_indices`; arrays have shape ``(N_y, G)`` for ``G`` groups of inputs.

    ``print`` shows a table for each of the first five outputs.

    Attributes
    ----------
    first_order
        Shares of the variance of each output that the inputs of a group explain alone. Estimates,
        which may be a few standard errors below 0; NaN for an output that did not vary.
    total
        Shares that they explain alone and together with other inputs.
    first_order_error, total_error
        Standard errors, estimated from the same runs; zero where an index is known.
    input_names
        A name for each group: that of its input. If inputs depend on each other the group is named
        by all of them, or by the first and the last one of more than three.
    output_names
        A name for each output.
    num_runs
        Runs of the network.

    Examples
    --------
    >>> import jax
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> f = {"wind": dist.Normal(8.0, 0.3), "pitch": dist.Uniform(-1.0, 1.0)}
    >>> network = lambda x: {"power": 0.1 * x["wind"] ** 3}
    >>> found = nuq.sobol_indices(network, f, jax.random.key(0), progress=False)
    >>> print(found.input_names, found.output_names, found.total.round(2) + 0.0)
    ['pitch', 'wind'] ['power'] [[0. 1.]]
    """

    first_order: FloatArray
    total: FloatArray
    first_order_error: FloatArray
    total_error: FloatArray
    input_names: list[str]
    output_names: list[str]
    num_runs: int

    def __repr__(self) -> str:
        num_outputs, num_groups = self.total.shape
        sizes = f"num_outputs={num_outputs}, num_groups={num_groups}, num_runs={self.num_runs}"
        return f"SobolIndices({sizes})"

    def __str__(self) -> str:
        headings = "first order", "error", "total", "error"
        columns = self.first_order, self.first_order_error, self.total, self.total_error
        tables = [
            number_table((name, *headings), self.input_names, *(column[j] for column in columns))
            for j, name in enumerate(self.output_names[:_MOST_OUTPUTS])
        ]
        if (rest := len(self.output_names) - _MOST_OUTPUTS) > 0:
            tables.append(f"... and {rest} more outputs")
        return "\n\n".join(tables)


@checks.third_is_key
def sobol_indices(
    network: Callable[[Any], Any],
    f: Distribution | Input | Any,
    key: jax.Array,
    *,
    num_runs: int = 10_000,
    progress: bool = True,
) -> SobolIndices:
    r"""First-order and total Sobol indices of the network itself, with standard errors.

    The first-order index is the share of the variance of an output that remains if the other inputs
    are averaged over; the total index is the share that is lost if this input becomes known, on
    average over the others. They differ where the effect of an input depends on other inputs.
    `nn_uq_dist.diagnostics.sensitivity` has the indices of the tangent, without runs.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`. It runs in its own type.
    f
        Distribution of the input, as for `linearize`: everything that `nn_uq_dist.inputs.as_input`
        accepts, without batch axes. Inputs that depend on each other are one group, with one index.
        Inputs of a transformed distribution are the numbers that its base draws.
    key
        A JAX random key. The result depends on it alone, on one kind of device.
    num_runs
        Runs of the network in all, at least 100 for each random group and 200 more. Every draw
        takes one run for each random group and two more.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    SobolIndices
        With arrays of shape ``(N_y, G)`` for ``G`` groups of inputs, in the order of the inputs.
        Known inputs have indices of zero.

    Raises
    ------
    TypeError
        If `network` or `f` is not of a supported kind, `key` is not a random key, `num_runs` not an
        integer, or the function is called under ``jit``.
    ValueError
        If `f` has batch axes or nothing in it is random, there are too few runs for the number of
        groups, or `network` fails on one input.

    Warns
    -----
    RuntimeWarning
        If outputs are NaN or infinite: indices from them are NaN. If an output is the same in all
        runs, or few of them carry its variance: its errors are NaN.

    Notes
    -----
    With the outputs :math:`a` and :math:`b` at independent inputs, and :math:`c` at the input of
    `a` with the entries of the group from that of `b`, less the means,

    .. math:: S = \frac{\mathrm{E}[b c]}{\mathrm{E}[b^2 + c^2] / 2}, \qquad
              T = \frac{\mathrm{E}[(a - c)^2]}{\mathrm{E}[a^2 + c^2]},

    by Janon's estimator and by Jansen's. From both the part is taken that the product `a b`, of
    mean zero, explains by regression over the draws. With the coefficient 1 in place of the
    regression's, that would be Saltelli's estimator of `S`, which is accurate for small indices
    only. Standard errors are by the jackknife to first order, which leaves out one draw at a time.
    In simulations (Ishigami's function, Sobol's g, products and sums of up to 8 inputs) the
    estimates of an index were within 1.96 of them in 92% of the cases or more with 1000 draws, in
    86% or more with 100; the least for a skewed output. They are too large where an index is nearly
    0 or 1 and known well. They are NaN for outputs with a kurtosis above 6 if fewer than 150 draws
    carry the variance, which is their number over the kurtosis.

    References
    ----------
    M. J. W. Jansen, Computer Physics Communications 117 (1999); A. Saltelli et al., the same 181
    (2010); A. Janon et al., ESAIM: Probability and Statistics 18 (2014).

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    >>> network = lambda x: 3.0 * x[:1] * x[1:2] + x[2:]  # the product has 3/4 of the variance
    >>> found = nuq.sobol_indices(network, f, jax.random.key(0), progress=False)
    >>> found
    SobolIndices(num_outputs=1, num_groups=3, num_runs=10000)
    >>> bool((abs(found.first_order - jnp.array([0, 0, 0.25])) < 0.06).all())
    True
    >>> bool((abs(found.total - jnp.array([0.75, 0.75, 0.25])) < 0.06).all())
    True
    """
    key = checks.as_key("key", key)
    flat = known_flat_network("sobol_indices", network, f, key)
    num_runs = checks.positive_int("num_runs", num_runs, _MOST_RUNS)
    from tqdm import tqdm

    with tqdm(total=num_runs, unit="run", unit_scale=True, delay=2, disable=not progress) as bar:
        space = StandardSpace(flat, lambda outputs: outputs, num_runs, bar.update)
        of_input, of_variable = space.groups
        random = np.unique(of_variable)
        least = _LEAST_DRAWS * (len(random) + 2)
        if num_runs < least:
            raise ValueError(
                f"num_runs must be at least {least} for {len(random)} independent random inputs, "
                f"got {num_runs}; pass more, or a network of fewer inputs"
            )
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        num_draws = num_runs // (len(random) + 2) // space.block * space.block
        z = rng.standard_normal((2, num_draws, space.num_variables))
        first, second = map(space.run, z)
        # Without the first output, whose digits a mean would lose; before squares, in a unit.
        origin = first[0]
        num_bad = _num_bad(first) + _num_bad(second)
        indices = np.zeros((4, flat.num_outputs, of_input.max() + 1))
        with np.errstate(all="ignore"):
            unit = np.abs(np.stack([first, second]) - origin).max(axis=(0, 1))
            constant = np.flatnonzero(unit == 0)
            unit = np.where(unit > 0, unit, np.nan)
            a, b = (first - origin) / unit, (second - origin) / unit
            squares = np.square(np.concatenate([a, b]) - (a.mean(axis=0) + b.mean(axis=0)) / 2)
            kurtosis = (squares**2).mean(axis=0) / squares.mean(axis=0) ** 2
            indices += 0 * unit[:, None]
            for group in random:
                mixed = space.run(np.where(of_variable == group, z[1], z[0]))
                num_bad += _num_bad(mixed)
                indices[:, :, group] = _indices(a, b, (mixed - origin) / unit)
    names = flat.structure.names
    if num_bad:
        checks.warn(
            f"{num_bad} of {space.num_runs * flat.num_outputs} network outputs drawn are NaN or "
            f"infinite, and indices of these outputs are NaN; check the network over the range of "
            f"its input"
        )
    carrying = 2 * num_draws / kurtosis
    few = np.flatnonzero((kurtosis > _RARE) & (carrying < _FEWEST_CARRYING))
    indices[2:, few] = np.nan
    if few.size:
        listed = ", ".join(f"{names[k]} ({carrying[k]:.0f})" for k in few)
        checks.warn(
            f"fewer than {_FEWEST_CARRYING} draws carry the variance of outputs {listed}: their "
            f"indices are rough, and their errors, which so few do not tell, NaN; raise num_runs"
        )
    if constant.size:
        checks.warn(
            f"outputs {', '.join(names[k] for k in constant)} are the same in all runs, and their "
            f"indices are NaN: there is no variance to share; leave them out"
        )
    input_names = []
    for group in range(indices.shape[2]):
        members = [space.distribution.names[i] for i in np.flatnonzero(of_input == group)]
        shown = members if len(members) < 4 else [members[0], "...", members[-1]]
        input_names.append(", ".join(shown))
    first, total, first_error, total_error = indices
    return SobolIndices(first, total, first_error, total_error, input_names, names, space.num_runs)


def _num_bad(outputs: FloatArray) -> int:
    return outputs.size - int(np.isfinite(outputs).sum())


def _indices(a: FloatArray, b: FloatArray, mixed: FloatArray) -> FloatArray:
    """First-order and total index, and their errors, ``(4, N_y)``, from outputs ``(n, N_y)``."""
    control = (a - a.mean(axis=0)) * (b - b.mean(axis=0))
    middle = (b + mixed).mean(axis=0) / 2
    left, right = b - middle, mixed - middle
    first, first_error = _ratio(left * right, (left**2 + right**2) / 2, control)
    middle = (a + mixed).mean(axis=0) / 2
    squares = ((a - middle) ** 2 + (mixed - middle) ** 2) / 2
    total, total_error = _ratio((a - mixed) ** 2 / 2, squares, control)
    return np.stack([first, total, first_error, total_error])


def _ratio(
    top: FloatArray, bottom: FloatArray, control: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ratio of two means less what a control of mean zero explains, and its standard error."""
    scale, mean = bottom.mean(axis=0), control.mean(axis=0)
    value = top.mean(axis=0) / scale
    influence, noise = (top - value * bottom) / scale, control - mean
    weight = noise**2 / (noise**2).sum(axis=0)
    slope = (influence * noise).mean(axis=0) / (noise**2).mean(axis=0)
    # Each draw as far off as from what the others give, to first order: the jackknife.
    kept = (1 - weight) * (1 - bottom / bottom.sum(axis=0))
    residual = (influence - slope * noise) / np.where(kept > 0, kept, np.nan)
    return value - slope * mean, np.sqrt((residual**2).sum(axis=0)) / len(top)
