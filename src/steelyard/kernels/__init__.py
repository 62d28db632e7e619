"""The hot loops, compiled with numba; each has a plain twin that the tests compare it to."""
