"""Tables that say how far a linearized law is from the network's own."""

from nn_uq_dist.diagnostics._summary import summary as summary

__all__ = ["summary"]
