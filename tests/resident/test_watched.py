"""A folder that is watched gives every row of every file once, whatever comes, goes, or begins anew."""

import json
import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core import OptionError, StateError
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory
from steelyard.resident.coordinator import Settings as JobSettings
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.watched import SPLIT, FileLog, WatchedFolder
from tests.damages import DAMAGES

SCHEMA = pa.schema({"x": pa.int64()})


def put(folder, name, rows, format="parquet"):
    """A file that appears whole; files of later calls are younger."""
    aside, file = folder / f".{name}", folder / f"{name}.{format}"
    if format == "parquet":
        pq.write_table(pa.table({"x": pa.array(rows, pa.int64())}), aside, row_group_size=3)
    else:
        aside.write_text("".join(json.dumps({"x": row}) + "\n" for row in rows))
    made = put.made = getattr(put, "made", 0) + 1
    os.utime(aside, (made, made))
    aside.rename(file)
    return file


def values(batch, format):
    if batch is None:
        return []
    given = batch.column(0).to_pylist()
    return given if format == "parquet" else [json.loads(line)["x"] for line in given]


def watched(folder, format="parquet", **more):
    return WatchedFolder(str(folder / "in"), str(folder / "log"), format, SCHEMA, **more)


def looking_at_once(monkeypatch):
    monkeypatch.setattr("steelyard.resident.watched.LOOK_SECONDS", 0.0)


@settings(deadline=None, max_examples=60)
@given(format=st.sampled_from(["parquet", "json"]), data=st.data())
def test_every_row_is_given_once_and_in_order_whatever_comes_goes_or_begins_anew(tmp_path_factory, format, data):
    folder = tmp_path_factory.mktemp("watched")
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        looking_at_once(patched)
        reader, offset, found, expected = watched(folder, format), 0, [], []
        files = {}
        for step in range(data.draw(st.integers(1, 12))):
            does = data.draw(st.sampled_from(["file", "read", "read", "anew", "again", "remove"]))
            if does == "file":
                rows = list(range(100 * step, 100 * step + data.draw(st.integers(0, 8))))
                expected += rows
                # names that are not in the order of times
                files[put(folder / "in", f"{data.draw(st.integers(0, 9))}-{step}", rows, format)] = len(expected)
            elif does == "read":
                batch, offset, ended = reader.read(SPLIT, offset, data.draw(st.integers(1, 5)))
                assert not ended
                found += values(batch, format)
            elif does == "anew":  # the next generation of workers, from the last snapshot
                reader.close()
                reader = reader.fresh()
            elif does == "again":  # an older one, which still reads, changes nothing
                watched(folder, format).read(SPLIT, 0, 1)
            else:  # what was read to its end is nobody's any more
                for file in [file for file, upto in files.items() if upto <= len(found) and upto > 0]:
                    if expected[: files[file]] == found[: files[file]] and _was_read(reader, offset, file):
                        file.unlink()
                        del files[file]
            assert found == expected[: len(found)]
        idle = 0
        while idle < 3:
            batch, after, _ = reader.read(SPLIT, offset, 4)
            idle = idle + 1 if after == offset else 0
            found, offset = found + values(batch, format), after
        assert found == expected


