"""States that are dealt out anew: what new instances give together is what the old ones would have given."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core import OptionError
from steelyard.core.key_groups import KeyGroups
from steelyard.core.topology import Instance
from steelyard.resident import Rows
from steelyard.resident.aggregate import PartialAggregate, WindowedAggregate
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.changes import ChangedAggregate
from steelyard.resident.custom import Custom
from steelyard.resident.join import Join
from steelyard.resident.kafka_sink import Kafka
from steelyard.resident.keys import key_ids, table_key_ids
from steelyard.resident.operator import MAX_WATERMARK, InstanceContext, Step
from steelyard.resident.running import RunningAggregate
from steelyard.resident.shares import Share
from steelyard.resident.snapshot import packed, unpacked
from steelyard.resident.sources import Source
from steelyard.resident.stateless import Filter
from steelyard.resident.windows import Session, Window
from tests.resident.test_going_on import HOW, SCHEMA, WINDOW, batch, rows
from tests.resident.test_kafka_marks import marks  # noqa: F401 - a fixture

SESSION = Session("at", 4, 4)
BY_KEY = Aggregation(("key",), HOW)
TUMBLING = Window("at", 10, 10)


class Numbers(Step):
    """A user's step: each row of a key with its number among them."""

    def __init__(self):
        self.seen = {}

    def process(self, port, batch):
        for row in batch.to_pylist():
            self.seen[row["key"]] = self.seen.get(row["key"], 0) + 1
            yield pa.record_batch({"key": pa.array([row["key"]], pa.string()), "n": [self.seen[row["key"]]]})

    def snapshot(self, number):
        columns = [pa.array(list(self.seen), pa.string()), pa.array(list(self.seen.values()), pa.int64())]
        return {"seen": pa.table(columns, ["key", "n"])}

    def restore(self, state):
        for row in state["seen"].to_pylist() if state else ():
            self.seen[row["key"]] = row["n"]


def deal(states, share):
    """How numbers are dealt out."""
    seen = share.gathered([state["seen"] for state in states if state], ["key"])
    return {} if seen is None else {"seen": seen}


LOGICS = {
    "windows": WindowedAggregate(Aggregation(("key",), HOW, WINDOW)),
    "tumbling windows": WindowedAggregate(Aggregation(("key",), HOW, TUMBLING)),
    "sessions": WindowedAggregate(Aggregation(("key",), HOW, SESSION)),
    "running, as it comes": RunningAggregate(BY_KEY),
    "running, in the end": RunningAggregate(BY_KEY, emit="end"),
    "changed keys": ChangedAggregate(BY_KEY),
    "changed windows": ChangedAggregate(Aggregation(("key",), HOW, WINDOW)),
    "join": Join(("key",), ("key",)),
    "windowed join": Join(("key",), ("key",), (WINDOW, WINDOW)),
    "a user's": Custom(lambda context: Numbers(), pa.schema({"key": pa.string(), "n": pa.int64()}), (("key",),), deal),
}
CLOSING = ["windows", "tumbling windows", "sessions", "changed windows"]
"""Those that are further in time where they have given more."""


class Instances:
    """All instances of an operator, each with the rows of its keys."""

    def __init__(self, logic, groups, parallelism, states=None):
        self.logic, self.owners = logic, KeyGroups(groups, parallelism)
        inputs = [SCHEMA] * logic.ports
        contexts = [
            InstanceContext(Instance("one", number), parallelism, inputs, logic.output(inputs))
            for number in range(parallelism)
        ]
        self.steps = [logic.start(context) for context in contexts]
        for step, state in zip(self.steps, states or (), strict=bool(states)):
            step.restore(unpacked(packed(state)))

    def states(self):
        return [unpacked(packed(step.snapshot(1))) for step in self.steps]

    def again(self):
        """As many, from their own states."""
        return Instances(self.logic, self.owners.groups, self.owners.parallelism, self.states())

    def dealt(self, groups, parallelism):
        """Others, from the states of these."""
        states, now = self.states(), KeyGroups(groups, parallelism)
        shares = [Share(number, self.owners, now) for number in range(parallelism)]
        return Instances(self.logic, groups, parallelism, [self.logic.dealt(states, share) for share in shares])

    def fed(self, event):
        """What they give for an event, in any order."""
        if event == "end":
            made = [one for step in self.steps for one in [*step.on_watermark(MAX_WATERMARK), *step.finish()]]
        elif isinstance(event, int):
            made = [one for step in self.steps for one in step.on_watermark(event)]
        else:
            port, found = event[0] % self.logic.ports, batch(event[1])
            to = self.owners.owners(key_ids(found, ["key"]))
            parts = [(step, found.filter(pa.array(to == number))) for number, step in enumerate(self.steps)]
            made = [one for step, part in parts if part.num_rows for one in step.process(port, part)]
        return Counter(tuple(row.values()) for one in made for row in one.to_pylist())


