"""The state of a query under its checkpoint: a log of partials, a commit for each batch, and what they keep.

    program.json                 what the query computes; must stay the same
    delay                        of the watermark at the first start, for the first batch
    commits/000000000012.json    everything that is true after batch 12
    log/12-<run>/                partials of batch 12, as Parquet
    running/12-<run>/            states of the last sliding window that closed, where panes leave by inverse
    policy/12-<run>              what the policies had learnt after batch 12

A commit names all live folders, so the newest commit is all that a restart reads. A batch's folders have a name
of their own at each try; those that no commit names are swept.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from pyspark.sql import SparkSession

from steelyard.spark.checkpoint import CheckpointFolder
from steelyard.spark.files import Folder
from steelyard.spark.windows import Span

KEPT_COMMITS = 3


@dataclass(frozen=True)
class LogFolder:
    """Partials that one batch, or a compaction up to that batch, wrote; with the panes they are in."""

    name: str
    batch: int
    panes: Span | None


@dataclass(frozen=True)
class Running:
    """The states of the window that closed last, as they were after `batch`."""

    name: str
    batch: int
    start: int


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
    policy: str | None = None
    """The file that keeps what policies have learnt."""

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Commit:
        """The inverse of `to_json`."""
        known = json.loads(text)
        log = tuple(
            LogFolder(entry["name"], entry["batch"], Span(**entry["panes"]) if entry["panes"] else None)
            for entry in known.pop("log")
        )
        running = known.pop("running")
        return cls(log=log, running=Running(**running) if running else None, **known)

    def with_log(self, folder: LogFolder) -> Commit:
        """With one more folder in the log."""
        return replace(self, log=(*self.log, folder))


class StateFolder(CheckpointFolder):
    """The state of a micro-batch query under its checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self.log = Folder(spark, self.root.child("log"))
        self.running = Folder(spark, self.root.child("running"))
        self.policy = Folder(spark, self.root.child("policy"))

    def latest(self) -> Commit:
        """The newest commit, or the empty one."""
        names = self.commit_names()
        return Commit.from_json(self.commits.read(names[-1])) if names else Commit()

    def commit(self, commit: Commit) -> None:
        """Make a batch's outcome the state, in one step; then sweep what no commit needs."""
        kept = [Commit.from_json(text) for text in self.write_commit(commit.batch, commit.to_json(), KEPT_COMMITS)]
        needed = {folder.name for commit in kept for folder in commit.log}
        needed |= {commit.running.name for commit in kept if commit.running}
        needed |= {commit.policy for commit in kept if commit.policy}
        for folder in (self.log, self.running, self.policy):
            for name in folder.names():
                if name not in needed and not name.startswith("."):
                    folder.delete(name)
