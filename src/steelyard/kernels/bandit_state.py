"""The arrays that Dalton's loop works on: what they mean, how they grow, and how they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.heavy import ENTRY, FILL, NEVER, VACANT, empty_table, slots_for, sweep, transfer
from steelyard.kernels.mixing import mix

Array = np.ndarray[Any, Any]

MAP, SKETCH, HYBRID = 0, 1, 2
COLD = -(1 << 63)
"""The expiry of a row whose key is not hot: kept for its fragmentation alone."""
UNREACHABLE = 1 << 62
"""A frequency, or a time, that is never reached."""
FIRST_SPLIT = 2
"""Blocks that a hot key may explore at first."""

SLIDE, SLIDE_END, STATS_END, EXPIRY = 0, 1, 2, 3
BASE, ROWS, NEED, INSIDE = 4, 5, 6, 7
MAX_SPLIT, CAPPED, HOT, FREE = 8, 9, 10, 11
USED, RANDOM, DISTINCT, SKETCHING = 12, 13, 14, 15
STARTED, LOGGING, LOGGED = 16, 17, 18
CLOCK_SIZE = 19
LEARN, HOLD, BOTH = 0, 1, 2
"""Of `LOGGING`: rewards change Q at once, are logged, or both."""


class Rule(NamedTuple):
    """The parameters of the loop."""

    blocks: int
    share: float  # 1 / blocks
    panes: int  # slides in a window
    slide: int
    stats: int  # length of a statistics interval; 0 where another decides when it ends
    greedy: int  # (1 - epsilon) 2^53, against which 53 random bits are held
    step: float
    p1: float
    p2: float
    initial: float
    split_limit: int  # 0: explore without a cap
    forced: int  # so many heavy hitters, whatever their frequencies; 0: by definition
    all_hot: bool
    statistics: int
    hybrid_at: int


ROW = np.dtype(
    [
        ("key", np.int64),
        ("expires", np.int64),  # last time at which the key is hot, or COLD
        ("others", np.int32),  # blocks with rows in the window beside the hash block
        ("place", np.int32),  # where the row stands in `hot`
        ("capped", np.int32),  # 1 where the key explores only blocks that have it
        ("best", np.int32),  # the block with the highest q; ties go to the hash block, then to the first
        ("rival", np.float64),  # no other block's q is higher than this
    ],
    align=True,
)


class Bandit(NamedTuple):
    """The state of the loop; lengths: r rows, n blocks, p panes."""

    clock: Array  # int64[CLOCK_SIZE]: the scalars
    table: Any  # ENTRY[2^b]: all keys of the window
    loads: Array  # int64[n]: L, rows in the window
    opened: Array  # int64[n]: L when the slide began
    panes: Array  # int64[p, n]: rows of each past slide
    waiting: Array  # int64[p]: first pair (row * n + block) that waits for each slide's end
    sketch: Array  # int64[depth, width]
    rows: Any  # ROW[r]
    q: Array  # float64[r, n]
    last: Array  # int64[r, n]: slide of the latest row in each block; of the hash block, only of rows while hot
    link: Array  # int64[r, n]: next pair that waits for the same slide, or -1
    hot: Array  # int32[r]: rows of hot keys, HOT of them
    free: Array  # int32[r]: rows without a key, FREE of them
    log_key: Array  # int64[l]: rewards that are kept aside, LOGGED of them
    log_block: Array  # int32[l]
    log_reward: Array  # float64[l]


ROW_ARRAYS = ("rows", "q", "last", "link", "hot", "free")
"""What has a place for every row."""
LOG_ARRAYS = ("log_key", "log_block", "log_reward")
FEWEST_ROWS = 8


def new_bandit(rule: Rule, sketch: tuple[int, int], seed: int, partitioner: int) -> Bandit:
    """A bandit that has seen nothing; `sketch` is depth and width."""
    blocks = rule.blocks
    clock = np.zeros(CLOCK_SIZE, np.int64)
    clock[SLIDE_END] = COLD  # whatever the first row's time, it opens the first slide
    clock[STATS_END] = clock[EXPIRY] = UNREACHABLE
    clock[NEED] = 0 if rule.all_hot else UNREACHABLE
    clock[MAX_SPLIT] = FIRST_SPLIT if rule.split_limit else UNREACHABLE
    clock[SKETCHING] = rule.statistics == SKETCH
    clock[RANDOM] = first_random(seed, partitioner)
    empty = Bandit(
        clock=clock,
        table=empty_table(),
        loads=np.zeros(blocks, np.int64),
        opened=np.zeros(blocks, np.int64),
        panes=np.zeros((rule.panes, blocks), np.int64),
        waiting=np.full(rule.panes, -1, np.int64),
        sketch=np.zeros(sketch if rule.statistics != MAP else (1, 1), np.int64),
        rows=np.empty(0, ROW),
        q=np.empty((0, blocks)),
        last=np.empty((0, blocks), np.int64),
        link=np.empty((0, blocks), np.int64),
        hot=np.empty(0, np.int32),
        free=np.empty(0, np.int32),
        log_key=np.zeros(1, np.int64),
        log_block=np.zeros(1, np.int32),
        log_reward=np.zeros(1),
    )
    return _with_more_rows(empty, max(FEWEST_ROWS, blocks, rule.forced))


def first_random(seed: int, partitioner: int) -> int:
    """The state that a partitioner's random numbers start from, as a signed number."""
    return int(np.uint64(mix(seed, partitioner + 1)).astype(np.int64))


