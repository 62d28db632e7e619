"""Ways to damage a file, and the files of a checkpoint by their kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Damage = Callable[[Path, Path | None], None]


def delete(file: Path, older: Path | None) -> None:
    file.unlink()


def truncate(file: Path, older: Path | None) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def flip(file: Path, older: Path | None) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def swap(file: Path, older: Path | None) -> None:
    if older is not None:
        file.write_bytes(older.read_bytes())


DAMAGES: dict[str, Damage] = {"delete": delete, "truncate": truncate, "flip": flip, "swap": swap}


def kind_of(file: Path, root: Path) -> str:
    """A file's place without the numbers and random parts of its name.

    >>> kind_of(Path("/c/steelyard/log/12-0a4472106ee3/part-00001-0cc0-c000.parquet"), Path("/c"))
    'steelyard/log/N/part-N.parquet'
    """
    named = re.sub(r"[0-9a-f]{8,}|[0-9][0-9a-f-]*", "N", str(file.relative_to(root)))
    return re.sub(r"N(-?N)*", "N", named)


def files_of(root: Path) -> list[Path]:
    """Every file, oldest first."""
    found = (file for file in root.rglob("*") if file.is_file())
    return sorted(found, key=lambda file: (file.stat().st_mtime_ns, file))


def olders(root: Path) -> dict[Path, Path | None]:
    """Of each file: the newest one of its kind that is older and of other content."""
    found: dict[Path, Path | None] = {}
    before: dict[str, list[Path]] = {}
    for file in files_of(root):
        same = before.setdefault(kind_of(file, root), [])
        data = file.read_bytes()
        found[file] = next((one for one in reversed(same) if one.read_bytes() != data), None)
        same.append(file)
    return found


@contextmanager
def damaged(file: Path, how: str, older: Path | None) -> Iterator[bool]:
    """A file that is damaged meanwhile; gives whether it is another now."""
    data = file.read_bytes()
    DAMAGES[how](file, older)
    try:
        yield not file.exists() or file.read_bytes() != data
    finally:
        file.write_bytes(data)
