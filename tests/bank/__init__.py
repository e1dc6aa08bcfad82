"""Bank of reference problems for the law of a linear combination, with 40-digit answers."""
