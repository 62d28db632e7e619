"""What the checkpoints of all engines have: whose they are, names for what a batch writes, and a chain of commits.

    program.json                 what the query computes, which must stay the same, and what tells it from others
    commits/000000000012.json    everything that is true after batch 12
    commits/000000000013.begun   batch 13 was begun

A commit knows the program and the commit before it, and describes Spark's own log as it was. So does the note of a
batch that was begun, for the time until its commit.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from steelyard.core import OptionError
from steelyard.core.durable import Described, Link, damaged, opened, seal_of, sealed
from steelyard.core.durations import spoken
from steelyard.spark.files import Folder
from steelyard.spark.spark_log import SparkLog

KEPT_COMMITS = 2
PROGRAM = "program.json"
_COMMIT = re.compile(r"\d{12}\.json\Z")
_BEGUN = ".begun"


class CheckpointFolder:
    """The folder `steelyard` under a query's checkpoint; `open` it first.

    Parameters
    ----------
    spark, path
        A session, and the checkpoint's location.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        whole = Folder(spark, path)
        whole.refuse_file("checkpoint")
        whole.refuse_others(("steelyard", "spark"))
        self.root = whole.inside("steelyard")
        self.commits = self.root.inside("commits")
        self.log_of_spark = SparkLog(whole.inside("spark"))
        self.identity = ""
        """What tells this checkpoint from any other."""
        self.first: dict[str, Any] = {}
        """What the first start was told that holds until there is a commit."""
        self._program = ""
        self._other: tuple[OptionError, dict[str, Any]] | None = None
        self._before: Link | None = None
        self._needed: deque[set[str]] = deque(maxlen=KEPT_COMMITS)
        self._of_spark: tuple[Described, ...] = ()

    def open(self, signature: dict[str, Any], first: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """What the newest commit says, or None before the first; `first` is kept if this is the first start.

        Before the first commit the program may be another one: `take` then makes it the checkpoint's.

        Raises
        ------
        StateError
            Where a file of the checkpoint is not what was written.
        OptionError
            Where the checkpoint is another program's.
        """
        newest = self._newest()
        self._same_program(signature, first or {}, is_free=newest is None and self._done_by_spark < 0)
        if newest is None:
            return None
        if newest["program"] != self._program:
            raise damaged(self.root.child(PROGRAM), "is not what the commits were made with")
        self._of_spark = Described.listed(newest["spark"], self.commits.child(_commit_name(newest["batch"])))
        return newest

    def take(self, results: Iterable[str]) -> None:
        """Make another program than before the checkpoint's, which has no commit, once the sink is claimed.

        Its identity stays, by which folders of results are claimed. What a batch has left in one of these (`results`)
        would pass for this program's: then it is refused.
        """
        if self._other is None:
            return
        wrong, body = self._other
        for path in results:
            if any(name.startswith("batch_id=") for name in Folder(self.spark, path).names()):
                raise wrong
        self.root.delete(PROGRAM)
        self._write_program(body)
        self.first = body["first"]

    @property
    def _done_by_spark(self) -> int:
        """The newest batch that must have a commit, by Spark's own log; -1 before the first."""
        return max(self.log_of_spark.done, self.log_of_spark.begun - 1)

    def require_spark(self) -> None:
        """StateError where Spark's own log is not at the batch of the newest commit, or the one behind it."""
        batch = self._before.number if self._before else -1
        known = self._done_by_spark
        if known > batch:
            raise damaged(
                self.commits.child(_commit_name(known)),
                f"of batch {known}, which is done by Spark's own log, is missing",
            )
        self.log_of_spark.require(batch, self._of_spark)
        begun = f"{batch + 1:012d}{_BEGUN}"
        if self.commits.exists(begun):
            of, where = f"batch {batch + 1}", self.commits.child(begun)
            note, _ = opened(self.commits.read(begun, of), where, of)
            self.log_of_spark.require(batch + 1, Described.listed(note["spark"], where))

    def begin(self, batch: int) -> None:
        """Note how Spark's own log was when a batch began, before a row of it is read."""
        self._of_spark = self.log_of_spark.describe(batch, self._of_spark)
        begun = f"{batch:012d}{_BEGUN}"
        if self._of_spark and not self.commits.exists(begun):
            self.commits.make()
            self.commits.write_once(begun, sealed({"batch": batch, "spark": self._of_spark}))

    def _newest(self) -> dict[str, Any] | None:
        names = [name for name in self.commits.names() if _COMMIT.match(name)]
        if not names:
            return None
        body, seal = self._commit(names[-1])
        for before in names[-2:-1]:  # where it is there, it must be the one before
            found, link = self._commit(before), Link(*body["before"]) if body["before"] else None
            if link != Link(found[0]["batch"], found[1]):
                raise damaged(
                    self.commits.child(names[-1]), f"of batch {body['batch']} does not follow the one in {before}"
                )
        self._before = Link(body["batch"], seal)
        return body

    def _commit(self, name: str) -> tuple[dict[str, Any], str]:
        batch = int(name.removesuffix(".json"))
        body, seal = opened(self.commits.read(name, f"batch {batch}"), self.commits.child(name), f"batch {batch}")
        if body.get("batch") != batch:
            raise damaged(self.commits.child(name), f"of batch {batch} is of batch {body.get('batch')}")
        return body, seal

    def _same_program(self, signature: dict[str, Any], first: dict[str, Any], *, is_free: bool) -> None:
        """Write the program's signature at the first start; later, refuse another, unless there is no commit."""
        if is_free and self.log_of_spark.begun < 0 and not self.root.exists(PROGRAM):
            self._write_program({"identity": uuid.uuid4().hex, "program": signature, "first": first})
        of = "the query's program"
        before, self._program = opened(self.root.read(PROGRAM, of), self.root.child(PROGRAM), of)
        self.identity, self.first = before["identity"], before["first"]
        now = json.loads(json.dumps(signature))
        for part, old in before["program"].items():
            if json.dumps(now.get(part)) != json.dumps(old):  # also in another order: columns of state have an order
                wrong = OptionError(
                    f"the checkpoint {self.path} belongs to another query: its {part}: {said(part, old)}; now: "
                    f"{said(part, now.get(part))}. Use a new checkpoint location, or the old {part}"
                )
                if not is_free:
                    raise wrong
                self._other = wrong, {"identity": self.identity, "program": signature, "first": first}
                return

    def _write_program(self, body: dict[str, Any]) -> None:
        text = sealed(body)
        try:
            self.root.make()
            self.root.write_once(PROGRAM, text)
        except OSError as error:
            raise OptionError(f"checkpoint: {self.path} cannot be written: {error.strerror or error}") from error
        self._program = seal_of(text)

    @property
    def newest_commit(self) -> str:
        """The file of the newest commit."""
        return self.commits.child(_commit_name(self._before.number if self._before else -1))

    def new_folder(self, batch: int) -> str:
        """A folder name that no other try of this batch has."""
        return f"{batch}-{uuid.uuid4().hex[:12]}"

    def write_commit(self, batch: int, state: dict[str, Any]) -> None:
        """Make what is true after a batch the state, in one step, and remove commits that are too old."""
        name = _commit_name(batch)
        if self.commits.exists(name):
            raise damaged(
                self.commits.child(name), f"of batch {batch} is another driver's", "give each query a checkpoint"
            )
        body = {"before": self._before, "program": self._program, "spark": self._of_spark, "state": state}
        text = sealed({"batch": batch, **body})
        self.commits.make()
        self.commits.write_once(name, text)
        self._before = Link(batch, seal_of(text))
        kept = {_commit_name(batch - back) for back in range(KEPT_COMMITS)}
        for old in self.commits.names():
            if old not in kept:
                self.commits.delete(old)

    def keep(self, names: set[str]) -> None:
        """What the newest commit needs, beside that of the commits before it that are kept."""
        self._needed.append(names)

    def sweep(self, names: set[str], folders: Iterable[Folder]) -> None:
        """Remove from folders what neither the newest commit needs, as in `"log/12-ab"`, nor one before it."""
        self.keep(names)
        needed = set().union(*self._needed)
        for folder in folders:
            kind = folder.path.rpartition("/")[2]
            for name in folder.names():
                if f"{kind}/{name}" not in needed and not name.startswith("."):
                    folder.delete(name)


def said(part: str, value: Any) -> str:
    """What a part of a program is, as a user says it.

    >>> said("aggregates", {"n": "sum(v bigint)", "rows": "count()"}), said("window", [90_000_000, 1_000_000])
    ('n = sum(v bigint), rows = count()', '90 seconds every 1 second')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} = {one}" for name, one in value.items())
    if part == "window" and value:
        size, *slides = value
        if not slides:
            return f"sessions with gaps of {spoken(size)}"
        (slide,) = slides
        return spoken(size) + (f" every {spoken(slide)}" if slide not in (0, size) else "")
    return "none" if value is None else str(value)


def _commit_name(batch: int) -> str:
    return f"{batch:012d}.json"
