"""The state of a similarity join under its checkpoint: Arrow files that tasks write, and a commit for each batch.

    program.json                     what the query computes; must stay the same
    commits/000000000012.json        everything that is true after batch 12
    geometry/12-<run>/3-*.arrow      worksets and outer records of space partition 3 after batch 12
    records/12-<run>/2.arrow         records that batch 12 brought to worker 2
    moves/12-<run>/2-5.arrow         worksets that the balancer sent from worker 2 to worker 5 after batch 12

A commit names all live files, so the newest commit is all that a restart reads; what no commit names is swept.
Files are written by tasks, through Arrow's file systems: the checkpoint must be where both Spark and Arrow can go.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.files import Folder
from steelyard.spark.state import KEPT_COMMITS

GEOMETRY, RECORDS, MOVES = "geometry", "records", "moves"
BEFORE_ALL = -(1 << 62)
"""The watermark before the first record, whose time may be before 1970."""


@dataclass(frozen=True)
class Segment:
    """One file of state, with the numbers of the windows that it has records of."""

    name: str
    batch: int
    rows: int
    bytes: int
    first: int = 0
    last: int = -1


@dataclass(frozen=True)
class Left:
    """A workset, by its key, that left a worker: what segments up to `batch` have of it is elsewhere now."""

    workset: int
    batch: int


@dataclass(frozen=True)
class JoinCommit:
    """All that is true after a batch."""

    batch: int = -1
    watermark: int = BEFORE_ALL
    geometry: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    records: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    left: dict[int, tuple[Left, ...]] = field(default_factory=dict)
    assignment: dict[int, int] = field(default_factory=dict)
    """Worker of each workset, by its key, that is not where it was made."""
    splits: dict[int, int] = field(default_factory=dict)
    """Worksets that are cut, and into how many parts."""
    balancer: str = ""
    """What the balancer has learnt, as text."""
    centroids: str = ""
    """The file of the space partitions' centroids."""

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JoinCommit:
        """The inverse of `to_json`."""
        known = json.loads(text)
        for name, kind in ((GEOMETRY, Segment), (RECORDS, Segment), ("left", Left)):
            known[name] = {int(at): tuple(kind(**one) for one in some) for at, some in known[name].items()}
        for name in ("assignment", "splits"):
            known[name] = {int(key): value for key, value in known[name].items()}
        return cls(**known)

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
    def names(self) -> set[str]:
        """Folders of all live files."""
        files = [one.name for part in (self.geometry, self.records) for some in part.values() for one in some]
        return {name.rpartition("/")[0] for name in [*files, self.centroids] if name}

    @property
    def state_bytes(self) -> int:
        """Bytes of the records that are kept."""
        return sum(one.bytes for some in self.records.values() for one in some)


class JoinFolder(CheckpointFolder):
    """The state of a similarity join under its checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self._parts = [Folder(spark, self.root.child(name)) for name in (GEOMETRY, RECORDS, MOVES, "pairs")]

    def centroids(self, name: str) -> pa.ChunkedArray:
        """The column of records in a file of centroids."""
        (table,) = read_segments(self.root.path, [Segment(name, 0, 0, 0)])
        return table.column("record")

    def latest(self) -> JoinCommit:
        """The newest commit, or the empty one."""
        names = self.commit_names()
        return JoinCommit.from_json(self.commits.read(names[-1])) if names else JoinCommit()

    def commit(self, commit: JoinCommit) -> None:
        """Make a batch's outcome the state, in one step; then sweep what no commit needs."""
        kept = self.write_commit(commit.batch, commit.to_json(), KEPT_COMMITS)
        needed = set().union(*(JoinCommit.from_json(text).names for text in kept))
        for part in self._parts:
            kind = part.path.rpartition("/")[2]
            for name in part.names():
                if f"{kind}/{name}" not in needed:
                    part.delete(name)


def write_segment(root: str, name: str, table: pa.Table) -> int:
    """Write a file of state from a task, in one step; gives its bytes. Another try of the task writes the same."""
    system, path = _at(root, name)
    system.create_dir(path.rpartition("/")[0], recursive=True)
    part = f"{path}.{uuid.uuid4().hex}"
    with system.open_output_stream(part) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    system.move(part, path)
    return int(table.nbytes)


def read_segments(root: str, segments: Iterable[Segment]) -> list[pa.Table]:
    """The tables of files of state."""
    tables = []
    for segment in segments:
        system, path = _at(root, segment.name)
        with system.open_input_file(path) as file:
            tables.append(pa.ipc.open_stream(file).read_all())
    return tables


def _at(root: str, name: str) -> tuple[Any, str]:
    """Arrow's file system and the path in it of a file under the join's folder."""
    if "://" in root:
        system, base = pafs.FileSystem.from_uri(root)
        return system, f"{base}/{name}"
    return pafs.LocalFileSystem(), f"{root.removeprefix('file:')}/{name}"
