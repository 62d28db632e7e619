"""Dalton's loop: a contextual bandit sends the rows of heavy hitters, the hash of their key sends all others.

E. Zapridou, I. Mytilinis, A. Ailamaki, Dalton: Learned Partitioning for Distributed Data Streams, PVLDB 16(3),
2022, Algorithm 1. The twin that is easy to follow is beside the tests: `PlainBandit`.

Only keys that are hot, or that still have rows outside their hash block in the window, have a row in the bandit.
The fragmentation X of all others is known without one: they are in their hash block if their last slide there is
in the window, and that slide stands in the key's table entry. For keys with a row, `last` has the slide of the
latest row in each block, and `others` is how many of those slides are in the window, without the hash block's,
whose place is the table entry. A pair (row, block) that counts waits in the list of a slide; when that slide leaves
the window, the pair is dropped, or moved on to the list of its last slide. So a pair is touched about once per window,
and a row of the stream costs O(1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.bandit_state import (
    BASE,
    CAPPED,
    COLD,
    DISTINCT,
    EXPIRY,
    FREE,
    HOLD,
    HOT,
    HYBRID,
    INSIDE,
    LEARN,
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
from steelyard.kernels.compiled import njit
from steelyard.kernels.heavy import (
    FILL,
    NEVER,
    NO_ROW,
    NOBODY,
    VACANT,
    fetch,
    find,
    first_slot,
    guess,
    settle,
    shift_of,
    sketch_add,
    top,
)

Array = np.ndarray[Any, Any]
Int = Any
"""An int, or a NumPy integer: in compiled code there is no difference."""


CHUNK = 64
"""Rows whose table entries are looked up together: the processor then waits for many of them at once."""
LOWEST = -1e300
"""Where the search for the second best begins: what is lower is no rival to anybody."""
FULL = np.uint64(2**64 - 1)
"""In place of a slot: there is none left."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What the state of the random numbers grows by (SplitMix64)."""


@njit(inline="always")
def scrambled(state: Int) -> Int:
    """64 random bits from a state."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(inline="always")
def below(bits: Int, limit: Int) -> Int:
    """A number below `limit` from random bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit()
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
    rank(b.q.reshape(-1), b.rows, row, rule.blocks, np.int64(b.table[slot].home))
    rows[row].capped = 0
    rows[row].expires = clock[EXPIRY]
    rows[row].place = clock[HOT]
    b.hot[clock[HOT]] = row
    clock[HOT] += 1
    return row


@njit()
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


@njit()
def _release(b: Bandit, row: Int) -> None:
    b.table[find(b.table, shift_of(b.table), b.rows[row].key)].row = NO_ROW
    b.free[b.clock[FREE]] = row
    b.clock[FREE] += 1


@njit(forceinline=True)
def rank(q: Array, rows: Any, row: Int, blocks: Int, home: Int) -> None:
    """Find the best block of a row, the hash block where values are equal, and the value of the next."""
    line = np.uint64(row * blocks)
    best, highest, rival = home, q[line + np.uint64(home)], LOWEST
    for block in range(blocks):
        value = q[line + np.uint64(block)]
        if block == home:
            continue
        if value > highest:
            best, highest, rival = block, value, highest
        elif value > rival:
            rival = value
    rows[row].best = best
    rows[row].rival = rival


@njit()
def close_statistics(rule: Rule, b: Bandit, now: Int, end: Int, expiry: Int) -> None:
    """Begin the statistics interval that ends before `end`; keys that turn hot in it stay so until `expiry`."""
    clock = b.clock
    if rule.forced > 0:
        _force(rule, b, end - 1)
    else:
        for i in range(clock[HOT] - 1, -1, -1):
            if b.rows[b.hot[i]].expires < now:
                turn_cold(b, np.int64(b.hot[i]))
    if clock[SKETCHING]:
        b.sketch[:] = 0
    clock[SKETCHING] = rule.statistics == SKETCH or (rule.statistics == HYBRID and clock[DISTINCT] >= rule.hybrid_at)
    clock[DISTINCT] = 0
    clock[BASE] = clock[ROWS]
    clock[STATS_END] = end
    clock[EXPIRY] = expiry


@njit()
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
            turn_cold(b, np.int64(b.hot[i]))


@njit()
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


