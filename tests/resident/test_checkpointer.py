"""The half of a protocol beside a chain, marker by marker."""

from types import SimpleNamespace

import pyarrow as pa

from steelyard.checkpoint import Place, Unaligned
from steelyard.core.topology import Instance, Placement
from steelyard.resident import Flow, Memory, Rows
from steelyard.resident.chains import Chains
from steelyard.resident.channel import Mailbox, Message
from steelyard.resident.checkpointer import Checkpointer
from steelyard.resident.wire import Kind


def test_a_marker_that_is_taken_twice_ends_no_later_round():
    """It may be taken out of its place by one who then hears once more that it overtakes all others."""
    flow = Flow(parallelism=2)
    flow.source(Rows(pa.table({"x": [1, 2]})), name="read").shuffle().sink(Memory(), name="out")
    dataflow, receiver = flow.dataflow(), Instance("out", 0)
    first, second = (one for one in dataflow.channels() if one.receiver == receiver)
    chains = Chains(dataflow, Placement.spread(dataflow, 2))
    place = Place.of(str(receiver), list(map(str, chains.heads)), chains.wires())
    mailbox = Mailbox([(one, lambda batches: None) for one in (first, second)], overtaking=True)
    metrics = SimpleNamespace(rows_in=0)
    member = SimpleNamespace(instance=receiver, metrics=metrics, flush_epoch=lambda: None, taken=lambda at_rest: {})
    kept = []
    beside = Checkpointer(Unaligned(), place, [member], mailbox, {}, kept.append)

    def comes(channel, message):
        mailbox.put(channel.number, message)
        beside.on_marker(*mailbox.take(0))

    old = Message(Kind.MARKER, 0, 1)
    comes(first, Message(Kind.MARKER, 0, 1))
    comes(second, old)
    assert [one.round for one in kept] == [1]
    rows = Message(Kind.DATA, 1, pa.record_batch({"x": [1]}))
    mailbox.put(second.number, rows)
    comes(first, Message(Kind.MARKER, 0, 2))
    beside.on_marker(second, old)
    comes(second, Message(Kind.MARKER, 1, 2))
    assert [(one.round, one.captured) for one in kept] == [(1, {}), (2, {second.number: [rows]})]
