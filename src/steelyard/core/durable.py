"""State that outlives a process: files that are there whole or not at all, and damage that is noticed.

Every file is described by its length and a checksum in the commit that names it (`Described`); a commit carries a seal
over its own text (`sealed`, `opened`), and the number and the seal of the commit before it (`Link`). Whatever does not
fit is a StateError, which names the file and the remedy before a row is read.

On a local disk everything that a commit names is forced to it before the commit, which is forced before it appears
(`written`, `to_disk`, `made`): a power cut leaves the newest commit whole, or the one before it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.core.errors import StateError

FORMAT = 1
"""Of sealed texts; another one is not read."""
CHUNK = 1 << 20
"""Bytes that are read at a time."""
REMEDY = "bring it back from a backup, or begin anew with a new checkpoint and a new place for results"
_SEAL = re.compile(r', "seal": "([0-9a-f]{32})"\}\Z')


def damaged(file: object, what: str, remedy: str = REMEDY) -> StateError:
    """The one sentence: which file, what is wrong with it, and what to do.

    >>> print(damaged("a/b", "of batch 3 is missing", "bring it back"))
    the state in a/b of batch 3 is missing: bring it back
    """
    return StateError(f"the state in {file} {what}: {remedy}")


def state_error_in(error: BaseException) -> StateError | None:
    """What a task or a worker said of damaged state, out of an error that passed it on; None where it did not.

    >>> print(state_error_in(ValueError("in a task: StateError: the state in a is missing\\n  at b")))
    the state in a is missing
    >>> state_error_in(ValueError("in a task: orders.StateError: order 7 is closed"))
    """
    found = re.search(r"\bStateError: (the state in .*)", str(error))
    return StateError(found[1]) if found else None


class Described(NamedTuple):
    """A file, as the commit that names it knows it."""

    name: str
    size: int
    crc: int

    @classmethod
    def of(cls, name: str, data: bytes) -> Described:
        """Of a file with this content."""
        return cls(name, len(data), zlib.crc32(data))

    @classmethod
    def listed(cls, found: Iterable[Any], where: object) -> tuple[Described, ...]:
        """From what JSON made of them; StateError where a name leads out of its folder."""
        return tuple(cls(safe_name(name, where), size, crc) for name, size, crc in found)

    @classmethod
    def read(cls, file: Path, name: str) -> Described:
        """Of a local file, as it is now."""
        summing = Summing()
        with file.open("rb") as opened_file:
            while part := opened_file.read(CHUNK):
                summing.write(part)
        return summing.described(name)

    def require(self, found: Described | None, where: object, of: str) -> None:
        """StateError unless this is what was found; None where nothing was. `of` says whose file it is."""
        if found is None:
            raise damaged(where, f"of {of} is missing")
        if found.size != self.size:
            raise damaged(where, f"of {of} has {found.size} bytes, and had {self.size}")
        if found.crc != self.crc:
            raise damaged(where, f"of {of} is not what was written: its checksum differs")

    def checked(self, data: bytes, where: object, of: str) -> bytes:
        """`data`, if it is the content that is described; StateError else."""
        self.require(Described.of(self.name, data), where, of)
        return data


class Summing:
    """A file that is written, or counted only where there is none below, with its length and checksum."""

    closed = False

    def __init__(self, below: Any = None) -> None:
        self._below, self._size, self._crc = below, 0, 0

    def write(self, data: Any) -> int:
        """Write, and count."""
        if self._below is not None:
            self._below.write(data)
        view = memoryview(data)
        self._crc = zlib.crc32(view, self._crc)
        self._size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Whoever opened the file below flushes it."""

    def close(self) -> None:
        """Whoever opened the file below closes it."""

    def described(self, name: str) -> Described:
        """All that was written so far."""
        return Described(name, self._size, self._crc)


class Link(NamedTuple):
    """What a commit knows of the one before it."""

    number: int
    seal: str


def sealed(body: Mapping[str, Any]) -> str:
    """A body as JSON that no change of a byte goes unnoticed in.

    >>> opened(sealed({"batch": 7}), "a file", "batch 7")[0]["batch"]
    7
    """
    text = json.dumps({"format": FORMAT, **body})
    return f'{text[:-1]}, "seal": "{_digest(text)}"}}'


def opened(text: str | bytes, file: object, of: str) -> tuple[dict[str, Any], str]:
    """The body of a sealed text, and its seal; StateError where it is none.

    >>> opened(sealed({"batch": 7}).replace("7", "6"), "c.json", "batch 7")
    Traceback (most recent call last):
    steelyard.core.errors.StateError: the state in c.json of batch 7 is damaged, or of an earlier release: ...
    """
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    found = _SEAL.search(text)
    plain = f"{text[: found.start()]}}}" if found else ""
    if found is None or found[1] != _digest(plain):
        raise damaged(file, f"of {of} is damaged, or of an earlier release")
    body = json.loads(plain)
    if body.pop("format") != FORMAT:
        raise damaged(file, f"of {of} has a format that this release does not know", "use the release that wrote it")
    return body, found[1]


def seal_of(text: str) -> str:
    """The seal of a text that `sealed` gave."""
    return text[-34:-2]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def safe_name(name: Any, where: object) -> str:
    """A name that a commit in `where` has for a file below its folder; StateError where it leads elsewhere.

    >>> safe_name("log/3-ab/part-0", "c.json")
    'log/3-ab/part-0'
    >>> safe_name("../part-0", "c.json")
    Traceback (most recent call last):
    steelyard.core.errors.StateError: the state in c.json names '../part-0', which is not below its folder: ...
    """
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or any(part in ("", ".", "..") or set(part) & set("\\:\0") for part in parts):
        raise damaged(where, f"names {name!r}, which is not below its folder")
    return str(name)


def written(path: Path, write: Callable[[Any], Any]) -> Described:
    """Make a file of what `write` puts into it: aside first, forced to disk, then moved into place, with its name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = written(Path(folder, "a"), lambda file: file.write(b"12"))
    ...     [entry.name for entry in Path(folder).iterdir()], made.size
    (['a'], 2)
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            summing = Summing(file)
            write(summing)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    to_disk(path.parent)
    return summing.described(path.name)


def to_disk(path: Path) -> None:
    """Force to disk what a file has, whoever wrote it, or which names a folder has.

    After a power cut a file may else be empty that was closed long before, and one that was renamed may have its old
    name. File systems that cannot force a folder keep names by themselves.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(number)


def made(folder: Path) -> Path:
    """A folder that is there, and whose name is on disk if it was not there before."""
    missing = list(itertools.takewhile(lambda one: not one.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        to_disk(one.parent)
    return folder