@njit()
def roll(rule: Rule, b: Bandit, now: Int) -> None:
    """Bring statistics and windows to the time of a row."""
    clock = b.clock
    if clock[STARTED] == 0:
        clock[STARTED] = 1
        clock[SLIDE_END] = (now // rule.slide + 1) * rule.slide
        if rule.stats > 0:
            clock[STATS_END] = (now // rule.stats + 1) * rule.stats
            clock[EXPIRY] = clock[STATS_END] + rule.stats - 1
    if rule.stats > 0 and now >= clock[STATS_END]:
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


@njit(forceinline=True)
def _explore(
    clock: Array, rows: Any, last: Array, row: Int, blocks: Int, home: Int, at_home: Int, gone: Int, bits: Int
) -> Int:
    """A random block; for a capped key, a random one of the blocks that have it, if any has."""
    held = rows[row].others + at_home
    if rows[row].capped == 0 or held == 0:
        clock[CAPPED] -= rows[row].capped
        rows[row].capped = 0
        return below(bits, blocks)
    # without branches: which block it is, is not to be guessed
    line, left, until, target = np.uint64(row * blocks), below(bits, held), 0, 0
    last[line + np.uint64(home)] = gone + at_home
    for block in range(blocks):
        until += last[line + np.uint64(block)] > gone
        target += until <= left
    return target


@njit()
def _cap(rule: Rule, b: Bandit, row: Int) -> Int:
    """Stop a key that is in enough blocks from exploring others; raise the cap when most keys are stopped."""
    clock, rows = b.clock, b.rows
    if rows[row].capped == 0:
        rows[row].capped = 1
        clock[CAPPED] += 1
    if clock[MAX_SPLIT] < rule.split_limit and 10 * clock[CAPPED] >= 7 * clock[HOT]:
        clock[MAX_SPLIT] += 1
        clock[CAPPED] = 0
        for i in range(clock[HOT]):
            rows[b.hot[i]].capped = 0
    return clock[MAX_SPLIT]


@njit()
def _log(b: Bandit, key: Int, block: Int, reward: float) -> None:
    logged = b.clock[LOGGED]
    b.log_key[logged], b.log_block[logged], b.log_reward[logged] = key, block, reward
    b.clock[LOGGED] += 1


@njit(forceinline=True)
def _place(table: Array, clock: Array, shift: Int, key: Int, blocks: Int, gone: Int) -> Int:
    """The slot of a key that does not stand where it was guessed; a new one is settled. FULL if there is no room.

    A new key may take the slot of one that left the window: the slots behind it stay in reach of their keys.
    """
    mask = np.uint64(len(table) - 1)
    slot = np.uint64(first_slot(shift, key))
    dead, base = FULL, clock[BASE]
    while table[slot].home != VACANT and table[slot].key != key:
        if dead == FULL and table[slot].row == NO_ROW and table[slot].stamp <= base and table[slot].seen <= gone:
            dead = slot
        slot = (slot + np.uint64(1)) & mask
    if table[slot].home != VACANT:
        return slot
    if dead == FULL:
        if FILL * clock[USED] >= len(table):
            return FULL
        clock[USED] += 1
        dead = slot
    settle(table, dead, key, blocks)
    return dead


@njit()
def _same_time(times: Array, start: Int, turn: Int) -> Int:
    """The first row behind `start` that ends an interval or a slide, or that is a chunk further."""
    stop = min(start + CHUNK, len(times))
    late = 0
    for i in range(np.uint64(start), np.uint64(stop)):  # mostly none does, which is quickly seen
        late += times[i] >= turn
    if late:
        for i in range(start + 1, stop):
            if times[i] >= turn:
                return i
    return stop


@njit(error_model="numpy")
def route(rule: Rule, b: Bandit, keys: Array, times: Array, block: Array, split: Array, start: Int) -> Int:  # noqa: PLR0912, PLR0915
    """Algorithm 1 from row `start` on; gives the row where it stopped for want of room in an array.

    A long function for speed: what most rows need stands in the loop, and only what few of them need is called,
    since a call that is given `b` counts the references of all its arrays. Indices are unsigned, since of a signed
    one compiled code asks each time whether it counts from the end.
    """
    clock, table, loads, sketch, rows, waiting = b.clock, b.table, b.loads, b.sketch, b.rows, b.waiting
    q, last, link = b.q.reshape(-1), b.last.reshape(-1), b.link.reshape(-1)
    blocks, panes, share, p1, p2, step = rule.blocks, rule.panes, rule.share, rule.p1, rule.p2, rule.step
    greedy, split_limit, log_size = np.uint64(rule.greedy), rule.split_limit, len(b.log_key)
    max_split, logging, learning = clock[MAX_SPLIT], clock[LOGGING] != LEARN, clock[LOGGING] != HOLD
    random, shift = np.uint64(clock[RANDOM]), shift_of(table)
    slots = np.empty(CHUNK, np.uint64)
    done, full = start, False
    while done < len(keys) and not full:
        if times[done] >= min(clock[SLIDE_END], clock[STATS_END]):
            if clock[FREE] < rule.forced:
                break
            roll(rule, b, times[done])
        stop = _same_time(times, done, min(clock[SLIDE_END], clock[STATS_END]))
        fetch(table, shift, keys, min(done + CHUNK, len(keys)), min(done + 2 * CHUNK, len(keys)))
        guess(table, shift, keys, done, stop, slots)
        base, bar, expiry = clock[BASE], clock[BASE] + clock[NEED], clock[EXPIRY]
        slide, inside, sketching = clock[SLIDE], clock[INSIDE], clock[SKETCHING] != 0
        gone, now, distinct = slide - panes, slide % panes, np.int64(0)
        i = np.uint64(done)
        while i < np.uint64(stop):
            # a run of cold rows, the shortest loop that does all they need
            while i < np.uint64(stop) and not sketching:
                slot = slots[i - np.uint64(done)]
                stamp = max(table[slot].stamp, base) + 1
                if table[slot].key != keys[i] or table[slot].row != NO_ROW or stamp >= bar:
                    break
                distinct += stamp == base + 1
                table[slot].stamp = stamp
                table[slot].seen = slide
                target = np.uint64(table[slot].home)
                loads[target] += 1
                block[i] = target
                split[i] = False
                i += np.uint64(1)
            if i == np.uint64(stop):
                break
            # a row that may be hot
            if (logging and clock[LOGGED] == log_size) or clock[FREE] == 0:
                full = True
                break
            slot = slots[i - np.uint64(done)]
            if table[slot].key != keys[i] or table[slot].row == NOBODY:
                slot = _place(table, clock, shift, keys[i], blocks, gone)
                if slot == FULL:
                    full = True
                    break
                slots[i - np.uint64(done)] = slot
                if not sketching:
                    continue
            stamp, row, home = table[slot].stamp, np.int64(table[slot].row), np.uint64(table[slot].home)
            distinct += stamp <= base
            stamp = base + sketch_add(sketch, keys[i]) if sketching else max(stamp, base) + 1
            table[slot].stamp = stamp
            if stamp < bar and (row == NO_ROW or rows[row].expires < times[i]):
                if row != NO_ROW and rows[row].expires != COLD:
                    turn_cold(b, row)
                target = home
                table[slot].seen = slide
                split[i] = table[slot].row != NO_ROW
            else:
                if row == NO_ROW or rows[row].expires == COLD:
                    row = turn_hot(rule, b, slot)
                elif stamp >= bar and rows[row].expires < expiry:
                    rows[row].expires = expiry
                of, line = np.uint64(row), np.uint64(row * blocks)
                random += GOLDEN
                best = target = np.uint64(rows[of].best)
                if scrambled(random) >> np.uint64(11) >= greedy:
                    random += GOLDEN
                    at_home = table[slot].seen > gone
                    bits, hashed = scrambled(random), np.int64(home)
                    target = np.uint64(_explore(clock, rows, last, row, blocks, hashed, at_home, gone, bits))
                # without branches but for what is rare: which block is best is not to be guessed
                elsewhere, before = target != home, last[line + target]
                last[line + target] = slide
                if before <= gone and elsewhere:
                    rows[of].others += 1
                    link[line + target] = waiting[now]
                    waiting[now] = line + target
                seen = max(table[slot].seen, slide - (np.int64(elsewhere) << np.int64(62)))
                table[slot].seen = seen
                # R = -(p1 CI + p2 CA), CI(a) = (L(a) - mean L) / max(L(a), mean L), CA(k) = ||X(k)|| / n
                held = rows[of].others + (seen > gone)
                load, mean = np.float64(loads[target] + 1), (inside + np.int64(i) - done + 1) * share
                reward = -(p1 * ((load - mean) / max(load, mean)) + p2 * (held * share))
                if held >= max_split and (rows[of].capped == 0 or max_split < split_limit):
                    max_split = _cap(rule, b, row)
                if logging:
                    _log(b, keys[i], np.int64(target), reward)
                if learning:
                    # Q(k, a) <- Q(k, a) + gamma (R - Q(k, a))
                    value = q[line + target] + step * (reward - q[line + target])
                    q[line + target] = value
                    rival = rows[of].rival
                    if target == best:
                        if value <= rival:
                            rank(q, rows, row, blocks, np.int64(home))
                    elif value >= q[line + best]:
                        rank(q, rows, row, blocks, np.int64(home))
                    else:
                        rows[of].rival = max(rival, value)
                split[i] = True
            loads[target] += 1
            block[i] = target
            i += np.uint64(1)
        reached = np.int64(i)
        clock[ROWS] += reached - done
        clock[INSIDE] = inside + reached - done
        clock[DISTINCT] += distinct
        done = reached
    clock[RANDOM] = np.int64(random)
    return done
