"""What a query computes, apart from how: keys, window, aggregates, and the function before them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.hidden import NUMBER
from steelyard.spark.aggregates import Builtin, Prefix, in_jvm
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.arrow import require_arrow

RESERVED = "__"
"""Columns of our own start with this, so that a user's cannot."""


@dataclass(frozen=True)
class Window:
    """Windows of `size` microseconds, one every `slide`, aligned to the epoch as Spark's are.

    Rows are kept by pane: the longest span that every window is a whole number of.
    """

    size: int
    slide: int

    @property
    def signature(self) -> list[int]:
        """As a checkpoint knows it."""
        return [self.size, self.slide]

    @property
    def pane(self) -> int:
        """Length of a pane in microseconds."""
        return math.gcd(self.size, self.slide)

    @property
    def panes(self) -> int:
        """Panes of a window."""
        return self.size // self.pane


@dataclass(frozen=True)
class Session:
    """Sessions of rows of a key that follow each other by `gap` microseconds or less, as Spark's `session_window`.

    A pane is as long as the gap: all rows of a key in one pane are of one session.
    """

    gap: int

    @property
    def signature(self) -> list[int]:
        """As a checkpoint knows it."""
        return [self.gap]

    @property
    def pane(self) -> int:
        """Length of a pane in microseconds."""
        return self.gap


@dataclass(frozen=True)
class MapFunction:
    """A vectorised function over batches of rows, with the schema of what it gives."""

    function: Callable[[Any], Any]
    schema: T.StructType
    form: str


