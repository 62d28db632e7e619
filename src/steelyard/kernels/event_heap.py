"""What happens next: a binary heap of slots, each with at most one pending event that can be moved.

A slot is whoever an event belongs to: a machine, a source, a network link. The heap is indexed, so that an event
that comes earlier or later than planned is moved in place, and none is ever stale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import inlined

Slots = np.ndarray[Any, np.dtype[np.int32]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

ABSENT = -1


class EventHeap(NamedTuple):
    """Slots in heap order by (time, slot number): of two events at one moment the lower slot's is first."""

    heap: Slots
    """int32[slots]: the slots, of which the first `size[0]` are in the heap."""
    place: Slots
    """int32[slots]: where in `heap` each slot is, or -1."""
    at: Floats
    """float64[slots]: when each slot's event happens."""
    size: Ints
    """int64[1]."""


def event_heap(slots: int) -> EventHeap:
    """No events yet, and room for one per slot.

    >>> heap = event_heap(3)
    >>> for slot, at in ((2, 5.0), (0, 7.0), (1, 6.0), (2, 9.0)):
    ...     schedule(heap, slot, at)
    >>> remove_first(heap), remove_first(heap), int(heap.size[0])
    (1, 0, 1)
    """
    return EventHeap(
        np.empty(slots, np.int32), np.full(slots, ABSENT, np.int32), np.zeros(slots), np.zeros(1, np.int64)
    )


@inlined
def _up(heap: EventHeap, spot: int, slot: int, time: float) -> None:
    order, place, at, _ = heap
    while spot > 0:
        above = (spot - 1) >> 1
        other = order[above]
        if at[other] < time or (at[other] == time and other < slot):
            break
        order[spot] = other
        place[other] = spot
        spot = above
    order[spot] = slot
    place[slot] = spot


@inlined
def _down(heap: EventHeap, spot: int, slot: int, time: float) -> None:
    order, place, at, size = heap
    last = size[0]
    while True:
        below = 2 * spot + 1
        if below >= last:
            break
        other = order[below]
        if below + 1 < last:
            right = order[below + 1]
            if at[right] < at[other] or (at[right] == at[other] and right < other):
                below += 1
                other = right
        if time < at[other] or (time == at[other] and slot < other):
            break
        order[spot] = other
        place[other] = spot
        spot = below
    order[spot] = slot
    place[slot] = spot


@inlined
def schedule(heap: EventHeap, slot: int, time: float) -> None:
    """The slot's event happens at `time`, whether it had one before or not."""
    _, place, at, size = heap
    spot = place[slot]
    if spot == ABSENT:
        at[slot] = time
        size[0] += 1
        _up(heap, size[0] - 1, slot, time)
    elif time < at[slot]:
        at[slot] = time
        _up(heap, spot, slot, time)
    else:
        at[slot] = time
        _down(heap, spot, slot, time)


@inlined
def cancel(heap: EventHeap, slot: int) -> None:
    """The slot has no event any more."""
    order, place, at, size = heap
    spot = place[slot]
    if spot == ABSENT:
        return
    place[slot] = ABSENT
    size[0] -= 1
    if spot == size[0]:
        return
    moved = order[size[0]]
    above = order[(spot - 1) >> 1] if spot > 0 else moved
    if at[moved] < at[above] or (at[moved] == at[above] and moved < above):
        _up(heap, spot, moved, at[moved])
    else:
        _down(heap, spot, moved, at[moved])


@inlined
def remove_first(heap: EventHeap) -> int:
    """Take the next event out and give its slot; there must be one."""
    slot = heap.heap[0]
    cancel(heap, slot)
    return int(slot)


def check(heap: EventHeap) -> None:
    """Raise AssertionError unless the heap is one."""
    order, place, at, size = heap
    count = int(size[0])
    inside = order[:count].tolist()
    assert len(set(inside)) == count
    assert all(place[slot] == spot for spot, slot in enumerate(inside))
    assert int((place != ABSENT).sum()) == count
    for spot in range(1, count):
        above, slot = order[(spot - 1) >> 1], order[spot]
        assert (at[above], above) <= (at[slot], slot)
