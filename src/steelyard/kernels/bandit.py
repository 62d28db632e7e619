"""Dalton's loop: a contextual bandit sends the rows of heavy hitters, the hash of their key sends all others.

E. Zapridou, I. Mytilinis, A. Ailamaki, Dalton: Learned Partitioning for Distributed Data Streams, PVLDB 16(3),
2022, Algorithm 1. The twin that is easy to follow is `bandit_plain.PlainBandit`.

Only keys that are hot, or that still have rows outside their hash block in the window, have a row in the bandit.
The fragmentation X of all others is known without one: they are in their hash block if their last slide there is
in the window, and that slide stands in the key's table entry. For keys with a row, `last` has the slide of the
latest row in each other block, and `others` is how many of those slides are in the window. A pair (row, block)
that counts waits in the list of a slide; when that slide leaves the window, the pair is dropped, or moved on to
the list of its last slide. So a pair is touched about once a window, and a row of the stream costs O(1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from steelyard.kernels.bandit_state import (
    BASE,
    CAPPED,
    COLD,
    DISTINCT,
    EXPIRY,
    FREE,
    HOT,
    HYBRID,
    INSIDE,
    LOGGED,
    LOGGING,
    MAX_SPLIT,
    NEED,
    RANDOM,
    ROWS,
    SKETCH,
    SKETCHING,
    SLIDE,
    SLIDE_END,
    STARTED,
    STATS_END,
    USED,
    Bandit,
    Rule,
)
from steelyard.kernels.heavy import FILL, NEVER, NO_ROW, VACANT, find, settle, shift_of, sketch_add, top

Array = np.ndarray[Any, Any]
Int = Any
"""An int, or a NumPy integer: in compiled code there is no difference."""


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What the state of the random numbers grows by (SplitMix64)."""


@njit(cache=True)
def scrambled(state: Int) -> Int:
    """64 random bits from a state."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(cache=True)
def below(bits: Int, limit: Int) -> Int:
    """A number below `limit` from random bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(cache=True)
def turn_hot(rule: Rule, b: Bandit, slot: Int) -> Int:
    """Give a key a fresh line of Q values, in the row that it still has or in a free one."""
    clock, rows = b.clock, b.rows
    row = np.int64(b.table[slot].row)
    if row == NO_ROW:
        clock[FREE] -= 1
        row = np.int64(b.free[clock[FREE]])
        b.table[slot].row = row
        rows[row].key = b.table[slot].key
        rows[row].others = 0
        b.last[row, :] = NEVER
    b.q[row, :] = rule.initial
    sort_blocks(b.q, b.order, row, np.int64(b.table[slot].home))
    rows[row].capped = 0
    rows[row].expires = clock[EXPIRY]
    rows[row].place = clock[HOT]
    b.hot[clock[HOT]] = row
    clock[HOT] += 1
    return row


@njit(cache=True)
def turn_cold(b: Bandit, row: Int) -> None:
    """Take a key out of the Q table; its row stays while it has rows outside its hash block."""
    clock, rows = b.clock, b.rows
    clock[HOT] -= 1
    moved = b.hot[clock[HOT]]
    b.hot[rows[row].place] = moved
    rows[moved].place = rows[row].place
    rows[row].expires = COLD
    clock[CAPPED] -= rows[row].capped
    rows[row].capped = 0
    if rows[row].others == 0:
        _release(b, row)


@njit(cache=True)
def _release(b: Bandit, row: Int) -> None:
    b.table[find(b.table, shift_of(b.table), b.rows[row].key)].row = NO_ROW
    b.free[b.clock[FREE]] = row
    b.clock[FREE] += 1


@njit(cache=True)
def _ahead(q: Array, row: Int, home: Int, one: Int, other: Int) -> Any:
    """Whether a block goes before another in the order of a row."""
    mine, its = q[row, one], q[row, other]
    return mine > its or (mine == its and other != home and (one == home or one < other))


@njit(cache=True)
def sort_blocks(q: Array, order: Array, row: Int, home: Int) -> None:
    """Put the blocks of a row in the order of their values."""
    for block in range(q.shape[1]):
        place = block
        while place > 0 and _ahead(q, row, home, block, order[row, place - 1]):
            order[row, place] = order[row, place - 1]
            place -= 1
        order[row, place] = block


