"""Checkpoints of queries that nobody wants to go on with: folders that go when the query ends, or else this process."""

from __future__ import annotations

import tempfile

_FOLDERS: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""By path. What is left here at the end of the process is removed then."""


def scratch() -> str:
    """A new folder; whoever watches the query hands it back with `let_go`.

    >>> import os
    >>> made = scratch()
    >>> let_go(made)
    >>> os.path.exists(made)
    False
    """
    made = tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True)
    _FOLDERS[made.name] = made
    return made.name


def let_go(path: str) -> None:
    """Remove a folder that `scratch` made; any other is left alone."""
    folder = _FOLDERS.pop(path, None)
    if folder is not None:
        folder.cleanup()
