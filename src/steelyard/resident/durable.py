"""Files that are there whole, or not at all, also after a power cut."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def written(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Make a file of what `write` puts into it: aside first, forced to disk, then moved into place.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written(Path(folder, "a"), lambda file: file.write(b"12"))
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['a']
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    names_to_disk(path.parent)


def names_to_disk(folder: Path) -> None:
    """Force to disk which names a folder has: a file that was renamed may else have its old name after a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
