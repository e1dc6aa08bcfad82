"""Numerics of paired samples: the map from one distribution to another.

Functions of NumPy arrays in float64.
`score_bins.py` divides the normal scores into bins and averages quantile functions over them, with
influence functions; `_slope_prior.py` finds the increasing map that such averages indicate;
`corrected_map.py` takes the averages from pairs, with a control, and `settled_knots.py` moves the
knots of the map to what draws and types allow. `_response_surface.py` fits
polynomials to the differences by ridge regression, which takes JAX's arrays as well.
"""

from nn_uq_dist.paired_samples._response_surface import Ridge as Ridge
from nn_uq_dist.paired_samples._response_surface import Surface as Surface
from nn_uq_dist.paired_samples._response_surface import fit_surface as fit_surface
from nn_uq_dist.paired_samples.corrected_map import Control as Control
from nn_uq_dist.paired_samples.corrected_map import LinearQuantiles as LinearQuantiles
from nn_uq_dist.paired_samples.corrected_map import map_from_draws as map_from_draws
from nn_uq_dist.paired_samples.corrected_map import map_from_pairs as map_from_pairs
from nn_uq_dist.paired_samples.score_bins import ScoreBins as ScoreBins
