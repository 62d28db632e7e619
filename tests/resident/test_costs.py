"""Shuffle edges that go by cost: no row is lost, what is learnt is what was measured, and snapshots have all of it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core import OptionError
from steelyard.core.dataflow import Edge, Grouping, Route
from steelyard.core.topology import DataflowError, Instance, Placement
from steelyard.grouping import OSG, Matrices, Reply, Requests, RoundRobin, TimeSplitter, TrackingOSG, grouping
from steelyard.resident import Flow, Memory, Rows, Settings, run
from steelyard.resident.costs import CostMeter, schedulers_of
from steelyard.resident.deployment import Deployment, Events
from steelyard.resident.keys import key_ids
from steelyard.resident.reports import (
    MOST_REQUESTS,
    packed_reports,
    packed_requests,
    unpacked_reports,
    unpacked_requests,
)
from steelyard.resident.routing import ByCost, distributor
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Frame, Kind, WireError

FAST = "window=4&tolerance=1.0"
GROUPINGS = ["round_robin", "assg", f"osg?cost_of=key&{FAST}", f"tracking_osg?cost_of=key&resync=2&{FAST}"]
numbers = st.floats(-1e9, 1e9)
whole = st.integers(0, 1 << 30)
keys = st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), max_size=60)


def table(found):
    return pa.table({"key": pa.array(found, pa.string()), "n": np.arange(len(found))})


def batch_of(found):
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table(found)], names=["key", "n"])


replies = st.builds(Reply, whole, whole, whole, numbers, numbers, numbers)
matrices = st.builds(
    lambda sender, rows, columns, tuples, time: Matrices(sender, np.ones((rows, columns, 2)) * time, tuples, time),
    whole,
    st.integers(1, 3),
    st.integers(1, 5),
    numbers,
    numbers,
)


@given(st.lists(st.one_of(replies, matrices), max_size=5))
def test_reports_come_as_they_were_sent(reports):
    found = unpacked_reports(packed_reports(reports))
    assert len(found) == len(reports)
    for one, other in zip(found, reports, strict=True):
        if isinstance(other, Reply):
            assert one == other
        else:
            assert (one.sender, one.tuples, one.time) == (other.sender, other.tuples, other.time)
            assert np.array_equal(one.cells, other.cells)


@given(st.lists(st.one_of(replies, matrices), min_size=1, max_size=3), st.data())
def test_reports_that_are_cut_off_are_refused(reports, data):
    ends = set(np.cumsum([len(packed_reports([one])) for one in reports]).tolist())
    cut = data.draw(st.integers(1, max(ends)).filter(lambda at: at not in ends))
    with pytest.raises(WireError, match="reports of"):
        unpacked_reports(packed_reports(reports)[:cut])


def test_what_is_no_report_or_request_is_refused():
    with pytest.raises(WireError, match="no report of kind 7"):
        unpacked_reports(b"\x07123")
    with pytest.raises(WireError, match="note of 5 bytes"):
        unpacked_requests(b"12345", 3)
    two = Requests(np.array([0, 2]), np.array([1, 1]), np.array([0.5, 0.5]))
    with pytest.raises(WireError, match="do not fit a batch of 2 rows"):
        unpacked_requests(packed_requests(two), 2)
    with pytest.raises(WireError, match="do not fit"):
        unpacked_requests(packed_requests(two._replace(position=np.array([1, 1]))), 3)


@settings(max_examples=40)
@given(st.lists(keys, min_size=1, max_size=4), st.sampled_from(GROUPINGS), st.integers(2, 4))
def test_rows_go_where_the_scheduler_says_with_its_requests(batches, name, receivers):
    policy = grouping(name)
    columns = (policy.cost_of,) if policy.cost_of else ()
    edge = Edge("from", "to", Grouping(Route.COST, columns, policy))
    chooses = distributor(edge, Instance("from", 1), receivers, (1, 2))
    oracle = policy.scheduler(receivers, 1, 2)
    for batch in map(batch_of, batches):
        items = key_ids(batch, columns) if columns else np.zeros(batch.num_rows, np.int64)
        wanted = oracle.choose(items, times=np.zeros(len(items)))
        got = list(chooses.addressed(batch))
        where = {n: to for to, part, _ in got for n in part["n"].to_pylist()}
        assert [where[n] for n in range(batch.num_rows)] == wanted.to.tolist()
        asked = [
            (part["n"][int(at)].as_py(), int(epoch))
            for _, part, note in got
            for at, epoch, _ in zip(*unpacked_requests(note, part.num_rows), strict=True)
        ]
        assert sorted(asked) == list(zip(wanted.requests.position, wanted.requests.epoch, strict=True))


def test_requests_that_do_not_fit_into_one_note_go_in_several():
    policy = TrackingOSG(cost_of="key", resync=1)
    chooses = distributor(Edge("a", "b", Grouping(Route.COST, ("key",), policy)), Instance("a", 0), 2)
    rows = 5 * MOST_REQUESTS
    parts = list(chooses.addressed(batch_of(["x"] * rows)))
    asked = [len(unpacked_requests(note, part.num_rows).position) for _, part, note in parts]
    assert sum(part.num_rows for _, part, _ in parts) == sum(asked) == rows
    assert max(asked) <= MOST_REQUESTS


def keyed(*keys):
    return pa.record_batch({"key": pa.array(keys, pa.int64())})


def meter_of(policy, told, instances=2, schedulers=1):
    """The meter of instance 0, with a channel from each scheduler; reports are put into `told`."""
    tell = {
        channel: lambda number, payload, channel=channel: told.append((channel, number, unpacked_reports(payload)))
        for channel in range(schedulers)
    }
    return CostMeter(policy, 0, instances, ({channel: channel for channel in tell}, schedulers), tell)


def test_what_is_reported_is_what_an_instance_of_the_policy_reports(monkeypatch):
    monkeypatch.setattr(TimeSplitter, "trust", 1.0)
    policy = OSG(cost_of="key", window=4, tolerance=1.0, clock="cumulated")
    told = []
    meter, oracle = meter_of(policy, told), policy.instance(2, 0)
    rng = np.random.default_rng(5)
    wanted = []
    for turn in range(40):
        seconds = np.array([rng.random()])
        request = Requests(np.array([0]), np.array([turn]), np.array([1.5])) if turn % 7 == 0 else Requests.none()
        wanted += oracle.executed(key_ids(keyed(turn % 3), ("key",)), seconds, np.zeros(1), request)
        meter.executed(0, keyed(turn % 3), float(seconds[0]), request)
    meter.flush()
    found = [report for _, _, reports in told for report in reports]
    assert [number for _, number, _ in told] == list(range(1, len(told) + 1))
    assert {type(one) for one in found} == {Matrices, Reply}
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        assert one == other if type(one) is Reply else np.allclose(one.cells, other.cells)


@pytest.mark.parametrize(("related", "differ"), [(True, True), (False, False)])
def test_what_keys_say_of_costs_is_reported_as_far_as_it_comes_true(related, differ):
    told = []
    meter = meter_of(TrackingOSG(cost_of="key", window=64, tolerance=10.0, apart=0, items="each", keep=0.9), told)
    rng = np.random.default_rng(5)
    for _ in range(400):
        key = int(rng.integers(3))
        meter.executed(0, keyed(key), float(1.0 + 9.0 * (key if related else rng.integers(3))), Requests.none())
    meter.flush()
    cells = [one.cells for _, _, reports in told for one in reports if type(one) is Matrices][-1]
    counts, times = np.moveaxis(cells, -1, 0)
    means = times[counts > 0] / counts[counts > 0]
    assert len(means) == 3
    assert (means.max() > 5 * means.min()) == differ
    assert related or means.max() < 1.25 * means.min()  # noise alone makes more of a difference, were it believed
    assert np.average(means, weights=counts[counts > 0]) == pytest.approx(10.0, rel=0.2)


def test_matrices_go_to_all_schedulers_and_replies_to_the_one_that_asked():
    told = []
    meter = meter_of(OSG(cost_of="key", window=1, tolerance=1.0), told, schedulers=3)
    request = Requests(np.array([0]), np.array([9]), np.array([0.5]))
    meter.executed(1, keyed(7), 0.25, Requests.none())
    assert not told
    meter.executed(1, keyed(7), 0.25, request)
    kinds = {channel: [type(one) for one in reports] for channel, _, reports in told}
    assert kinds == {1: [Reply, Matrices], 0: [Matrices], 2: [Matrices]}
    assert told[0][2][0].scheduler == 1


def test_a_meter_goes_on_with_what_it_has_learnt():
    policy = TrackingOSG(cost_of="key", window=3, tolerance=1.0)
    told, told_again = [], []
    first, second = meter_of(policy, told), meter_of(policy, told_again)
    for turn in range(10):
        first.executed(0, keyed(turn % 3, 5), 0.5, Requests.none())
    first.flush()
    second.restore(first.state())
    told.clear()
    for meter in (first, second):
        meter.executed(0, keyed(*range(6)), 0.5, Requests.none())
        meter.flush()
    reported = [[packed_reports(reports) for _, _, reports in one] for one in (told, told_again)]
    assert reported[0] == reported[1] != []


def flow_of(found, name, senders=2, receivers=3, batch_rows=7, function=lambda batch: batch):
    flow = Flow()
    source = flow.source(Rows(table(found)), parallelism=senders, batch_rows=batch_rows, name="read")
    source.shuffle(name).map(function, parallelism=receivers, name="work").sink(Memory(), name="out", parallelism=1)
    return flow.dataflow()


@settings(max_examples=40)
@given(keys, st.sampled_from(GROUPINGS), st.data())
def test_rows_come_through_once_wherever_instances_are(found, name, data):
    widths = st.integers(1, 3)
    dataflow = flow_of(found, name, data.draw(widths), data.draw(widths))
    workers = data.draw(widths)
    placement = Placement({one: data.draw(st.integers(0, workers - 1)) for one in dataflow.instances}, workers)
    result = run(dataflow, placement=placement).table("out")
    assert result.sort_by("n").to_pylist() == table(found).to_pylist()


def test_instances_report_to_senders_in_other_processes():
    found = list("abcdef") * 200
    outcome = run(flow_of(found, GROUPINGS[3]), workers=2, processes=True)
    assert outcome.table("out").sort_by("n").to_pylist() == table(found).to_pylist()
    metrics = outcome.outcome.metrics
    assert all(metrics[f"work#{number}"]["reports"] > 0 for number in range(3))


def test_senders_of_a_union_are_schedulers_of_one_edge():
    flow = Flow()
    left = flow.source(Rows(table("ab")), name="left", parallelism=2)
    right = flow.source(Rows(table("cde")), name="right", parallelism=3)
    policy = TrackingOSG(cost_of="key", resync=1)
    left.union(right).shuffle(policy).map(lambda batch: batch, parallelism=2, name="work").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    assert [schedulers_of(dataflow, edge) for edge in (0, 1)] == [(0, 5), (2, 5)]
    assert sorted(run(dataflow).table("out")["key"].to_pylist()) == list("abcde")


@pytest.mark.parametrize("name", GROUPINGS[2:])
def test_what_was_learnt_is_in_the_snapshot_and_a_failure_loses_no_row(name, tmp_path):
    found = list("abcdef") * 60
    broken = tmp_path / "broken"

    def fails_once(batch):
        if 300 in batch["n"].to_pylist() and not broken.exists():
            broken.touch()
            raise RuntimeError("once")
        return batch

    dataflow = flow_of(found, name, batch_rows=5, function=fails_once)
    store = str(tmp_path / "store")
    outcome = run(dataflow, settings=Settings(store=store, interval=0.05))
    assert outcome.outcome.restarts == 1
    assert outcome.table("out").sort_by("n").to_pylist() == table(found).to_pylist()
    states = SnapshotStore(store)
    epoch = states.latest()
    senders = [states.read(epoch, Instance("read", number)) for number in range(2)]
    receivers = [states.read(epoch, Instance("work", number)) for number in range(3)]
    for state in senders:  # they go on where they were
        scheduler = distributor(dataflow.edges[0], Instance("read", 0), 3, (0, 2))
        scheduler.restore(state["edge 0"])
        assert scheduler.state() == state["edge 0"]
    assert all(state["costs 0"] for state in receivers)


class Deployed:
    """The sending worker of two, with what it would send."""

    def __init__(self, policy):
        self.sent = []
        dataflow = flow_of(list("abcabc"), policy, senders=1, receivers=2)
        placement = Placement({one: int(one.operator == "work") for one in dataflow.instances}, 2)
        events = Events(lambda *_: None, lambda *_: None, lambda *_: None)
        self.deployment = Deployment(dataflow, placement, 0, lambda *frame: self.sent.append(frame), events)


def test_reports_count_as_worked_off_and_wrong_ones_are_refused():
    here = Deployed(TrackingOSG(cost_of="key", columns=4)).deployment
    reply = packed_reports([Reply(1, 0, 0, 0.5, 3.0, 1.0)])
    here.receive(1, Frame(Kind.REPORT, 1, 1, reply))
    assert {number: done for number, done in here.counters()["done"].items() if number < 0} == {~0: 0, ~1: 1}
    for channel, number, payload, worker, why in (
        (1, 3, reply, 1, "came behind"),
        (1, 2, reply[:-1], 1, "cut off"),
        (1, 2, packed_reports([Reply(2, 0, 0, 0.5, 3.0, 1.0)]), 1, "does not fit"),
        (1, 2, packed_reports([Matrices(1, np.zeros((2, 2, 2)), 1.0, 1.0)]), 1, "does not fit"),
        (1, 2, reply, 0, "nobody asked"),
        (2, 1, reply, 1, "nobody asked"),
    ):
        with pytest.raises(WireError, match=why):
            here.receive(worker, Frame(Kind.REPORT, channel, number, payload))
    with pytest.raises(WireError, match="nobody asked"):
        Deployed(RoundRobin()).deployment.receive(1, Frame(Kind.REPORT, 1, 1, reply))


def test_one_instance_needs_no_grouping_and_reports_nothing():
    edge = flow_of(["a"], GROUPINGS[2], receivers=1).edges[0]
    assert not isinstance(distributor(edge, Instance("read", 0), 1), ByCost)


def test_errors_name_the_option_and_the_remedy():
    stream = Flow().source(Rows(table("ab")))
    with pytest.raises(OptionError, match="did you mean 'osg'"):
        stream.shuffle("ogs")
    with pytest.raises(OptionError, match="cost_of=customer"):
        stream.shuffle("tracking_osg")
    with pytest.raises(OptionError, match="'full_knowledge' must be told"):
        stream.shuffle("full_knowledge")
    with pytest.raises(DataflowError, match="unknown column 'kye'"):
        flow_of(["a"], "osg?cost_of=kye")
    flow = Flow()
    grouped = flow.source(Rows(table("ab"))).key_by("key").aggregate(n=count(), parallelism=2)
    grouped.sink(Memory())
    flow._edges[0] = Edge("source", grouped.operators[0].name, Grouping(Route.COST, ("key",), OSG(cost_of="key")))
    with pytest.raises(DataflowError, match="grouped by osg"):
        flow.dataflow()
