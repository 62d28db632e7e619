"""The state of a similarity join under its checkpoint: Arrow files that tasks write, and a commit for each batch.

    program.json, commits/           as in every checkpoint
    geometry/12-<run>/3-*.arrow      worksets and outer records of space partition 3 after batch 12
    records/12-<run>/2.*.arrow       records that batch 12 brought to worker 2
    moves/12-<run>/2-5.*.arrow       worksets that the balancer sent from worker 2 to worker 5 after batch 12

A commit names all live files and describes them, so the newest commit is all that a restart reads; what no commit names
is swept. A task that runs again writes files of its own, and the commit names those of the one that was heard.
Files are written by tasks, through Arrow's file systems: the checkpoint must be where both Spark and Arrow can go.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from steelyard.core.durable import Described, Summing, damaged, made, safe_name, written
from steelyard.spark.checkpoint import CheckpointFolder

GEOMETRY, RECORDS, MOVES = "geometry", "records", "moves"
MIN_WATERMARK = -(1 << 62)
"""The watermark before the first record, whose time may be before 1970."""


@dataclass(frozen=True)
class Segment:
    """One file of state, with the numbers of the windows that it has records of.

    `bytes` are those of its records in memory, `size` and `crc` are the length and the checksum of the file.
    """

    name: str
    batch: int
    rows: int
    bytes: int
    size: int
    crc: int
    first: int = 0
    last: int = -1

    @property
    def file(self) -> Described:
        """The file."""
        return Described(self.name, self.size, self.crc)

    @property
    def part(self) -> str:
        """Which part of a space partition's geometry it is, by its name."""
        return self.name.rpartition("/")[2].partition("-")[2].partition(".")[0]

    @property
    def of(self) -> str:
        """Which batch wrote it."""
        return f"batch {self.name.split('/')[1].partition('-')[0]}"


@dataclass(frozen=True)
class Left:
    """A workset, by its key, that left a worker: what segments up to `batch` have of it is elsewhere now."""

    workset: int
    batch: int


@dataclass(frozen=True)
class JoinCommit:
    """All that is true after a batch."""

    batch: int = -1
    watermark: int = MIN_WATERMARK
    geometry: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    records: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    left: dict[int, tuple[Left, ...]] = field(default_factory=dict)
    assignment: dict[int, int] = field(default_factory=dict)
    """Worker of each workset, by its key, that is not where it was made."""
    splits: dict[int, int] = field(default_factory=dict)
    """Worksets that are cut, and into how many parts."""
    balancer: str = ""
    """What the policy has learnt that moves worksets, as text."""
    balancer_of: str = ""
    """The `identity` of that policy."""
    centroids: Segment | None = None
    """The file of the space partitions' centroids."""

    @classmethod
    def from_state(cls, known: dict[str, Any], where: str) -> JoinCommit:
        """The inverse of `asdict`, after JSON; `where` is the file that it was read from."""
        known = dict(known)
        for name, kind in ((GEOMETRY, Segment), (RECORDS, Segment), ("left", Left)):
            known[name] = {int(at): tuple(kind(**one) for one in some) for at, some in known[name].items()}
        for name in ("assignment", "splits"):
            known[name] = {int(key): value for key, value in known[name].items()}
        commit = cls(**{**known, "centroids": Segment(**known["centroids"]) if known["centroids"] else None})
        for one in commit.segments:
            safe_name(one.name, where)
        return commit

    def without(self, closed: int) -> JoinCommit:
        """Without the segments whose windows have all closed, and without what only they needed to know."""
        records = {
            worker: tuple(one for one in segments if one.last > closed) for worker, segments in self.records.items()
        }
        oldest = {worker: min((one.batch for one in some), default=self.batch) for worker, some in records.items()}
        left = {
            worker: tuple(one for one in gone if one.batch >= oldest.get(worker, self.batch))
            for worker, gone in self.left.items()
        }
        return replace(self, records=records, left=left)

    @property
    def segments(self) -> list[Segment]:
        """All live files."""
        centroids = [self.centroids] if self.centroids else []
        parts = (self.geometry, self.records)
        return [*centroids, *(one for part in parts for some in part.values() for one in some)]

    @property
    def names(self) -> set[str]:
        """Folders of all live files."""
        return {one.name.rpartition("/")[0] for one in self.segments}

    @property
    def state_bytes(self) -> int:
        """Bytes of the records that are kept."""
        return sum(one.bytes for some in self.records.values() for one in some)


class JoinFolder(CheckpointFolder):
    """The state of a similarity join under its checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self._parts = [self.root.inside(name) for name in (GEOMETRY, RECORDS, MOVES, "pairs")]

    def latest(self, signature: dict[str, Any]) -> JoinCommit:
        """The newest commit, or the empty one. StateError where a file that it names is not as it was."""
        found = self.open(signature)
        if found is None:
            return JoinCommit()
        commit = JoinCommit.from_state(found["state"], self.newest_commit)
        by_batch: dict[str, list[Described]] = {}
        for one in commit.segments:
            by_batch.setdefault(one.of, []).append(one.file)
        for of, files in by_batch.items():
            self.root.require(files, of)
        self.keep(commit.names)
        return commit

    def commit(self, commit: JoinCommit) -> None:
        """Make a batch's outcome the state, in one step; then sweep what no commit needs."""
        self.write_commit(commit.batch, asdict(commit))
        self.sweep(commit.names, self._parts)


def write_segment(root: str, name: str, batch: int, table: pa.Table) -> Segment:
    """Write a file of state from a task, in one step; `name` gets an end that no other try of the task has."""
    whole = f"{name}.{uuid.uuid4().hex[:12]}.arrow"
    system, path = _at(root, whole)

    def write(file: Any) -> None:
        with pa.PythonFile(file, "w") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)

    if isinstance(system, pafs.LocalFileSystem):
        file = Path(path)
        made(file.parent)
        _, size, crc = written(file, write)
    else:
        system.create_dir(path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(f"{path}.part") as below:
            summing = Summing(below)
            write(summing)
        system.move(f"{path}.part", path)
        _, size, crc = summing.described(whole)
    return Segment(whole, batch, table.num_rows, int(table.nbytes), size, crc)


def read_segments(root: str, segments: Iterable[Segment]) -> list[pa.Table]:
    """The tables of files of state; StateError where one is not as it was written."""
    tables = []
    for segment in segments:
        system, path = _at(root, segment.name)
        try:
            with system.open_input_file(path) as file:
                data = file.read_buffer()
        except FileNotFoundError as error:
            raise damaged(path, f"of {segment.of} is missing") from error
        summing = Summing()
        summing.write(data)
        segment.file.require(summing.described(segment.name), path, segment.of)
        tables.append(pa.ipc.open_stream(data).read_all())
    return tables


def _at(root: str, name: str) -> tuple[Any, str]:
    """Arrow's file system and the path in it of a file under the join's folder."""
    if "://" in root:
        system, base = pafs.FileSystem.from_uri(root)
        return system, f"{base}/{name}"
    return pafs.LocalFileSystem(), f"{root.removeprefix('file:')}/{name}"
