"""A query written as a TOML file: read, and checked with the line of every mistake. No Spark is needed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from steelyard.core.durations import micros
from steelyard.core.errors import OptionError, nearest
from steelyard.spark.toml_lines import KeyPath, key_lines

Check = Callable[[Any], str | None]
"""Says what is wrong with a value, or None."""


class PipelineError(OptionError):
    """Mistakes in a pipeline file: one line of text for each, with file and line number."""


@dataclass(frozen=True)
class Pipeline:
    """A checked description of a query. Fields that the file leaves out are empty.

    Examples
    --------
    >>> text = '''
    ... key = "medallion"
    ... source = { format = "steelyard", workload = "taxi" }
    ... aggregates = { total = { sum = "fare_amount" } }
    ... sink = { format = "console" }
    ... [policy]
    ... name = "promt"
    ... '''
    >>> parse_pipeline(text, "fares.toml")
    Traceback (most recent call last):
    steelyard.spark.pipeline_file.PipelineError: fares.toml:7: name in [policy]: unknown partitioner 'promt': ...
    """

    name: str
    key: tuple[str, ...]
    source: Mapping[str, Any]
    aggregates: Mapping[str, Mapping[str, Any]]
    sink: Mapping[str, Any]
    watermark: Mapping[str, str]
    window: Mapping[str, str]
    policy: Mapping[str, Any]
    elastic: Mapping[str, Any]
    bad_rows: Mapping[str, str]
    trigger: Mapping[str, Any]
    session: Mapping[str, Any]
    checkpoint: str = ""
    output_mode: str = ""
    engine: str = ""
    interval: str = ""
    workers: int = 0

    def steps(self) -> list[tuple[str, str]]:
        """What the query does, step by step, as words."""
        total = ", ".join(f"{name} = {_call(spec)}" for name, spec in self.aggregates.items())
        found = [("read", _words(self.source)), ("watermark", _words(self.watermark))]
        found += [("group by", ", ".join(self.key)), ("window", _words(self.window)), ("aggregate", total)]
        found += [("partition", _words(self.policy)), ("elastic", _words(self.elastic))]
        found += [("bad rows", _words(self.bad_rows)), ("write", _words(self.sink)), ("output mode", self.output_mode)]
        found += [("checkpoint", self.checkpoint), ("trigger", _words(self.trigger)), ("engine", self.engine)]
        return [(step, words) for step, words in found if words]


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline in a TOML file; PipelineError with every mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_pipeline(text, str(path))


def parse_pipeline(text: str, file: str = "pipeline.toml") -> Pipeline:
    """The pipeline in the text of a TOML file called `file`."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = at.group(1) if at else str(text.count("\n") + 1)
        said = re.sub(r" \(at .*\)$", "", str(error))
        raise PipelineError(f"{file}:{line}: not TOML: {said}") from error
    validation = _Validation(file, key_lines(text), given)
    validation.check()
    if validation.problems:
        raise PipelineError("\n".join(message for _, message in sorted(validation.problems)))
    tables = {table: given.get(table, {}) for table in ("aggregates", *_TABLES, *_BY_FORMAT)}
    key = given["key"]
    return Pipeline(
        name=given.get("name", Path(file).stem),
        key=(key,) if isinstance(key, str) else tuple(key),
        checkpoint=given.get("checkpoint", ""),
        output_mode=given.get("output_mode", ""),
        engine=given.get("engine", ""),
        interval=given.get("interval", ""),
        workers=given.get("workers", 0),
        **tables,
    )


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value.strip() else "must be text in quotes"


def _names(value: Any) -> str | None:
    names = [value] if isinstance(value, str) else value
    good = isinstance(names, list) and names and all(isinstance(name, str) and name for name in names)
    return None if good else "must be a column name or a list of them"