@njit(cache=True)
def learn(q: Array, order: Array, row: Int, home: Int, block: Int, reward: float, step: float) -> None:
    """Eq 5: Q(k, a) <- Q(k, a) + gamma (R - Q(k, a)).

    The blocks of a row stay sorted, so that the best is known without a search: a value moves little at a time,
    and so its block seldom moves more than one place.
    """
    old = q[row, block]
    q[row, block] = old + step * (reward - old)
    place = 0
    while order[row, place] != block:
        place += 1
    while place + 1 < q.shape[1] and _ahead(q, row, home, order[row, place + 1], block):
        order[row, place] = order[row, place + 1]
        place += 1
    while place > 0 and _ahead(q, row, home, block, order[row, place - 1]):
        order[row, place] = order[row, place - 1]
        place -= 1
    order[row, place] = block


@njit(cache=True)
def close_statistics(rule: Rule, b: Bandit, now: Int, end: Int, expiry: Int) -> None:
    """Begin the statistics interval that ends before `end`; keys that turn hot in it stay so until `expiry`."""
    clock = b.clock
    if rule.forced > 0:
        _force(rule, b, end - 1)
    else:
        for i in range(clock[HOT] - 1, -1, -1):
            if b.rows[b.hot[i]].expires < now:
                turn_cold(b, b.hot[i])
    if clock[SKETCHING]:
        b.sketch[:] = 0
    clock[SKETCHING] = rule.statistics == SKETCH or (
        rule.statistics == HYBRID and clock[DISTINCT] >= rule.hybrid_at
    )
    clock[DISTINCT] = 0
    clock[BASE] = clock[ROWS]
    clock[STATS_END] = end
    clock[EXPIRY] = expiry


@njit(cache=True)
def _force(rule: Rule, b: Bandit, expiry: Int) -> None:
    """Make the most frequent keys of the interval that ends the hot ones of the next, and no others."""
    clock = b.clock
    slots, _ = top(b.table, clock[BASE], rule.forced)
    for slot in slots:
        row = b.table[slot].row
        if row == NO_ROW or b.rows[row].expires == COLD:
            row = turn_hot(rule, b, slot)
        b.rows[row].expires = expiry
    for i in range(clock[HOT] - 1, -1, -1):
        if b.rows[b.hot[i]].expires != expiry:
            turn_cold(b, b.hot[i])


@njit(cache=True)
def next_slide(rule: Rule, b: Bandit) -> None:
    """Close the current slide, and let the oldest of the window go."""
    clock = b.clock
    closed = clock[SLIDE] % rule.panes
    clock[SLIDE] += 1
    gone = clock[SLIDE] - rule.panes
    pane = clock[SLIDE] % rule.panes  # of the slide that leaves, and of the one that begins
    for block in range(rule.blocks):
        b.panes[closed, block] = b.loads[block] - b.opened[block]
        b.loads[block] -= b.panes[pane, block]
        clock[INSIDE] -= b.panes[pane, block]
        b.panes[pane, block] = 0
        b.opened[block] = b.loads[block]
    pair = b.waiting[pane]
    b.waiting[pane] = -1
    while pair >= 0:
        row, block = pair // rule.blocks, pair % rule.blocks
        following = b.link[row, block]
        if b.last[row, block] > gone:
            wait = b.last[row, block] % rule.panes
            b.link[row, block] = b.waiting[wait]
            b.waiting[wait] = pair
        else:
            b.rows[row].others -= 1
            if b.rows[row].others == 0 and b.rows[row].expires == COLD:
                _release(b, row)
        pair = following


