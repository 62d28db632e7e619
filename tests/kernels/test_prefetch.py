"""Asking for memory early is an instruction of the processor, and changes nothing."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from numba import njit

from steelyard.kernels.prefetch import prefetch


@njit
def _fetched(array):
    for i in range(np.uint64(0), np.uint64(len(array))):
        prefetch(array, i)


def test_the_array_stays_as_it_was():
    array = np.arange(100)
    _fetched(array)
    assert array.tolist() == list(range(100))


@pytest.mark.parametrize("kind", ["int64", "uint8", [("key", "int64"), ("row", "int32")]])
def test_arrays_of_any_kind_are_asked_for(kind):
    _fetched(np.zeros(10, np.dtype(kind)))


def test_the_processor_is_asked():
    _fetched(np.arange(100))
    instruction = "prfm" if platform.machine() in ("aarch64", "arm64") else "prefetch"
    assert any(instruction in code for code in _fetched.inspect_asm().values())
