"""Rules over the values of outputs whose normal scores are known."""

import dataclasses

from jax import Array

from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._summary_line import summary_line


@register_frozen
@dataclasses.dataclass(frozen=True)
class ScoreRule:
    r"""Rule for integrals :math:`\int f(z(x))\,dx \approx \sum_q \ell_q f(z_q)` over the values.

    Parameters
    ----------
    scores : Array, shape (Q, ..., N_y)
        Normal scores of the nodes; infinite at and beyond the edge of the support.
    lengths : Array, shape (Q, ..., N_y)
        Weights of the nodes, in the unit of the outputs.
    variance : Array, shape (..., N_y)
        Variances of the outputs.
    is_half : bool
        Whether the laws are symmetric and the nodes cover their upper halves only.
    """

    scores: Array
    lengths: Array
    variance: Array
    is_half: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        return summary_line(self)
