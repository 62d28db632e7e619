"""The line of every key of a TOML document, which tomllib does not tell."""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str | int, ...]
"""Names of tables and keys from the outermost on; a number counts the elements of an array."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line of every key and table of a TOML document, by its path; `text` must be valid TOML.

    Examples
    --------
    >>> key_lines("a = 1\\n[b]\\nc.d = { e = 2 }\\n")[("b", "c", "d", "e")]
    3
    """
    return _KeyLines(text).lines


class _KeyLines:
    """Walks over a valid document once."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.lines = text, 0, dict[KeyPath, int]()
        self.lengths: dict[KeyPath, int] = {}  # of arrays of tables
        prefix: KeyPath = ()
        while self.skip(r"(?:\s|#[^\n]*)*") and self.at < len(text):
            if brackets := self.take(r"\[\[?"):
                prefix = self.header(self.key(), is_array=brackets == "[[")
                self.take(r"\]\]?")
            else:
                self.pair(prefix)

    def take(self, pattern: str) -> str:
        """What `pattern` matches here, stepped over; empty where it does not match."""
        match = re.compile(pattern, re.DOTALL).match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match.group() if match else ""

    def skip(self, pattern: str) -> bool:
        self.take(pattern)
        return True

    def note(self, path: KeyPath) -> None:
        """Keep the first line at which a path stands."""
        self.lines.setdefault(path, self.text.count("\n", 0, self.at) + 1)

    def key(self) -> list[str]:
        """A dotted key, its quoted parts decoded."""
        parts = []
        while self.skip(r"[ \t.]*") and (part := self.take(r'[\w-]+|"(?:\\.|[^"\\])*"|\'[^\']*\'')):
            parts.append(tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part)
        return parts

    def header(self, parts: list[str], is_array: bool) -> KeyPath:
        """The path of a table header; an array of tables on the way means its last element."""
        path: KeyPath = ()
        for place, part in enumerate(parts):
            path = (*path, part)
            self.note(path)
            if is_array and place == len(parts) - 1:
                self.lengths[path] = self.lengths.get(path, 0) + 1
            if path in self.lengths:
                path = (*path, self.lengths[path] - 1)
                self.note(path)
        return path

    def pair(self, prefix: KeyPath) -> None:
        """A key, an equals sign and a value."""
        for part in self.key():
            prefix = (*prefix, part)
            self.note(prefix)
        self.take(r"\s*=\s*")
        self.value(prefix)

    def value(self, path: KeyPath) -> None:
        """Step over a value; keys inside inline tables and arrays are noted."""
        if opening := self.take(r"[\[{]"):
            index = 0
            while self.skip(r"(?:[\s,]|#[^\n]*)*") and not self.take(r"[\]}]"):
                if opening == "{":
                    self.pair(path)
                else:
                    self.note((*path, index))
                    self.value((*path, index))
                    index += 1
        elif not self.take(r'"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+'):
            self.take(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[^,\]}\n#]+')