def with_room(rule: Rule, b: Bandit, keys: int = 1) -> Bandit:
    """The bandit with room for `keys` more keys and rows, and for another logged reward."""
    if FILL * (b.clock[USED] + keys) > len(b.table):
        b = _swept(rule, b, keys)
    wanted = max(keys, rule.forced)
    if b.clock[FREE] < wanted:
        b = _with_more_rows(b, max(len(b.rows), wanted))
    if b.clock[LOGGED] == len(b.log_key):
        b = b._replace(**{name: np.concatenate([getattr(b, name)] * 2) for name in LOG_ARRAYS})
    return b


def _with_more_rows(b: Bandit, more: int) -> Bandit:
    held = len(b.rows)
    longer = {}
    for name in ROW_ARRAYS:
        part = getattr(b, name)
        longer[name] = np.concatenate([part, np.zeros((more, *part.shape[1:]), part.dtype)])
    free = b.clock[FREE]
    longer["rows"]["expires"][held:] = COLD
    longer["free"][free : free + more] = np.arange(held, held + more)[::-1]
    b.clock[FREE] += more
    return b._replace(**longer)


def _swept(rule: Rule, b: Bandit, more: int) -> Bandit:
    """Without the keys that left the window, and with room for `more`."""
    base, gone = b.clock[BASE], b.clock[SLIDE] - rule.panes
    b.clock[USED] = sweep(b.table, base, gone)
    slots = slots_for(b.clock[USED] + more)
    if slots == len(b.table):
        return b
    table = empty_table(slots)
    transfer(b.table, table, base, gone)
    return b._replace(table=table)


def held_rows(b: Bandit) -> Array:
    """The rows that have a key."""
    return np.setdiff1d(np.arange(len(b.rows)), b.free[: b.clock[FREE]])


def packed(rule: Rule, b: Bandit) -> dict[str, Array]:
    """Copies of all that matters, without the keys that left the window; table and rows as int64[..., words]."""
    b = _swept(rule, b._replace(clock=b.clock.copy(), table=b.table.copy()), 0)
    kept: dict[str, Array] = {name: np.array(part) for name, part in b._asdict().items()}
    kept |= {name: kept[name][: b.clock[LOGGED]] for name in LOG_ARRAYS}
    kept["table"] = kept["table"][kept["table"]["home"] != VACANT]
    for name in ("table", "rows"):
        kept[name] = kept[name].view(np.int64).reshape(-1, kept[name].dtype.itemsize // 8)
    return kept


def unpacked(kept: Mapping[str, Array]) -> Bandit:
    """The inverse of `packed`."""
    parts = {name: np.array(kept[name]) for name in Bandit._fields}
    entries = np.ascontiguousarray(kept["table"]).reshape(-1).view(ENTRY)
    parts["rows"] = parts["rows"].reshape(-1).view(ROW)
    parts["table"] = empty_table(slots_for(len(entries)))
    transfer(entries, parts["table"], -1, NEVER)  # every stamp is above -1: all are copied
    parts |= {name: np.concatenate([parts[name], np.zeros(1, parts[name].dtype)]) for name in LOG_ARRAYS}
    return Bandit(**parts)


def check(rule: Rule, b: Bandit) -> None:
    """Raise AssertionError unless the kept sums and choices are what they stand for."""
    assert b.loads.sum() == b.clock[INSIDE], "loads do not add up to the rows in the window"
    assert b.loads.min() >= 0, "a block with fewer than no rows"
    used = held_rows(b)
    assert len(used) + b.clock[FREE] == len(b.rows), "a row is free twice"
    away = np.arange(rule.blocks) != (b.rows["key"][used] % rule.blocks)[:, None]
    inside = (away & (b.last[used] > b.clock[SLIDE] - rule.panes)).sum(axis=1)
    assert np.array_equal(inside, b.rows["others"][used]), "fragmentation is not what the last slides say"
    hot = b.hot[: b.clock[HOT]]
    assert sorted(hot) == sorted(used[b.rows["expires"][used] != COLD]), "hot rows are not those with an expiry"
    assert b.rows["capped"][hot].sum() == b.clock[CAPPED], "capped keys are not counted right"
    for row in hot:
        q, best = b.q[row], b.rows["best"][row]
        home = b.rows["key"][row] % rule.blocks
        assert best == (home if q[home] == q.max() else q.argmax()), "the best block is not the one with the best value"
        assert np.delete(q, best).max(initial=-np.inf) <= b.rows["rival"][row], "a rival is better than said"
