"""What is answered with runs of the network: how probable a failure is, and which inputs explain.

`_standard_space.py` is the network at standard normal variables, whatever the law of its input is:
both answers are sought there. `_weighted_draws.py` has what both do with weighted draws.

Of how probable it is that the network fails, read `_failure_probability.py` first.
`_limit_state.py` says which runs fail, looks for the most probable failing points, by gradients,
and knows the exact answer where the network is linear.
`_normal_mixture.py` has the laws that are drawn from, `_cross_entropy.py` finds one for the failing
runs, `_final_sample.py` draws from it, and `_estimate.py` shares out the runs.

Of the inputs behind observed outputs, read `_input_posterior.py` first. `_randomized_modes.py`
finds where to begin, `_student_mixture.py` has the laws that are drawn from, and
`_adaptive_sampling.py` draws, weighs and fits them anew.
"""

from nn_uq_dist.inference._failure_probability import FailureProbability as FailureProbability
from nn_uq_dist.inference._failure_probability import failure_probability as failure_probability
from nn_uq_dist.inference._input_posterior import InputPosterior as InputPosterior
from nn_uq_dist.inference._input_posterior import input_posterior as input_posterior
