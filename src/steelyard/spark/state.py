"""The state of a query under its checkpoint: a log of partials, a commit for each batch, and what they keep.

    program.json                 what the query computes; must stay the same
    commits/000000000012.json    everything that is true after batch 12
    log/12-<run>/                partials of batch 12, as Parquet
    running/12-<run>/            states of the last sliding window that closed, where panes leave by inverse
    policy/12-<run>              what the policies had learnt after batch 12

A commit names all live folders, so the newest commit is all that a restart reads. A batch's folders have a name
of their own at each try; those that no commit names are swept.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from steelyard.core import OptionError
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


@dataclass
class StateFolder:
    """The folder `steelyard` under a query's checkpoint.

    Parameters
    ----------
    spark, path
        A session, and the checkpoint's location.
    """

    spark: SparkSession
    path: str
    root: Folder = field(init=False)

    def __post_init__(self) -> None:
        self.root = Folder(self.spark, f"{self.path.rstrip('/')}/steelyard")
        self.commits = Folder(self.spark, self.root.child("commits"))
        self.log = Folder(self.spark, self.root.child("log"))
        self.running = Folder(self.spark, self.root.child("running"))
        self.policy = Folder(self.spark, self.root.child("policy"))

    def same_program(self, signature: dict[str, Any]) -> None:
        """Write the program's signature at the first start; later, refuse another."""
        text = json.dumps(signature, indent=1)
        if not self.root.exists("program.json"):
            self.root.make()
            self.root.write_once("program.json", text)
            return
        before = json.loads(self.root.read("program.json"))
        now = json.loads(text)
        for part, old in before.items():
            if now.get(part) != old:
                raise OptionError(
                    f"the checkpoint {self.path} belongs to another query: its {part}: {old}; now: "
                    f"{now.get(part)}. Use a new checkpoint location, or the old {part}"
                )

    def identity(self) -> str:
        """What tells this checkpoint from any other; made at the first start."""
        if not self.root.exists("identity"):
            self.root.make()
            self.root.write_once("identity", uuid.uuid4().hex)
        return self.root.read("identity")

    def latest(self) -> Commit:
        """The newest commit, or the empty one."""
        names = [name for name in self.commits.names() if name.endswith(".json") and not name.startswith(".")]
        return Commit.from_json(self.commits.read(names[-1])) if names else Commit()

    def new_folder(self, batch: int) -> str:
        """A folder name that no other try of this batch has."""
        return f"{batch}-{uuid.uuid4().hex[:12]}"

    def commit(self, commit: Commit) -> None:
        """Make a batch's outcome the state, in one step; then sweep what no commit needs."""
        self.commits.make()
        self.commits.write_once(f"{commit.batch:012d}.json", commit.to_json())
        self._sweep()

    def _sweep(self) -> None:
        names = [name for name in self.commits.names() if not name.startswith(".")]
        for old in names[:-KEPT_COMMITS]:
            self.commits.delete(old)
        kept = [Commit.from_json(self.commits.read(name)) for name in names[-KEPT_COMMITS:]]
        needed = {folder.name for commit in kept for folder in commit.log}
        needed |= {commit.running.name for commit in kept if commit.running}
        needed |= {commit.policy for commit in kept if commit.policy}
        for folder in (self.log, self.running, self.policy):
            for name in folder.names():
                if name not in needed and not name.startswith("."):
                    folder.delete(name)
