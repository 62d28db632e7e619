"""Partitioning that is learnt (PartLy): the environment, its rewards, training in JAX, and use in NumPy and numba."""
