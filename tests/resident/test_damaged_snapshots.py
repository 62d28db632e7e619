"""Snapshots with any file damaged give the right answer, or are refused in one sentence that names the file."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard import count, sum
from steelyard.core import StateError
from steelyard.core.durable import opened, sealed
from steelyard.core.topology import Instance
from steelyard.resident import Flow, Parquet, Rows, Settings, run
from steelyard.resident.jobs import Job
from steelyard.resident.manifest import Manifest
from steelyard.resident.operator import ALONE
from steelyard.resident.sinks import _ParquetStep
from steelyard.resident.snapshot import SnapshotStore
from steelyard.workloads.workload import TIMESTAMP
from tests.damages import DAMAGES, damaged, files_of, olders

SECOND, ROWS = 1_000_000, 4000


@dataclass(frozen=True)
class Interrupted(Rows):
    """Takes a moment for each read, and fails at the first one behind some snapshots, as a driver that is killed."""

    folder: Path | None = None

    def read(self, split, offset, rows):
        if self.folder is not None:
            time.sleep(0.004)
            if (SnapshotStore(self.folder / "store").latest() or 0) > 3 and list(self.folder.glob("out/_staged*")):
                raise RuntimeError("killed")
        return super().read(split, offset, rows)


def dataflow(folder, killed=False):
    table = pa.table(
        {
            "key": [f"k{n % 7}" for n in range(ROWS)],
            "value": list(range(ROWS)),
            "at": pa.array([n * SECOND // 50 for n in range(ROWS)], TIMESTAMP),
        }
    )
    flow = Flow(parallelism=2)
    reader = Interrupted(table, pieces=2, folder=folder if killed else None)
    rows = flow.source(reader, time="at", delay="1 second", batch_rows=20 if killed else 1000, name="read")
    keyed = rows.key_by("key", grouping="pk2")
    made = keyed.aggregate(n=count(), total=sum("value"), window="4 seconds", slide="2 seconds")
    made.sink(Parquet(str(folder / "out")), name="out")
    return flow.dataflow()


def settings(folder, restarts=0):
    return Settings(store=str(folder / "store"), interval=0.02, heartbeat=0.05, restarts=restarts)


def results(folder):
    return sorted(map(str, pq.read_table(folder / "out").to_pylist()))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store and results of a job that ended by force, with files that are staged and not yet shown."""
    root = tmp_path_factory.mktemp("resident")
    now = root / "now"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ParquetStep, "committed", lambda self, number: None)
        with pytest.raises(Exception, match="killed"):
            run(dataflow(now, killed=True), settings=settings(now))
    shutil.copytree(now, root / "kept")
    calm = root / "calm"
    run(dataflow(calm))
    run(dataflow(now), settings=settings(now))
    assert results(now) == results(calm)
    return root


def test_a_damaged_file_of_a_store_is_refused_or_changes_nothing(kept):
    now, wanted = kept / "now", results(kept / "calm")
    bring(kept)
    store = SnapshotStore(now / "store")
    whole, older = store.checked(), olders(now / "store")
    spared = {how: [] for how in DAMAGES}
    for file in files_of(now / "store"):
        for how in DAMAGES:
            with damaged(file, how, older[file]) as is_other:
                said = refusal(store, whole) if is_other else str(file)
            if not said:
                spared[how].append(file)
            assert not said or str(file) in said, (file, how, said)
    named = {now / "store" / file.name for file in whole.files.values()}
    assert not named & {file for files in spared.values() for file in files}
    for how, files in spared.items():  # of the snapshot before, which nobody needs
        bring(kept)
        for file in files:
            DAMAGES[how](file, older[file])
        run(dataflow(now), settings=settings(now))
        assert results(now) == wanted, how


def refusal(store, whole):
    """What is said against a store; nothing where it gives what it gave as a whole."""
    try:
        assert store.checked() == whole
    except StateError as error:
        return str(error)
    return ""


def bring(kept):
    shutil.rmtree(kept / "now", ignore_errors=True)
    shutil.copytree(kept / "kept", kept / "now")


