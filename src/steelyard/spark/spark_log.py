"""What Structured Streaming knows of a query: the files under `spark` in its checkpoint.

spark/offsets/12             from where to where batch 12 reads; written before the batch begins
spark/commits/12             batch 12 is done; written after our own commit
spark/sources/0/12           files that a folder's reader has seen; 9.compact has those of all before it
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable

from steelyard.core.durable import REMEDY, Described, damaged
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
        if begun >= 0:
            self._require_read("metadata", "the query's id", lambda text: "id" in _fields(text), REMEDY)
        if begun < batch:
            raise damaged(self._folder.child(f"offsets/{batch}"), f"of batch {batch} is missing")
        needed = [one for one in files if not self._outlived(one.name, batch, begun) or self._folder.exists(one.name)]
        self._folder.require(needed, f"batch {batch}")
        done, again = f"commits/{self.done}", "and Spark does the batch again"
        if self._folder.exists(done):
            remedy = f"remove it and .{self.done}.crc beside it, {again}"
            self._require_read(done, f"batch {self.done}", _is_commit, remedy)
        if not self._folder.exists(f"commits/{begun}") and self._folder.exists(f"commits/.{begun}.crc"):
            what = f"of batch {begun} is missing, and its checksum is there"
            raise damaged(self._folder.child(f"commits/{begun}"), what, f"remove .{begun}.crc beside it, {again}")

    def _require_read(self, name: str, of: str, reads: Callable[[str], bool], remedy: str) -> None:
        """StateError where Spark could not read a file of its own that no commit of ours describes."""
        data = self._folder.read_bytes(name, of)
        folder, slash, bare = name.rpartition("/")
        checksum = f"{folder}{slash}.{bare}.crc"
        kept = self._folder.read_bytes(checksum, of) if self._folder.exists(checksum) else None
        if kept is not None and kept != _checksum(data, kept):
            what = f"of {of} does not fit its checksum in {self._folder.child(checksum)}"
            raise damaged(self._folder.child(name), what, remedy)
        if not reads(data.decode("utf-8", "replace")):
            raise damaged(self._folder.child(name), f"of {of} cannot be read", remedy)

    def _outlived(self, name: str, batch: int, begun: int) -> bool:
        """Whether Spark may have removed a file that the commit of a batch describes, since it needs it no more."""
        folder, number = name.rpartition("/")[0], _number(name)
        if folder == "offsets":
            return number < batch < begun
        return any(one.endswith(".compact") and _number(one) > number for one in self._folder.names(folder))


def _checksum(data: bytes, kept: bytes) -> bytes:
    """What Hadoop keeps beside a file on a local disk: CRC-32 of each few bytes, of as many as the `kept` one says."""
    size = int.from_bytes(kept[4:8], "big") or len(data) or 1
    sums = (zlib.crc32(data[start : start + size]) for start in range(0, len(data), size))
    return b"crc\0" + size.to_bytes(4, "big") + b"".join(one.to_bytes(4, "big") for one in sums)


def _fields(text: str) -> dict[str, object]:
    """The fields of a JSON object; none where the text is not one."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_commit(text: str) -> bool:
    """Whether Spark can read a commit: the version in the first line, an object in the second."""
    version, _, body = text.partition("\n")
    return re.fullmatch(r"v\d+", version) is not None and bool(_fields(body))


def _number(name: str) -> int:
    found = _NUMBERED.search(name)
    return int(found[1]) if found else -1
