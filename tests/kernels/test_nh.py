"""NH: the compiled hash is what NumPy computes, and a change of any word changes it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steelyard.kernels.nh import BLOCK, HASH, KEY, block_hashes, key_of

PAIRS = BLOCK // 8


def plain_hashes(data, key):
    """The same in NumPy."""
    words = np.frombuffer(data, "<u4").reshape(-1, 2, PAIRS)
    halves = []
    for move in range(2):
        sums = words + key[:, move : move + PAIRS]
        halves.append(np.einsum("ij,ij->i", sums[:, 0], sums[:, 1], dtype=np.uint64, casting="safe"))
    return np.stack(halves, axis=1).tobytes()


@given(st.integers(0, 3), st.integers(0, 2**32))
def test_compiled_and_plain_hashes_are_equal(blocks, seed):
    made = np.random.default_rng(seed)
    key, data = key_of(made.bytes(KEY)), made.bytes(blocks * BLOCK)
    assert block_hashes(data, key) == plain_hashes(data, key)
    assert len(block_hashes(data, key)) == blocks * HASH


@given(st.integers(0, BLOCK - 1), st.integers(1, 255), st.integers(0, 2**32))
def test_a_byte_that_is_changed_changes_both_halves(at, change, seed):
    made = np.random.default_rng(seed)
    key, data = key_of(made.bytes(KEY)), bytearray(made.bytes(BLOCK))
    before = block_hashes(bytes(data), key)
    data[at] ^= change
    after = block_hashes(bytes(data), key)
    assert before[:8] != after[:8]
    assert before[8:] != after[8:]


def test_a_buffer_that_is_not_aligned_has_the_same_hash():
    made = np.random.default_rng(3)
    key, data = key_of(made.bytes(KEY)), made.bytes(2 * BLOCK)
    assert block_hashes(memoryview(b"x" + data)[1:], key) == block_hashes(data, key)