@dataclass(frozen=True)
class Program:
    """Keys, window, aggregates and map function of one query."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate | AggregatorUse]
    window: Window | Session | None = None
    time: str | None = None
    delay: int = 0
    """Allowed lateness in microseconds."""
    map: MapFunction | None = None

    @property
    def session(self) -> Session | None:
        """The window, where it is a session."""
        return self.window if isinstance(self.window, Session) else None

    @property
    def builtins(self) -> dict[str, Builtin]:
        """The aggregates that stay in the JVM."""
        return {name: in_jvm(use) for name, use in self.aggregates.items() if isinstance(use, Aggregate)}

    @property
    def pythons(self) -> dict[str, AggregatorUse]:
        """The aggregates written in Python."""
        return {name: use for name, use in self.aggregates.items() if isinstance(use, AggregatorUse)}


@dataclass(frozen=True)
class Bound:
    """A program that was checked against the schema of its input.

    Parameters
    ----------
    program
        What is computed.
    given
        Schema of the input.
    rows
        Schema of what is aggregated: the map function's where there is one.
    """

    program: Program
    given: T.StructType
    rows: T.StructType
    parsed: tuple[str, ...] = field(default=())
    """String columns that are read as numbers."""

    @classmethod
    def of(cls, program: Program, given: T.StructType, case_sensitive: bool = False) -> Bound:
        """Check every column that the program names; raises OptionError with the nearest right name.

        `case_sensitive` is whether Spark's SQL tells `n` from `N`, as `spark.sql.caseSensitive` says.
        """
        rows = program.map.schema if program.map else given
        for name in given.names if not program.map else [*given.names, *rows.names]:
            if name.startswith(RESERVED):
                raise OptionError(f"column {name!r}: names that start with {RESERVED!r} are reserved; rename it")
        for key in program.keys:
            _known(rows, key, "key column")
            if isinstance(rows[key].dataType, T.MapType | T.VariantType):
                raise OptionError(f"key column {key!r} is a {rows[key].dataType.simpleString()}, which cannot be a key")
        if program.time is not None:
            _known(rows, program.time, "time column")
            if not isinstance(rows[program.time].dataType, T.TimestampType | T.TimestampNTZType):
                kind = rows[program.time].dataType.simpleString()
                raise OptionError(f"time column {program.time!r} must be a timestamp and is a {kind}: convert it first")
        parsed = []
        for name, use in program.aggregates.items():
            for column in use.columns:
                _known(rows, column, f"column of aggregate {name!r}:")
                if (
                    isinstance(use, Aggregate)
                    and in_jvm(use).numeric
                    and _must_parse(rows[column].dataType, name, column)
                ):
                    parsed.append(column)
        bound = cls(program, given, rows, tuple(dict.fromkeys(parsed)))
        if program.map is not None:
            require_arrow(given, "the map function")
        in_python = dict.fromkeys(column for use in program.pythons.values() for column in use.columns)
        if in_python:
            taken = [rows[name] for name in dict.fromkeys([*program.keys, *in_python])]
            require_arrow(T.StructType(taken), "a Python aggregate")
        bound._told_apart((lambda name: name) if case_sensitive else str.lower)
        return bound

    def _told_apart(self, seen: Callable[[str], str]) -> None:
        """Raise an OptionError where two columns have one name, as Spark's SQL has `seen` it."""
        program = self.program
        used = dict.fromkeys([*program.keys, *([program.time] if program.time else []), *self.inputs])
        used |= {} if program.aggregates else dict.fromkeys(self.rows.names)
        for name in used:
            twins = [other for other in self.rows.names if seen(other) == seen(name)]
            if len(twins) > 1:
                which = "what the map function gives" if program.map else "the input"
                raise OptionError(
                    f"columns {twins[0]!r} and {twins[1]!r} of {which} have one name to Spark's SQL: rename one of them"
                )
        of_windows = [seen(name) for name in ("window_start", "window_end")] if program.window else []
        for key in program.keys:
            if seen(key) in of_windows:
                raise OptionError(f"key column {key!r} has the name of a window column of the results: rename it first")
        of_aggregates: dict[str, str] = {}
        for name in program.aggregates:
            if seen(name) in (*map(seen, program.keys), *of_windows):
                raise OptionError(f"aggregate {name!r} has the name of a key or window column: choose another")
            other = of_aggregates.setdefault(seen(name), name)
            if other != name:
                raise OptionError(f"aggregates {other!r} and {name!r} have one name to Spark's SQL: rename one of them")

    @property
    def result_columns(self) -> list[str]:
        """Names of the result's columns, in order."""
        program = self.program
        if not program.aggregates:
            return self.rows.names
        return [*(("window_start", "window_end") if program.window else ()), *program.keys, *program.aggregates]

    @property
    def places_before_map(self) -> bool:
        """Whether rows can be placed by key before the map function runs: they have their keys then, as they stay."""
        return all(
            key in self.given.names and self.given[key].dataType == self.rows[key].dataType for key in self.program.keys
        )

    @property
    def keys_can_be_listed(self) -> bool:
        """Whether a plan can list keys: equal to Spark must mean equal to Arrow, or a join would double rows."""
        plain = T.NumericType | T.BooleanType | T.DateType | T.TimestampType | T.TimestampNTZType | T.BinaryType
        kinds = [self.rows[key].dataType for key in self.program.keys]
        return all(
            isinstance(kind, plain) or (isinstance(kind, T.StringType) and kind.collation == "UTF8_BINARY")
            for kind in kinds
        )

    @property
    def inputs(self) -> list[str]:
        """The columns that aggregates read, each once."""
        return list(dict.fromkeys(column for use in self.program.aggregates.values() for column in use.columns))

    def number(self, column: str) -> str:
        """The name under which a column is read as a number."""
        return f"{NUMBER}{column}" if column in self.parsed else column

    def prefix(self, name: str) -> Prefix:
        """The names of an aggregate's state columns."""
        return Prefix(name)

    def signature(self) -> dict[str, Any]:
        """What must not change between two starts from one checkpoint, as plain values."""
        program = self.program
        rows = {} if program.aggregates else {"rows": self.rows.simpleString()}
        return rows | {
            "keys": {key: self.rows[key].dataType.simpleString() for key in program.keys},
            "window": program.window.signature if program.window else None,
            "time": program.time,
            "aggregates": {name: _described(use, self.rows) for name, use in program.aggregates.items()},
        }


def _known(schema: T.StructType, column: str, what: str) -> None:
    if column not in schema.names:
        raise OptionError.unknown(what, column, schema.names)


def _must_parse(kind: T.DataType, name: str, column: str) -> bool:
    if isinstance(kind, T.StringType):
        return True
    if not isinstance(kind, T.NumericType):
        raise OptionError(f"aggregate {name!r} needs a number and column {column!r} is a {kind.simpleString()}")
    return False


def _described(use: Aggregate | AggregatorUse, rows: T.StructType) -> str:
    kinds = ", ".join(f"{column} {rows[column].dataType.simpleString()}" for column in use.columns)
    if isinstance(use, AggregatorUse):
        kind = type(use.aggregator)
        return f"{kind.__name__}[{kind.state} -> {kind.result}]({kinds})"
    options = [f"{name}={value}" for name, value in use.options]
    return f"{use.function}({', '.join([*([kinds] if kinds else []), *options])})"
