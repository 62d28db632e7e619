"""A trained policy as a file: arrays and what is known of them, without pickles, and checked when it is read."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from steelyard.core.errors import OptionError, StateError

T = TypeVar("T")
FORMAT = 1
"""Of these files; another one is not read."""
HEADER = "header"
_MARK = "steelyard trained policy"
_UNREADABLE = (
    OSError, ValueError, LookupError, EOFError, TypeError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
"""What reading an archive raises where bytes of it are others than they were."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What training left behind.

    Parameters
    ----------
    policy
        The name of the policy that it is for.
    arrays
        Weights by name.
    shapes
        What it may be used for: numbers that must be the same there, and names of operators.
    distribution
        What it was trained on: setups, rates, how samples were drawn.
    options
        What training was told.
    metrics
        What was found at its end.
    seed
        Of all random choices.

    Examples
    --------
    >>> made = Trained("dqn", {"q.0.weights": np.ones((2, 3))}, {"threads": 2}, seed=7)
    >>> again = Trained.from_bytes(made.to_bytes())
    >>> again.policy, again.shapes, again.arrays["q.0.weights"].shape
    ('dqn', {'threads': 2}, (2, 3))
    """

    policy: str
    arrays: Mapping[str, np.ndarray[Any, Any]]
    shapes: Mapping[str, Any] = field(default_factory=dict)
    distribution: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def to_bytes(self) -> bytes:
        """As a file's content: an archive of NumPy's that has a header in JSON."""
        for name, array in self.arrays.items():
            if name == HEADER or array.dtype.kind not in "fiub":
                raise OptionError(f"array {name!r} of a trained policy cannot be kept: it is {array.dtype}")
        told = {name: getattr(self, name) for name in _KEPT}
        told |= {"mark": _MARK, "format": FORMAT, "arrays": sorted(self.arrays)}
        text = json.dumps(told, sort_keys=True, default=_plain).encode()
        into = io.BytesIO()
        kept: dict[str, Any] = {HEADER: np.frombuffer(text, np.uint8), **self.arrays}
        np.savez(into, **kept)
        return into.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, where: object = "these bytes") -> Trained:
        """From a file's content; StateError, in one sentence, where that is damaged, of something else or too new."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as opened:
                arrays = {name: opened[name] for name in opened.files}
            told = json.loads(arrays.pop(HEADER).tobytes())
            mark, version = told["mark"], told["format"]
        except _UNREADABLE as error:
            raise StateError(f"{where} is no trained policy, or is damaged: train it again") from error
        if mark != _MARK:
            raise StateError(f"{where} is no trained policy, or is damaged: train it again")
        if version != FORMAT:
            raise StateError(
                f"{where} is a trained policy of format {version}, and this is a Steelyard of format {FORMAT}: "
                "train it again, or use the Steelyard that wrote it"
            )
        if sorted(arrays) != told.get("arrays"):
            raise StateError(f"{where} lacks weights that its header names: train it again")
        known = {name: told[name] for name in _KEPT if name in told}
        if set(known) != set(_KEPT) or not isinstance(known["policy"], str):
            raise StateError(f"{where} has a header that lacks something: train it again")
        return cls(arrays=arrays, **known)

    def save(self, path: str | Path) -> Path:
        """Write it: there is the whole file or none."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_bytes(self.to_bytes())
        beside.replace(path)
        return path

    @classmethod
    def load(cls, path: str | Path, policy: str | None = None) -> Trained:
        """Read one; StateError where there is none, where it cannot be used, or where it is of another policy."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise StateError(f"no trained policy can be read from {path}: {error.strerror or error}") from error
        found = cls.from_bytes(content, path)
        if policy is not None and found.policy != policy:
            raise StateError(
                f"{path} was trained for {found.policy!r}, not for {policy!r}: give the file of the latter"
            )
        return found

    def require(self, **shapes: Any) -> None:
        """Raise StateError unless it was trained for these shapes."""
        for name, wanted in shapes.items():
            had, asked = _same(self.shapes.get(name)), _same(wanted)
            if had != asked:
                raise StateError(
                    f"this {self.policy!r} was trained for {name}={had}, and here it is {asked}: "
                    "train one for this, or use a policy that fits any"
                )


_KEPT = ("policy", "shapes", "distribution", "options", "metrics", "seed")


def _plain(value: Any) -> Any:
    """Numbers of NumPy as JSON knows them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise OptionError(f"{value!r} cannot stand in the header of a trained policy")


def once_per_file(load: Callable[[Path], T]) -> Callable[[Path], T]:
    """Remember what a function makes of a file, as long as nobody writes another one there."""

    @lru_cache(maxsize=8)
    def made(path: Path, *_: int) -> T:
        return load(path)

    @wraps(load)
    def found(path: Path) -> T:
        try:
            now = path.stat()
        except OSError:
            return load(path)  # which says what is wrong
        return made(path, now.st_mtime_ns, now.st_size, now.st_ino)

    return found


def _same(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value, default=_plain))
