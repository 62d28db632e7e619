"""The state of a simulated cluster: structured arrays that the event loop changes in place.

One row an operator, an instance, a server (a thread of an instance), a machine and so on; rows name each other by
number. Tuples that wait or travel are records of one pool, chained to lists by `next`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.event_heap import EventHeap

Rows = Any
"""A structured array, or one row of it; its fields are those of one of the types below."""
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

NONE = -1
UNBOUNDED = np.iinfo(np.int64).max

# laws of service times
EXACTLY, EXPONENTIAL, PER_ITEM, SAMPLES, GROWING = range(5)
# groupings
FORWARD, HASH, IN_TURN, SHORTEST, BROADCAST, POLICY, BY_COST = range(7)
# what a server does; from EMITTING on it has something to send at this moment: tuples, or markers after a snapshot
FREE, READY, WAITING, BUSY, BLOCKED, SAVING, EMITTING, SAVED = range(8)
# why the loop came back
REACHED, DRAINED, NEEDS_LOG, NEEDS_ROUTES, NEEDS_ROOM, NEEDS_TRACE, COMPLETED, NEEDS_KEYS, EXHAUSTED = range(9)
# the same, where a grouping goes by cost
NEEDS_CHOICE, NEEDS_REPORT, LETTER_CAME, NEEDS_SLOTS = range(9, 13)
# positions in `counters`
FREE_RECORD, WORK_FIRST, WORK_COUNT, NEEDED, TRACED, EVENTS, AWAITED, MARKERS = range(8)
# the same: the machine whose memory is full, keys of windows in their table, whether windows stay open
FULL_MACHINE, KEYS, STOPPED, COUNTERS = range(8, 12)
# positions in `snapshot`
SNAPSHOT, PER_KEPT = range(2)
# what a record's `remote` says where it is no tuple: a marker, which takes no place and is not served; a letter of an
# instance to a scheduler
MARKER, LETTER = 2, 3

BINS = 2048
SHORTEST_LATENCY = 1e-6
BINS_A_FACTOR_E = 75.0
"""Latencies of a bin differ by 1.3 %; bins reach from a microsecond to more than a week."""


def _rows(*fields: tuple[str, str]) -> np.dtype[Any]:
    return np.dtype(list(fields), align=True)


OPERATOR = _rows(
    ("law", "i4"), ("first_edge", "i4"), ("edges", "i4"), ("table_first", "i8"), ("table_size", "i8"),
    ("mean", "f8"), ("outputs", "f8"), ("growth", "f8"), ("window", "f8"), ("kept_bytes", "f8"),
    ("closes", "f8"), ("per_result", "f8"), ("key_bytes", "f8"),
)  # fmt: skip
"""`growth`, `window` and `kept_bytes` are of a law that grows; `closes`, `per_result` and `key_bytes` of windows with
results: their length (0, there are none), seconds for a result, and bytes of a key."""
INSTANCE = _rows(
    ("operator", "i4"), ("machine", "i4"), ("source", "i4"), ("first_server", "i4"), ("servers", "i4"),
    ("free", "i4"), ("head", "i4"), ("tail", "i4"), ("first_blocked", "i4"), ("last_blocked", "i4"),
    ("serving", "i8"), ("queued", "i8"), ("fill", "i8"), ("capacity", "i8"), ("slowdown", "f8"),
    ("taken", "i8"), ("done", "i8"), ("sent", "i8"), ("peak", "i8"),
    ("useful", "f8"), ("busy", "f8"), ("blocked", "f8"), ("waited", "f8"), ("area", "f8"), ("area_at", "f8"),
    ("kept", "f8"), ("window_end", "f8"),
    ("epoch", "i4"), ("called", "i4"), ("senders", "i4"), ("came", "i4"), ("aside", "i4"), ("last_aside", "i4"),
    ("behind", "i8"), ("aligning", "f8"), ("aligned", "f8"), ("saved_kept", "f8"), ("saved_end", "f8"),
    ("timer", "i4"), ("opened", "i4"), ("last_opened", "i4"), ("closing", "i4"), ("last_closing", "i4"),
    ("keys", "i8"), ("closing_keys", "i8"), ("windows", "i8"), ("worked", "f8"),
)  # fmt: skip
"""`fill` counts what waits, what is under way and what a blocked sender was promised; `area` is the integral of
the queue's length over time; `kept` the tuples of this window, which make each further one dearer where the law says
so.

