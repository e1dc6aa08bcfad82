"""The network itself at random inputs: draws, and statistics gathered without keeping any.

Read `_passes.py` first: the plan of a run and the loop that carries it out over all devices.
`_monte_carlo.py` keeps the draws; `_streaming.py` reduces them while drawing, to the
`MonteCarloStatistics` of `_statistics.py`.
"""

from nn_uq_dist.sampling._monte_carlo import monte_carlo as monte_carlo
from nn_uq_dist.sampling._statistics import MonteCarloStatistics as MonteCarloStatistics
from nn_uq_dist.sampling._streaming import monte_carlo_statistics as monte_carlo_statistics