@njit(cache=True)
def roll(rule: Rule, b: Bandit, now: Int) -> None:
    """Bring statistics and windows to the time of a row."""
    clock = b.clock
    if clock[STARTED] == 0:
        clock[STARTED] = 1
        clock[SLIDE_END] = (now // rule.slide + 1) * rule.slide
        if rule.stats > 0:
            clock[STATS_END] = (now // rule.stats + 1) * rule.stats
            clock[EXPIRY] = clock[STATS_END] + rule.stats - 1
    if now >= clock[STATS_END]:
        if not rule.all_hot and rule.forced == 0:
            # f >= Lambda / n, with Lambda the load of the last interval that had rows
            clock[NEED] = (clock[ROWS] - clock[BASE] + rule.blocks - 1) // rule.blocks
        end = (now // rule.stats + 1) * rule.stats
        close_statistics(rule, b, now, end, end + rule.stats - 1)
    if now >= clock[SLIDE_END]:
        end = (now // rule.slide + 1) * rule.slide
        for _ in range(min((end - clock[SLIDE_END]) // rule.slide, rule.panes)):
            next_slide(rule, b)
        clock[SLIDE_END] = end


@njit(cache=True)
def _held_block(last: Array, row: Int, home: Int, at_home: Int, others: Int, gone: Int, bits: Int) -> Int:
    """A random one of the blocks that have a key, or -1 where none has."""
    left = below(bits, others + at_home)
    for block in range(last.shape[1]):
        if (at_home and block == home) or last[row, block] > gone:
            if left == 0:
                return block
            left -= 1
    return -1


@njit(cache=True)
def _explore(clock: Array, rows: Array, last: Array, row: Int, home: Int, at_home: Int, gone: Int, bits: Int) -> Int:
    """A random block; for a capped key, a random one of those that have it."""
    target = below(bits, last.shape[1])
    if rows[row].capped != 0:
        held = _held_block(last, row, home, at_home, rows[row].others, gone, bits)
        if held >= 0:
            target = held
        else:
            rows[row].capped = 0
            clock[CAPPED] -= 1
    return target


@njit(cache=True)
def _cap(rule: Rule, clock: Array, rows: Array, hot: Array, row: Int, held: Int) -> None:
    """Stop a key that is in enough blocks from exploring others; raise the cap when most keys are stopped."""
    if held >= clock[MAX_SPLIT] and rows[row].capped == 0:
        rows[row].capped = 1
        clock[CAPPED] += 1
    if clock[MAX_SPLIT] < rule.split_limit and clock[CAPPED] > 0 and 10 * clock[CAPPED] >= 7 * clock[HOT]:
        clock[MAX_SPLIT] += 1
        clock[CAPPED] = 0
        for i in range(clock[HOT]):
            rows[hot[i]].capped = 0


@njit(cache=True)
def _reward(rule: Rule, load: Int, inside: Int, held: Int) -> Any:
    """R = -(p1 CI + p2 CA), with CI(a) = (L(a) - mean L) / max(L(a), mean L) and CA(k) = ||X(k)|| / n."""
    mean = inside * rule.share
    own = np.float64(load)
    return -(rule.p1 * ((own - mean) / max(own, mean)) + rule.p2 * (held * rule.share))


@njit(cache=True)
def route(rule: Rule, b: Bandit, keys: Array, times: Array, block: Array, split: Array, start: Int) -> Int:
    """Algorithm 1 from row `start` on; gives the row where it stopped for want of room in an array.

    Arrays are taken out of `b` once, since looking them up for every row counts references.
    """
    clock, table, loads, sketch, rows = b.clock, b.table, b.loads, b.sketch, b.rows
    q, order, last, link, waiting, hot = b.q, b.order, b.last, b.link, b.waiting, b.hot
    log_key, log_block, log_reward = b.log_key, b.log_block, b.log_reward
    shift = shift_of(table)
    began = start  # rows since then are not in the clock's sums yet
    turn = min(clock[SLIDE_END], clock[STATS_END])
    base, bar, slide, inside = clock[BASE], clock[BASE] + clock[NEED], clock[SLIDE], clock[INSIDE]
    sketching, logging = clock[SKETCHING] != 0, clock[LOGGING] != 0
    random = np.uint64(clock[RANDOM])
    greedy = np.uint64(rule.greedy)
    distinct = 0
    i = start
    while i < len(keys):
        now = times[i]
        if now >= turn:
            if clock[FREE] < rule.forced:
                break
            clock[ROWS] += i - began
            clock[INSIDE] = inside + i - began
            clock[DISTINCT] += distinct
            began, distinct = i, 0
            roll(rule, b, now)
            turn = min(clock[SLIDE_END], clock[STATS_END])
            base, bar, slide, inside = clock[BASE], clock[BASE] + clock[NEED], clock[SLIDE], clock[INSIDE]
            sketching = clock[SKETCHING] != 0
        key = keys[i]
        slot = find(table, shift, key)
        if table[slot].home == VACANT:
            if FILL * clock[USED] >= len(table):
                break
            settle(table, slot, key, rule.blocks)
            clock[USED] += 1
        if (sketching and clock[FREE] == 0) or (logging and clock[LOGGED] == len(log_key)):
            break
        stamp = table[slot].stamp
        fresh = stamp <= base
        stamp = base + sketch_add(sketch, key) if sketching else max(stamp, base) + 1
        row, home = np.int64(table[slot].row), np.int64(table[slot].home)
        warm = row != NO_ROW and rows[row].expires != COLD
        if stamp < bar and not (warm and rows[row].expires >= now):
            if warm:
                turn_cold(b, row)
            table[slot].seen = slide
            target = home
            loads[home] += 1
            split[i] = table[slot].row != NO_ROW
        else:
            if not warm:
                if row == NO_ROW and clock[FREE] == 0:
                    break
                row = turn_hot(rule, b, slot)
            elif stamp >= bar:
                rows[row].expires = max(rows[row].expires, clock[EXPIRY])
            gone = slide - rule.panes
            random += GOLDEN
            target = np.int64(order[row, 0])
            if scrambled(random) >> np.uint64(11) >= greedy:
                random += GOLDEN
                target = _explore(clock, rows, last, row, home, table[slot].seen > gone, gone, scrambled(random))
            if target == home:
                table[slot].seen = slide
            else:
                if last[row, target] <= gone:
                    rows[row].others += 1
                    link[row, target] = waiting[slide % rule.panes]
                    waiting[slide % rule.panes] = row * rule.blocks + target
                last[row, target] = slide
            loads[target] += 1
            held = rows[row].others + (table[slot].seen > gone)
            reward = _reward(rule, loads[target], inside + i - began + 1, held)
            if rule.split_limit > 0:
                _cap(rule, clock, rows, hot, row, held)
            if logging:
                logged = clock[LOGGED]
                log_key[logged], log_block[logged], log_reward[logged] = key, target, reward
                clock[LOGGED] += 1
            else:
                learn(q, order, row, home, target, reward, rule.step)
            split[i] = True
        table[slot].stamp = stamp
        block[i] = target
        distinct += fresh
        i += 1
    clock[ROWS] += i - began
    clock[INSIDE] = inside + i - began
    clock[DISTINCT] += distinct
    clock[RANDOM] = np.int64(random)
    return i


@njit(cache=True)
def _slot(rule: Rule, b: Bandit, key: Int) -> Int:
    """The slot of a key, which is settled if it is new; the caller has made room."""
    slot = find(b.table, shift_of(b.table), key)
    if b.table[slot].home == VACANT:
        settle(b.table, slot, key, rule.blocks)
        b.clock[USED] += 1
    return slot


@njit(cache=True)
def adopt(rule: Rule, b: Bandit, keys: Array, values: Array, expiry: Array) -> None:
    """Make these the hot keys, with these values; keys that were hot before stay capped."""
    for i in range(len(keys)):
        slot = _slot(rule, b, keys[i])
        row = np.int64(b.table[slot].row)
        if row == NO_ROW or b.rows[row].expires == COLD:
            row = turn_hot(rule, b, slot)
        b.q[row, :] = values[i]
        b.rows[row].expires = expiry[i]
        sort_blocks(b.q, b.order, row, np.int64(b.table[slot].home))
    for i in range(b.clock[HOT] - 1, -1, -1):
        if not np.any(keys == b.rows[b.hot[i]].key):
            turn_cold(b, b.hot[i])


@njit(cache=True)
def replay(rule: Rule, b: Bandit) -> None:
    """Learn from the logged rewards, in their order; a key that is not hot becomes so again."""
    for i in range(b.clock[LOGGED]):
        slot = _slot(rule, b, b.log_key[i])
        row = np.int64(b.table[slot].row)
        if row == NO_ROW or b.rows[row].expires == COLD:
            row = turn_hot(rule, b, slot)
        home, block = np.int64(b.table[slot].home), np.int64(b.log_block[i])
        learn(b.q, b.order, row, home, block, b.log_reward[i], rule.step)


@njit(cache=True)
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