def _was_read(reader, offset, file):
    """Whether the reader is behind a file, which may have no rows."""
    log = FileLog(reader.log)
    log.follow()
    return str(file) in log.files[: offset >> 36]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_rows_that_came_and_rows_that_are_read_are_counted_beside_the_reader(tmp_path_factory, data):
    """Against all rows that were put there, from the file on that was read at the first look; files go when read."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        looking_at_once(patched)
        patched.setattr("steelyard.resident.watched.LOOKING", 0)
        most = data.draw(st.integers(1, 3))
        patched.setattr("steelyard.resident.watched.MOST_COUNTED", most)
        reader, offset, came, taken, before, files = watched(folder), 0, 0, 0, None, {}
        assert reader.tells_end
        assert not watched(folder, "json").tells_end
        for step in range(data.draw(st.integers(1, 12))):
            does = data.draw(st.sampled_from(["file", "read", "read", "look", "anew", "remove"]))
            if does == "file":
                rows = data.draw(st.integers(0, 8))
                came += rows
                files[put(folder / "in", f"{step}", range(rows))] = came
            elif does == "read":
                batch, offset, _ = reader.read(SPLIT, offset, data.draw(st.integers(1, 5)))
                taken += batch.num_rows if batch is not None else 0
            elif does == "anew":
                reader, before = reader.fresh(), None
            elif does == "remove":
                for file in [file for file in files if _was_read(reader, offset, file)]:
                    file.unlink()
                    del files[file]
            else:
                told = None
                for _ in range(len(list((folder / "in").iterdir())) // most + 2):
                    told = told or reader.counted(SPLIT, offset, False)
                end, read = told
                assert end - read == came - taken
                before = taken - read if before is None else before
                assert (end, read) == (came - before, taken - before)


def rest(reader, offset):
    """What is read until nothing comes, and the offset behind it."""
    found = []
    while (read := reader.read(SPLIT, offset, 10)).batch is not None:
        found, offset = found + values(read.batch, "parquet"), read.offset
    return found, read


def test_a_reader_that_ends_does_so_behind_what_is_there_and_another_goes_on(tmp_path, monkeypatch):
    looking_at_once(monkeypatch)
    (tmp_path / "in").mkdir()
    put(tmp_path / "in", "a", [1, 2])
    put(tmp_path / "in", "b", [3])
    found, end = rest(watched(tmp_path, ends=True), 0)
    assert (found, end.ended) == ([1, 2, 3], True)
    put(tmp_path / "in", "c", [4])
    found, end = rest(watched(tmp_path), end.offset)
    assert (found, end.ended) == ([4], False)


def test_hidden_files_are_left_out_and_sub_folders_are_read_where_that_is_wanted(tmp_path, monkeypatch):
    looking_at_once(monkeypatch)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "_temporary").mkdir()
    for place, name in ((".", "a"), (".", "_b"), ("sub", "c"), ("_temporary", "d")):
        put(tmp_path / "in" / place, name, [ord(name[-1])])
    (tmp_path / "in" / "empty.parquet").touch()
    for recursive, expected in ((False, {"a"}), (True, {"a", "c"})):
        reader = WatchedFolder(str(tmp_path / "in"), str(tmp_path / f"log{recursive}"), "parquet", SCHEMA, recursive)
        assert {Path(path).stem for path in reader._listed()} == expected
    (tmp_path / "in" / "k=1").mkdir()
    with pytest.raises(OptionError, match=r"folders that stand for columns, such as .*k=1"):
        watched(tmp_path).read(SPLIT, 0, 1)


def test_a_file_that_is_gone_before_it_was_read_or_is_not_whole_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    file = put(tmp_path / "in", "a", list(range(9)))
    offset = watched(tmp_path).read(SPLIT, 0, 2).offset
    file.unlink()
    with pytest.raises(OptionError, match=r"a.parquet was found in .* gone before it was read: put it back"):
        watched(tmp_path).read(SPLIT, offset, 2)
    file.write_bytes(b"PAR1 half of it")
    with pytest.raises(OptionError, match=r"a.parquet cannot be read as parquet.*move it there"):
        watched(tmp_path).read(SPLIT, offset, 2)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_of_files_is_noticed(tmp_path, monkeypatch, damage):
    looking_at_once(monkeypatch)
    (tmp_path / "in").mkdir()
    reader, offset = watched(tmp_path), 0
    for name in "abc":
        put(tmp_path / "in", name, [1])
        offset = reader.read(SPLIT, offset, 5).offset
    entries = sorted((tmp_path / "log").glob("*.json"))
    assert len(entries) == 3
    FileLog(str(tmp_path / "log")).check()
    DAMAGES[damage](entries[1], entries[0])
    with pytest.raises(StateError, match=entries[1].name):
        FileLog(str(tmp_path / "log")).check()
    with pytest.raises(StateError, match=entries[1].name):
        watched(tmp_path).read(SPLIT, offset, 5)


def test_a_job_that_is_stopped_goes_on_with_files_that_came_and_without_those_that_went(tmp_path):
    (tmp_path / "in").mkdir()
    given = []

    def dataflow():
        flow = Flow("watched", parallelism=2)
        read = flow.source(watched(tmp_path))
        counted = read.key_by("x").aggregate(n=count(), emit="epochs", parallelism=2)
        counted.sink(Memory(), name="out")
        return flow.dataflow()

    def deliver(epoch, results):
        given.extend(row for batch in results.get("out", ()) for row in batch.to_pylist())

    def newest():
        return {row["x"]: row["n"] for row in list(given)}

    for life in range(3):
        how = JobSettings(store=str(tmp_path / "store"), interval=0.05, deliver=deliver)
        made = dataflow()
        job = Job(made, Placement.spread(made, 2), ThreadLauncher(), how)
        runs = threading.Thread(target=job.run)
        runs.start()
        for more in range(2):
            put(tmp_path / "in", f"{life}-{more}", [more, 7, 7])
            deadline = time.monotonic() + 60
            while newest().get(7) != 2 * (2 * life + more + 1):
                assert time.monotonic() < deadline, newest()
                time.sleep(0.02)
        job.stop()
        runs.join(60)
        assert not runs.is_alive()
        for file in (tmp_path / "in").glob("*.parquet"):
            file.unlink()
    assert newest() == {0: 3, 1: 3, 7: 12}
