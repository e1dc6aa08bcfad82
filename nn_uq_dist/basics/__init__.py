"""Checks of arguments, frozen pytrees, row algebra, normal scores, programs that compile once.

`normal_scores.py` has the one table of families with normal scores.
"""
