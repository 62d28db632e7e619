"""Routers that observe: each round is reported once, answers never change, and what is learnt is in snapshots."""

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core import Routed
from steelyard.core.dataflow import Edge, Grouping, Route
from steelyard.core.topology import Instance, Placement
from steelyard.resident import Flow, Memory, Rows, Settings, rounds, run
from steelyard.resident.channel import Message
from steelyard.resident.reports import bytes_arrays
from steelyard.resident.rounds import RoundMeter
from steelyard.resident.routing import distributor
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Kind, WireError

keys = st.lists(st.sampled_from("aaaaaabcdef"), max_size=300)
widths = st.integers(1, 3)


@dataclass
class InTurn:
    """Rows in turn; its routers write down what they are shown."""

    seen: list = field(default_factory=list)
    name: ClassVar[str] = "in turn"

    def router(self, blocks, partitioner=0):
        return _InTurn(self, blocks, partitioner)


class _InTurn:
    def __init__(self, policy, blocks, number):
        self.policy, self.blocks, self.next = policy, blocks, number

    def route(self, ids, times):
        block = (self.next + np.arange(len(ids))) % self.blocks
        self.next += len(ids)
        return Routed(block.astype(np.int32), np.ones(len(ids), bool))

    def observe(self, observation):
        self.policy.seen.append(observation.batch)

    def state(self):
        return {"next": np.array(self.next)}

    def restore(self, state):
        self.next = int(state["next"])


def table(found):
    return pa.table({"key": pa.array(found, pa.string()), "n": np.arange(len(found))})


def counted(found, grouping, draw, workers=1):
    flow = Flow()
    read = flow.source(Rows(table(found), pieces=3), batch_rows=draw(st.sampled_from([1, 5, 40])), parallelism=2)
    keyed = read.key_by("key", grouping=grouping).aggregate(n=count(), total=sum("n"), parallelism=draw(widths))
    keyed.sink(Memory(), name="out")
    dataflow = flow.dataflow()
    results = run(dataflow, placement=Placement.spread(dataflow, workers)).table("out").to_pylist()
    newest = {row["key"]: (row["n"], row["total"]) for row in sorted(results, key=lambda row: row["n"])}
    totals = Counter()
    for number, key in enumerate(found):
        totals[key] += number
    assert newest == {key: (n, totals[key]) for key, n in Counter(found).items()}


@settings(max_examples=25)
@given(keys, st.sampled_from(["auto", "auto?candidates=shuffle,hash,prompt&memory=0"]), st.data())
def test_answers_do_not_depend_on_what_is_observed(found, grouping, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "ROUND_BATCHES", 1)  # as many rounds, and so changes of mind, as there can be
        counted(found, grouping, data.draw, workers=data.draw(st.integers(1, 2)))


def test_all_rows_of_rounds_are_shown_once_with_what_they_took(monkeypatch):
    monkeypatch.setattr(rounds, "ROUND_BATCHES", 4)
    policy = InTurn()
    flow = Flow()
    read = flow.source(Rows(table(list("aab") * 400)), batch_rows=10)
    read.key_by("key", grouping=policy).aggregate(n=count(), parallelism=3).sink(Memory(), name="out")
    run(flow.dataflow())
    assert policy.seen
    assert [one.number for one in policy.seen] == list(range(1, len(policy.seen) + 1))
    for seen in policy.seen:
        assert seen.rows == builtin_sum(task.rows for task in seen.tasks) <= 40
        assert all(task.seconds > 0 and 0 < task.clusters <= task.rows for task in seen.tasks)
        assert seen.processing_seconds >= max(task.seconds for task in seen.tasks)


def builtin_sum(numbers):
    return int(np.sum(list(numbers)))


def made(grouping="auto", receivers=2):
    edge = Edge("from", "to", Grouping(Route.POLICY, ("key",), grouping))
    chooses = distributor(edge, Instance("from", 0), receivers)
    chooses.listen({7 + receiver: receiver for receiver in range(receivers)})
    return chooses


def test_reports_that_cannot_be_are_refused():
    chooses = made(InTurn())
    parts = list(chooses.addressed(table(list("abab")).to_batches()[0]))
    assert [(to, part.num_rows, note) for to, part, note in parts] == [(0, 2, b"\0\0\0\1"), (1, 2, b"\0\0\0\1")]
    report = struct.Struct("!IId")
    for payload, words in (
        (b"123", "tells of no round"),
        (report.pack(1, 3, 0.5), "2 are out"),
        (report.pack(1, 1, float("nan")), "nan s"),
        (report.pack(1, 1, float("inf")), "inf s"),
    ):
        with pytest.raises(WireError, match=words):
            chooses.hear(7, 1, payload)
    chooses.hear(7, 1, report.pack(9, 5, 0.5))  # of a round that is over, which nobody asks for any more
    with pytest.raises(WireError, match="came behind"):
        chooses.hear(7, 1, report.pack(1, 1, 0.5))
    with pytest.raises(WireError, match="no number of a round"):
        RoundMeter({1: print}).executed(1, [Message(Kind.DATA, 1, table(["a"]), b"12")], 0.5)


def test_messages_worked_off_together_are_told_by_round():
    told = []
    meter = RoundMeter({4: lambda number, payload: told.append((number, *struct.unpack("!IId", payload)))})
    notes = [b"\0\0\0\1", b"", b"\0\0\0\1", b"\0\0\0\2"]
    meter.executed(4, [Message(Kind.DATA, i, table(["a"] * 2), note) for i, note in enumerate(notes)], 8.0)
    assert told == [(1, 1, 2, 4.0), (2, 2, 1, 2.0)]
    assert meter.reported == {4: 2}


def test_what_was_learnt_is_in_snapshots_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "ROUND_BATCHES", 2)
    flow = Flow()
    read = flow.source(Rows(table(list("aaaab") * 200)), batch_rows=20, name="read")
    read.key_by("key", grouping="auto").aggregate(n=count(), parallelism=2).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    run(dataflow, settings=Settings(store=str(tmp_path), interval=0.02))
    store = SnapshotStore(tmp_path)
    state = store.read(store.latest(), Instance("read", 0))["edge 0"]
    assert bytes_arrays(state)["batches"] > 0
    chooses = made()
    chooses.restore(state)
    assert bytes_arrays(chooses.state()).keys() == bytes_arrays(state).keys()
    assert bytes_arrays(chooses.state())["batches"] == bytes_arrays(state)["batches"]
