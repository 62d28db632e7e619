"""Small files on whatever file system a checkpoint lives on: local, HDFS, an object store."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from steelyard.core import OptionError
from steelyard.core.durable import Described, damaged, made, to_disk, written

READERS = 4
"""Files that are read, or forced to disk, at a time."""


def local_path(spark: SparkSession, path: str) -> Path | None:
    """Where a path that Spark was given is on this machine; None where it is on another file system.

    Hadoop reads it, so that `file:/data`, `file:///data` and `/data` are one folder, and a percent sign is itself.
    """
    context: Any = spark.sparkContext
    given = context._jvm.org.apache.hadoop.fs.Path(path)
    if given.toUri().getScheme() not in (None, "file"):
        return None
    whole = given.getFileSystem(context._jsc.hadoopConfiguration()).makeQualified(given).toUri()
    return Path(str(whole.getPath())) if str(whole.getScheme()) == "file" else None


_ENGINES = {
    "plain Structured Streaming": ("offsets", "metadata"),
    "the micro-batch engine": ("steelyard",),
    "the resident engine": ("snapshots",),
}
"""Who leaves what in a checkpoint."""


class Folder:
    """A folder on Hadoop's file systems, so that any checkpoint location that Spark takes will do.

    Local files are read and written without a way through the JVM, which takes a hundred times as long.

    Parameters
    ----------
    spark
        A session; only its JVM and Hadoop configuration are used.
    path
        Where; made when something is written.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self.path = path.rstrip("/")
        root = context._jvm.org.apache.hadoop.fs.Path(self.path)
        system = root.getFileSystem(context._jsc.hadoopConfiguration())
        uri = system.makeQualified(root).toUri()
        self._files: _Files = (
            _Local(Path(uri.getPath())) if uri.getScheme() == "file" else _Hadoop(context._jvm, system, self.path)
        )

    def inside(self, name: str) -> Folder:
        """The folder `name` in this one."""
        folder = Folder.__new__(Folder)
        folder.path, folder._files = self.child(name), self._files.inside(name)
        return folder

    def child(self, name: str) -> str:
        """The full path of `name` in this folder."""
        return f"{self.path}/{name}"

    def exists(self, name: str = "") -> bool:
        """Whether `name` is there."""
        return self._files.exists(name)

    def names(self, name: str = "") -> list[str]:
        """What is in the folder, or in the folder `name` in it; nothing where there is no folder."""
        return sorted(self._files.names(name))

    def refuse_others(self, names: Iterable[str]) -> None:
        """OptionError where another engine has begun a checkpoint here; `names` are those that this one would use."""
        here = set(self.names())
        for engine, marks in _ENGINES.items():
            if here.intersection(marks) and not set(names).intersection(marks):
                raise OptionError(
                    f"the checkpoint {self.path} was begun by {engine}, and this query cannot go on from there: "
                    "use a new checkpoint location"
                )

    def read(self, name: str, of: str) -> str:
        """The text of a file; StateError where there is none. `of` says whose it is, as in "batch 3"."""
        return self.read_bytes(name, of).decode("utf-8", "replace")

    def read_bytes(self, name: str, of: str) -> bytes:
        """The same for a file that is no text."""
        data = self._files.read(name)
        if data is None:
            raise damaged(self.child(name), f"of {of} is missing")
        return data

    def write_once(self, name: str, content: str | bytes) -> Described:
        """Write a file in one step: a reader sees all of it or nothing, on a local disk also after a power cut."""
        data = content.encode() if isinstance(content, str) else content
        self._files.write(name, data)
        return Described.of(name, data)

    def describe(self, names: Iterable[str]) -> tuple[Described, ...]:
        """Length and checksum of files that were just written, and are settled."""
        listed, found = list(names), []
        self.settle(listed)
        for name, one in zip(listed, self._described(listed), strict=True):
            if one is None:
                raise damaged(self.child(name), "is gone as soon as it was written")
            found.append(one)
        return tuple(found)

    def require(self, files: Iterable[Described], of: str) -> None:
        """StateError where a file is not as it is described."""
        listed = list(files)
        for one, found in zip(listed, self._described([one.name for one in listed]), strict=True):
            one.require(found, self.child(one.name), of)

    def _described(self, names: list[str]) -> list[Described | None]:
        if len(names) < 2:
            return [self._files.described(name) for name in names]
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(self._files.described, names))

    def settle(self, names: Iterable[str]) -> None:
        """Have files on disk that were just written, with their names, if it is local.

        Elsewhere a file that was closed is as safe as its file system makes it.
        """
        self._files.settle(list(names))

    def rename(self, old: str, new: str) -> None:
        """Move a file or a folder inside this folder, in one step."""
        self._files.rename(old, new)

    def refuse_file(self, what: str) -> None:
        """OptionError where there is a file in place of the folder; `what` is what the user gave its path for."""
        if self._files.is_file():
            raise OptionError(f"{what}: {self.path} is a file or below one, and a folder is needed: give another path")

    def make(self) -> None:
        """Make the folder."""
        self._files.make()

    def delete(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        self._files.delete(name)


class _Files(Protocol):
    """What a folder needs of a file system; names are relative to the folder."""

    def inside(self, name: str) -> _Files: ...
    def is_file(self) -> bool: ...
    def exists(self, name: str) -> bool: ...
    def names(self, name: str) -> list[str]: ...
    def read(self, name: str) -> bytes | None: ...
    def described(self, name: str) -> Described | None: ...
    def write(self, name: str, data: bytes) -> None: ...
    def settle(self, names: list[str]) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def make(self) -> None: ...
    def delete(self, name: str) -> None: ...


class _Local:
    def __init__(self, root: Path) -> None:
        self._root = root

    def inside(self, name: str) -> _Local:
        return _Local(self._root / name)

    def is_file(self) -> bool:
        return any(path.is_file() for path in (self._root, *self._root.parents))

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def names(self, name: str) -> list[str]:
        try:
            return os.listdir(self._root / name)
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def described(self, name: str) -> Described | None:
        try:
            return Described.read(self._root / name, name)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        written(self._root / name, lambda file: file.write(data))

    def settle(self, names: list[str]) -> None:
        files = [self._root / name for name in names]
        folders = {folder for file in files for folder in file.parents if folder.is_relative_to(self._root)}
        with suppress(FileNotFoundError), ThreadPoolExecutor(READERS) as forcing:  # who reads it tells what is gone
            for some in (files, folders):
                list(forcing.map(to_disk, some))

    def rename(self, old: str, new: str) -> None:
        (self._root / old).rename(self._root / new)
        to_disk(self._root)

    def make(self) -> None:
        made(self._root)

    def delete(self, name: str) -> None:
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Hadoop:
    def __init__(self, jvm: Any, system: Any, path: str) -> None:
        self._jvm, self._fs, self._root = jvm, system, path
        self._path = jvm.org.apache.hadoop.fs.Path  # each dot is a call of the JVM
        self._utils = jvm.org.apache.commons.io.IOUtils

    def _at(self, name: str) -> Any:
        return self._path(f"{self._root}/{name}" if name else self._root)

    def inside(self, name: str) -> _Hadoop:
        return _Hadoop(self._jvm, self._fs, f"{self._root}/{name}")

    def is_file(self) -> bool:
        return self.exists("") and bool(self._fs.getFileStatus(self._at("")).isFile())

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._at(name)))

    def names(self, name: str) -> list[str]:
        if not self.exists(name):
            return []
        return [str(status.getPath().getName()) for status in self._fs.listStatus(self._at(name))]

    def read(self, name: str) -> bytes | None:
        stream = self._opened(name)
        if stream is None:
            return None
        try:
            return bytes(self._utils.toByteArray(stream))
        finally:
            stream.close()

    def described(self, name: str) -> Described | None:
        """Summed up in the JVM: the file's content does not come here."""
        stream = self._opened(name)
        if stream is None:
            return None
        crc = self._jvm.java.util.zip.CRC32()
        try:
            size = self._utils.consume(self._jvm.java.util.zip.CheckedInputStream(stream, crc))
            return Described(name, int(size), int(crc.getValue()))
        finally:
            stream.close()

    def _opened(self, name: str) -> Any:
        try:
            return self._fs.open(self._at(name))
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
                return None
            raise

    def write(self, name: str, data: bytes) -> None:
        part = f".{name}.{uuid.uuid4().hex}"
        stream = self._fs.create(self._at(part), True)
        try:
            stream.write(data)
        finally:
            stream.close()
        self.rename(part, name)

    def settle(self, names: list[str]) -> None:
        pass

    def rename(self, old: str, new: str) -> None:
        if not self._fs.rename(self._at(old), self._at(new)):
            raise OSError(f"{self._root}/{old} could not be renamed to {new}")

    def make(self) -> None:
        self._fs.mkdirs(self._at(""))

    def delete(self, name: str) -> None:
        self._fs.delete(self._at(name), True)
