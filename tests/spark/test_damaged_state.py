"""A checkpoint with any file damaged gives the right answer, or is refused in one sentence that names the file."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import steelyard as sy
from steelyard.core import StateError
from steelyard.core.durable import opened, sealed
from steelyard.resident.manifest import Manifest
from steelyard.similarity import ImbalanceAbove
from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.files import Folder
from steelyard.spark.join_state import JoinFolder, write_segment
from steelyard.spark.resident_start import Notes
from steelyard.spark.spark_log import SparkLog
from steelyard.spark.state import StateFolder
from tests.damages import DAMAGES, damaged, files_of, kind_of, olders

pytestmark = pytest.mark.spark
ROWS, MICROS = 60, 1_000_000
FIRST, LATER = range(4), range(4, 6)
"""Files that are read before the checkpoint is kept, and after it."""


class StopError(Exception):
    """Ends a query before the commit of a batch."""


@dataclass
class Kept:
    """A checkpoint of a query that read some files, with later ones waiting; and how to go on from it.

    `ended` is a copy after a batch was done, `pending` one with a batch whose results are written and not committed.
    """

    root: Path
    start: Callable[[int | None], sy.Query]
    state: Callable[[], CheckpointFolder]
    first: tuple[dict[str, Any], ...] = ()
    signature: dict[str, Any] = field(default_factory=dict)
    right: list[dict] = field(default_factory=list)
    forced: set[str] = field(default_factory=set)
    """Files and folders that were forced to disk before the newest commit of the last run appeared."""
    loose: set[str] = field(default_factory=set)
    """Those that were not."""

    @property
    def checkpoint(self) -> Path:
        return self.root / "now" / "checkpoint"

    def bring(self, which: str) -> None:
        shutil.rmtree(self.root / "now", ignore_errors=True)
        shutil.copytree(self.root / which, self.root / "now")

    def keep(self, which: str) -> None:
        shutil.copytree(self.root / "now", self.root / which)

    def results(self) -> list[dict]:
        found = pq.read_table(self.root / "now" / "out").to_pylist()
        shown = [{name: value for name, value in row.items() if name not in ("batch_id", "latency")} for row in found]
        return sorted(shown, key=lambda row: [str(value) for value in row.values()])

    def latest(self) -> Any:
        """What a start reads before a batch."""
        state = self.state()
        commit = state.latest(self.signature, *self.first)  # type: ignore[attr-defined]
        state.require_spark()
        return commit

    def run(self) -> None:
        self.start(None).await_termination()

    def outcome(self) -> str:
        """What comes of a restart; RIGHT, or who says what is wrong."""
        try:
            self.run()
        except StateError:
            return "refused"
        except Exception:  # noqa: BLE001 - Spark says it
            return "Spark's error"
        return "right" if self.results() == self.right else "WRONG"


def made(kept: Kept, put: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, commits: type) -> Kept:
    """Run the query as far as both copies need."""
    original = commits.commit

    def told(self: Any, commit: Any) -> None:
        if commit.batch >= len(FIRST):
            raise StopError("before the commit")
        original(self, commit)

    def noted(self: CheckpointFolder, signature: dict[str, Any], *first: Any) -> Any:
        kept.signature = signature
        return opened_state(self, signature, *first)

    opened_state = CheckpointFolder.open
    monkeypatch.setattr(CheckpointFolder, "open", noted)
    for number in FIRST:
        put(number)
    kept.start(1).await_termination()
    kept.keep("ended")
    for number in LATER:
        put(number)
    with monkeypatch.context() as stopping:
        stopping.setattr(commits, "commit", told)
        with pytest.raises(Exception, match="before the commit"):
            kept.start(None).await_termination()
    kept.keep("pending")
    kept.run()
    kept.right = kept.results()
    kept.bring("ended")
    with monkeypatch.context() as noting:
        note_forced(kept, noting)
        kept.run()
    assert kept.results() == kept.right
    return kept


def note_forced(kept: Kept, patch: pytest.MonkeyPatch) -> None:
    """Let the kept query note what is forced to disk before each commit appears."""
    fsync, replaced, numbers = os.fsync, os.replace, set()

    def noted(number: int) -> None:
        numbers.add(os.fstat(number).st_ino)
        fsync(number)

    def commits(aside: Path, path: Path) -> None:
        if path.parent.name == "commits" and path.suffix == ".json":
            there = {str(one.relative_to(kept.root)): one.stat().st_ino for one in (kept.root / "now").rglob("*")}
            kept.forced = {name for name, number in there.items() if number in numbers}
            kept.loose = set(there) - kept.forced
        replaced(aside, path)

    patch.setattr(os, "fsync", noted)
    patch.setattr(os, "replace", commits)


def table_of(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    times = (1000 + 4 * number) * MICROS + np.sort(rng.integers(0, 4 * MICROS, ROWS))
    angles = rng.choice([0.2, 1.0, 3.0], ROWS, p=[0.7, 0.2, 0.1]) + rng.normal(0, 0.05, ROWS)
    return pa.table(
        {
            "key": rng.integers(0, 5, ROWS),
            "value": rng.integers(0, 9, ROWS),
            "id": number * ROWS + np.arange(ROWS),
            "vector": np.column_stack([np.cos(angles), np.sin(angles)]).tolist(),
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def putter(folder: Path) -> Callable[[int], None]:
    folder.mkdir()

    def put(number: int) -> None:
        file = folder / f"{number}.parquet"
        pq.write_table(table_of(number), file)
        os.utime(file, (number + 1, number + 1))  # Spark takes files in the order of their times

    return put


def rows_of(spark: Any, folder: Path, per_batch: int | None) -> Any:
    rows = spark.readStream.schema("key long, value long, id long, vector array<double>, at timestamp")
    return (rows.option("maxFilesPerTrigger", per_batch) if per_batch else rows).parquet(str(folder))


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def windows(spark, tmp_path_factory, patched):
    """Sliding windows that are made from the one before, with a policy that learns."""
    root = tmp_path_factory.mktemp("windows")
    put = putter(root / "in")

    def start(per_batch):
        return (
            sy.stream(rows_of(spark, root / "in", per_batch))
            .with_watermark("at", "1 second")
            .group_by("key")
            .window("8 seconds", slide="1 second")
            .agg(rows=sy.count(), total=sy.sum("value"))
            .partition_by("dalton", blocks=2, buckets=2)
            .sink("parquet", path=str(root / "now" / "out"))
            .checkpoint(str(root / "now" / "checkpoint"))
            .trigger(available_now=True)
            .start()
        )

    kept = Kept(root, start, lambda: StateFolder(spark, str(root / "now" / "checkpoint")), ({},))
    return made(kept, put, patched, StateFolder)


@pytest.fixture(scope="module")
def join(spark, tmp_path_factory, patched):
    """A self-join over sliding windows whose worksets move."""
    root = tmp_path_factory.mktemp("join")
    put = putter(root / "in")

    def start(per_batch):
        rows = rows_of(spark, root / "in", per_batch)
        named = {"on": "vector", "id": "id", "time": "at"}
        spans = {"window": "8 seconds", "slide": "4 seconds", "watermark": "1 second"}
        return (
            sy.similarity_join(rows, **named, **spans, threshold=0.01, workers=2)
            .balance(ImbalanceAbove(0.0), split=True)
            .sink("parquet", path=str(root / "now" / "out"))
            .checkpoint(str(root / "now" / "checkpoint"))
            .trigger(available_now=True)
            .start()
        )

    kept = Kept(root, start, lambda: JoinFolder(spark, str(root / "now" / "checkpoint")))
    return made(kept, put, patched, JoinFolder)


Passed = dict[str, list[Path]]
"""By damage: files that are not refused when they are damaged."""


def passed(kept: Kept, which: str) -> Passed:
    """Damage every file in turn, and look at the state as a start does."""
    kept.bring(which)
    whole, older = kept.latest(), olders(kept.checkpoint)
    found: Passed = {how: [] for how in DAMAGES}
    for file in files_of(kept.checkpoint):
        for how in DAMAGES:
            with damaged(file, how, older[file]) as is_other:
                if not is_other:
                    continue
                try:
                    assert kept.latest() == whole, (file, how)
                    found[how].append(file)
                except StateError as error:
                    said = str(error)
                    assert str(file) in said, (file, how, said)
                    assert "\n" not in said
    return found


def spared(kept: Kept, which: str, found: Passed) -> None:
    """What is not refused leads to the right answer."""
    for how, files in found.items():
        hit(kept, which, files, how)
        assert kept.outcome() == "right", (which, how)


def hit(kept: Kept, which: str, files: list[Path], how: str) -> None:
    kept.bring(which)
    older = olders(kept.checkpoint)
    for file in files:
        DAMAGES[how](file, older[file])


@pytest.mark.parametrize("which", ["ended", "pending"])
def test_a_damaged_file_of_windows_is_refused_or_changes_nothing(windows, which):
    found = passed(windows, which)
    kinds = {kind_of(file, windows.root / "now" / "checkpoint") for file in found["flip"]}
    assert any(kind.startswith("steelyard/policy/") for kind in kinds), "policies' memory is no part of the answers"
    spared(windows, which, found)


def test_a_damaged_file_of_a_join_is_refused_or_changes_nothing(join):
    found = passed(join, "pending")
    kinds = {kind_of(file, join.checkpoint) for file in files_of(join.checkpoint)}
    assert {"steelyard/geometry", "steelyard/records", "steelyard/moves"} <= {
        kind.rpartition("/N/")[0] for kind in kinds
    }
    spared(join, "pending", found)


@pytest.mark.parametrize("gone", ["steelyard/commits", "steelyard", "spark", "spark/offsets", "spark/sources"])
def test_a_folder_that_is_gone_is_refused_before_a_row_is_read(windows, gone):
    windows.bring("ended")
    shutil.rmtree(windows.checkpoint / gone)
    with pytest.raises(StateError, match="is missing"):
        windows.start(None)


def test_without_its_program_a_checkpoint_takes_no_other(windows):
    windows.bring("ended")
    (windows.checkpoint / "steelyard" / "program.json").unlink()
    windows.signature, before = {"another": "program"}, windows.signature
    with pytest.raises(StateError, match=r"program\.json of the query's program is missing"):
        windows.latest()
    windows.signature = before


def test_the_program_of_another_checkpoint_is_refused(windows):
    windows.bring("ended")
    program = windows.checkpoint / "steelyard" / "program.json"
    body, _ = opened(program.read_text(), program, "")
    program.write_text(sealed({**body, "identity": "0" * 32}))
    with pytest.raises(StateError, match=r"program\.json is not what the commits were made with"):
        windows.latest()


@pytest.mark.parametrize("name", ["../12-ab", "/etc", "file:/etc", "a//b", "."])
def test_a_name_in_a_commit_does_not_leave_its_folder(windows, name):
    windows.bring("ended")
    newest = sorted((windows.checkpoint / "steelyard" / "commits").glob("*.json"))[-1]
    body, _ = opened(newest.read_text(), newest, "")
    body["state"]["log"][0]["name"] = name
    newest.write_text(sealed(body))
    with pytest.raises(StateError, match=f"commits/{newest.name} names '{name}', which is not below its folder"):
        windows.latest()


def test_a_part_that_no_commit_names_is_refused(windows):
    windows.bring("ended")
    # what tasks wrote is read as a folder; what the driver wrote, by its name
    newest = sorted((windows.checkpoint / "steelyard").glob("*/*/part-*"), key=lambda file: file.stat().st_mtime)
    shutil.copy(newest[-1], newest[-1].with_name("part-9.parquet"))
    with pytest.raises(StateError, match=r"part-9\.parquet of batch 3 is in no commit: remove it"):
        windows.latest()


def test_results_without_their_mark_are_refused(windows):
    windows.bring("ended")
    (mark,) = (windows.root / "now" / "out").glob("_steelyard-*")
    mark.unlink()
    with pytest.raises(StateError, match=f"{mark.name} is missing, and batch_id="):
        windows.start(None)
    mark.touch()
    assert windows.outcome() == "right"


def test_all_that_a_commit_needs_is_on_disk_before_it(windows):
    """So that a power cut leaves the newest commit with what it names, or the one before it."""
    checkpoint, out = "now/checkpoint", "now/out"
    for folder in (f"{checkpoint}/steelyard/log", f"{checkpoint}/steelyard/running", out):
        (new,) = (name for name in windows.forced if re.fullmatch(rf"{folder}/(4-\w+|batch_id=4)", name))
        assert folder in windows.forced, "where its name is"
        assert any(name.startswith(f"{new}/part-") for name in windows.forced)
        assert any(name.startswith(f"{new}/.part-") for name in windows.forced), "Hadoop's sums"
        assert not [name for name in windows.loose if name.startswith(f"{new}/") and "_SUCCESS" not in name]
    of_spark = {
        f"{checkpoint}/spark/{name}" for name in ("offsets/4", "offsets", "sources/0/4", "sources/0", "commits/3")
    }
    assert of_spark <= windows.forced
    assert any(name.startswith(f"{checkpoint}/steelyard/commits/.0") for name in windows.forced), "its own text"


def test_an_empty_note_of_spark_that_a_batch_is_done_is_told_and_can_be_removed(windows):
    windows.bring("ended")
    whole, note = windows.latest(), windows.checkpoint / "spark" / "commits" / "3"
    note.write_text("")
    with pytest.raises(
        StateError, match=r"commits/3 of batch 3 does not fit its checksum in .*: remove it and .3.crc beside"
    ):
        windows.latest()
    note.unlink()
    with pytest.raises(
        StateError, match=r"commits/3 of batch 3 is missing, .*: remove .3.crc beside it, and Spark does"
    ):
        windows.latest()
    (note.parent / ".3.crc").unlink()
    assert windows.latest() == whole


def test_a_file_of_a_join_is_on_disk_before_a_task_tells_of_it(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda number: forced.append(os.readlink(f"/proc/self/fd/{number}")))
    made = write_segment(str(tmp_path), "records/3-ab/2", 3, pa.table({"a": [1, 2]}))
    folder = tmp_path / "records" / "3-ab"
    assert forced[:2] == [str(tmp_path), str(tmp_path / "records")]
    assert Path(forced[2]).parent == folder
    assert forced[3:] == [str(folder)]
    assert (tmp_path / made.name).stat().st_size == made.size


def test_damaged_memory_of_policies_is_told_and_they_begin_anew(windows, caplog):
    windows.bring("ended")
    newest = max((windows.checkpoint / "steelyard" / "policy").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    DAMAGES["flip"](newest, None)
    query = windows.start(None)
    assert f"policies begin anew, since what they had learnt cannot be read: the state in {newest}" in caplog.text
    query.await_termination()


def test_a_batch_that_does_not_follow_the_newest_commit_is_refused(spark, windows):
    windows.bring("ended")
    query = windows.start(None)
    query.await_termination()
    engine = query._engine
    with pytest.raises(StateError, match="is of batch 4, and Spark goes on with batch 6"):
        engine.process(spark.range(0), 6)


def test_a_checkpoint_of_a_resident_query_keeps_its_identity_and_one_begun_anew_has_another(tmp_path):
    first = Notes(tmp_path / "a", {})
    first.write()
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    assert {Notes(tmp_path / name, {}).identity for name in ("a", "moved")} == {first.identity}
    shutil.rmtree(tmp_path / "a")
    assert Notes(tmp_path / "a", {}).identity != first.identity


def test_a_checkpoint_of_an_earlier_release_goes_on_under_the_name_that_was_made_of_its_path(tmp_path):
    checkpoint, file = tmp_path / "a", tmp_path / "a" / "resident.json"
    Notes(checkpoint, {}).write()
    body, _ = opened(file.read_bytes(), file, "it")
    del body["identity"]
    file.write_text(sealed(body))
    again = Notes(checkpoint, {})
    assert again.identity == hashlib.sha256(str(checkpoint).encode()).hexdigest()[:16]
    again.write()
    shutil.copytree(checkpoint, tmp_path / "moved")
    assert Notes(tmp_path / "moved", {}).identity == again.identity


def test_damaged_notes_of_a_resident_query_are_refused(tmp_path):
    first = Notes(tmp_path, {"keys": "a"})
    first.known["files"] = ["1"]
    first.write()
    file = tmp_path / "resident.json"
    before = file.read_bytes()
    again = Notes(tmp_path, {"keys": "a"})
    again.known["files"].append("2")
    seal = again.write()
    again.store.commit(Manifest(1, "a-0", {}, {}, seal))
    assert Notes(tmp_path, {"keys": "a"}).known == {"files": ["1", "2"]}
    Notes(tmp_path, {"keys": "a"}).write()  # a start that takes no snapshot
    assert Notes(tmp_path, {"keys": "a"}).known == {"files": ["1", "2"]}
    for how in ("delete", "truncate", "flip"):
        with damaged(file, how, None), pytest.raises(StateError, match=r"resident\.json of the query's program is"):
            Notes(tmp_path, {"keys": "b"})
    now = file.read_bytes()
    file.write_bytes(before)
    with pytest.raises(StateError, match=r"resident\.json .* not what the newest snapshot was taken with"):
        Notes(tmp_path, {"keys": "a"})
    file.write_bytes(now)
    shutil.rmtree(tmp_path / "snapshots")
    with pytest.raises(StateError, match=r"head\.json of the newest epoch is missing"):
        Notes(tmp_path, {"keys": "a"})


def test_the_logs_of_all_sources_are_described_where_one_is_read_twice(spark, tmp_path):
    """Spark then writes three lines of offsets a batch, and two logs: `b` has the second log and the third line."""
    for name, files in (("a", 1), ("b", 12)):
        put = putter(tmp_path / name)
        for number in range(files):
            put(number)
    a, b = (rows_of(spark, tmp_path / name, 1) for name in "ab")
    rows = a.union(a).union(b).writeStream.format("noop").trigger(availableNow=True)
    rows.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert (tmp_path / "c" / "offsets" / "11").read_text().splitlines()[2:] == ['{"logOffset":0}'] * 2 + [
        '{"logOffset":11}'
    ]
    log = SparkLog(Folder(spark, str(tmp_path / "c")))
    described = log.describe(11, ())
    assert [one.name for one in described] == [
        "offsets/11",
        "sources/0/0",
        "sources/1/9.compact",
        "sources/1/10",
        "sources/1/11",
    ]
    assert [one.name for one in log.describe(11, described)] == [
        *(one.name for one in described[1:]),
        "offsets/11",
    ]
    for name in ("sources/0/0", "sources/1/9.compact", "sources/1/11"):
        with damaged(tmp_path / "c" / name, "flip", None), pytest.raises(StateError, match=f"{name} of batch 11"):
            log.require(11, described)


def test_files_of_other_file_systems_are_read_and_checked_through_hadoop(spark, tmp_path):
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./state", f"file://{tmp_path}")
    folder = Folder(spark, "viewfs:///state/a").inside("b")
    assert folder.names() == []
    folder.make()
    file = folder.write_once("c", "some text")
    assert folder.describe(["c"]) == (file,)
    assert folder.read("c", "batch 1") == "some text"
    folder.require([file], "batch 1")
    folder.rename("c", "d")
    assert (folder.exists("c"), folder.names(), (tmp_path / "a" / "b" / "d").read_text()) == (False, ["d"], "some text")
    for missing in (lambda: folder.read("c", "batch 1"), lambda: folder.require([file], "batch 1")):
        with pytest.raises(StateError, match="viewfs:///state/a/b/c of batch 1 is missing"):
            missing()
    folder.write_once("c", "some tixt")
    with pytest.raises(StateError, match="is not what was written"):
        folder.require([file], "batch 1")
    folder.delete("c")
    assert folder.names() == ["d"]
