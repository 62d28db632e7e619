"""Drawn files, schemas and programs over all of Spark's types, and plain Spark's answer to them."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import steelyard as sy
from steelyard.core.aggregates import Aggregate
from steelyard.spark.aggregates import in_jvm
from steelyard.spark.rows import quoted
from tests.spark.cases import MEANS, BlockMean, EitherMean, Longest

ZONES = ["UTC", "America/New_York", "Europe/Paris", "Asia/Kolkata", "Australia/Lord_Howe", "+05:30", "PST"]
BASES = {
    "spring": datetime(2024, 3, 10, 6, 20, tzinfo=UTC),
    "autumn": datetime(2024, 11, 3, 5, 10, tzinfo=UTC),
    "paris": datetime(2024, 3, 31, 0, 30, tzinfo=UTC),
    "epoch": datetime(1969, 12, 31, 22, 30, tzinfo=UTC),
    "before": datetime(1960, 5, 1, tzinfo=UTC),
    "now": datetime(2024, 5, 1, tzinfo=UTC),
}
"""Moments that the times of a case are near: changes of clocks, 1970, long before it."""
NAMES = [
    "n", "n.count_all", "n.sum", "count", "count_all", "key", "key0", "part0", "row", "row_min", "window", "value",
    "name", "slide", "emit", "begins", "a b", "a`b", 'q"uote', "it's", "ü", "日本", "a.b.c", "*", "select", "%d", "{x}",
    "0", "sum(x)", "-", "end", "start", "pane", "us", "bad", "late", "block", "Batch", "struct", "<x>", "a/b", "#",
    "$v", "~", "a~d", "count_all'",
]  # fmt: skip
"""Names of columns, of keys and of aggregates: with signs, and such as we or Spark use ourselves."""


@dataclass(frozen=True)
class Kind:
    """A type: as Spark and Arrow have it, some values, and how one is written in JSON."""

    ddl: str
    arrow: pa.DataType
    values: list[Any]
    text: Callable[[Any], str] = json.dumps
    plain: bool = True
    """Whether the resident engine groups and orders by it."""
    in_json: bool = True
    """Whether the resident engine reads it from JSON."""

    @property
    def numeric(self) -> bool:
        return isinstance(self.spark, T.NumericType)

    @property
    def spark(self) -> T.DataType:
        return T.DataType.fromDDL(self.ddl)


def _number(value: float) -> str:
    return json.dumps(str(value).replace("inf", "Infinity").replace("nan", "NaN")) if value - value else repr(value)


def _nested(value: Any) -> str:
    return json.dumps(value, default=str).replace("NaN", '"NaN"').replace("Infinity", '"Infinity"')


def _mapped(value: list[tuple[str, int | None]]) -> str:
    return json.dumps(dict(value))


def _encoded(value: bytes) -> str:
    return json.dumps(base64.b64encode(value).decode())


def _span(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    whole = abs(value)
    clock = f"{whole.seconds // 3600:02}:{whole.seconds // 60 % 60:02}:{whole.seconds % 60:02}"
    return json.dumps(f"INTERVAL '{sign}{whole.days} {clock}' DAY TO SECOND")


def _months(value: int) -> str:
    return json.dumps(f"INTERVAL '{'-' * (value < 0)}{abs(value) // 12}-{abs(value) % 12}' YEAR TO MONTH")


SPANS = [timedelta(days=1, seconds=5), timedelta(0), -timedelta(hours=3)]
PAIR = pa.struct({"a": pa.int32(), "b": pa.string()})
MAPS = [[("a", 1)], [], [("b", None)]]
NESTED = pa.list_(pa.struct({"d": pa.date32(), "m": pa.list_(pa.string())}))
NESTS = [[{"d": date(2024, 5, 1), "m": ["x", None]}], [], [{"d": None, "m": []}]]
WINDOWS = [("1 hour", None), ("10 minutes", None), ("40 minutes", "15 minutes"), ("1 day", "6 hours")]
FLOATS = [0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 5e-324, 1e6, 0.25]
TIMES = [
    datetime(2024, 3, 10, 7, 30), datetime(2024, 11, 3, 5, 30), datetime(2024, 11, 3, 6, 30),
    datetime(1969, 12, 31, 23), datetime(1, 6, 1), datetime(9998, 1, 1), datetime(2024, 5, 1, 12, 0, 0, 123456),
    datetime(2024, 3, 10, 2, 30),
]  # fmt: skip
TEXTS = ["", " ", "a", "A", "ä", "a\u0308", "日本", "😀", "x\u0000y", "a\nb", "NaN", "null", "0", "00", "é" * 40]


def _instant(value: datetime) -> str:
    return json.dumps(value.replace(tzinfo=None).isoformat() + "Z")


def _local(value: datetime) -> str:
    return json.dumps(value.replace(tzinfo=None).isoformat(" "))


MONTHS = "interval year to month"
INSTANTS = [at.replace(tzinfo=UTC) for at in TIMES]
LARGE = [Decimal("1" * 27 + ".1234567891"), Decimal("-1E-10")]
SMALL = [Decimal(one) for one in ("0.00", "-999.99", "1.50")]
KINDS = {
    "boolean": Kind("boolean", pa.bool_(), [True, False]),
    "byte": Kind("tinyint", pa.int8(), [0, 1, -128, 127]),
    "short": Kind("smallint", pa.int16(), [0, -1, -32768, 32767]),
    "int": Kind("int", pa.int32(), [0, 1, -(2**31), 2**31 - 1]),
    "long": Kind("bigint", pa.int64(), [0, 1, -5, 2**53 + 1, -(2**53) - 1, 2**40]),
    "float": Kind("float", pa.float32(), [*FLOATS[:7], 0.25], _number),
    "double": Kind("double", pa.float64(), FLOATS, _number),
    "small decimal": Kind("decimal(5,2)", pa.decimal128(5, 2), SMALL, str),
    "decimal": Kind("decimal(18,0)", pa.decimal128(18, 0), [Decimal("9" * 18), Decimal(-7), Decimal(0)], str),
    "large decimal": Kind("decimal(38,10)", pa.decimal128(38, 10), LARGE, str),
    "string": Kind("string", pa.string(), TEXTS, lambda text: json.dumps(text, ensure_ascii=False)),
    "caseless": Kind("string collate UTF8_LCASE", pa.string(), ["a", "A", "b", "", "ä", "Ä"], plain=False),
    "binary": Kind("binary", pa.binary(), [b"", b"\x00", b"\xff\xfe", b"abc"], _encoded),
    "date": Kind("date", pa.date32(), [at.date() for at in TIMES], _nested),
    "timestamp": Kind("timestamp", pa.timestamp("us", "UTC"), INSTANTS, _local),
    "instant": Kind("timestamp", pa.timestamp("us", "UTC"), INSTANTS, _instant),
    "timestamp_ntz": Kind("timestamp_ntz", pa.timestamp("us"), TIMES, _local),
    "days": Kind("interval day to second", pa.duration("us"), SPANS, _span, False, False),
    "months": Kind(MONTHS, pa.int32(), [0, 14, -3], _months, False, False),
    "array": Kind("array<int>", pa.list_(pa.int32()), [[], [1, None], [1, 2], None], _nested, False, False),
    "doubles": Kind("array<double>", pa.list_(pa.float64()), [[one] for one in FLOATS[:5]], _nested, False, False),
    "struct": Kind("struct<a: int, b: string>", PAIR, [{"a": 1, "b": "x"}, {"a": 1, "b": None}], _nested, False, False),
    "map": Kind("map<string, int>", pa.map_(pa.string(), pa.int32()), MAPS, _mapped, False, False),
    "nested": Kind("array<struct<d: date, m: array<string>>>", NESTED, NESTS, _nested, False, False),
}
PYTHON = {"string": Longest, "int": EitherMean, "smallint": BlockMean}
SIMPLE = ["boolean", "byte", "short", "int", "long", "double", "decimal", "string", "date", "instant"]
"""Kinds that are drawn for CSV and ORC files, which the resident engine does not read."""
RESIDENT = ("count", "sum", "mean", "min", "max", "variance")
FORMATS = ["parquet"] * 4 + ["json"] * 4 + ["csv", "orc"]


@dataclass
class Program:
    """Keys, windows and aggregates."""

    keys: list[str]
    window: tuple[str, str | None]
    delay: str
    aggregates: dict[str, Any]
    policy: str | None
    widths: tuple[int, int]


@dataclass
class Case:
    """Files, their schema, a time zone, and programs over them."""

    seed: int
    format: str
    zone: str
    time: str
    time_kind: Kind
    kinds: dict[str, Kind]
    programs: list[Program]
    files: list[list[dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int, programs: int) -> Case:
        rng = random.Random(seed)
        kind = rng.choice(FORMATS)
        zone = rng.choice(ZONES)
        names = rng.sample(NAMES, 8)
        known = SIMPLE if kind in ("csv", "orc") else list(KINDS)
        plain = [one for one in known if KINDS[one].plain]
        kinds = {name: KINDS[rng.choice(plain if rng.random() < 0.6 else known)] for name in names[1:6]}
        at = names[0]
        in_utc = zone == "UTC" and kind != "orc" and rng.random() < 0.5
        case = cls(seed, kind, zone, at, KINDS["timestamp_ntz" if in_utc else "instant"], kinds, [])
        base = BASES[rng.choice(list(BASES))]
        used = {name: rng.sample(one.values, min(len(one.values), 4)) for name, one in kinds.items()}
        for _ in range(rng.randint(1, 4)):
            rows = rng.choice([0, 1, 12, 12, 25])
            case.files.append([case._row(rng, base, used) for _ in range(rows)])
        taken = [*kinds, at]
        case.programs = [case._program(rng, [name for name in NAMES if name not in taken]) for _ in range(programs)]
        return case

    def _row(self, rng: random.Random, base: datetime, used: dict[str, list[Any]]) -> dict[str, Any]:
        # Arrow writes fractions of seconds before 1970 into ORC files in a form that Spark cannot read.
        fraction = rng.choice([0, 0, 1, 999_999]) if self.format != "orc" else 0
        at = base + timedelta(minutes=rng.randint(0, 180), microseconds=fraction)
        when = None if rng.random() < 0.04 else at if self.time_kind.arrow.tz else at.replace(tzinfo=None)
        row = {name: None if rng.random() < 0.08 else rng.choice(some) for name, some in used.items()}
        return {self.time: when, **row}

    def _program(self, rng: random.Random, free: list[str]) -> Program:
        friendly = rng.random() < 0.75
        """Whether the resident engine has all of it."""
        plain = [name for name, kind in self.kinds.items() if kind.plain or not friendly]
        read = [name for name in self.kinds if not (friendly and self._is_unread(name))]
        keys = rng.sample(plain or list(self.kinds), min(len(plain) or 1, rng.choice([1, 1, 2])))
        names = iter(rng.sample(free, 14))
        uses: dict[str, Any] = {next(names): sy.count()}
        for column in rng.sample(read, min(3, len(read))):
            kind = self.kinds[column]
            makers = [sy.count]
            # Without generated code, as in these tests, Spark's own minimum loses the text of strings with a collation.
            if "collate" not in kind.ddl and (kind.plain or not friendly):
                makers += [sy.min, sy.max]
            if kind.numeric:
                makers += [sy.sum] if friendly and "decimal" in kind.ddl else [sy.sum, sy.mean, sy.variance]
            if "collate" not in kind.ddl and not friendly:
                makers += [lambda c: sy.collect(c, 3), lambda c: sy.top_k(c, 2), sy.approx_distinct]
            for make in rng.sample(makers, min(3, len(makers))):
                uses[next(names)] = make(column)
            if kind.ddl in PYTHON and rng.random() < 0.5:
                uses[next(names)] = PYTHON[kind.ddl]().of(column)
        size, slide = rng.choice(WINDOWS)
        policy = rng.choice([None, None, "hash", "shuffle", "prompt", "pk2"])
        delay = rng.choice(["0 seconds", "20 minutes"])
        return Program(keys, (size, slide), delay, uses, policy, (rng.randint(1, 3), rng.randint(1, 3)))

    def _is_unread(self, column: str) -> bool:
        """Whether the resident engine cannot read a column."""
        kind = self.kinds[column]
        return kind.ddl == MONTHS or (self.format == "json" and not kind.in_json)

    @property
    def schema(self) -> T.StructType:
        made = T.StructType().add(self.time, self.time_kind.spark)
        for name, kind in self.kinds.items():
            made = made.add(name, kind.spark)
        return made

    # -- files

    def write(self, folder: Path) -> None:
        """The files, which follow each other."""
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        (folder / "_temporary").mkdir()
        (folder / "_temporary" / "0.json").write_text("{")
        kinds = {self.time: self.time_kind, **self.kinds}
        for number, rows in enumerate(self.files):
            path = folder / f"part {number}.{self.format}"
            if self.format in ("parquet", "orc"):
                columns = {name: pa.array([row[name] for row in rows], kind.arrow) for name, kind in kinds.items()}
                table = pa.table({name: _storable(column) for name, column in columns.items()})
                (pq.write_table if self.format == "parquet" else pa.orc.write_table)(table, str(path))
            elif self.format == "json":
                self._write_json(path, rows, kinds, random.Random(self.seed + number))
            else:
                self._write_csv(path, rows, kinds)

    def _write_json(self, path: Path, rows: list[dict[str, Any]], kinds: dict[str, Kind], rng: random.Random) -> None:
        end = rng.choice(["\n", "\r\n", "\n\n", "\r\n  \r\n"])
        lines = []
        for row in rows:
            known = {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
            fields = [
                f"{json.dumps(name)}: {'null' if value is None else kinds[name].text(value)}"
                for name, value in known.items()
            ]
            rng.shuffle(fields)
            lines.append("{" + ", ".join(fields) + "}" + end)
        text = "".join(lines).encode()
        if rng.random() < 0.2:
            path.with_suffix(".json.gz").write_bytes(gzip.compress(text))
        else:
            path.write_bytes(text)

    def _write_csv(self, path: Path, rows: list[dict[str, Any]], kinds: dict[str, Kind]) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, escapechar="\\", doublequote=False)
            for row in rows:
                texts = {name: kinds[name].text(row[name]).strip('"') for name in row if row[name] is not None}
                writer.writerow([texts.get(name) for name in kinds])

    # -- answers

    def described(self, rows: DataFrame, program: Program) -> sy.Stream:
        made = (
            sy.stream(rows)
            .with_watermark(self.time, program.delay)
            .group_by(*program.keys)
            .window(program.window[0], slide=program.window[1])
            .agg(**program.aggregates)
            .on_bad_rows("drop")
            .trigger(available_now=True)
        )
        return made.partition_by(program.policy or "hash", blocks=program.widths[0], buckets=program.widths[1])

    def expected(self, spark: SparkSession, rows: DataFrame, program: Program) -> DataFrame:
        """Plain Spark's groupBy over the rows that are not late, of windows that event time has passed."""
        good = rows.where(quoted(self.time).isNotNull())
        for key in program.keys:
            good = good.where(quoted(key).isNotNull())
        at = quoted(self.time).cast("timestamp")
        newest = good.select(F.unix_micros(F.max(at))).first()[0]
        seconds = {"0 seconds": 0, "20 minutes": 1200}[program.delay]
        mark = max(0, newest // 1000 * 1000 - seconds * 1_000_000) if newest is not None else 0
        window = F.window(at, program.window[0], program.window[1] or program.window[0])
        keys = [quoted(key).alias(f"key{i}") for i, key in enumerate(program.keys)]
        inputs = dict.fromkeys(column for use in program.aggregates.values() for column in use.columns)
        named = {column: f"input{i}" for i, column in enumerate(inputs)}
        values = [quoted(column).alias(name) for column, name in named.items()]
        spread = good.select(window.alias("w"), F.unix_micros(at).alias("at"), *keys, *values)
        spread = spread.where((F.unix_micros("w.end") > 0) & (F.unix_micros("w.end") <= mark))
        uses = [_plain(use, named).alias(f"use{i}") for i, use in enumerate(program.aggregates.values())]
        names = [f"key{i}" for i in range(len(keys))]
        found = spread.groupBy("w", *names).agg(*uses)
        found = found.select("w.start", "w.end", *names, *(f"use{i}" for i in range(len(uses))))
        return found.toDF("window_start", "window_end", *program.keys, *program.aggregates)

    def refusal(self, program: Program) -> bool:
        """Whether the resident engine refuses a program that Spark has an answer to."""
        if self.format not in ("parquet", "json"):
            return True
        if not all(self.kinds[key].plain for key in program.keys):
            return True
        columns = {*program.keys}
        for use in program.aggregates.values():
            columns |= {*use.columns}
            if isinstance(use, Aggregate):
                kind = self.kinds[use.column] if use.column else KINDS["long"]
                if use.function not in RESIDENT:
                    return True
                if use.function in ("min", "max") and not kind.plain:
                    return True
                if use.function in ("mean", "variance") and isinstance(kind.spark, T.DecimalType):
                    return True
        return any(self._is_unread(column) for column in columns)

    def refusal_of_batches(self, program: Program) -> bool:
        """Whether micro-batches refuse a program that Spark has an answer to."""
        kept = ("min", "max", "collect", "top_k")
        builtins = [use for use in program.aggregates.values() if isinstance(use, Aggregate)]
        results = [column for use in builtins if use.function in kept for column in use.columns]
        kinds = [self.kinds[key].spark for key in program.keys]
        shown = [*kinds, *(self.kinds[column].spark for column in results)]
        in_python = len(builtins) < len(program.aggregates)
        return any(isinstance(kind, T.MapType) for kind in kinds) or (
            in_python and any(kind == T.YearMonthIntervalType() for kind in shown)
        )


def _storable(column: pa.Array) -> pa.Array:
    """Intervals are whole numbers in files of Spark's."""
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def _plain(use: Any, named: dict[str, str]) -> Any:
    """An aggregate in plain Spark."""
    column = F.col(named[use.columns[0]]) if use.columns else F.lit(1)
    if isinstance(use, Aggregate) and use.function == "collect":
        row = F.when(column.isNotNull(), F.struct(F.col("at"), column.alias("v")))
        kept = F.slice(F.array_sort(F.collect_list(row)), 1, dict(use.options)["limit"])
        return F.transform(kept, lambda one: one["v"])
    if isinstance(use, Aggregate):
        return in_jvm(use).plain(column)
    if isinstance(use.aggregator, MEANS):
        return F.avg(column)
    return F.min(F.when(column.isNotNull(), F.struct((-F.length(column)).alias("l"), column.alias("t"))))["t"]
