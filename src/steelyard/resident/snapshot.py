"""Snapshots on a file system that all workers see: the state of each instance, and what makes it count.

States are written first, each under a name of its own attempt; the commit, one small file that is moved into
place, names them and makes them the point to go on from. What no commit names never happened: a worker that was
taken for dead and still writes can harm nobody.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from steelyard.core import SteelyardError
from steelyard.core.dataflow import Instance
from steelyard.core.durable import written
from steelyard.resident.manifest import Manifest
from steelyard.resident.operator import Attempt, State

_MAGIC = b"SYSTATE1"
_LENGTH = struct.Struct("!Q")


def packed(state: State) -> bytes:
    """A state as bytes: a list of its parts, then each part. Tables are Arrow streams, the rest is JSON.

    >>> unpacked(packed({"offset": 7, "rows": pa.table({"x": [1]}), "raw": b"12"}))["rows"].num_rows
    1
    """
    listed, blobs = [], []
    for name, value in state.items():
        if isinstance(value, pa.Table):
            file = io.BytesIO()
            with pa.ipc.new_stream(file, value.schema) as writer:
                writer.write_table(value)
            kind, blob = "table", file.getvalue()
        elif isinstance(value, bytes):
            kind, blob = "bytes", value
        else:
            kind, blob = "json", json.dumps(value).encode()
        listed.append([name, kind, len(blob)])
        blobs.append(blob)
    index = json.dumps(listed).encode()
    return b"".join([_MAGIC, _LENGTH.pack(len(index)), index, *blobs])


def unpacked(data: bytes) -> State:
    """The state that `packed` was given; SteelyardError where the bytes are none."""
    if not data.startswith(_MAGIC):
        raise SteelyardError(f"this is no state of an operator: it begins with {data[: len(_MAGIC)]!r}")
    at = len(_MAGIC) + _LENGTH.size
    (size,) = _LENGTH.unpack(data[len(_MAGIC) : at])
    state: State = {}
    start = at + size
    for name, kind, length in json.loads(data[at:start]):
        blob = data[start : start + length]
        start += length
        if kind == "table":
            state[name] = pa.ipc.open_stream(blob).read_all()
        else:
            state[name] = blob if kind == "bytes" else json.loads(blob)
    return state


class SnapshotStore:
    """Snapshots under one folder, numbered by the epoch that they end.

    Parameters
    ----------
    path
        A folder that the driver and all workers see under this name.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def _folder(self, epoch: int) -> Path:
        return self.path / f"epoch-{epoch:08d}"

    def _commit(self, epoch: int) -> Path:
        return self.path / f"commit-{epoch:08d}.json"

    def write(self, epoch: int, instance: Instance, state: State, attempt: Attempt) -> str:
        """Keep the state of an instance; gives the name under which the commit is to name it. Called in workers."""
        data = packed(state)
        folder = self._folder(epoch)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{quote(str(instance), safe='')}.{attempt}.state"
        written(file, lambda opened: opened.write(data))
        return f"{folder.name}/{file.name}"

    def load(self, file: str) -> State:
        """The state under a name that `write` gave."""
        return unpacked((self.path / file).read_bytes())

    def read(self, epoch: int, instance: Instance) -> State:
        """The state of an instance in a snapshot; SteelyardError where it has none."""
        return self.load(file_of(self.manifest(epoch).files, instance))

    def commit(self, manifest: Manifest) -> None:
        """Make a snapshot the one to go on from; those before the last two are removed.

        SteelyardError where the epoch has a commit already: it is another job's, and both would write all rows.
        """
        data = manifest.packed()
        self.path.mkdir(parents=True, exist_ok=True)
        if self._commit(manifest.epoch).exists():
            other = self.manifest(manifest.epoch).attempt
            raise SteelyardError(
                f"store {self.path} has a snapshot of epoch {manifest.epoch} already, of attempt {other}, and this is "
                f"{manifest.attempt}: give each job a store= of its own"
            )
        written(self._commit(manifest.epoch), lambda file: file.write(data))
        kept = self._committed()[-2:]
        for old in self._committed()[:-2]:
            self._commit(old).unlink()
        for folder in self.path.glob("epoch-*"):
            if int(folder.name.removeprefix("epoch-")) < kept[0]:
                shutil.rmtree(folder, ignore_errors=True)  # with what failed attempts left

    def _committed(self) -> list[int]:
        return sorted(int(file.stem.removeprefix("commit-")) for file in self.path.glob("commit-*.json"))

    def latest(self) -> int | None:
        """The epoch of the newest snapshot that is whole, or None."""
        epochs = self._committed()
        return epochs[-1] if epochs else None

    def manifest(self, epoch: int) -> Manifest:
        """What was committed with a snapshot."""
        file = self._commit(epoch)
        return Manifest.unpacked(file.read_bytes(), str(file))

    def newest(self) -> Manifest | None:
        """The commit of the newest snapshot that is whole, or None."""
        epoch = self.latest()
        return None if epoch is None else self.manifest(epoch)


def file_of(files: Mapping[str, str], instance: Instance) -> str:
    """The file of an instance's state; SteelyardError where a commit names none."""
    if str(instance) not in files:
        raise SteelyardError(f"the snapshot has no state of {instance}: was the dataflow changed?")
    return files[str(instance)]
