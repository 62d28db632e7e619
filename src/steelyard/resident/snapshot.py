"""Snapshots on a file system that all workers see: the state of each instance, and what makes it count.

States are written first, each under its own name; the commit, one small file that is moved into place, makes
them the point to go on from. What no commit names never happened.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from steelyard.core import SteelyardError
from steelyard.core.dataflow import Instance
from steelyard.resident.operator import State

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

    def _state(self, epoch: int, instance: Instance) -> Path:
        return self._folder(epoch) / f"{quote(str(instance), safe='')}.state"

    def write(self, epoch: int, instance: Instance, state: State) -> int:
        """Keep the state of an instance; gives its bytes. Called in workers."""
        data = packed(state)
        self._folder(epoch).mkdir(parents=True, exist_ok=True)
        _written(self._state(epoch, instance), data)
        return len(data)

    def read(self, epoch: int, instance: Instance) -> State:
        """The state of an instance in a snapshot; SteelyardError where it has none."""
        try:
            return unpacked(self._state(epoch, instance).read_bytes())
        except FileNotFoundError:
            raise SteelyardError(
                f"the snapshot of epoch {epoch} in {self.path} has no state of {instance}: was the dataflow changed?"
            ) from None

    def commit(self, epoch: int, what: Mapping[str, Any]) -> None:
        """Make a snapshot the one to go on from; those before the last two are removed."""
        _written(self.path / f"commit-{epoch:08d}.json", json.dumps(what).encode())
        for old in self._committed()[:-2]:
            (self.path / f"commit-{old:08d}.json").unlink()
            shutil.rmtree(self._folder(old), ignore_errors=True)

    def _committed(self) -> list[int]:
        return sorted(int(file.stem.removeprefix("commit-")) for file in self.path.glob("commit-*.json"))

    def latest(self) -> int | None:
        """The epoch of the newest snapshot that is whole, or None."""
        epochs = self._committed()
        return epochs[-1] if epochs else None

    def commit_of(self, epoch: int) -> dict[str, Any]:
        """What was committed with a snapshot."""
        found: dict[str, Any] = json.loads((self.path / f"commit-{epoch:08d}.json").read_bytes())
        return found


def _written(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole, or not at all, also after a power cut."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
