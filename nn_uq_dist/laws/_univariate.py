"""Which distributions can be those of single outputs."""

import numpyro.distributions as dist

from nn_uq_dist.basics._normal_scores import missing_functions


def require_univariate(marginals: object, *, batched: bool = True) -> None:
    """Raise unless ``marginals`` are univariate continuous laws along the last batch axis."""
    if not isinstance(marginals, dist.Distribution):
        raise TypeError(
            f"marginals must be a NumPyro distribution, got {type(marginals).__name__}; pass a "
            f"LinearizedMarginal or another univariate one with cdf and icdf"
        )
    name = type(marginals).__name__
    if marginals.event_shape:
        raise TypeError(
            f"marginals must be univariate, got {name} with event_shape {marginals.event_shape}; "
            f"give one law per output along the last batch axis, without to_event"
        )
    if marginals.is_discrete:
        raise TypeError(
            f"marginals must be continuous, got the discrete {name}; a discrete output has no "
            f"normal score"
        )
    if batched and not marginals.batch_shape:
        raise ValueError(
            f"marginals must have batch_shape (..., N_y), got () from {name}; use "
            f".expand((N_y,)) for outputs of one law"
        )
    missing = " and ".join(missing_functions(marginals))
    if missing:
        raise TypeError(
            f"marginals must have cdf and icdf, got {name} without {missing}; pass a "
            f"LinearizedMarginal or another univariate distribution with both"
        )


def with_rank(marginals: dist.Distribution, rank: int) -> dist.Distribution:
    """The same laws with axes of size 1 in front, so that ``batch_shape`` has this length."""
    missing = rank - len(marginals.batch_shape)
    return marginals.expand((1,) * missing + marginals.batch_shape) if missing > 0 else marginals
