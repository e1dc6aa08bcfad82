"""What is answered with runs of the network: how probable it is that it fails.

Read `_failure_probability.py` first: the call, and `_failure_result.py`: what it returns.
`_standard_space.py` is the network at standard normal variables, whatever the law of its input is;
`_tangent_points.py` looks there for the most probable failing points, by gradients. `_questions.py`
says which runs fail, and how near the others are. `_normal_mixture.py` has the laws that are drawn
from, `_cross_entropy.py` finds one for the failing runs, `_final_sample.py` draws from it, and
`_estimate.py` shares out the runs. `_linear_network.py` knows the exact answer where there is one.
"""

from nn_uq_dist.inference._failure_probability import failure_probability as failure_probability
from nn_uq_dist.inference._failure_result import FailureProbability as FailureProbability