def _whole(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if good else "must be a whole number of at least 1"


def _number(value: Any) -> str | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return None if good else "must be a number that is not negative"


def _true(value: Any) -> str | None:
    return None if value is True else "must be true, or left out"


def _schema(value: Any) -> str | None:
    """A misspelt type is told here; all else of a schema is read by Spark, and so is one with comments or in JSON."""
    plain = isinstance(value, str) and "'" not in value and '"' not in value
    for word in re.findall(r"(?:^|[,<])\s*(?:`[^`]+`|\w+)[\s:]+(\w+)", value) if plain else ():
        if word.lower() not in _TYPES and (meant := nearest(word.lower(), _TYPES)):
            return f"unknown type {word!r}: did you mean {meant!r}?"
    return _text(value)


def _free(value: Any) -> str | None:
    good = isinstance(value, dict) and all(isinstance(item, str | int | float) for item in value.values())
    return None if good else "must be a table of text and numbers"


def _duration(value: Any) -> str | None:
    try:
        good = micros(value, "") > 0
    except OptionError:
        good = False
    return None if good else 'must be a time such as "10 seconds" or "1 minute"'


def _one_of(what: str, *known: str) -> Check:
    return lambda value: None if value in known else str(OptionError.unknown(what, value, known))


def _accepted_by(use: Callable[[Any], object]) -> Check:
    def check(value: Any) -> str | None:
        try:
            use(value)
        except OptionError as error:
            return str(error)
        return None

    return check


def _known_to(module: str, registry: str) -> Check:
    """Accepted by a registry of names, loaded only then: it has compiled code, which `--help` must not load."""
    return _accepted_by(lambda name: getattr(import_module(module), registry)(str(name)))


def _workload_fields(name: Any) -> dict[str, Check]:
    """What may stand beside `workload` in a generated source: the source's own options, and the workload's."""
    from steelyard.workloads import WORKLOADS, parameter_types, parse_rate, workload  # noqa: PLC0415

    known = dict(GENERATED)
    known["rate"] = _accepted_by(lambda rate: parse_rate(str(rate)))
    known["workload"] = _one_of("workload", *WORKLOADS)
    if name in WORKLOADS:
        for parameter in parameter_types(name):
            known[parameter] = _accepted_by(lambda value, at=parameter: workload(name, **{at: value}))  # type: ignore[misc]
    return known


def _source_columns(source: Mapping[str, Any]) -> list[str] | None:
    """The columns of a source, or None where only Spark can tell."""
    if source["format"] != "steelyard":
        if "path" in source and (not Path(source["path"]).is_dir() or any(Path(source["path"]).glob("*=*"))):
            return None  # folders such as day=2024-01-01 add columns
        return schema_columns(source["schema"])
    from steelyard.workloads import parameter_types, workload  # noqa: PLC0415

    own = {name: source[name] for name in parameter_types(source["workload"]) if name in source}
    columns = workload(source["workload"], **own).schema.names
    return [*columns, *(["row_number"] if source.get("row_numbers") else [])]


def schema_columns(schema: str) -> list[str] | None:
    """The top columns of a schema as Spark writes it, or None where it is too odd to be read here.

    >>> schema_columns("id bigint, `odd, name` string, place struct<x: int, y: decimal(9, 2)>")
    ['id', 'odd, name', 'place']
    """
    if '"' in schema or "\\" in schema:
        return None
    columns = []
    depth, rest = 0, "," + schema
    while rest:
        if depth == 0 and rest[0] == ",":
            name = re.match(r",\s*(?:`([^`]+)`|(\w+))[\s:]+\w", rest)
            if name is None:
                return None
            columns.append(name.group(1) or name.group(2))
            rest = rest[name.end() :]
            continue
        depth += (rest[0] in "<(") - (rest[0] in ">)")
        if rest[0] in "'`":  # a comment, or a nested name
            rest = rest[max(rest.find(rest[0], 1), 0) :]
        rest = rest[1:]
    return columns


_TYPES = (
    *("array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal", "double", "float"),
    *("int", "integer", "interval", "long", "map", "numeric", "real", "short", "smallint", "string", "struct", "time"),
    *("timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar", "variant", "void"),
)
_MODES = ("append", "complete", "update")
FUNCTIONS: dict[str, dict[str, Check]] = {
    **{name: {} for name in ("count", "sum", "min", "max", "mean", "variance")},
    "approx_distinct": {"log2_cells": _whole},
    "collect": {"limit": _whole},
    "top_k": {"k": _whole},
}
"""Aggregates by name, with the options that stand beside the column."""
_TOP: dict[str, Check] = {
    "name": _text,
    "key": _names,
    "checkpoint": _text,
    "output_mode": _one_of("output mode", *_MODES),
    "engine": _one_of("engine", "microbatch", "groups", "resident"),
    "interval": _duration,
    "workers": _whole,
}
_TABLES: dict[str, dict[str, Check]] = {
    "watermark": {"column": _text, "delay": _duration},
    "window": {"size": _duration, "slide": _duration},
    "policy": {
        "name": _known_to("steelyard.partition", "policy"),
        "blocks": _whole,
        "buckets": _whole,
        "statistics": _one_of("statistics", "carried", "exact"),
    },
    "elastic": {"name": _known_to("steelyard.scaling", "elasticity")},
    "bad_rows": {"action": _one_of("action", "fail", "drop", "dead_letter"), "path": _text},
    "trigger": {"processing_time": _duration, "available_now": _true},
    "session": {"master": _text, "config": _free},
}
GENERATED: dict[str, Check] = {
    **dict.fromkeys(("partitions", "rows_per_batch", "max_rows_per_batch", "max_rows"), _whole),
    **dict.fromkeys(("jitter", "late_share", "event_delay"), _number),
    "start": _text,
    "row_numbers": _true,
}
"""Options of the source of generated rows, whatever the workload."""
_FILES: dict[str, Check] = {"path": _text, "schema": _schema}
_BY_FORMAT: dict[str, dict[str, dict[str, Check]]] = {
    "source": {
        "steelyard": {},  # depends on the workload
        "kafka": {"servers": _text, "topic": _text, "schema": _schema, "starting": _text},
        "parquet": _FILES,
        "json": _FILES,
        "csv": _FILES,
    },
    "sink": {
        "parquet": {"path": _text},
        "memory": {"name": _text},
        "console": {"rows": _whole},
        "kafka": {"servers": _text, "topic": _text},
    },
}
_REQUIRED: dict[str, Collection[str]] = {
    "": ("key", "source", "aggregates", "sink"),
    "watermark": ("column", "delay"),
    "window": ("size",),
    "policy": ("name",),
    "elastic": ("name",),
    "bad_rows": ("action",),
    "source kafka": ("servers", "topic", "schema"),
    "source steelyard": ("workload",),
    **{f"source {files}": ("path", "schema") for files in ("parquet", "json", "csv")},
    "sink parquet": ("path",),
    "sink memory": ("name",),
    "sink kafka": ("servers", "topic"),
}


class _Validation:
    """Collects every mistake of a file, each with its line."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int], given: Mapping[str, Any]) -> None:
        self.file, self.lines, self.given = file, lines, given
        self.problems: list[tuple[int, str]] = []

    def problem(self, path: KeyPath, message: str) -> None:
        """Note a mistake at the line of `path`, or of the nearest table around it."""
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 1)
        self.problems.append((line, f"{self.file}:{line}: {message}"))

    def check(self) -> None:
        """Check the whole file."""
        tables = ("aggregates", *_TABLES, *_BY_FORMAT)
        self.fields((), self.given, {**_TOP, **dict.fromkeys(tables, _is_table)}, _REQUIRED[""])
        for name in tables:
            table = self.given.get(name)
            if not isinstance(table, dict):
                continue
            if name in _TABLES:
                self.fields((name,), table, _TABLES[name], _REQUIRED.get(name, ()))
            elif name in _BY_FORMAT:
                self.by_format(name, table)
            else:
                self.aggregates(table)
        self.together()

    def fields(
        self, path: KeyPath, table: Mapping[str, Any], known: Mapping[str, Check], required: Collection[str]
    ) -> None:
        """Check one table's fields: each is known and its value fits, and none is missing."""
        where = f" in [{'.'.join(map(str, path))}]" if path else ""
        for field, value in table.items():
            if field not in known:
                self.problem((*path, field), str(OptionError.unknown(f"field{where}", field, known)))
            elif wrong := known[field](value):
                words = f" {wrong}, got {value!r}" if wrong.startswith("must") else f": {wrong}"
                self.problem((*path, field), f"{field}{where}{words}")
        meant = {nearest(field, known) for field in table if field not in known}
        for field in required:
            if field not in table and field not in meant:
                self.problem(path, f"{field}{where} is missing")

    def by_format(self, name: str, table: Mapping[str, Any]) -> None:
        """Check a source or sink, whose fields depend on its format."""
        formats = _BY_FORMAT[name]
        chosen = table.get("format")
        if chosen not in formats:
            check = {"format": _one_of("format", *formats)}
            self.fields((name,), {key: table[key] for key in check if key in table}, check, check)
            return
        known: dict[str, Check] = {"format": _text, **formats[chosen]}
        if chosen == "steelyard":
            known |= _workload_fields(table.get("workload"))
        elif name == "source":
            known["options"] = _free
        self.fields((name,), table, known, _REQUIRED.get(f"{name} {chosen}", ()))

    def aggregates(self, table: Mapping[str, Any]) -> None:
        """Check each aggregate: one function and its column."""
        if not table:
            self.problem(("aggregates",), 'aggregates is empty: name one, as in total = { sum = "fare" }')
        for name, spec in table.items():
            path = ("aggregates", name)
            if not isinstance(spec, dict) or not spec:
                self.problem(path, f'{name} in [aggregates] must be as {{ sum = "column" }}, got {spec!r}')
                continue
            used = [function for function in spec if function in FUNCTIONS]
            known: dict[str, Check] = dict.fromkeys(FUNCTIONS, _text)
            for function in used:
                known |= FUNCTIONS[function]
            self.fields(path, spec, known, ())
            if len(used) > 1:
                self.problem(path, f"{name} in [aggregates] has more than one function: {', '.join(used)}")

    def together(self) -> None:
        """Check what holds between tables."""
        table = {name: self.given.get(name) or {} for name in ("bad_rows", "trigger")}
        if "window" in self.given and "watermark" not in self.given:
            self.problem(("window",), "[window] needs [watermark] with the column of event times and the delay")
        if table["bad_rows"].get("action") == "dead_letter" and "path" not in table["bad_rows"]:
            self.problem(("bad_rows",), "path in [bad_rows] is missing: dead_letter rows need a place")
        if len(table["trigger"]) > 1:
            self.problem(("trigger",), "[trigger] has both processing_time and available_now: keep one")
        if self.problems:
            return  # what follows reads values that have to be good
        if "elastic" in self.given and "processing_time" not in self.given.get("trigger", {}):
            from steelyard.scaling import elasticity  # noqa: PLC0415

            if "batch.load" in getattr(elasticity(self.given["elastic"]["name"]), "needs", ()):
                said = "name in [elastic] needs an interval: give processing_time in [trigger], or the policy's own"
                self.problem(("elastic", "name"), said)
        window = self.given.get("window", {})
        if "slide" in window and micros(window["slide"], "") > micros(window["size"], ""):
            said = f"slide in [window] must not be longer than size, got {window['slide']!r} and {window['size']!r}"
            self.problem(("window", "slide"), said)
        self.columns()

    def columns(self) -> None:
        """Check that the source has every column that is named, as far as the file tells."""
        known = _source_columns(self.given["source"])
        if known is None:
            return
        key = self.given["key"]
        named: list[tuple[KeyPath, str]] = [(("key",), name) for name in ([key] if isinstance(key, str) else key)]
        if "watermark" in self.given:
            named.append((("watermark", "column"), self.given["watermark"]["column"]))
        for name, spec in self.given["aggregates"].items():
            function = next(word for word in spec if word in FUNCTIONS)
            if (function, spec[function]) != ("count", "*"):
                named.append((("aggregates", name, function), spec[function]))
        spelt = {name.lower() for name in known}  # Spark does not tell capital letters apart
        for path, name in named:
            if not {name.lower(), name.lower().split(".")[0]} & spelt:
                self.problem(path, str(OptionError.unknown("column of [source]", name, known)))


def _is_table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be a table"


def _call(spec: Mapping[str, Any]) -> str:
    return ", ".join(f"{function}({value})" for function, value in spec.items())


def _words(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{field} {value}" for field, value in table.items())
