"""Tables of bounds and of sign changes, which the paper lacks, as Markdown."""

import jax
import jax.numpy as jnp
import layer_errors
import networks
import numpy as np
from integro_differential import SIZE, mean_input
from study import NAMES, NONZERO, as_markdown, title

import nn_uq_dist as nuq

ALL_NETWORKS = (
    "nonlinear_1", "nonlinear_5", "nonlinear_20", "nonlinear_resnet", "linear_1", "linear_5",
    "linear_20",
)  # fmt: skip
NEAR_AND_FAR = (0.01, 0.1, 0.5, 1.5)
SEARCH_DRAWS = 20_000
FLIP_DRAWS = 20_000


def norm_bounds(
    net: nuq.LeakyReLUNetwork, mean: jax.Array, amplitude: float
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the corrected and the printed bound for a box around the mean, per output.

    With :math:`d_k` the largest slope in layer k at the mean, :math:`q_i` the row of the Jacobian
    and :math:`|b|` the length of the half-diagonal of the box:

    - corrected: :math:`\min\{(1-\alpha) |A_i| \prod_n |W_n| \sum_{n \le L} \prod_{k>n} d_k,\
      |A_i| \prod_n |W_n| + |q_i|\}\, |b|`. The input moves the pre-activations of layer n by at
      most :math:`\prod_{k \le n} |W_k| |b|`, and where a sign flips, an activation leaves its
      tangent by at most :math:`1 - \alpha` times that.
    - printed, ``boundL``: :math:`(1-\alpha) |A_i| |W_L| \prod_{n<L} (d_n + 1 - \alpha) |W_n|\,
      |b|`. It holds for the share of the last layer, but not for the total.
    """
    weights = [np.asarray(part, np.float64) for part in net.hidden_weights]
    output, alpha = np.asarray(net.output_matrix, np.float64), float(net.negative_slope)
    slopes = [np.where(np.asarray(h) >= 0, 1.0, alpha) for h in net.pre_activations(mean)]
    largest = np.array([slope.max() for slope in slopes])
    norms = np.array([np.linalg.norm(part, 2) for part in weights])
    gain = np.linalg.norm(output, axis=1) * norms.prod()
    jacobian = output
    for part, slope in zip(weights[::-1], slopes[::-1], strict=True):
        jacobian = (jacobian * slope) @ part
    layers = sum(largest[n:].prod() for n in range(1, len(weights) + 1))
    corrected = np.minimum((1 - alpha) * gain * layers, gain + np.linalg.norm(jacobian, axis=1))
    printed = (1 - alpha) * gain * (largest[:-1] + 1 - alpha).prod()
    half_diagonal = amplitude * len(mean) ** 0.5
    return corrected * half_diagonal, printed * half_diagonal


def bounds(key: jax.Array) -> str:
    """Bounds on the total error over the largest error found, medians of 30 outputs.

    The search takes 20,000 random inputs and as many random corners of the box.
    """
    keys = jax.random.split(key)
    shape = (SEARCH_DRAWS, SIZE)
    unit = jnp.concatenate([
        jax.random.uniform(keys[0], shape, minval=-1.0, maxval=1.0),
        jax.random.rademacher(keys[1], shape, jnp.float32),
    ])  # fmt: skip
    shown = np.array([NAMES.index(name) for name in NONZERO])
    rows = []
    for name in ALL_NETWORKS:
        net, mean = networks.load(name), jnp.asarray(mean_input(), jnp.float32)
        cells = []
        for amplitude in NEAR_AND_FAR:
            f = nuq.Input.box(mean, half_width=amplitude)
            error = layer_errors.total_error(net, mean, amplitude * unit)
            largest = np.asarray(jnp.max(jnp.abs(error), axis=0))[shown]
            if nuq.error_analysis.is_exact_on_support(net, f):
                cells.append("exact")
            elif not (largest > 0).all():
                cells.append("no error found")
            else:
                certain = [nuq.certified(net, f, output=j).error_bound for j in shown]
                by_norms = [bound[shown] for bound in norm_bounds(net, mean, amplitude)]
                ratios = [np.median(bound / largest) for bound in (certain, *by_norms)]
                cells.append(" / ".join(f"{ratio:.2g}" for ratio in ratios))
        rows.append([title(name), *cells])
    return as_markdown(["network", *(f"amplitude {a:g}" for a in NEAR_AND_FAR)], rows)


def flips(key: jax.Array) -> str:
    """Mean flip probability of a neuron: linear model without sampling, and network by draws."""
    unit = jax.random.uniform(key, (FLIP_DRAWS, SIZE), minval=-1.0, maxval=1.0)
    mean = jnp.asarray(mean_input(), jnp.float32)
    rows = []
    for name in ALL_NETWORKS:
        net = networks.load(name)
        cells = []
        for amplitude in NEAR_AND_FAR:
            f = nuq.Input.box(mean, half_width=amplitude)
            linear = jnp.concatenate(nuq.error_analysis.flip_probabilities(net, f))
            network = _flip_rates(net, mean, amplitude * unit)
            cells.append(f"{100 * float(linear.mean()):.2g} ({100 * float(network.mean()):.2g})")
        rows.append([title(name), f"{_exact_half_width(net, mean):.2g}", *cells])
    heading = ["network", "exact up to", *(f"amplitude {a:g}" for a in NEAR_AND_FAR)]
    return as_markdown(heading, rows)


@jax.jit
def _flip_rates(net: nuq.LeakyReLUNetwork, mean: jax.Array, z: jax.Array) -> jax.Array:
    """Share of the draws for which each neuron of the network has another sign than at the mean."""
    before = jnp.concatenate(net.pre_activations(mean)) >= 0

    def some(total: jax.Array, part: jax.Array) -> tuple[jax.Array, None]:
        after = jax.vmap(lambda z: jnp.concatenate(net.pre_activations(mean + z)))(part) >= 0
        return total + jnp.sum(after != before, axis=0), None

    parts = z.reshape(-1, 1000, z.shape[-1])
    return jax.lax.scan(some, jnp.zeros(before.shape), parts)[0] / len(z)


def _exact_half_width(net: nuq.LeakyReLUNetwork, mean: jax.Array) -> float:
    """Largest half-width of the box, to three digits, on which no neuron can flip."""
    low, high = 0.0, 1.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high) if low > 0 else high / 10
        if nuq.error_analysis.is_exact_on_support(net, nuq.Input.box(mean, half_width=middle)):
            low = middle
        else:
            high = middle
    return low