batches = st.tuples(st.integers(0, 1), st.lists(rows, min_size=1, max_size=5))
events = st.lists(st.one_of(st.integers(0, 40), batches), max_size=8)
shapes = st.integers(1, 9).flatmap(lambda groups: st.tuples(st.just(groups), st.integers(1, groups)))


def in_order(drawn):
    """Event time never goes back."""
    time = 0
    for one in drawn:
        time = max(time, one) if isinstance(one, int) else time
        yield time if isinstance(one, int) else one


@pytest.mark.parametrize("name", LOGICS)
@settings(max_examples=15)
@given(st.lists(events, min_size=2, max_size=3), st.lists(shapes, min_size=3, max_size=3))
def test_instances_of_another_number_go_on_as_one_would(name, phases, shapes):
    whole, dealt = Instances(LOGICS[name], 1, 1), Instances(LOGICS[name], *shapes[0])
    ordered = in_order(one for phase in phases for one in phase)
    for number, phase in enumerate(phases):
        if number:
            dealt = dealt.dealt(*shapes[number])
        for _ in phase:
            event = next(ordered)
            assert dealt.fed(event) == whole.fed(event)
    assert dealt.fed("end") == whole.fed("end")


@pytest.mark.parametrize("name", CLOSING)
@settings(max_examples=25)
@given(events, st.lists(events, min_size=2, max_size=2), st.lists(shapes, min_size=3, max_size=3))
def test_behind_an_end_each_key_goes_on_from_the_windows_that_were_given(name, before, after, shapes):
    kept = Instances(LOGICS[name], *shapes[0])
    for event in [*in_order(before), "end"]:
        kept.fed(event)
    dealt, kept = kept.dealt(*shapes[1]), kept.again()
    ordered = in_order(one for phase in after for one in phase)
    for number, phase in enumerate(after):
        if number:
            dealt = dealt.dealt(*shapes[2])  # also those that were further than others
        for _ in phase:
            event = next(ordered)
            assert dealt.fed(event) == kept.fed(event)
    assert dealt.fed("end") == kept.fed("end")


def test_a_window_that_was_given_by_one_of_two_instances_is_not_given_again():
    logic = LOGICS["tumbling windows"]
    two = Instances(logic, 2, 2)
    keys = [next(key for key in "abcdef" if two.owners.owners(key_ids(batch([(key, 1, 0)]), ["key"]))[0] == number)
            for number in (0, 1)]  # fmt: skip
    two.fed((0, [(keys[0], 1, 5), (keys[1], 1, 25)]))
    two.fed("end")
    one = two.dealt(2, 1)
    assert one.fed((0, [(keys[0], 1, 5), (keys[1], 1, 25)])) == Counter()
    assert one.steps[0].refused == 2
    one.fed((0, [(keys[0], 1, 15), (keys[1], 1, 35)]))
    given = one.fed("end")
    assert {(row[0], round(row[1].timestamp() * 1e6), row[3]) for row in given} == {(keys[0], 10, 1), (keys[1], 30, 1)}
    assert "floors" not in one.dealt(2, 2).states()[0]  # time has passed them all


def test_partials_of_sessions_go_on_from_who_was_furthest_behind():
    logic = PartialAggregate(Aggregation(("key",), HOW, SESSION))
    share = Share(0, KeyGroups(4, 2), KeyGroups(4, 1))
    assert logic.dealt([{"watermark": 7}, {"watermark": 5}], share) == {"watermark": 5}


def test_what_a_join_broadcasts_is_whole_in_every_instance():
    logic = LOGICS["windowed join"]
    shares = [Share(number, KeyGroups(8, 2), KeyGroups(8, 3), frozenset({1})) for number in range(3)]
    left = [pa.table(batch([(key, 1, 3)])) for key in "ab"]
    right = pa.table(batch([("a", 5, 3), ("b", 6, 4)]))
    states = [
        {"watermark": 0, "windows": [0], "left 0": left[0], "right 0": right},
        {"watermark": 9, "windows": [], },
    ]  # fmt: skip
    dealt = [logic.dealt(states, share) for share in shares]
    assert all(one["right 0"].equals(right) and one["watermark"] == 0 for one in dealt)
    assert [row for one in dealt for row in one["left 0"].to_pylist()] == left[0].to_pylist()


