"""What is answered with runs of the network: failures, inputs that explain, inputs that matter.

`_standard_space.py` is the network at standard normal variables, whatever the distribution of its
input is: all answers are sought there. `_importance_weights.py` keeps all draws of a search with
weights over all mixtures that they were drawn from, and has what both searches do with them.

Of how probable it is that the network fails, read `_failure_probability.py` first, then
`_failure_search.py`, which learns where it fails, and `_search_state.py`, what it knows, and the
mixture that this leads to. `_limit_state.py` says which runs fail, has climbs to the limit, and
planes and corners there; `_markov_chains.py` has chains beyond it, and subset simulation, which is
made of such. All lead to failing inputs. `_normal_mixture.py` has the distributions that are drawn
from, `_failure_estimate.py` the estimate, and `_failure_claims.py` what it claims.

Of the inputs behind observed outputs, read `_input_posterior.py` first. `_posterior_starts.py`
finds where to begin and tells how much it may have missed, `_student_mixture.py` has the
distributions that are drawn from, and `_posterior_sampling.py` draws, weighs and fits them anew.

Which input matters for which output is in `_sobol_indices.py`.
"""

from nn_uq_dist.inference._failure_probability import FailureProbability as FailureProbability
from nn_uq_dist.inference._failure_probability import failure_probability as failure_probability
from nn_uq_dist.inference._input_posterior import InputPosterior as InputPosterior
from nn_uq_dist.inference._input_posterior import input_posterior as input_posterior
from nn_uq_dist.inference._sobol_indices import SobolIndices as SobolIndices
from nn_uq_dist.inference._sobol_indices import sobol_indices as sobol_indices
