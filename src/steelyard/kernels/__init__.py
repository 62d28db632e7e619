"""The hot loops, compiled with numba; most have a plain twin beside the tests, which compare the two."""
