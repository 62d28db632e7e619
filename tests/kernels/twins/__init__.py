"""What compiled loops of `steelyard.kernels` do, in slow plain Python: tests compare the two.

A module here has the name of the module whose twins it holds.
"""
