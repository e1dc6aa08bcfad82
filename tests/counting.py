"""How often a network is really computed, whatever the batches and copies that it gets."""

import jax
import numpy as np


class CountedNetwork:
    """A network of a vector whose evaluations are counted on the host; gradients pass it once."""

    def __init__(self, network):
        self._network, self.count = network, 0

        @jax.custom_jvp
        def counted(number):
            shape = jax.ShapeDtypeStruct(number.shape, number.dtype)
            return jax.pure_callback(self._add, shape, number, vmap_method="expand_dims")

        counted.defjvp(lambda primals, tangents: (counted(*primals), *tangents))
        self._counted = counted

    def _add(self, numbers):
        self.count += np.size(numbers)
        return np.asarray(numbers)

    def __call__(self, x):
        return self._network(x.at[0].set(self._counted(x[0])))
