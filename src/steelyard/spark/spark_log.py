"""What Structured Streaming knows of a query: the files under `spark` in its checkpoint.

spark/offsets/12             from where to where batch 12 reads; written before the batch begins
spark/commits/12             batch 12 is done; written after our own commit
spark/sources/0/12           files that a folder's reader has seen; 9.compact has those of all before it
"""

from __future__ import annotations

import re

from steelyard.core.durable import Described, damaged
from steelyard.spark.files import Folder

_NUMBERED = re.compile(r"(\d+)(\.compact)?\Z")


class SparkLog:
    """Spark's own log of a query, beside ours.

    Spark does not notice when a file of its log was changed, nor when the newest one of a source is gone, and would
    skip rows or read some twice: what a restart reads of them is described in our commits.

    Parameters
    ----------
    folder
        The folder that Spark was given as its checkpoint.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def _newest(self, part: str) -> int:
        """The newest batch in a part of the log; -1 where there is none."""
        found = (_NUMBERED.match(name) for name in self._folder.names(part))
        return max((int(one[1]) for one in found if one), default=-1)

    @property
    def begun(self) -> int:
        """The newest batch that was begun, by what Spark knows; -1 before the first."""
        return self._newest("offsets")

    def describe(self, batch: int, before: tuple[Described, ...]) -> tuple[Described, ...]:
        """Spark's files that a restart after this batch reads; nothing where Spark does not drive the batches.

        Parameters
        ----------
        batch
            The batch, which Spark has begun.
        before
            What this gave for the batch before it.
        """
        offsets = f"offsets/{batch}"
        if not self._folder.exists(offsets):
            return ()
        # Spark reads the offsets before it too, if it does the batch again.
        kept = [one for one in before if not one.name.startswith("offsets/") or one.name == f"offsets/{batch - 1}"]
        known = {one.name for one in kept}
        new = self._of_sources(known)
        self._folder.settle([f"commits/{batch - 1}"])  # Spark reads it after a restart, and cannot read an empty one
        compacted = {name.rpartition("/")[0] for name in new if name.endswith(".compact")}  # has all before it
        kept = [one for one in kept if one.name.rpartition("/")[0] not in compacted]
        return (*kept, *self._folder.describe([offsets, *new]))

    def _of_sources(self, known: set[str]) -> list[str]:
        """Files of the sources' own logs that are not known yet, without those that a later one has.

        All that there are: which line of a batch's offsets is of which source cannot be told, since one that is read
        twice has two lines and one log.
        """
        new = []
        for source in self._folder.names("sources"):
            folder = f"sources/{source}"
            last = max((_number(name) for name in known if name.startswith(f"{folder}/")), default=-1)
            numbered = [name for name in self._folder.names(folder) if _NUMBERED.match(name)]
            found = sorted((name for name in numbered if _number(name) > last), key=_number)
            whole = max((at for at, name in enumerate(found) if name.endswith(".compact")), default=0)
            new += [f"{folder}/{name}" for name in found[whole:]]
        return new

    @property
    def done(self) -> int:
        """The newest batch that is done, by what Spark knows; -1 before the first."""
        return self._newest("commits")

    def require(self, batch: int, files: tuple[Described, ...]) -> None:
        """StateError where the files that a commit describes are not as they were, but for those that Spark removed."""
        begun = self.begun
        if begun >= 0 and not self._folder.exists("metadata"):
            raise damaged(self._folder.child("metadata"), "with the query's id is missing")
        if begun < batch:
            raise damaged(self._folder.child(f"offsets/{batch}"), f"of batch {batch} is missing")
        needed = [one for one in files if not self._outlived(one.name, batch, begun) or self._folder.exists(one.name)]
        self._folder.require(needed, f"batch {batch}")
        done = f"commits/{self.done}"
        if self._folder.exists(done) and not self._folder.read(done, f"batch {self.done}"):
            remedy = f"remove it and .{self.done}.crc beside it, and Spark does the batch again"
            raise damaged(self._folder.child(done), f"of batch {self.done} is empty", remedy)

    def _outlived(self, name: str, batch: int, begun: int) -> bool:
        """Whether Spark may have removed a file that the commit of a batch describes, since it needs it no more."""
        folder, number = name.rpartition("/")[0], _number(name)
        if folder == "offsets":
            return number < batch < begun
        return any(one.endswith(".compact") and _number(one) > number for one in self._folder.names(folder))


def _number(name: str) -> int:
    found = _NUMBERED.search(name)
    return int(found[1]) if found else -1
