"""A folder that is watched: rows of the files in it, and of those that come while it is read."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.core import OptionError
from steelyard.core.durable import damaged, made, opened, seal_of, sealed, to_disk, written
from steelyard.resident.file_sources import ParquetFiles
from steelyard.resident.json_rows import UNREAD, Lines
from steelyard.resident.sources import Read, Reader

FILE_ROWS = 1 << 36
"""An offset is the number of a file times this, and a row of the file."""
LOOK_SECONDS = 0.2
"""From one look into the folder to the next."""
SPLIT = "files"
"""The one split of a folder."""
MOST_COUNTED = 200
"""Files whose rows are counted at one look of whoever measures: he must not be held up."""
LOOKING = 20
"""Who measures does not look into the folder again before so many times as long is over as it took."""
_READERS: dict[str, Any] = {"json": Lines, "parquet": ParquetFiles}


class FileLog:
    """Which files were found, in the order in which they are read, each with a number from 0.

    Every look that finds new ones makes an entry, a file that is called by the number of the first of them. It is on
    disk before a row of them is read, and is never changed: whoever comes second to write an entry, such as a worker
    that was taken for dead, takes the one that is there.

    Parameters
    ----------
    folder
        Where entries are: a folder that all workers see.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.files: list[str] = []
        """As far as entries were read."""
        self._seal = ""

    def _entry(self) -> Path:
        return self._folder / f"{len(self.files):012d}.json"

    def follow(self) -> None:
        """Read the entries that have come; StateError where one is not what was written."""
        while (file := self._entry()).exists():
            of = f"file {len(self.files)} that was found"
            body, seal = opened(file.read_bytes(), file, of)
            if (body["first"], body["before"]) != (len(self.files), self._seal):
                raise damaged(file, f"of {of} does not fit what was found before")
            self.files += body["files"]
            self._seal = seal

    def check(self) -> None:
        """Read all entries; StateError where one is missing or damaged."""
        self.follow()
        names = {one.name for one in self._folder.glob("[0-9]*.json")} if self._folder.exists() else set()
        if any(name >= self._entry().name for name in names):
            raise damaged(self._entry(), f"of file {len(self.files)} that was found is missing")

    def add(self, files: list[str]) -> None:
        """Number new files, unless somebody else has just done that."""
        text = sealed({"first": len(self.files), "before": self._seal, "files": files})
        aside = made(self._folder) / f".{uuid.uuid4().hex}"
        written(aside, lambda file: file.write(text.encode()))
        try:
            os.link(aside, self._entry())
        except FileExistsError:
            self.follow()
            return
        finally:
            aside.unlink()
        to_disk(self._folder)
        self.files += files
        self._seal = seal_of(text)


