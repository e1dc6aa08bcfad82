"""Numerics of paired samples: how the law of one member differs from that of the other.

Pure functions of NumPy arrays in float64.
`_score_bins.py` divides the normal scores into bins and averages quantile functions over them, with
influence functions; `_smoothing.py` estimates a smooth difference from noisy averages;
`_increasing_values.py` makes values increase smoothly; `_quantile_map.py` combines these into the
knots of a monotone map, within intervals from the draws alone. `_response_surface.py` fits
polynomials to the differences, which predict most of them if there are enough draws.
"""

from nn_uq_dist.paired_samples._quantile_map import QuantileMap as QuantileMap
from nn_uq_dist.paired_samples._quantile_map import estimate_map as estimate_map
from nn_uq_dist.paired_samples._response_surface import Surface as Surface
from nn_uq_dist.paired_samples._response_surface import fit_surface as fit_surface
from nn_uq_dist.paired_samples._score_bins import ScoreBins as ScoreBins