def test_states_nobody_can_deal_out_are_refused_and_none_is_no_state():
    share = Share(0, KeyGroups(4, 2), KeyGroups(4, 1))
    stateless = Filter(lambda batch: np.ones(batch.num_rows, bool))
    assert stateless.dealt([{}, {}], share) == {}
    assert not stateless.deals
    custom = Custom(lambda context: Numbers())
    assert not custom.deals
    with pytest.raises(OptionError, match=r"a process keeps \['seen'\], and does not say how that is dealt out"):
        custom.dealt([{"seen": 1}, {}], share)


@given(st.lists(st.sampled_from([0.0, -0.0, float("nan"), -float("nan"), 1.5, None]), min_size=1, max_size=8))
def test_keys_of_partials_are_of_the_groups_that_their_rows_went_to(keys):
    given_rows = pa.record_batch({"k": pa.array(keys, pa.float64()), "x": np.arange(len(keys))})
    partials = Aggregation(("k",), (("n", count()), ("t", sum("x")))).partials(given_rows)
    assert set(table_key_ids(partials, ["k"]).tolist()) == set(key_ids(given_rows, ["k"]).tolist())


def started(logic, number, parallelism, state):
    step = logic.start(InstanceContext(Instance("read", number), parallelism, (), SCHEMA))
    if state is not None:
        step.restore(unpacked(packed(state)))
    return step


@given(st.integers(0, 30), st.lists(st.integers(1, 5), min_size=2, max_size=4), st.data())
def test_splits_are_shared_out_anew_and_read_on_from_where_they_were(size, numbers, data):
    table = pa.Table.from_batches([batch([("a", number, number) for number in range(size)])]) if size else None
    logic = Source(Rows(table if table is not None else SCHEMA.empty_table()), time="at", batch_rows=2)
    states, before, read, least = None, None, [], None
    for parallelism in numbers:
        dealt = [None] * parallelism
        if states is not None:
            shares = [
                Share(number, KeyGroups(before, before), KeyGroups(9, parallelism)) for number in range(parallelism)
            ]
            dealt = [logic.dealt(states, share) for share in shares]
        steps = [started(logic, number, parallelism, state) for number, state in enumerate(dealt)]
        behind = [step.watermark for step in steps if not step.ended]
        assert least is None or not behind or min(behind) >= least  # nobody is further behind than all were
        for step in steps:
            for _ in range(data.draw(st.integers(0, 3)) if parallelism is not numbers[-1] else size + 1):
                found = step.read()
                read += found.column("value").to_pylist() if found is not None else []
        least = min((step.watermark for step in steps if not step.ended), default=None)
        states, before = [step.snapshot(1) for step in steps], parallelism
    while any(not step.ended for step in steps):
        for step in steps:
            found = step.read()
            read += found.column("value").to_pylist() if found is not None else []
    assert sorted(read) == list(range(size))


def test_rows_that_may_not_be_written_are_written_once_by_who_takes_them_over(marks):  # noqa: F811
    sink = Kafka({}, "t", ("key",), "job")

    def instance(number, parallelism, state):
        step = sink.start(InstanceContext(Instance("out", number), parallelism, [SCHEMA], SCHEMA))
        step.restore(state)
        return step

    three = [instance(number, 3, {}) for number in range(3)]
    for number, step in enumerate(three):
        list(step.process(0, batch([("k", number, 0)])))
    states = [unpacked(packed(step.snapshot(4))) for step in three]
    three[2].committed(4)  # the others die before they write
    shares = [Share(number, KeyGroups(8, 3), KeyGroups(8, 2)) for number in range(2)]
    for _ in range(2):  # a failure before the next snapshot, too
        two = [instance(number, 2, unpacked(packed(sink.dealt(states, share)))) for number, share in enumerate(shares)]
    assert sorted(json.loads(value)["value"] for _, value in marks.sent) == [0, 1, 2]
    shares = [Share(number, KeyGroups(8, 2), KeyGroups(8, 3)) for number in range(3)]
    states = [unpacked(packed(step.snapshot(5))) for step in two]
    three = [instance(number, 3, sink.dealt(states, share)) for number, share in enumerate(shares)]
    list(three[2].process(0, batch([("k", 9, 0)])))
    three[2].snapshot(6)
    three[2].committed(6)
    assert len(marks.sent) == 4
    assert marks.groups["steelyard-job-2"].offset == 6