@dataclass(frozen=True)
class WatchedFolder(Reader):
    """Rows of the files of a folder, in the order of their times, and of those that come while it is read.

    All of it is one split, which one instance reads: event time is that of all rows so far, as in micro-batches. A file
    must be whole when it appears, as one is that was moved there. It is read once, whatever becomes of it then; a
    job that goes on from a snapshot needs those that were not read to their ends.

    Parameters
    ----------
    folder
        What is watched.
    log
        A folder, for this query alone, that keeps which files were found: see `FileLog`.
    format
        `"parquet"` or `"json"`.
    schema
        The columns that come out; files may have others.
    recursive
        Whether files of sub-folders are read too.
    ends
        Whether it ends behind the files that are there when all before were read.
    """

    grows: ClassVar[bool] = True
    folder: str
    log: str
    format: str
    schema: pa.Schema
    recursive: bool = False
    ends: bool = False
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _rows: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of files that were read to their ends, or that somebody counted."""
    _counts: list[_Count] = field(default_factory=list, init=False, repr=False, compare=False)
    """None before somebody measures, then one."""

    @property
    def tells_end(self) -> bool:  # type: ignore[override]
        """Where files say how many rows they have; lines would have to be read twice."""
        return self.format == "parquet"

    def splits(self, parallelism: int) -> list[str]:
        """One."""
        return [SPLIT]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Rows of the file that the offset is in; behind the last one, of the next that was found."""
        number, row = divmod(offset, FILE_ROWS)
        path = self._file(number)
        if path is None:
            return Read(None, offset, self.ends)
        found = self._of(path, row, rows)
        # the next file begins with the last row of this one: nobody asks any more whether it is there
        after = (number + 1) * FILE_ROWS if found.ended else number * FILE_ROWS + found.offset
        return Read(found.batch, after, False)

    def counted(self, split: str, offset: int, at_end: bool) -> tuple[int, int] | None:
        """Rows of the files from the one on that was read at the first look, also of those that were not found yet."""
        number, row = divmod(offset, FILE_ROWS)
        if not self._counts:
            self._counts.append(_Count(self, number))
        return self._counts[0].look(number, row)

    def close(self) -> None:
        """Let go of the file that is open."""
        if "reader" in self._opened:
            self._opened.pop("reader").close()
        self._opened.clear()

    def _of(self, path: str, row: int, rows: int) -> Read:
        if self._opened.get("path") != path:
            self._opened.update(path=path, reader=_READERS[self.format]((path,)))
        try:
            found: Read = self._opened["reader"].read(path, row, rows)
        except FileNotFoundError as error:
            raise OptionError(
                f"{path} was found in {self.folder}, and is gone before it was read: put it back, or begin anew with "
                "a new checkpoint"
            ) from error
        except pa.ArrowInvalid as error:
            raise OptionError(
                f"{path} cannot be read as {self.format}: {error}. A file must be whole when it appears: write it "
                "elsewhere and move it there"
            ) from error
        if found.ended:
            self._rows[path] = found.offset
            self._opened["reader"].close()
        return found

    def _file(self, number: int) -> str | None:
        """The file of a number; None where there is none yet."""
        log: FileLog = self._opened.setdefault("log", FileLog(self.log))
        if number >= len(log.files):
            log.follow()
        if number > len(log.files):
            raise damaged(log._entry(), f"of file {len(log.files)} that was found is missing")
        now = time.monotonic()
        looked = self._opened.get("looked")
        if number == len(log.files) and (looked is None or (not self.ends and now - looked >= LOOK_SECONDS)):
            self._opened["looked"] = now
            known = set(log.files)
            new = [path for path in self._listed() if path not in known]
            if new:
                log.add(new)
        return log.files[number] if number < len(log.files) else None

    def _listed(self) -> list[str]:
        """The files that are there, older ones first; those without a byte are not taken for whole."""
        found = []
        for entry in _entries(self.folder, self.recursive):
            try:
                about = entry.stat()
            except FileNotFoundError:
                continue
            if about.st_size:
                found.append((about.st_mtime, entry.path))
        packed = [path for _, path in found if self.format == "json" and path.endswith(UNREAD)]
        if packed:
            raise OptionError(f"{packed[0]} is packed in a way that workers do not unpack: use engine('microbatch')")
        return [path for _, path in sorted(found)]


class _Count:
    """How many rows the files of a folder have, for whoever measures in a thread beside the reader.

    Parameters
    ----------
    folder
        What is watched.
    first
        The number of the file from which on rows are counted.
    """

    def __init__(self, folder: WatchedFolder, first: int) -> None:
        self._folder, self._first, self._log = folder, first, FileLog(folder.log)
        self._before = [0]
        """Rows before each of the numbered files, and behind the last of them."""
        self._all: int | None = None
        self._again_at = 0.0

    def look(self, number: int, row: int) -> tuple[int, int] | None:
        """All rows, and those before a row of the file of a number; None as long as not all are counted."""
        now, at = time.monotonic(), number - self._first
        if self._all is None or now >= self._again_at or at >= len(self._before):
            self._all = self._counted()
            self._again_at = now + LOOKING * (time.monotonic() - now)
        return None if self._all is None else (self._all, self._before[at] + row)

    def _counted(self) -> int | None:
        """All rows; None where so many files came that the rest is for the next time."""
        listed = self._folder._listed()
        self._log.follow()  # behind the list: what was read and is gone is in it
        left = MOST_COUNTED
        for path in self._log.files[self._first + len(self._before) - 1 :][:left]:
            self._before.append(self._before[-1] + self._rows(path))
            left -= 1
        known = set(self._log.files)
        new = [path for path in listed if path not in known]
        uncounted = [path for path in new if path not in self._folder._rows]
        for path in uncounted[:left]:
            self._rows(path)
        if self._first + len(self._before) <= len(known) or len(uncounted) > left:
            return None
        return self._before[-1] + sum(map(self._rows, new))

    def _rows(self, path: str) -> int:
        known = self._folder._rows
        if path not in known:
            known[path] = pq.read_metadata(path).num_rows
        return known[path]


def _entries(folder: str, recursive: bool) -> Iterator[os.DirEntry[str]]:
    """The files that Spark would see: not those that a dot or an underscore hides."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_file():
                yield entry
            elif recursive:
                yield from _entries(entry.path, recursive)
            elif entry.is_dir() and "=" in entry.name:
                raise OptionError(
                    f"workers do not read folders that stand for columns, such as {entry.path}: use "
                    "engine('microbatch')"
                )


def is_hidden(name: str) -> bool:
    """Whether Spark leaves out a file or folder of this name.

    >>> [is_hidden(name) for name in (".a", "_SUCCESS", "_k=1", "a._COPYING_", "a.json")]
    [True, True, False, True, False]
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
