"""Sources that can be read again from any offset, and sinks that show an epoch once."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.core.topology import Instance
from steelyard.resident import Flow, Generated, JsonLines, Memory, Parquet, ParquetFiles, Rows, generated, run
from steelyard.resident.operator import MIN_WATERMARK, Attempt, InstanceContext
from steelyard.resident.settings import Settings as JobSettings
from steelyard.resident.sources import Read, Reader, Source
from steelyard.resident.transformed import Transformed
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant
from steelyard.workloads.workload import TIMESTAMP

SCHEMA = pa.schema({"x": pa.int64()})


def read_all(reader, sizes, parallelism=1):
    """All rows, split by split, in reads of these sizes in turn."""
    reader = reader.fresh()
    found = []
    for split in reader.splits(parallelism):
        offset, ended, turn = 0, False, 0
        while not ended:
            batch, offset, ended = reader.read(split, offset, sizes[turn % len(sizes)])
            turn += 1
            if batch is not None:
                found += batch.to_pylist()
    return found


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.integers(0, 40), sizes, st.integers(1, 3), st.integers(1, 10))
def test_a_generator_gives_every_row_once_however_it_is_read(rows, sizes, pieces, block):
    zipf = Zipf(keys=7, seed=2)
    reader = Generated(zipf, rows=rows, pieces=pieces, block_rows=block)
    times = Generated(zipf, rows=rows).arrivals.times(0, rows)
    whole = zipf.rows(0, rows, times).to_pylist()
    got = read_all(reader, sizes)
    assert sorted(got, key=str) == sorted(whole, key=str)


@settings(max_examples=30)
@given(st.integers(0, 40), sizes, st.integers(1, 3))
def test_a_table_gives_every_row_once_and_in_order(rows, sizes, pieces):
    table = pa.table({"x": np.arange(rows)})
    assert [row["x"] for row in read_all(Rows(table, pieces), sizes)] == list(range(rows))


@settings(max_examples=10)
@given(sizes, st.integers(1, 7))
def test_files_give_every_row_once(tmp_path_factory, sizes, group):
    folder = tmp_path_factory.mktemp("files")
    paths = []
    for number in range(2):
        table = pa.table({"x": np.arange(number * 10, number * 10 + 10)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=group)
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        paths.append(str(folder / str(number)))
    parquet = ParquetFiles(tuple(f"{path}.parquet" for path in paths))
    lines = JsonLines(tuple(f"{path}.json" for path in paths), SCHEMA)
    for reader in (parquet, lines):
        assert [row["x"] for row in read_all(reader, sizes)] == list(range(20))


def test_a_file_that_is_not_json_is_named(tmp_path):
    (tmp_path / "bad.json").write_text("{x")
    with pytest.raises(OptionError, match=r"bad\.json is not one JSON object a line"):
        JsonLines((str(tmp_path / "bad.json"),), SCHEMA).read(str(tmp_path / "bad.json"), 0, 10)


def test_a_folder_stands_for_its_files_and_a_dictionary_for_a_schema(tmp_path):
    for number in (1, 0):
        pq.write_table(pa.table({"x": [number]}), tmp_path / f"{number}.parquet")
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "_SUCCESS").write_text("no rows")
    (lines / "0.json").write_text('{"x": 5}\n{"y": 1}\n')
    pq.write_table(pa.table({"x": [9]}), lines / ".hidden.parquet")
    assert read_all(ParquetFiles(str(tmp_path)), [9]) == [{"x": 0}, {"x": 1}]
    for paths in (lines, str(lines), [str(lines)], lines / "0.json"):
        assert read_all(JsonLines(paths, {"x": "int64"}), [9]) == [{"x": 5}, {"x": None}]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (JsonLines, r"needs the columns of its lines.*JsonLines\(.*'fare': 'double'"),
        (lambda path: JsonLines(path, "x int"), r"a schema is a pyarrow.Schema or a dictionary .* got 'x int'"),
        (lambda path: JsonLines(path, {"x": "bigint"}), r"types of Arrow, got \{'x': 'bigint'\}: No type alias"),
        (lambda path: JsonLines(path, {"x": "int64"}), "JsonLines: there are no files to read in '.*empty'"),
        (lambda path: ParquetFiles(path / "none"), "ParquetFiles: there is no file or folder '.*none'"),
        (lambda path: ParquetFiles([]), "ParquetFiles: there are no files to read: paths is empty"),
        (lambda path: ParquetFiles([3]), "reads paths of files or folders, got 3"),
    ],
)
def test_a_reader_of_files_says_what_it_wants(tmp_path, make, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=said):
        make(tmp_path / "empty")


def source(times, pieces, **options):
    table = pa.table({"at": pa.array(times, TIMESTAMP)})
    logic = Source(Rows(table, pieces), time="at", **options)
    return logic.start(InstanceContext(Instance("s", 0), 1, (), table.schema))


def test_the_watermark_follows_the_split_that_is_furthest_behind():
    step = source([5, 6, 100, 101], pieces=2, delay=2, batch_rows=1)
    seen = []
    while not step.ended:
        step.read()
        seen.append(step.watermark)
    assert seen == [MIN_WATERMARK, 3, 98, 99]  # the end itself is told by an END


@given(st.integers(0, 6))
def test_a_source_goes_on_from_its_snapshot(reads):
    def rest(step):
        found = []
        while not step.ended:
            batch = step.read()
            found += batch["at"].cast(pa.int64()).to_pylist() if batch is not None else []
        return found

    first, again = (source(list(range(7)), pieces=2, batch_rows=1) for _ in range(2))
    for _ in range(reads):
        first.read()
    again.restore(json.loads(json.dumps(first.snapshot(1))))
    assert again.watermark == first.watermark
    assert rest(again) == rest(first)


def test_a_source_that_lacks_a_split_of_its_snapshot_is_refused():
    with pytest.raises(OptionError, match=r"to go on with split '1', and has none of that name any more"):
        source([1, 2], pieces=1).restore(source([1, 2], pieces=2).snapshot(1))


def test_rows_that_are_left_out_by_one_function_behind_another_are_all_counted():
    def without(number):
        def left(batch):
            kept = batch.filter(pc.not_equal(batch.column("x"), number))
            return kept, batch.num_rows - kept.num_rows

        return left

    table = pa.table({"x": pa.array([1, 2, 2, 3, 3, 3])})
    reader = Transformed(Transformed(Rows(table), without(2), table.schema), without(3), table.schema)
    (split,) = reader.splits(1)
    assert reader.read(split, 0, 2).batch.num_rows == 1
    assert reader.read(split, 2, 9).batch is not None
    assert (reader.refused, reader.added) == (5, -5)


class Growing(Reader):
    """Splits of these names, two rows each."""

    schema = SCHEMA

    def __init__(self, names):
        self.names = names

    def splits(self, parallelism):
        return list(self.names)

    def read(self, split, offset, rows):
        return Read(pa.record_batch({"x": [offset]}, schema=SCHEMA), offset + 1, offset + 1 >= 2)


def steps_of(names, parallelism):
    contexts = [InstanceContext(Instance("s", number), parallelism, (), SCHEMA) for number in range(parallelism)]
    return [Source(Growing(names), batch_rows=1).start(context) for context in contexts]


def went_on(states, names):
    """The instances of a job that goes on from these states, and has these splits now."""
    steps = steps_of(names, len(states))
    for step, state in zip(steps, states, strict=True):
        step.restore(json.loads(json.dumps(state)))
    return steps


def offsets_of(steps):
    return [step.snapshot(1)["offsets"] for step in steps]


def test_splits_that_come_between_others_leave_those_where_they_were():
    """As the partitions that the first of two topics gets."""
    begun = steps_of(["a:0", "a:1", "b:0"], 2)
    for step in begun:
        step.read()
    assert offsets_of(begun) == [{"a:0": 1, "b:0": 0}, {"a:1": 1}]
    steps = went_on([step.snapshot(1) for step in begun], ["a:0", "a:1", "a:2", "b:0"])
    assert offsets_of(steps) == [{"a:0": 1, "b:0": 0}, {"a:1": 1, "a:2": 0}]
    steps = went_on([step.snapshot(2) for step in steps], ["a:0", "a:1", "a:2", "a:3", "b:0", "b:1"])
    assert offsets_of(steps) == [{"a:0": 1, "b:0": 0, "a:3": 0}, {"a:1": 1, "a:2": 0, "b:1": 0}]


@given(st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_every_split_is_read_to_its_end_once_however_splits_are_added(numbers, parallelism, data):
    names = [f"t:{number}" for number in sorted(numbers)]
    there = [name for name in names if data.draw(st.booleans())]
    steps, seen = steps_of(there, parallelism), 0
    for _ in range(3):
        for step in steps:
            for _ in range(data.draw(st.integers(0, 3))):
                seen += step.read() is not None
        there = [name for name in names if name in there or data.draw(st.booleans())]
        steps = went_on([step.snapshot(1) for step in steps], there)
        sizes = [len(offsets) for offsets in offsets_of(steps)]
        assert max(sizes) - min(sizes) <= 1
    for step in steps:
        while not step.ended:
            seen += step.read() is not None
    assert seen == 2 * len(there)
    assert sorted(name for offsets in offsets_of(steps) for name in offsets) == sorted(there)


def test_a_snapshot_that_does_not_know_how_splits_were_shared_out_goes_on_as_long_as_none_has_moved():
    states = [step.snapshot(1) for step in steps_of(["a:0", "a:1", "b:0"], 2)]
    for state in states:
        del state["dealt"]
    steps = went_on(states, ["a:0", "a:1", "b:0", "b:1"])
    assert offsets_of(steps) == [{"a:0": 0, "b:0": 0}, {"a:1": 0, "b:1": 0}]
    with pytest.raises(OptionError, match=r"go on with split 'b:0', which new splits have moved to another instance"):
        went_on(states, ["a:0", "a:1", "a:2", "b:0"])


def test_a_paced_source_goes_on_at_once_where_it_was(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(generated, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 5e8 + now[0]))

    def paced():
        reader = Generated(Zipf(keys=5), rows=1000, pace=Constant(10), pieces=2, block_rows=10)
        reader.splits(1)
        return reader

    first = paced()
    assert first.read("0", 0, 100).batch is None
    now[0] += 0.35
    assert first.read("0", 0, 100).offset == 3
    assert first.read("1", 0, 100).batch is None  # its first row is row 10
    again = paced()
    assert again.read("0", 205, 100).batch is None  # row 405: the next comes in a tenth of a second
    now[0] += 0.25
    assert again.read("0", 205, 100).offset == 207
    followed = paced()  # by workers of the same run: what came while there were none is there
    followed.set_clock(first.clock())
    now[0] += 0.5
    assert followed.read("0", 3, 100).offset == 10


def parquet_step(folder, generation=0, run="r", name="out"):
    context = InstanceContext(Instance(name, 0), 1, (SCHEMA,), SCHEMA, attempt=Attempt(run, generation))
    return Parquet(str(folder)).start(context)


def batch(*values):
    return pa.record_batch({"x": list(values)}, schema=SCHEMA)


def shown(folder):
    return sorted(pq.read_table(folder, schema=SCHEMA)["x"].to_pylist())


def test_a_file_is_seen_when_its_epoch_is_committed(tmp_path):
    step = parquet_step(tmp_path)
    step.restore({})
    step.process(0, batch(1, 2))
    step.snapshot(1)
    assert shown(tmp_path) == []
    step.committed(1)
    assert shown(tmp_path) == [1, 2]


def test_after_a_failure_a_committed_epoch_is_shown_and_a_later_one_is_not(tmp_path):
    step = parquet_step(tmp_path)
    step.restore({})
    step.process(0, batch(1))
    state = step.snapshot(1)  # committed, but the step dies before it hears of it
    step.process(0, batch(2))
    step.snapshot(2)  # never committed
    again = parquet_step(tmp_path, generation=1)
    again.restore(state)
    assert shown(tmp_path) == [1]
    again.process(0, batch(2))
    again.snapshot(2)
    again.committed(2)
    assert shown(tmp_path) == [1, 2]


def staged(folder):
    return list(folder.glob("_staged*"))


def test_an_old_generation_that_still_writes_changes_no_file_of_a_newer_one(tmp_path):
    old = parquet_step(tmp_path)
    old.restore({})
    old.process(0, batch(1))
    new = parquet_step(tmp_path, generation=1)
    new.restore({})
    new.process(0, batch(1))
    new.snapshot(1)
    old.process(0, batch(-1))
    old.snapshot(1)  # taken for dead, and never committed
    new.committed(1)
    assert shown(tmp_path) == [1]
    parquet_step(tmp_path, generation=2).restore(new.snapshot(2))
    assert not staged(tmp_path)
    assert shown(tmp_path) == [1]


def test_what_a_generation_showed_without_a_snapshot_is_taken_back(tmp_path):
    """A job without a store begins anew, and one of its instances may have heard of the end before another died."""
    first = parquet_step(tmp_path)
    first.restore({})
    first.process(0, batch(1))
    first.snapshot(1)
    first.committed(1)
    parquet_step(tmp_path, generation=1).restore({})
    assert shown(tmp_path) == []


def test_what_runs_of_the_same_store_left_is_removed_though_no_snapshot_knows_of_them(tmp_path):
    """Drivers may be killed one after the other, each before the line of checkpoints has moved."""
    first = parquet_step(tmp_path, run="store.a")
    first.restore({})
    first.process(0, batch(1))
    state = first.snapshot(1)
    for name in ("store.b", "store.c", "another.d"):
        step = parquet_step(tmp_path, run=name)
        step.restore(state if name.startswith("store") else {})
        step.process(0, batch(2))
        step.snapshot(2)
    (tmp_path / "._staged-epoch-000003-part-0000-out-store.c-0.parquet.4f").touch()  # killed in the middle of it
    parquet_step(tmp_path, run="store.e").restore(state)
    assert not list(tmp_path.glob(".*"))
    assert [file.name for file in staged(tmp_path)] == ["_staged-epoch-000002-part-0000-out-another.d-0.parquet"]
    assert shown(tmp_path) == [1]


def test_other_runs_and_other_sinks_may_write_into_the_same_folder(tmp_path):
    steps = [parquet_step(tmp_path, run="r"), parquet_step(tmp_path, run="s"), parquet_step(tmp_path, name="in [it]*")]
    for number, step in enumerate(steps):
        step.restore({})
        step.process(0, batch(number))
        step.snapshot(1)
    for step in steps:
        step.committed(1)
    parquet_step(tmp_path, run="t").restore({})
    assert shown(tmp_path) == [0, 1, 2]


def test_a_file_is_forced_to_disk_before_its_epoch_can_be_committed(tmp_path, monkeypatch):
    """What is staged is a whole file, and the folder knows its name, when the snapshot is taken."""
    forced = []

    def fsync(number):
        forced.append(os.readlink(f"/proc/self/fd/{number}"))

    monkeypatch.setattr(os, "fsync", fsync)
    step = parquet_step(tmp_path)
    step.restore({})
    step.process(0, batch(1))
    state = step.snapshot(1)
    ((name, _, _),) = state["staged"]
    assert [Path(path).name.startswith(f"._staged-{name}") for path in forced] == [True, False]
    assert forced[-1] == str(tmp_path)
    step.committed(1)
    assert forced[2:] == [str(tmp_path)]


def test_files_go_through_a_dataflow_into_files(tmp_path):
    pq.write_table(pa.table({"x": np.arange(100)}), tmp_path / "in.parquet", row_group_size=30)
    flow = Flow(parallelism=2)
    read = flow.source(ParquetFiles((str(tmp_path / "in.parquet"),)))
    read.shuffle().sink(Parquet(str(tmp_path / "out")))
    read.sink(Memory(), name="memory")
    results = run(flow.dataflow())
    assert shown(tmp_path / "out") == list(range(100))
    assert results.table("memory").num_rows == 100
    with pytest.raises(OptionError, match="unknown sink 'memry': did you mean 'memory'"):
        results.table("memry")


def test_a_file_that_was_read_to_its_end_may_be_gone_at_the_next_start(tmp_path):
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    for path in paths:
        pq.write_table(pa.table({"n": [1, 2, 3]}), path)
    flow = Flow("files")
    flow.source(ParquetFiles(paths)).sink(Memory(), name="out")
    settings = JobSettings(store=str(tmp_path / "store"), restarts=0)
    assert run(flow.dataflow(), settings=settings).table("out").num_rows == 6
    reader = ParquetFiles(paths)
    os.remove(paths[1])  # of the first one the columns are read
    flow = Flow("files")
    flow.source(reader).sink(Memory(), name="out")
    assert run(flow.dataflow(), settings=settings).outcome.restarts == 0
