"""One step of partitioning for many batches at once: the same code over NumPy and, traced, over JAX.

Abdelhamid 2021, section 4.4: an episode is a batch, a step the decision for a key. Keys come in descending order; those
that are put off come last, the smallest first, as the rests of Prompt's large keys do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.partition.learned.actions import FILL, LATER, SHARES, Level, parts

MOST_PUT_OFF = 64
"""Keys of one batch that can be put off in training; where a trained policy is used there is no limit."""
MOST_ROWS = 2**28
"""Of a batch in training, whose whole numbers have 32 bits: four times as much still fits."""


class Batches(NamedTuple):
    """What does not change in an episode, for each of several batches."""

    rows: Any
    """int[batches, keys]: rows of each key in descending order, then zeros."""
    keys: Any
    """int[batches]: how many keys there are."""
    blocks: Any
    """int[batches]: how many blocks there are to cut into."""
    total: Any
    """int[batches]: all rows."""
    capacity: Any
    """int[batches]: P_size = ceil(N / p)."""
    after: Any
    """float32[batches, keys + 1]: rows of the keys from here on."""

    @classmethod
    def of(cls, counts: Sequence[Ints], blocks: Any, width: int = 0) -> Batches:
        """From the counts of each batch, in any order; `width` is the number of keys to leave room for."""
        room = max([width, 1, *(len(one) for one in counts)])
        rows = np.zeros((len(counts), room), np.int64)
        for number, one in enumerate(counts):
            rows[number, : len(one)] = np.sort(one)[::-1]
        number_of = np.broadcast_to(np.asarray(blocks, np.int64), len(counts)).copy()
        total = rows.sum(axis=1)
        after = np.zeros((len(counts), room + 1), np.float32)
        after[:, :-1] = rows[:, ::-1].cumsum(axis=1)[:, ::-1]
        keys = np.array([len(one) for one in counts], np.int64)
        return cls(rows, keys, number_of, total, -(-total // number_of), after)


class State(NamedTuple):
    """Where each batch is."""

    load: Any
    """int[batches, blocks]: rows of each block."""
    card: Any
    """int[batches, blocks]: keys of each block."""
    holds: Any
    """bool[batches, blocks]: whether the block has rows of the key that is shown."""
    index: Any
    """int[batches]: the key that is shown."""
    rest: Any
    """int[batches]: rows of it that are in no block."""
    reached: Any
    """int[batches]: how far the first pass over the keys is."""
    stack: Any
    """int[batches, MOST_PUT_OFF]: keys that were put off."""
    waiting: Any
    """int[batches]: how many of them."""
    held: Any
    """float32[batches]: rows of them."""
    done: Any
    """bool[batches]"""


def begin(batches: Batches, blocks: int, xp: Any = np, put_off: int = MOST_PUT_OFF) -> State:
    """Nothing is assigned; `blocks` is the largest number of blocks, of which a batch may have fewer."""
    number = batches.rows.shape[0]
    nothing = xp.zeros((number, blocks), batches.rows.dtype)
    none = xp.zeros(number, batches.rows.dtype)
    return State(
        nothing,
        nothing,
        nothing > 0,
        none,
        batches.rows[:, 0],
        none,
        xp.zeros((number, put_off), batches.rows.dtype),
        none,
        none.astype(np.float32),
        batches.keys == 0,
    )


def amounts(level: Level, batches: Batches, state: State, block: Any, kind: Any, xp: Any = np) -> Any:
    """int[batches, blocks]: rows of the key shown that an action puts into each block."""
    width = state.load.shape[1]
    here = xp.arange(width)
    anchor = here[None, :] == block[:, None]
    mode = xp.asarray(level.modes)[kind]
    room = xp.maximum(batches.capacity[:, None] - state.load, 0)
    filled = xp.where(anchor, xp.minimum(room, state.rest[:, None]), 0)
    whole = xp.where(anchor, state.rest[:, None], 0)
    if level.cuts:
        exists = here[None, :] < batches.blocks[:, None]
        load = xp.where(exists, state.load, batches.total[:, None] + 1)
        load = xp.where(anchor, -1, load)
        before = (load[:, None, :] < load[:, :, None]) | (
            (load[:, None, :] == load[:, :, None]) & (here[None, :] < here[:, None])[None]
        )
        place = before.sum(-1)
        shares = parts(state.rest, xp.asarray(level.weights)[kind], xp)
        given = xp.take_along_axis(shares, xp.minimum(place, shares.shape[1] - 1), axis=1)
        whole = xp.where(place < shares.shape[1], given, 0)
    mode = mode[:, None]
    put = xp.where(mode == SHARES, whole, xp.where(mode == FILL, filled, 0))
    return xp.where(state.done[:, None], 0, put).astype(state.load.dtype)


def advance(batches: Batches, state: State, put: Any, later: Any, xp: Any = np) -> State:
    """The state after rows were put into blocks, or the key was put off."""
    later = later & ~state.done
    put = xp.where(later[:, None], 0, put)
    new = (put > 0) & ~state.holds
    rest = state.rest - put.sum(-1)
    moved = (later | (rest <= 0)) & ~state.done
    first_pass = state.reached < batches.keys
    slots = xp.arange(state.stack.shape[1])
    stack = xp.where(later[:, None] & (slots == state.waiting[:, None]), state.index[:, None], state.stack)
    waiting = state.waiting + later
    held = state.held + xp.where(later, state.rest, 0).astype(np.float32)
    reached = state.reached + (moved & first_pass)
    second_pass = moved & (reached >= batches.keys)
    popped = second_pass & (waiting > 0)
    waiting = waiting - popped
    top = xp.take_along_axis(stack, xp.maximum(waiting, 0)[:, None] % stack.shape[1], axis=1)[:, 0]
    following = xp.where(second_pass, top, xp.minimum(reached, batches.rows.shape[1] - 1))
    done = state.done | (second_pass & ~popped)
    index = xp.where(moved & ~done, following, state.index)
    shown = xp.take_along_axis(batches.rows, index[:, None], axis=1)[:, 0]
    rest = xp.where(moved, xp.where(done, 0, shown), rest)
    held = held - xp.where(popped, shown, 0).astype(np.float32)
    return State(
        state.load + put,
        state.card + new,
        (state.holds | (put > 0)) & ~moved[:, None],
        index.astype(state.index.dtype),
        rest.astype(state.rest.dtype),
        reached.astype(state.reached.dtype),
        stack.astype(state.stack.dtype),
        waiting.astype(state.waiting.dtype),
        held,
        done,
    )


def step(level: Level, batches: Batches, state: State, block: Any, kind: Any, xp: Any = np) -> tuple[State, Any]:
    """The state after an action, and the rows that it put into blocks."""
    put = amounts(level, batches, state, block, kind, xp)
    later = xp.asarray(level.modes)[kind] == LATER
    return advance(batches, state, put, later, xp), put


def allowed(level: Level, batches: Batches, state: State, xp: Any = np) -> Any:
    """bool[batches, blocks, kinds]: which actions there are; to put a key off has no block, and stands at block 0."""
    width = state.load.shape[1]
    exists = xp.arange(width)[None, :] < batches.blocks[:, None]
    degrees, modes = xp.asarray(level.degrees), xp.asarray(level.modes)
    # parts are to be of other blocks, with a row each, and a cut is made once
    can_cut = (degrees[None] <= batches.blocks[:, None]) & (degrees[None] <= xp.maximum(state.rest, 1)[:, None])
    room = (batches.capacity[:, None] > state.load) & exists
    # above the mean, as Prompt's large keys are; a product of rows and keys may not fit into JAX's 32 bits
    large = state.rest > batches.total // xp.maximum(batches.keys, 1)
    can_wait = large & (state.reached < batches.keys) & (state.waiting < state.stack.shape[1])
    can_wait = can_wait & ~state.holds.any(-1)  # what is put off is put off whole
    at_first = xp.arange(width) == 0
    return xp.where(
        modes == LATER,
        (can_wait[:, None] & at_first[None])[:, :, None],
        xp.where(modes == FILL, room[:, :, None], exists[:, :, None] & can_cut[:, None, :]),
    )