Of checkpoints with markers: `epoch` is the number of snapshots that it has taken, `called` whether a source is to put
out a marker, `senders` the channels on which markers come, `came` those on which one has (-1 during the snapshot);
`aside` begins the list of tuples that came behind a marker, `behind` counts them and all in `fill` that will join them;
`aligning` is when the first marker came, `aligned` the seconds from first markers to snapshots, `saved_kept` and
`saved_end` are in the snapshot.

Of windows with results: `timer` is the slot at which the present one ends; `opened` begins the list of its `keys`,
`closing` that of the `closing_keys` of windows that have ended and whose results nobody works on yet; `windows` counts
those that have ended.

`worked` are the seconds of all services, in a failure too as they were at the checkpoint, for groupings by cost."""
SERVER = _rows(
    ("instance", "i4"), ("phase", "i4"), ("next", "i4"), ("remote", "i4"), ("edge", "i4"), ("dest", "i4"),
    ("granted", "i4"), ("drawn", "f8"), ("copy", "i8"), ("copies", "i8"), ("item", "i8"), ("key", "i8"),
    ("random", "u8"), ("born", "f8"), ("since", "f8"), ("demand", "f8"), ("finish", "f8"), ("debt", "f8"),
    ("by", "i4"), ("stable", "i4"), ("request", "i8"), ("load", "f8"), ("ask", "i8"), ("ask_load", "f8"),
    ("results", "i4"),
)  # fmt: skip
"""`drawn` is the number in [0, 1) that says which branch the tuple to be sent takes; -1, none is drawn yet. `results`
begins the list of a window's results that the server works on or puts out, instead of a tuple.

Of groupings by cost: `by` is the scheduler that sent its tuple and waits for a report, `request` and `load` what the
tuple carries, `ask` and `ask_load` what the tuple to be sent will; `stable` is whether matrices are to be reported."""
MACHINE = _rows(
    ("first", "i4"), ("active", "i4"), ("cores", "f8"), ("speed", "f8"), ("rate", "f8"), ("clock", "f8"),
    ("at", "f8"), ("line_free", "f8"), ("seconds_a_byte", "f8"), ("serialise", "f8"), ("sent_bytes", "f8"),
    ("local_free", "f8"), ("local_seconds_a_byte", "f8"), ("memory", "f8"), ("held", "f8"), ("most_held", "f8"),
)  # fmt: skip
"""`clock` is the work, in seconds of a core of speed 1, that each tuple in service has got since the start: all
share the cores alike, so a tuple that begins at clock c with demand d ends when the clock shows c + d. `line_free` and
`local_free` are when the last tuple for another machine, and for this one, has left. `held` are the bytes of all tuples
that wait here or travel here, and of what instances keep; above `memory` the machine is exhausted."""
LINK = _rows(("head", "i4"), ("tail", "i4"), ("latency", "f8"))
EDGE = _rows(
    ("first", "i4"), ("count", "i4"), ("grouping", "i4"), ("first_turn", "i4"), ("first_from", "i4"), ("bytes", "f8"),
    ("low", "f8"), ("high", "f8"),
    ("rule", "i4"), ("reports", "i4"), ("first_scheduler", "i4"), ("first_learner", "i4"),
    ("first_dealt", "i4"), ("dealt", "i4"),
)  # fmt: skip
"""A tuple takes the edge where the number that is drawn for it is from `low` to below `high`: 0 and 1 for an edge that
all take, a part of that for a branch. Of groupings by cost: the number of its rule, whether instances report, its first
rows in the banks. Where tuples are dealt out in turn: its first place in `Cluster.dealt`, and how many it has there."""
TURN = _rows(("next", "i8"), ("at", "i8"), ("filled", "i8"))
"""One row for each edge and instance that sends on it: whose turn it is, and which decided routes are left."""
SOURCE = _rows(
    ("instance", "i4"), ("ended", "i4"), ("at", "i8"), ("end", "i8"), ("chunk", "i8"), ("saved_chunk", "i8"),
    ("saved_at", "i8"),
)  # fmt: skip
"""`at` is the next row of the log's chunk number `chunk`; `saved_chunk`, `saved_at` are where its last marker is."""
TUPLE = _rows(
    ("next", "i4"), ("dest", "i4"), ("remote", "i4"), ("epoch", "i4"), ("item", "i8"), ("key", "i8"), ("born", "f8"),
    ("due", "f8"), ("bytes", "f8"), ("by", "i4"),
)  # fmt: skip
"""`epoch` is the sender's: above the receiver's it is behind a marker. `by` is the scheduler that sent a tuple and is
to hear what it cost, or that a letter goes to. Of a letter `dest` is the instance that wrote it, `key` the request that
it answers, `item` where its matrices are."""
TRACE = _rows(("instance", "i4"), ("item", "i8"), ("born", "f8"), ("done", "f8"))
KEPT_KEY = _rows(("key", "i8"), ("window", "i8"), ("instance", "i4"), ("record", "i4"))
"""A key of an instance's window number `window`, and the record of its result; stale where that window has ended.
`record` is -1 in a slot that was never used."""


