"""The state of a query under its checkpoint: a log of partials, a commit for each batch, and what they keep.

    program.json, commits/       as in every checkpoint
    log/12-<run>/                partials of batch 12, as Parquet, or as one Arrow file where they are few
    running/12-<run>/            states of the last sliding window that closed, where panes leave by inverse
    policy/12-<run>              what the policies had learnt after batch 12

A commit names all live folders and describes each file in them, so the newest commit is all that a restart reads. A
batch's folders have a name of their own at each try; those that the last commits do not name are swept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from steelyard.core.durable import Described, damaged, safe_name
from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.files import Folder
from steelyard.spark.windows import Span

LOG, RUNNING, POLICY = "log", "running", "policy"
ARROW_FILE = "part.arrow"
"""The one file of a folder of few partials."""


@dataclass(frozen=True)
class LogFolder:
    """Partials that one batch, or a compaction up to that batch, wrote; with the panes they are in."""

    name: str
    batch: int
    panes: Span | None
    files: tuple[Described, ...] = ()
    rows: int = 0
    """Partials."""

    @property
    def is_small(self) -> bool:
        """Whether it is one Arrow file."""
        return any(one.name == ARROW_FILE for one in self.files)

    def to_state(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "panes": vars(self.panes) if self.panes else None}


@dataclass(frozen=True)
class Running:
    """The states of the window that closed last, as they were after `batch`."""

    name: str
    batch: int
    start: int
    files: tuple[Described, ...] = ()


@dataclass(frozen=True)
class Commit:
    """All that is true after a batch."""

    batch: int = -1
    watermark: int = 0
    """In microseconds; Spark, too, starts at the epoch."""
    delay: int | None = None
    """How far the watermark stays behind in the next batch: that batch may have been tried with it already."""
    log: tuple[LogFolder, ...] = ()
    running: Running | None = None
    blocks: int = 0
    buckets: int = 0
    counts: str = ""
    """Frequent keys of the batches before, as text, for the next plan."""
    policy: Described | None = None
    """The file that keeps what policies have learnt."""

    def to_state(self) -> dict[str, Any]:
        """As plain values."""
        log = [folder.to_state() for folder in self.log]
        return {**vars(self), "log": log, "running": vars(self.running) if self.running else None}

    @classmethod
    def from_state(cls, known: dict[str, Any], where: str) -> Commit:
        """The inverse of `to_state`; `where` is the file that it was read from."""

        def named(entry: dict[str, Any]) -> dict[str, Any]:
            files = Described.listed(entry["files"], where)
            return {**entry, "name": safe_name(entry["name"], where), "files": files}

        log = [
            LogFolder(**{**named(entry), "panes": Span(**entry["panes"]) if entry["panes"] else None})
            for entry in known["log"]
        ]
        running = Running(**named(known["running"])) if known["running"] else None
        policy = Described.listed([known["policy"]], where)[0] if known["policy"] else None
        return cls(**{**known, "log": tuple(log), "running": running, "policy": policy})

    @property
    def names(self) -> set[str]:
        """Folders and files that it needs, under the checkpoint's own folder."""
        kinds = {LOG: self.log, RUNNING: [self.running], POLICY: [self.policy]}
        return {f"{kind}/{one.name}" for kind, some in kinds.items() for one in some if one}

    def with_log(self, folder: LogFolder) -> Commit:
        """With one more folder in the log."""
        return replace(self, log=(*self.log, folder))


class StateFolder(CheckpointFolder):
    """The state of a micro-batch query under its checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self.log = self.root.inside(LOG)
        self.running = self.root.inside(RUNNING)
        self.policy = self.root.inside(POLICY)

    def latest(self, signature: dict[str, Any], first: dict[str, Any]) -> Commit:
        """The newest commit, or the empty one. StateError where a file that it names is not as it was.

        `first` is what holds until the first commit, if this is the first start.
        """
        found = self.open(signature, first)
        if found is None:
            return Commit()
        commit = Commit.from_state(found["state"], self.newest_commit)
        for entry in commit.log:
            _require(self.log, entry)
        if commit.running:
            _require(self.running, commit.running)
        self.keep(commit.names)
        return commit

    def described(self, folder: Folder, name: str) -> tuple[Described, ...]:
        """The files of a Parquet folder that was just written, with what Hadoop keeps beside them to check them."""
        inner = folder.inside(name)
        files = inner.describe(one for one in inner.names() if _is_part(one) or _is_sum(one))
        self.root.settle([f"{folder.path.rpartition('/')[2]}/{name}"])
        return files

    def commit(self, commit: Commit) -> None:
        """Make a batch's outcome the state, in one step; then sweep what no commit needs."""
        self.write_commit(commit.batch, commit.to_state())
        self.sweep(commit.names, (self.log, self.running, self.policy))


def _require(folder: Folder, kept: LogFolder | Running) -> None:
    """StateError unless a Parquet folder has the files that are described, and no part besides."""
    inner, of = folder.inside(kept.name), f"batch {kept.batch}"
    there = set(inner.names())
    # Hadoop reads a part without its sums as it is, and that it is whole is seen here.
    inner.require((one for one in kept.files if one.name in there or not _is_sum(one.name)), of)
    strange = sorted(one for one in there - {one.name for one in kept.files} if _is_part(one) or _is_sum(one))
    if strange:
        raise damaged(inner.child(strange[0]), f"of {of} is in no commit", "remove it")


def _is_part(name: str) -> bool:
    """Whether Spark reads a file of a folder."""
    return not name.startswith((".", "_"))


def _is_sum(name: str) -> bool:
    """Whether a file is what Hadoop keeps beside a part on a local disk, to check it while it is read."""
    return name.startswith(".part-") and name.endswith(".crc")
