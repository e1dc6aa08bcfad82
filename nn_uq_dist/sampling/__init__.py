"""The network itself, at random inputs.

`flat_network.py` makes any network one between vectors, and names its outputs. Read
`_monte_carlo.py` first: plain draws, some at a time. `_paired_draws.py` sends the inputs
through the linearization as well.
Statistics are those of a weighted sample (`weighted_sample.py`), whose weights are equal for plain
draws and calibrated to what is known of the linear outputs for pairs (`_linear_control.py`):
moments there, and probabilities, quantiles and distances in `sample_distribution_functions.py`.
`_paired_statistics.py` collects them; `_win_probabilities.py` estimates which output is the
largest.
"""

from nn_uq_dist.sampling._monte_carlo import monte_carlo as monte_carlo
from nn_uq_dist.sampling._paired_draws import PairedDraws as PairedDraws
from nn_uq_dist.sampling._paired_draws import paired_draws as paired_draws
from nn_uq_dist.sampling._paired_statistics import PairedStatistics as PairedStatistics
from nn_uq_dist.sampling._paired_statistics import paired_statistics as paired_statistics
from nn_uq_dist.sampling._win_probabilities import win_probabilities as win_probabilities
from nn_uq_dist.sampling.weighted_sample import PairedEstimate as PairedEstimate