@pytest.mark.parametrize("how", ["delete", "truncate", "flip"])
def test_a_damaged_result_that_was_not_shown_yet_is_refused(kept, how):
    bring(kept)
    now = kept / "now"
    store = SnapshotStore(now / "store")
    state = [store.load(file) for name, file in store.checked().files.items() if name.startswith("out#")]
    name = next(one[0] for sink in state for one in sink["step staged"])
    staged = now / "out" / f"_staged-{name}"
    DAMAGES[how](staged, None)
    with pytest.raises(StateError, match=f"the state in {staged} of the newest epoch"):
        run(dataflow(now), settings=settings(now, restarts=3))


def test_a_store_without_its_newest_commits_is_refused(kept):
    bring(kept)
    store = SnapshotStore(kept / "now" / "store")
    epoch = store.latest()
    for commit in store.path.glob("commit-*"):
        commit.unlink()
    with pytest.raises(StateError, match=f"commit-{epoch:08d}.json of epoch {epoch} is missing: bring it back"):
        run(dataflow(kept / "now"), settings=settings(kept / "now"))


def test_a_commit_is_found_that_its_head_does_not_know_yet_and_is_missed_after_the_next_start(kept, monkeypatch):
    """As after a driver that ended between the two."""
    bring(kept)
    store = SnapshotStore(kept / "now" / "store")
    body, _ = opened(store.head.read_bytes(), store.head, "")
    whole = store.checked()
    store.head.write_text(sealed({"epoch": body["epoch"] - 1, "commit": whole.before.seal}))
    assert store.checked() == whole

    def killed(*args):
        raise RuntimeError("killed before it begins")

    monkeypatch.setattr(Job, "_generation", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(dataflow(kept / "now"), settings=settings(kept / "now"))
    assert store.checked() == whole
    (store.path / f"commit-{whole.epoch:08d}.json").unlink()
    with pytest.raises(StateError, match=f"commit-{whole.epoch:08d}.json of epoch {whole.epoch} is missing"):
        store.checked()


def store_of(folder, epochs, who):
    store = SnapshotStore(folder)
    for epoch in range(1, epochs + 1):
        state = store.write(epoch, Instance("a", 0), {"who": who}, ALONE)
        store.commit(Manifest(epoch, who, {"operators": {}, "edges": []}, {"a#0": state}))
    return store


def test_a_commit_of_another_store_is_refused_also_where_it_is_newer(tmp_path):
    store = store_of(tmp_path / "one", 5, "one")
    for epoch in (6, 9):
        other = store_of(tmp_path / f"other {epoch}", epoch, "other")
        for name in (f"commit-{epoch:08d}.json", f"epoch-{epoch:08d}"):
            (other.path / name).rename(store.path / name)
        with pytest.raises(StateError, match=f"{epoch:08d}.json of epoch {epoch} does not follow epoch 5, which head"):
            store.checked()
        (store.path / f"commit-{epoch:08d}.json").unlink()
    assert store.checked().epoch == 5


def test_a_commit_before_the_newest_that_is_another_one_is_refused(tmp_path):
    store, other = store_of(tmp_path / "one", 5, "one"), store_of(tmp_path / "other", 5, "other")
    (other.path / "commit-00000004.json").rename(store.path / "commit-00000004.json")
    with pytest.raises(StateError, match=r"00000004.json of epoch 4 is not the one before that of epoch 5"):
        store.checked()


def test_files_that_are_no_commits_are_passed_over(tmp_path):
    store = store_of(tmp_path, 3, "one")
    for name in ("commit-00000003 (copy).json", "commit-.json", "commit-x.json"):
        (tmp_path / name).touch()
    assert store.checked().epoch == 3


def test_a_name_in_a_commit_of_a_snapshot_does_not_leave_its_folder(kept):
    bring(kept)
    store = SnapshotStore(kept / "now" / "store")
    commit = store.path / f"commit-{store.latest():08d}.json"
    body, _ = opened(commit.read_bytes(), commit, "")
    body["files"]["read#0"][0] = "../../etc/passwd"
    commit.write_text(sealed(body))
    with pytest.raises(StateError, match="which is not below its folder"):
        store.checked()
