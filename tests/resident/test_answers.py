"""Answers do not depend on parallelism, grouping, placement or batches: they are what plain Python gives."""

import builtins
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, max, mean, min, sum
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows, Step, run
from steelyard.workloads.workload import TIMESTAMP

GROUPINGS = ["hash", "shuffle", "pk2", "dalton", "prompt", "cam", "w_choices", "auto"]
SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
SECOND = 1_000_000

keys = st.sampled_from(["a", "b", "c", "dd", None])
rows = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.integers(-5, 5)), st.integers(-20 * SECOND, 20 * SECOND)), max_size=60
)
widths = st.integers(1, 3)


def table(found, ordered=False):
    found = sorted(found, key=lambda row: row[2]) if ordered else found
    columns = zip(*found, strict=True) if found else ([], [], [])
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def placed(draw, dataflow):
    """Any placement on up to three workers."""
    workers = draw(widths)
    return Placement({one: draw(st.integers(0, workers - 1)) for one in dataflow.instances}, workers)


def source(draw, flow, found, name="source"):
    """Rows in any order with a delay that covers it, or in order of their times without a delay."""
    ordered = draw(st.booleans())
    return flow.source(
        Rows(table(found, ordered), pieces=draw(st.one_of(st.none(), widths))),
        time="at",
        delay=None if ordered else "1 hour",
        batch_rows=draw(st.sampled_from([1, 7, 1000])),
        parallelism=draw(widths),
        name=name,
    )


def aggregated(values):
    known = [value for value in values if value is not None]
    extremes = (builtins.min(known), builtins.max(known)) if known else (None, None)
    total = builtins.sum(known) if known else None
    return len(values), total, *extremes, total / len(known) if known else None


AGGREGATES = {"n": count(), "total": sum("value"), "low": min("value"), "high": max("value"), "mean": mean("value")}


@settings(max_examples=40)
@given(rows, st.sampled_from([(4, 4), (4, 2), (6, 4), (5, 1)]), st.sampled_from(GROUPINGS), st.booleans(), st.data())
def test_windowed_aggregates_are_what_python_gives(found, window, grouping, combine, data):
    size, slide = window
    flow = Flow()
    kept = source(data.draw, flow, found).filter(pc.field("at").is_valid(), parallelism=data.draw(widths))
    keyed = kept.key_by("key", grouping=grouping)
    made = keyed.aggregate(
        window=f"{size} seconds", slide=f"{slide} seconds", combine=combine, parallelism=data.draw(widths), **AGGREGATES
    )
    made.sink(Memory(), name="out", parallelism=data.draw(widths))
    dataflow = flow.dataflow()
    results = run(dataflow, placement=placed(data.draw, dataflow))
    expected = defaultdict(list)
    for key, value, at in found:
        start = at // (slide * SECOND) * slide * SECOND
        while start + size * SECOND > at:
            expected[key, start].append(value)
            start -= slide * SECOND
    got = results.table("out")
    starts = got["window_start"].cast(pa.int64()).to_pylist()
    columns = [got[name].to_pylist() for name in AGGREGATES]
    answers = {pair[:2]: pair[2:] for pair in zip(got["key"].to_pylist(), starts, *columns, strict=True)}
    assert answers == {group: aggregated(values) for group, values in expected.items()}
    assert got.num_rows == len(expected)


@settings(max_examples=25)
@given(rows, st.sampled_from(GROUPINGS), st.sampled_from(["updates", "end"]), st.data())
def test_running_aggregates_end_with_what_python_gives(found, grouping, emit, data):
    flow = Flow()
    keyed = source(data.draw, flow, found).key_by("key", grouping=grouping)
    keyed.aggregate(emit=emit, parallelism=data.draw(widths), **AGGREGATES).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    got = run(dataflow, placement=placed(data.draw, dataflow)).table("out")
    expected = defaultdict(list)
    for key, value, _ in found:
        expected[key].append(value)
    answers = {}
    for row in got.to_pylist():  # counts only grow: the last of a key is the one with the greatest
        if row["n"] > answers.get(row["key"], (0,))[0]:
            answers[row["key"]] = tuple(row[name] for name in AGGREGATES)
    assert answers == {key: aggregated(values) for key, values in expected.items()}
    if emit == "end":
        assert got.num_rows == len(expected)


def pairs(left, right, window):
    found = Counter()
    for key, value, at in left:
        for other_key, other, other_at in right:
            if key is None or key != other_key:
                continue
            if window is None:
                found[key, value, at, other, other_at, None] += 1
                continue
            size, slide = (part * SECOND for part in window)
            start = at // slide * slide
            while start + size > at:
                if start <= other_at < start + size:
                    found[key, value, at, other, other_at, start] += 1
                start -= slide
    return found


@settings(max_examples=40)
@given(rows, rows, st.sampled_from([None, (4, 4), (6, 2)]), st.sampled_from(["hash", "left", "right"]), st.data())
def test_joins_are_what_python_gives(left, right, window, broadcast, data):
    flow = Flow()
    sides = [source(data.draw, flow, left, "left"), source(data.draw, flow, right, "right")]
    if broadcast != "hash":
        spread = 0 if broadcast == "left" else 1
        sides[spread], sides[1 - spread] = sides[spread].broadcast(), sides[1 - spread].shuffle()
    size, slide = (f"{part} seconds" for part in window) if window else (None, None)
    joined = sides[0].join(sides[1], on="key", window=size, slide=slide, parallelism=data.draw(widths))
    joined.sink(Memory(), name="out")
    dataflow = flow.dataflow()
    got = run(dataflow, placement=placed(data.draw, dataflow)).table("out")
    columns = [got[name] for name in ("key", "value", "at", "value_right", "at_right")]
    starts = got["window_start"].cast(pa.int64()).to_pylist() if window else [None] * got.num_rows
    plain = [column.cast(pa.int64()) if column.type == TIMESTAMP else column for column in columns]
    answers = Counter(zip(*(column.to_pylist() for column in plain), starts, strict=True))
    assert answers == pairs(left, right, window)


