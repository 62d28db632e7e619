"""Files that a reader is told of by their paths, or by a folder of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steelyard.core import OptionError


def files_of(given: Any, reader: str) -> tuple[str, ...]:
    """The files that `paths` of a reader name: several paths, or one; a folder stands for the files in it, by name.

    As Spark does, it leaves out files whose names begin with a dot or an underscore.
    """
    one = isinstance(given, str | os.PathLike)
    found: list[str] = []
    for path in [given] if one else given:
        if not isinstance(path, str | os.PathLike):
            raise OptionError(f"{reader} reads paths of files or folders, got {path!r} among them")
        if Path(path).is_dir():
            files = (file for file in Path(path).iterdir() if file.is_file() and not file.name.startswith((".", "_")))
            found += sorted(str(file) for file in files)
        elif one and not Path(path).exists():
            raise OptionError(f"{reader}: there is no file or folder {str(path)!r}")
        else:
            found.append(str(path))
    if not found:
        raise OptionError(
            f"{reader}: there are no files to read" + (f" in {str(given)!r}" if one else ": paths is empty")
        )
    return tuple(found)
