"""Sessions: rows of a key that follow each other closely, whatever is late, split, merged or restored on the way."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, mean, sum, variance
from steelyard.core import OptionError
from steelyard.core.topology import Instance
from steelyard.resident import Flow, Memory, Rows, run
from steelyard.resident.aggregate import PartialAggregate, SessionStep, WindowedAggregate, _partials
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK, InstanceContext
from steelyard.resident.windows import Session
from tests.resident.test_answers import AGGREGATES, GROUPINGS, SECOND, TIMESTAMP, aggregated, placed, rows, source

GAP = 3
HOW = Aggregation(("k",), (("n", count()), ("total", sum("v"))), Session("at", GAP, GAP))
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64(), "at": TIMESTAMP})


def sessions(times, gap):
    """Indices of rows by session, as a reader would find them: sorted, and cut where more than a gap is between."""
    found = []
    for at in sorted(range(len(times)), key=lambda i: times[i]):
        if not found or times[at] - times[found[-1][-1]] > gap:
            found.append([])
        found[-1].append(at)
    return found


@settings(max_examples=40)
@given(rows, st.sampled_from([1, 2, 5]), st.sampled_from(GROUPINGS), st.booleans(), st.data())
def test_sessions_are_what_python_gives(found, gap, grouping, combine, data):
    flow = Flow()
    keyed = source(data.draw, flow, found).key_by("key", grouping=grouping)
    made = keyed.aggregate(
        session=f"{gap} seconds", combine=combine, parallelism=data.draw(st.integers(1, 3)), **AGGREGATES
    )
    made.sink(Memory(), name="out")
    dataflow = flow.dataflow()
    got = run(dataflow, placement=placed(data.draw, dataflow)).table("out")
    by_key = defaultdict(list)
    for key, value, at in found:
        by_key[key].append((value, at))
    expected = {}
    for key, some in by_key.items():
        for session in sessions([at for _, at in some], gap * SECOND):
            times = [some[i][1] for i in session]
            values = [some[i][0] for i in session]
            expected[key, min(times), max(times) + gap * SECOND] = aggregated(values)
    bounds = [got[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    columns = [got[name].to_pylist() for name in AGGREGATES]
    answers = {one[:3]: one[3:] for one in zip(got["key"].to_pylist(), *bounds, *columns, strict=True)}
    assert answers == expected
    assert got.num_rows == len(expected)


class Plain:
    """What a step must do, row by row: lists of rows for each open session."""

    def __init__(self):
        self.watermark, self.open, self.refused = MIN_WATERMARK, defaultdict(list), 0

    def row(self, key, value, at):
        if at + GAP < self.watermark:
            self.refused += 1
            return
        near = [one for one in self.open[key] if min(one)[0] - GAP <= at <= max(one)[0] + GAP]
        self.open[key] = [one for one in self.open[key] if one not in near]
        self.open[key].append([(at, value)] + [row for one in near for row in one])

    def time(self, now):
        self.watermark = max(self.watermark, now)
        for key, some in self.open.items():
            closed = [one for one in some if max(one)[0] + GAP < now]
            self.open[key] = [one for one in some if one not in closed]
            for one in closed:
                yield key, min(one)[0], max(one)[0] + GAP, len(one), sum_of(value for _, value in one)


def sum_of(values):
    return int(np.sum(list(values)))


def restored(step):
    state = step.snapshot(1)
    fresh = started()
    fresh.refused = step.refused
    fresh.restore(state)
    return fresh


def started(from_partials=False):
    how = HOW.partial_schema(SCHEMA)
    return SessionStep(HOW, HOW.window, from_partials, HOW.result_schema(how))


batches = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(0, 40)), min_size=1, max_size=5)
steps = st.lists(st.one_of(batches, st.integers(0, 45), st.just("snapshot")), max_size=20)


def batch(found):
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*found, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def read(given_batches):
    for one in given_batches:
        for row in pa.Table.from_batches([one]).to_pylist():
            start, end = (int(row[name].timestamp() * 1e6 + 0.5) for name in ("window_start", "window_end"))
            yield row["k"], start, end, row["n"], row["total"]


@given(steps)
def test_late_rows_and_snapshots_change_nothing_that_plain_python_does_not(drawn):
    step, plain = started(), Plain()
    for one in [*drawn, MAX_WATERMARK]:
        if one == "snapshot":
            step = restored(step)
        elif isinstance(one, list):
            assert list(step.process(0, batch(one))) == []
            for row in one:
                plain.row(*row)
        elif one > plain.watermark:
            assert sorted(read(step.on_watermark(one))) == sorted(plain.time(one))
        assert step.refused == plain.refused


@given(batches, st.integers(0, 45))
def test_partials_of_a_batch_that_is_late_as_a_whole_are_refused(found, now):
    step = started(from_partials=True)
    list(step.on_watermark(now))
    made, _ = _partials(HOW, batch(found), MIN_WATERMARK)
    step.process(0, made.combine_chunks().to_batches()[0])
    given_rows = list(read(step.on_watermark(MAX_WATERMARK)))
    assert all(end >= now for _, _, end, _, _ in given_rows)
    assert step.refused + len(given_rows) <= made.num_rows


def test_after_the_end_rows_of_the_time_before_are_late_and_later_sessions_come():
    step = started()
    step.process(0, batch([("a", 1, 10)]))
    assert list(read(step.on_watermark(MAX_WATERMARK))) == [("a", 10, 13, 1, 1)]
    again = restored(step)
    again.process(0, batch([("a", 1, 5), ("b", 2, 30)]))
    assert list(read(again.on_watermark(MAX_WATERMARK))) == [("b", 30, 33, 1, 2)]
    assert again.refused == 1


def test_a_session_stays_open_at_the_end_where_that_is_asked_for():
    flow = Flow()
    at = pa.array([0, 5 * SECOND, 20 * SECOND], TIMESTAMP)
    keyed = flow.source(Rows(pa.table({"k": ["a", "a", "a"], "at": at})), time="at").key_by("k")
    keyed.aggregate(n=count(), session="5 seconds", open_end=True).sink(Memory(), name="out")
    assert run(flow.dataflow()).table("out").column("n").to_pylist() == [2]


def test_sessions_have_states_and_no_key_too():
    flow = Flow()
    at = pa.array([0, SECOND, 9 * SECOND], TIMESTAMP)
    read_rows = flow.source(Rows(pa.table({"x": [1.0, 3.0, 5.0], "at": at})), time="at")
    read_rows.aggregate(session="1 second", v=variance("x"), m=mean("x")).sink(Memory(), name="out")
    found = run(flow.dataflow()).table("out").sort_by("window_start")
    assert (found["v"].to_pylist(), found["m"].to_pylist()) == ([2.0, None], [2.0, 5.0])


def test_two_kinds_of_windows_at_once_and_keys_named_as_ours_are_refused():
    flow = Flow()
    read_rows = flow.source(Rows(pa.table({"__first": ["a"], "at": pa.array([0], TIMESTAMP)})), time="at")
    with pytest.raises(OptionError, match="two kinds of windows"):
        read_rows.aggregate(n=count(), window="1 second", session="1 second")
    read_rows.key_by("__first").aggregate(n=count(), session="1 second").sink(Memory())
    with pytest.raises(OptionError, match="'__first' is a name of ours"):
        flow.dataflow()


def test_a_snapshot_of_windows_is_none_of_sessions():
    windows = Aggregation(HOW.keys, HOW.aggregates, Session("at", GAP + 1, GAP + 1))
    assert WindowedAggregate(HOW).state_settings != WindowedAggregate(windows).state_settings


def test_a_late_row_is_left_out_also_where_keys_are_split_and_one_in_time_is_near():
    how = Aggregation(("k",), (("n", count()),), Session.of("t", "10 seconds"))
    rows = pa.schema({"k": pa.string(), "t": pa.timestamp("us")})

    def batch(*seconds):
        times = pa.array([one * 1_000_000 for one in seconds], pa.int64()).cast(pa.timestamp("us"))
        return pa.record_batch([pa.array(["a"] * len(seconds)), times], schema=rows)

    def started(logic, given):
        return logic.start(InstanceContext(Instance("one", 0), 1, [given], logic.output([given])))

    partial = started(PartialAggregate(how), rows)
    final = started(WindowedAggregate(how, from_partials=True), how.partial_schema(rows))
    found = []
    for event in (batch(20), 35, "restart", batch(21, 27), 100):
        if event == "restart":
            state, partial = partial.snapshot(1), started(PartialAggregate(how), rows)
            partial.restore(state)
        elif isinstance(event, int):
            partial.on_watermark(event * 1_000_000)
            found += final.on_watermark(event * 1_000_000)
        else:
            for one in partial.process(0, event):
                found += final.process(0, one)
    given = [(row["window_start"].second, row["n"]) for one in found for row in one.to_pylist()]
    assert given == [(20, 1), (27, 1)]
    assert partial.refused == 1
