"""The heap of events is a sorted list in which an event can be moved."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.kernels.event_heap import cancel, check, event_heap, remove_first, schedule

STEPS = st.lists(st.tuples(st.integers(0, 11), st.sampled_from([None, 0.0, 1.0, 1.5, 2.0, 7.25])), max_size=60)


@settings(max_examples=100)
@given(steps=STEPS)
@example(
    steps=[(1, 1.0), (3, 0.0), (5, 0.0), (0, 0.0), (4, 0.0), (2, 0.0), (3, None)]
)  # what moves up has an equal above
def test_events_come_out_in_order_however_they_were_moved(steps):
    heap, pending = event_heap(12), {}
    for slot, time in steps:
        if time is None:
            cancel(heap, slot)
            pending.pop(slot, None)
        else:
            schedule(heap, slot, time)
            pending[slot] = time
        check(heap)
    in_order = [remove_first(heap) for _ in pending]
    assert in_order == sorted(pending, key=lambda slot: (pending[slot], slot))
    assert heap.size[0] == 0
