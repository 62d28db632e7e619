"""Small files on whatever file system a checkpoint lives on: local, HDFS, an object store."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import SparkSession


class Folder:
    """A folder, through Hadoop's file system, so that any checkpoint location that Spark takes will do.

    Parameters
    ----------
    spark
        A session; only its JVM and Hadoop configuration are used.
    path
        Where; made when something is written.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self.path = path.rstrip("/")
        self._path = self._jvm.org.apache.hadoop.fs.Path  # each dot is a call of the JVM
        root = self._path(self.path)
        self._fs = root.getFileSystem(context._jsc.hadoopConfiguration())

    def _at(self, name: str) -> Any:
        return self._path(f"{self.path}/{name}" if name else self.path)

    def child(self, name: str) -> str:
        """The full path of `name` in this folder."""
        return f"{self.path}/{name}"

    def exists(self, name: str = "") -> bool:
        """Whether `name` is there."""
        return bool(self._fs.exists(self._at(name)))

    def names(self) -> list[str]:
        """What is in the folder; nothing where there is no folder."""
        if not self.exists():
            return []
        return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._at("")))

    def read(self, name: str) -> str:
        """The text of a file."""
        stream = self._fs.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_once(self, name: str, text: str) -> None:
        """Write a file in one step: a reader sees all of it or nothing. One that is there is replaced."""
        part = f".{name}.{uuid.uuid4().hex}"
        stream = self._fs.create(self._at(part), True)
        try:
            stream.write(text.encode("utf-8"))
        finally:
            stream.close()
        self._fs.delete(self._at(name), False)
        self.rename(part, name)

    def rename(self, old: str, new: str) -> None:
        """Move a file or a folder inside this folder, in one step."""
        if not self._fs.rename(self._at(old), self._at(new)):
            raise OSError(f"{self.child(old)} could not be renamed to {new}")

    def make(self) -> None:
        """Make the folder."""
        self._fs.mkdirs(self._at(""))

    def delete(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        self._fs.delete(self._at(name), True)
