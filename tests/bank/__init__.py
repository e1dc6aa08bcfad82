"""Bank of reference problems for the distribution of a linear combination, with 40-digit
answers."""
