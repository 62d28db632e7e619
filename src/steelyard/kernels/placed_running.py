"""The state of a placed cluster that runs tuple by tuple: structured arrays that its event loop changes in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.event_heap import EventHeap
from steelyard.kernels.placed_state import Floats, Ints, Placing

Rows = Any
"""A structured array, or one row of it; its fields are those of one of the types below."""

NONE = -1
# what a tuple's `remote` says: from the same machine, from another one, begun by a thread that has ended since
BEGUN = 2
# why the loop came back
REACHED, NEEDS_RECORDS, NEEDS_ROOM = range(3)
# positions in `counters`
FREE_TUPLE, TUPLES_LEFT, FREE_ROOT, ROOTS_LEFT, IN_FLIGHT, NEXT_TUPLE, NEXT_ROOT, EVENTS = range(8)
TRANSFERS, PROCESSES_DONE, ACKS, SCHEDULE, COUNTERS = range(8, 13)

THREAD = np.dtype(
    [("component", "i4"), ("machine", "i4"), ("process", "i4"), ("number", "i4"), ("head", "i4"), ("tail", "i4"),
     ("serving", "i4"), ("queued", "i8"), ("processed", "i8"), ("random", "u8"), ("debt", "f8"), ("finish", "f8"),
     ("began", "f8"), ("since", "f8"), ("every", "f8"), ("work", "f8")],
    align=True,
)  # fmt: skip
"""`serving` is the tuple that it works on, or -1. `finish` is what its machine's clock will show at the end of that.
`since` is when it was put where it is, `every` the mean seconds between tuples of a source (0: none come), `work` all
that it worked, in seconds. `debt` is for tuples that it sent to other machines, and paid with the next one."""
TUPLE = np.dtype(
    [("next", "i4"), ("root", "i4"), ("dest", "i4"), ("sender", "i4"), ("edge", "i4"), ("remote", "i4"),
     ("from_machine", "i4"), ("id", "i8"), ("sent", "f8")],
    align=True,
)  # fmt: skip
ROOT = np.dtype(
    [("next", "i4"), ("source", "i4"), ("recorded", "i4"), ("pending", "i8"), ("id", "i8"), ("emitted", "f8"),
     ("acked", "f8")],
    align=True,
)  # fmt: skip
"""`pending` counts what a source tuple became and is not done; `acked` is when the latest of what is done was known."""
MACHINE = np.dtype(
    [("active", "i8"), ("cores", "f8"), ("rate", "f8"), ("clock", "f8"), ("at", "f8"), ("slow", "f8"), ("used", "f8")],
    align=True,
)  # fmt: skip
"""`clock` is the work, in seconds of a core, that every thread at work has got since the start: they share the cores
alike. `used` are processor seconds."""


class Running(NamedTuple):
    """All that the loop reads and writes."""

    placing: Placing
    threads: Rows
    pool: Rows
    roots: Rows
    machines: Rows
    running: Ints
    """int64[machines, threads]: threads at work on each, in no order."""
    running_threads: Ints
    """int64[components]."""
    elsewhere: Ints
    """int64[components, machines]: threads of a component that are not on a machine."""
    used: Ints
    """int64[applications]: machines that each uses."""
    turns: Ints
    """int64[threads, edges of a component]: whose turn it is."""
    keys: Floats
    """Of all applications one after the other: the part of the tuples whose key is this or one before."""
    first_key: Ints
    """int64[applications + 1]."""
    due: Floats
    """float64[tuples]: a heap of when tuples under way come; `flying` are their numbers."""
    flying: Ints
    acked: Floats
    """float64[3, applications]: source tuples done, the sum of their times, source tuples emitted."""
    spent: Floats
    """float64[2, components]: tuples done, and seconds from begin to end."""
    crossed: Floats
    """float64[2, edges]: tuples taken, and seconds from when they were sent until their receiver began with them."""
    transfers: Rows
    processes: Rows
    acks: Rows
    share: Floats
    """float64[1]: of source tuples, recorded."""
    counters: Ints
    now: Floats
    """float64[1]."""
    heap: EventHeap
    """Slots: machines, then threads (of sources, whose next tuple comes)."""


def free_rows(kind: np.dtype[Any], count: int) -> Rows:
    """So many records, all free and chained in order."""
    made = np.zeros(count, kind)
    made["next"] = np.arange(1, count + 1)
    made["next"][-1] = NONE
    return made


def with_more_room(state: Running) -> Running:
    """The same with twice as many records of tuples and of source tuples."""
    counters = state.counters
    grown: dict[str, Any] = {}
    for name, free, left in (("pool", FREE_TUPLE, TUPLES_LEFT), ("roots", FREE_ROOT, ROOTS_LEFT)):
        old = getattr(state, name)
        more = free_rows(old.dtype, len(old))
        more["next"][:-1] += len(old)
        more["next"][-1] = counters[free]
        counters[free] = len(old)
        counters[left] += len(old)
        grown[name] = np.concatenate([old, more])
    due = np.concatenate([state.due, np.zeros_like(state.due)])
    flying = np.concatenate([state.flying, np.zeros_like(state.flying)])
    return state._replace(due=due, flying=flying, pool=grown["pool"], roots=grown["roots"])