class Cluster(NamedTuple):
    """All that the loop reads and writes."""

    operators: Rows
    instances: Rows
    servers: Rows
    machines: Rows
    links: Rows
    """One for each pair of machines, number `from * machines + to`; one in all where no journey takes any time."""
    edges: Rows
    """Sorted by the operator that they leave."""
    turns: Rows
    sources: Rows
    pool: Rows
    trace: Rows
    """Tuples that left the cluster; of length 0 where nobody asked."""
    tables: Floats
    """Cost tables and samples of all laws, one after the other."""
    routes: np.ndarray[Any, np.dtype[np.int32]]
    """int32[turns, chunk]: destinations that a policy decided ahead."""
    dealt: np.ndarray[Any, np.dtype[np.int32]]
    """int32[...]: for each edge in turn, the instances of a cycle: each once, or as often as its weight says."""
    log_times: Floats
    """float64[sources, chunk]: when the rows of a log come."""
    log_items: Ints
    log_keys: Ints
    running: np.ndarray[Any, np.dtype[np.int32]]
    """int32[servers]: for each machine a heap of its busy servers, by `finish`."""
    work: np.ndarray[Any, np.dtype[np.int32]]
    """int32[servers]: a ring of servers that can go on at this moment."""
    latencies: Ints
    """int64[operators, BINS]: tuples that left the cluster, by their age."""
    latency_sums: Floats
    """float64[operators, 2]: sum and maximum of the same ages."""
    counters: Ints
    snapshot: Floats
    """float64[2]: seconds of an instance's snapshot, and those for each tuple that it keeps."""
    now: Floats
    """float64[1]: seconds."""
    heap: EventHeap
    """Slots: machines, then sources, then links, then instances whose windows have results."""
    letters: Floats
    """float64[records, 5], where an edge goes by cost: of a tuple its request and the load in it; of a letter of an
    instance its correction, totals, and times."""
    timed: np.ndarray[Any, np.dtype[np.int32]]
    """int32[instances with windows]: the instance of each slot of the heap behind the links."""
    keys: Rows
    """Keys of windows in open addressing, as many slots as a power of 2; of length 1 where no window has results."""


def free_pool(records: int) -> Rows:
    """A pool of so many records, all free and chained in order."""
    pool = np.zeros(records, TUPLE)
    pool["next"] = np.arange(1, records + 1)
    pool["next"][-1] = NONE
    return pool


def larger_pool(cluster: Cluster) -> Cluster:
    """The same cluster with twice as many records."""
    old = len(cluster.pool)
    pool = np.concatenate([cluster.pool, free_pool(old)])
    pool["next"][old:-1] += old
    pool["next"][-1] = cluster.counters[FREE_RECORD]
    cluster.counters[FREE_RECORD] = old
    letters = np.concatenate([cluster.letters, np.zeros_like(cluster.letters)])
    return cluster._replace(pool=pool, letters=letters)


def larger_trace(cluster: Cluster) -> Cluster:
    """The same cluster with room for twice as many traced tuples."""
    return cluster._replace(trace=np.concatenate([cluster.trace, np.zeros_like(cluster.trace)]))


def no_keys(slots: int) -> Rows:
    """A table for the keys of windows, with none in it."""
    keys = np.zeros(slots, KEPT_KEY)
    keys["record"] = NONE
    return keys


def bin_edges() -> Floats:
    """float64[BINS + 1]: where the bins of latencies begin and end, in seconds."""
    edges = SHORTEST_LATENCY * np.exp(np.arange(BINS) / BINS_A_FACTOR_E)
    return np.concatenate([[0.0], edges])
