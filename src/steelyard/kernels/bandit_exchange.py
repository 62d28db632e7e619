"""What a bandit takes over from others, and what it tells of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.bandit import rank, turn_cold, turn_hot
from steelyard.kernels.bandit_state import BASE, COLD, HOT, LOGGED, SLIDE, USED, Bandit, Rule
from steelyard.kernels.compiled import njit
from steelyard.kernels.heavy import NO_ROW, VACANT, find, settle, shift_of

Array = np.ndarray[Any, Any]
Int = Any


@njit()
def _slot(rule: Rule, b: Bandit, key: Int) -> Int:
    """The slot of a key, which is settled if it is new; the caller has made room."""
    slot = find(b.table, shift_of(b.table), key)
    if b.table[slot].home == VACANT:
        settle(b.table, slot, key, rule.blocks)
        b.clock[USED] += 1
    return slot


@njit()
def adopt(rule: Rule, b: Bandit, keys: Array, values: Array, expiry: Array) -> None:
    """Make these the hot keys, with these values; keys that were hot before stay capped."""
    for i in range(len(keys)):
        slot = _slot(rule, b, keys[i])
        row = np.int64(b.table[slot].row)
        if row == NO_ROW or b.rows[row].expires == COLD:
            row = turn_hot(rule, b, slot)
        b.q[row, :] = values[i]
        b.rows[row].expires = expiry[i]
        rank(b.q.reshape(-1), b.rows, row, rule.blocks, np.int64(b.table[slot].home))
    for i in range(b.clock[HOT] - 1, -1, -1):
        if not np.any(keys == b.rows[b.hot[i]].key):
            turn_cold(b, b.hot[i])


@njit()
def replay(rule: Rule, b: Bandit, first: Int) -> None:
    """Learn from the logged rewards from number `first` on, in order; a key that is not hot becomes so again."""
    for i in range(first, b.clock[LOGGED]):
        slot = _slot(rule, b, b.log_key[i])
        row = np.int64(b.table[slot].row)
        if row == NO_ROW or b.rows[row].expires == COLD:
            row = turn_hot(rule, b, slot)
        home, block = np.int64(b.table[slot].home), np.int64(b.log_block[i])
        b.q[row, block] += rule.step * (b.log_reward[i] - b.q[row, block])
        rank(b.q.reshape(-1), b.rows, row, rule.blocks, home)


@njit()
def describe(rule: Rule, b: Bandit, keys: Array) -> tuple[Array, Array]:
    """The frequency of each key in the interval, and how many blocks have it in the window."""
    frequency = np.zeros(len(keys), np.int64)
    held = np.zeros(len(keys), np.int64)
    gone = b.clock[SLIDE] - rule.panes
    shift = shift_of(b.table)
    for i in range(len(keys)):
        entry = b.table[find(b.table, shift, keys[i])]
        if entry.home != VACANT:
            frequency[i] = max(entry.stamp - b.clock[BASE], 0)
            held[i] = entry.seen > gone
            if entry.row != NO_ROW:
                held[i] += b.rows[entry.row].others
    return frequency, held
