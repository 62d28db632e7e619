"""Snapshots on a file system that all workers see: the state of each instance, and what makes it count.

States are written first, each under a name of its own attempt; the commit, one small file that is moved into
place, names them and makes them the point to go on from. What no commit names never happened: a worker that was
taken for dead and still writes can harm nobody.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from steelyard.core import StateError, SteelyardError
from steelyard.core.durable import Described, Link, damaged, made, opened, safe_name, seal_of, sealed, written
from steelyard.core.topology import Instance
from steelyard.resident.manifest import Manifest
from steelyard.resident.operator import Attempt, State

_MAGIC = b"SYSTATE1"
_LENGTH = struct.Struct("!Q")
HEAD, DELIVERED = "head.json", "delivered.json"
CHECKPOINTS = "checkpoints"
"""The folder of checkpoints that are of no epoch: every instance takes them when it likes."""
_COMMIT = re.compile(r"commit-(\d{8,})\.json")
"""The file that says which commit is the newest."""


def packed(state: State) -> bytes:
    """A state as bytes: a list of its parts, then each part. Tables are Arrow streams, the rest is JSON.

    >>> unpacked(packed({"offset": 7, "rows": pa.table({"x": [1]}), "raw": b"12"}))["rows"].num_rows
    1
    """
    listed: list[list[Any]] = []
    blobs: list[Any] = []
    for name, value in state.items():
        if isinstance(value, pa.Table):
            file = pa.BufferOutputStream()
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

    A commit is sealed, describes the file of each state, and knows the commit before it. `head.json` says which commit
    is the newest. It is written behind each commit, and before anybody hears of it: a commit that is newer by one has
    just been written, or its driver ended there, and the next start writes the head; one that is older means that a
    commit is missing.

    Parameters
    ----------
    path
        A folder that the driver and all workers see under this name.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def head(self) -> Path:
        """The file that says which commit is the newest."""
        return self.path / HEAD

    @property
    def exists(self) -> bool:
        """Whether a store was made here."""
        return self.head.exists()

    def _folder(self, epoch: int) -> Path:
        return self.path / f"epoch-{epoch:08d}"

    def _commit(self, epoch: int) -> Path:
        return self.path / f"commit-{epoch:08d}.json"

    def write(self, epoch: int, instance: Instance | str, state: State, attempt: Attempt) -> Described:
        """Keep the state of an instance; gives the file as the commit is to name it. Called in workers.

        Or what else an epoch has, under its name.
        """
        data = packed(state)
        folder = made(self._folder(epoch))
        file = folder / f"{quote(str(instance), safe='')}.{attempt}.state"
        kept = written(file, lambda opened_file: opened_file.write(data))
        return kept._replace(name=f"{folder.name}/{file.name}")

    def keep(self, whose: Instance | str, number: int, state: State, attempt: Attempt) -> Described:
        """Keep a checkpoint of an instance, whatever the others do; gives the file as a commit is to name it."""
        made(self.path / CHECKPOINTS)
        name, data = checkpoint_name(whose, number, attempt), packed(state)
        kept = written(self.path / name, lambda opened_file: opened_file.write(data))
        return kept._replace(name=name)

    def forget(self, files: Iterable[Described]) -> None:
        """Remove checkpoints that nobody goes back to any more."""
        for one in files:
            (self.path / safe_name(one.name, self.path)).unlink(missing_ok=True)

    def sweep(self, newest: Attempt | None = None) -> None:
        """Remove checkpoints that no commit names; where workers are there, all but those of the newest attempt."""
        named = {file.name for epoch in self._committed() for file in self.manifest(epoch).described}
        for file in (self.path / CHECKPOINTS).glob("*"):
            of_newest = newest is not None and f".{newest}." in file.name
            if not of_newest and f"{CHECKPOINTS}/{file.name}" not in named:
                file.unlink(missing_ok=True)

    def load(self, file: Described) -> State:
        """The state in a file that `write` gave; StateError where it is not as it was."""
        where, of = self.path / safe_name(file.name, self.path), _epoch_of(file)
        try:
            return unpacked(file.checked(where.read_bytes(), where, of))
        except FileNotFoundError as error:
            raise damaged(where, f"of {of} is missing") from error

    def read(self, epoch: int, instance: Instance) -> State:
        """The state of an instance in a snapshot; SteelyardError where it has none."""
        return self.load(file_of(self.manifest(epoch).files, instance))

    def deliver(self, epoch: int) -> None:
        """Write down that what an epoch gave was handed on; a newer one stays."""
        if self.is_delivered(epoch):
            return
        text = sealed({"epoch": epoch})
        written(self.path / DELIVERED, lambda file: file.write(text.encode()))

    def is_delivered(self, epoch: int) -> bool:
        """Whether that was written down. Where it is damaged it was not: results may then come again."""
        where = self.path / DELIVERED
        try:
            return bool(opened(where.read_bytes(), where, "what was handed on")[0]["epoch"] >= epoch)
        except (OSError, StateError):
            return False

    def make(self) -> str:
        """Make an empty store, where there is none: from then on it is noticed if commits are gone. Gives its name.

        Where a driver ended between a commit and its head, the head is brought up to it. StateError where a file of the
        store is not as it was.
        """
        self._made()
        return self._name()

    def _name(self) -> str:
        """What tells it from a store that is made at the same path later; "" before the first head."""
        try:
            text = self.head.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return str(opened(text, self.head, "the newest epoch")[0].get("store", ""))

    def _made(self) -> tuple[Manifest | None, str]:
        """The newest commit and its seal, of a store whose head knows it."""
        newest, seal = self._newest()
        epoch, head = newest.epoch if newest else 0, self._head()
        if head is None or head.number < epoch:
            made(self.path)
            self._write_head(epoch, seal)
        return newest, seal

    def commit(self, manifest: Manifest) -> None:
        """Make a snapshot the one to go on from; those before the last two are removed.

        SteelyardError where the epoch has a commit already: it is another job's, and both would write all rows.
        """
        newest, seal = self._made()
        if newest is not None and manifest.epoch <= newest.epoch:
            raise SteelyardError(
                f"store {self.path} has a snapshot of epoch {newest.epoch} already, of attempt {newest.attempt}, and "
                f"this is {manifest.attempt}: give each job a store= of its own"
            )
        text = replace(manifest, before=Link(newest.epoch, seal) if newest else None).packed()
        written(self._commit(manifest.epoch), lambda file: file.write(text.encode()))
        self._write_head(manifest.epoch, seal_of(text))
        kept = self._committed()[-2:]
        for old in self._committed()[:-2]:
            self._commit(old).unlink()
        named = [*manifest.described, *(self.manifest(kept[0]).described if kept[0] < manifest.epoch else ())]
        needed = {file.name.partition("/")[0] for file in named}
        for folder in self.path.glob("epoch-*"):
            if int(folder.name.removeprefix("epoch-")) < kept[0] and folder.name not in needed:
                shutil.rmtree(folder, ignore_errors=True)  # with what failed attempts left

    def _write_head(self, epoch: int, seal: str) -> None:
        text = sealed({"epoch": epoch, "commit": seal, "store": self._name() or secrets.token_hex(4)})
        written(self.head, lambda file: file.write(text.encode()))

    def _head(self) -> Link | None:
        """The newest commit, as the head names it; None where there is no head."""
        try:
            text = self.head.read_bytes()
        except (FileNotFoundError, NotADirectoryError):  # whoever writes is told of the latter
            return None
        body, _ = opened(text, self.head, "the newest epoch")
        return Link(body["epoch"], body["commit"])

    def _committed(self) -> list[int]:
        named = (_COMMIT.fullmatch(file.name) for file in self.path.glob("commit-*.json"))
        return sorted(int(name[1]) for name in named if name)

    def latest(self) -> int | None:
        """The epoch of the newest snapshot that is whole, or None."""
        epochs = self._committed()
        return epochs[-1] if epochs else None

    def _opened(self, epoch: int) -> tuple[Manifest, str]:
        file = self._commit(epoch)
        return Manifest.unpacked(file.read_bytes(), file, epoch)

    def manifest(self, epoch: int) -> Manifest:
        """What was committed with a snapshot."""
        return self._opened(epoch)[0]

    def newest(self) -> Manifest | None:
        """The commit of the newest snapshot, or None; StateError where a file of the store is not as it was."""
        return self._newest()[0]

    def _newest(self) -> tuple[Manifest | None, str]:
        head, epochs = self._head(), self._committed()  # the head first: a job may be writing meanwhile
        if head is None:
            if epochs:
                raise damaged(self.head, f"of epoch {epochs[-1]} is missing, or of an earlier release")
            return None, ""
        if head.number > max(epochs, default=0):
            raise damaged(self._commit(head.number), f"of epoch {head.number} is missing")
        if not epochs:
            return None, ""
        newest, seal = self._opened(epochs[-1])
        if head.number == newest.epoch and head.seal != seal:
            raise damaged(self._commit(newest.epoch), f"of epoch {newest.epoch} is not the one that {HEAD} names")
        if head.number < newest.epoch and newest.before != (head if head.number else None):
            if self._head() != head:  # it was written meanwhile
                return self._newest()
            follows = f"does not follow epoch {head.number}, which {HEAD} names"
            raise damaged(self._commit(newest.epoch), f"of epoch {newest.epoch} {follows}")
        self._require_before(newest)
        return newest, seal

    def _require_before(self, newest: Manifest) -> None:
        """StateError where the commit before the newest is there, and is another than it was."""
        if newest.before is None:
            return
        epoch, seal = newest.before
        try:
            _, found = self._opened(epoch)
        except FileNotFoundError:
            return
        if found != seal:
            raise damaged(self._commit(epoch), f"of epoch {epoch} is not the one before that of epoch {newest.epoch}")

    def checked(self) -> Manifest | None:
        """The newest commit, or None; StateError where it, or a state that it names, is not as it was."""
        newest = self.newest()
        for file in newest.described if newest else ():
            where = self.path / file.name
            found = Described.read(where, file.name) if where.exists() else None
            file.require(found, where, _epoch_of(file))
        return newest


def checkpoint_name(whose: Instance | str, number: int, attempt: Attempt) -> str:
    """The file of a checkpoint, below the folder of the store."""
    return f"{CHECKPOINTS}/{quote(str(whose), safe='')}.{number:08d}.{attempt}.state"


def _epoch_of(file: Described) -> str:
    """Which epoch a state is of, by its folder."""
    folder, _, name = file.name.partition("/")
    return name.split(".")[0] if folder == CHECKPOINTS else f"epoch {int(folder.removeprefix('epoch-'))}"


def file_of(files: Mapping[str, Described], instance: Instance) -> Described:
    """The file of an instance's state; SteelyardError where a commit names none."""
    if str(instance) not in files:
        raise SteelyardError(f"the snapshot has no state of {instance}: was the dataflow changed?")
    return files[str(instance)]