class Hop(Step):
    """Reachable nodes in a cycle: keeps links and paths by node, and gives each new path once."""

    def __init__(self):
        self.links, self.paths = defaultdict(set), defaultdict(set)

    def process(self, port, batch):
        fresh = []
        for row in batch.to_pylist():
            if port == 0:
                self.links[row["at"]].add(row["to"])
                fresh += [(origin, row["to"]) for origin in self.paths[row["at"]]]
            elif row["origin"] not in self.paths[row["at"]]:
                self.paths[row["at"]].add(row["origin"])
                fresh += [(row["origin"], to) for to in self.links[row["at"]]]
        if fresh:
            yield pa.RecordBatch.from_pylist([{"origin": origin, "at": at} for origin, at in fresh], schema=PATHS)


PATHS = pa.schema({"origin": pa.int64(), "at": pa.int64()})
LINKS = pa.schema({"at": pa.int64(), "to": pa.int64()})


@settings(max_examples=20)
@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15), st.data())
def test_a_cycle_runs_until_nothing_new_is_found(links, data):
    flow = Flow()
    given_links = pa.Table.from_pylist([{"at": at, "to": to} for at, to in links], schema=LINKS)
    start = pa.Table.from_pylist([{"origin": node, "at": node} for node in range(7)], schema=PATHS)
    edges = flow.source(Rows(given_links), name="links", parallelism=data.draw(widths), batch_rows=3)
    paths = flow.source(Rows(start), name="paths", parallelism=data.draw(widths), batch_rows=2)
    hops = edges.key_by("at").process(
        lambda context: Hop(), PATHS, paths.key_by("at"), name="hop", parallelism=data.draw(widths)
    )
    hops.key_by("at").feedback(hops, port=1)
    hops.sink(Memory(), name="out")
    dataflow = flow.dataflow()
    got = run(dataflow, placement=placed(data.draw, dataflow)).table("out")
    reached = set(links)
    while True:
        more = reached | {(a, d) for a, b in reached for c, d in links if b == c}
        if more == reached:
            break
        reached = more
    assert set(zip(got["origin"].to_pylist(), got["at"].to_pylist(), strict=True)) == reached


def test_late_rows_are_counted_and_left_out():
    times = [0, 10 * SECOND, 1 * SECOND, None, 11 * SECOND]
    rows = pa.table({"key": ["a"] * 5, "at": pa.array(times, TIMESTAMP)})
    flow = Flow()
    read = flow.source(Rows(rows), time="at", batch_rows=1)
    read.key_by("key").aggregate(n=count(), window="5 seconds", name="n").sink(Memory(), name="out")
    results = run(flow.dataflow())
    assert sorted(results.table("out")["n"].to_pylist()) == [1, 2]
    assert results.outcome.metrics["n#0"]["refused"] == 2


class Numbered(Step):
    """Rows, with the number of the instance that has them."""

    def __init__(self, number):
        self.number = number

    def process(self, port, batch):
        yield pa.record_batch({"x": batch["x"], "at": [self.number] * batch.num_rows})


@pytest.mark.parametrize("how", ["to_first", "broadcast", "forward"])
def test_wirings_bring_rows_where_they_say(how):
    flow = Flow(parallelism=3)
    read = flow.source(Rows(pa.table({"x": list(range(50))}), pieces=3), batch_rows=7)
    numbered = getattr(read, how)().process(
        lambda context: Numbered(context.instance.number), {"x": pa.int64(), "at": pa.int64()}
    )
    numbered.sink(Memory(), name="out")
    got = run(flow.dataflow(), workers=2).table("out").to_pylist()
    found = sorted((row["x"], row["at"]) for row in got)
    if how == "forward":
        assert [x for x, _ in found] == list(range(50))
        assert {at for _, at in found} == {0, 1, 2}
    else:
        assert found == [(x, at) for x in range(50) for at in range(1 if how == "to_first" else 3)]


def test_maps_and_unions_keep_every_row():
    flow = Flow(parallelism=2)
    left = flow.source(Rows(pa.table({"x": list(range(50))})), name="left")
    right = flow.source(Rows(pa.table({"x": list(range(50, 80))})), name="right", parallelism=3)
    doubled = left.union(right).map(
        lambda batch: pa.record_batch({"y": pc.multiply(batch["x"], 2)}), {"y": pa.int64()}, parallelism=3
    )
    doubled.flat_map(lambda batch: pa.concat_batches([batch, batch])).sink(Memory(), name="out")
    got = run(flow.dataflow(), workers=3).table("out")["y"].to_pylist()
    assert sorted(got) == sorted([2 * x for x in range(80)] * 2)


def test_a_function_that_gives_other_columns_than_it_said_fails_with_its_operators_name():
    from steelyard.resident import JobError, Settings

    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).map(
        lambda batch: batch.rename_columns(["z"]), {"y": pa.int64()}, name="odd"
    ).sink(Memory())
    said = r"operator 'odd' \(instance 0, worker 0\): OptionError: the function of 'odd' gave columns \['z'\]"
    with pytest.raises(JobError, match=said):
        run(flow.dataflow(), settings=Settings(restarts=0))
