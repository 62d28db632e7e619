"""Filters and computed columns of the resident engine: what is translated is what plain Spark makes of it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from steelyard.core import BatchError, OptionError
from steelyard.resident.expressions import Rows
from steelyard.spark.relation import relation_of

pytestmark = pytest.mark.spark
AT_ONCE = 100
"""Expressions of one query."""
NUMBERS = {
    "tinyint": (pa.int8(), [0, 1, -1, 127, -128]),
    "smallint": (pa.int16(), [0, 2, -1, 32767, -32768]),
    "int": (pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31)]),
    "bigint": (pa.int64(), [0, 1, -1, 12, 2**53 + 1, 2**63 - 1, -(2**63), 3037000500]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e-45, 3e38]),
    "double": (pa.float64(), [0.0, -0.0, -2.75, float("nan"), float("inf"), 2.0**63, 5e-324, 1e308, 127.9]),
    "decimal(5,2)": (pa.decimal128(5, 2), [Decimal(one) for one in ("0.00", "-999.99", "1.50", "12.30")]),
    "decimal(18,0)": (pa.decimal128(18, 0), [Decimal("9" * 18), Decimal(-7), Decimal(0)]),
}
TEXTS = [
    "",
    " ",
    "a",
    " ab ",
    "A%b",
    "a_b",
    "ä",
    "a\u0308",
    "日本",
    "😀x",
    "x\u0000y",
    "a\nb",
    "null",
    "12",
    "true",
    "é" * 9,
]
TIMES = [
    datetime(2024, 3, 10, 7, 30), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1, 6, 1), datetime(9998, 1, 1),
    datetime(2024, 2, 29, 12, 0, 0, 123456), datetime(1582, 10, 10),
]  # fmt: skip
KINDS = NUMBERS | {
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [b"", b"\x00", b"abc", "ü".encode()]),
    "date": (pa.date32(), [at.date() for at in TIMES]),
    "timestamp": (pa.timestamp("us", "UTC"), [at.replace(tzinfo=UTC) for at in TIMES]),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
}
COLUMNS = {kind: [f"{kind[:3]}{kind[-3:]}_{i}".replace(",", "").replace(")", "") for i in (0, 1)] for kind in KINDS}
LITERALS = {
    "tinyint": ["1Y", "-128Y"], "smallint": ["7S"], "int": ["0", "3", "-1", "2147483647"], "bigint": ["5L", "0L"],
    "float": ["0.5F", "float('NaN')"], "double": ["0.5D", "-0.0D", "double('NaN')", "1e300D"],
    "decimal(5,2)": ["1.50", "123.45"], "decimal(18,0)": ["cast(7 as decimal(18,0))"], "boolean": ["true", "false"],
    "string": ["'a'", "''", "'日'", "' ab '"], "binary": ["X'00'", "X'616263'"], "date": ["date'2024-02-29'"],
    "timestamp": ["timestamp'1969-12-31 23:59:59.999999'"], "timestamp_ntz": ["timestamp_ntz'2024-03-10 07:30:00'"],
}  # fmt: skip
WHOLE = ["tinyint", "smallint", "int", "bigint"]
PATTERNS = ["a%", "%b", "%a%", "a_b", "_", "%", "", "a", "%日%", "__%", "a%b%", "x_y", "%.%"]


class Drawn:
    """Expressions in SQL, of types that fit."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def of(self, kind, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(COLUMNS[kind] * 3 + LITERALS[kind] + [f"cast(null as {kind})"])
        shared = [self.choice, self.first, self.branch]
        own = {
            "boolean": [self.condition] * 6,
            "string": [self.text] * 3,
            "date": [self.day],
            "double": [self.quotient],
        }
        makers = shared + own.get(kind, []) + [self.casted] * 2 + ([self.sum] * 4 if kind in NUMBERS else [])
        if kind in ("int", "bigint"):
            makers += [self.part] * 2
        if kind == "timestamp":
            makers += [self.instant] * 2
        return rng.choice(makers)(kind, depth - 1)

    def any(self, depth):
        kind = self.rng.choice(list(KINDS))
        return self.of(kind, depth)

    def choice(self, kind, depth):
        more = f" WHEN {self.of('boolean', depth)} THEN {self.of(kind, depth)}" if self.rng.random() < 0.5 else ""
        last = f" ELSE {self.of(kind, depth)}" if self.rng.random() < 0.7 else ""
        return f"CASE WHEN {self.of('boolean', depth)} THEN {self.of(kind, depth)}{more}{last} END"

    def first(self, kind, depth):
        return f"{self.rng.choice(['coalesce', 'nvl', 'ifnull'])}({self.of(kind, depth)}, {self.of(kind, depth)})"

    def branch(self, kind, depth):
        return f"if({self.of('boolean', depth)}, {self.of(kind, depth)}, {self.of(kind, depth)})"

    def casted(self, kind, depth):
        sources = {
            **{one: [*WHOLE, "boolean", "float", "double"] for one in WHOLE},
            "float": [*WHOLE, "double", "boolean"],
            "double": [*WHOLE, "float", "boolean"],
            "boolean": WHOLE,
            "string": [*WHOLE, "boolean", "binary"],
            "date": ["timestamp", "timestamp_ntz"],
            "timestamp": ["timestamp_ntz"],
            "timestamp_ntz": ["timestamp"],
            "binary": ["string"],
            "decimal(18,0)": ["tinyint", "smallint", "int"],
            "decimal(5,2)": ["tinyint"],
        }
        inner = self.of(self.rng.choice(sources[kind]), depth)
        return f"{self.rng.choice(['cast', 'cast', 'try_cast'])}({inner} as {kind})"

    def sum(self, kind, depth):
        left, right = self.of(kind, depth), self.of(kind, depth)
        form = self.rng.choice(
            ["({} + {})", "({} - {})", "({} * {})", "({} % {})", "(-{})", "abs({})", "try_add({}, {})"]
        )
        made = form.format(left, right)
        return made if "decimal" not in kind else f"cast({made} as {kind})" if self.rng.random() < 0.2 else left

    def quotient(self, kind, depth):
        function = self.rng.choice(["({} / {})", "try_divide({}, {})"])
        return function.format(self.of("double", depth), self.of("double", depth))

    def condition(self, kind, depth):
        rng = self.rng
        of = rng.choice(list(KINDS))
        left, right = self.of(of, depth), self.of(of, depth)
        if of.startswith("decimal") and rng.random() < 0.5:  # of another precision
            right = f"({self.of(of, 0)} {rng.choice('+-*')} {self.of(rng.choice(['tinyint', 'decimal(5,2)']), 0)})"
        listed = ", ".join(rng.choice([*LITERALS[of], "null"]) for _ in range(3))
        text = self.of("string", depth)
        return rng.choice([
            f"({left} {rng.choice(['=', '<', '<=', '>', '>=', '<>', '<=>'])} {right})",
            f"({left} between {right} and {self.of(of, 0)})",
            f"({self.of('boolean', depth)} {rng.choice(['and', 'or'])} {self.of('boolean', depth)})",
            f"(not {self.of('boolean', depth)})",
            f"({left} is {rng.choice(['', 'not '])}null)",
            f"({left} {rng.choice(['', 'not '])}in ({listed}))",
            f"isnan({self.of(rng.choice(['float', 'double']), depth)})",
            f"({text} like '{rng.choice(PATTERNS)}')",
            f"{rng.choice(['startswith', 'endswith', 'contains'])}({text}, {rng.choice(LITERALS['string'])})",
        ])  # fmt: skip

    def text(self, kind, depth):
        inner = self.of("string", depth)
        return self.rng.choice([
            f"concat({inner}, {self.of('string', depth)})",
            f"({inner} || {self.of('string', 0)})",
            f"{self.rng.choice(['trim', 'ltrim', 'rtrim'])}({inner})",
            f"substring({inner}, {self.rng.randint(0, 3)}, {self.rng.randint(-1, 4)})",
            f"substr({inner}, 2)",
        ])  # fmt: skip

    def day(self, kind, depth):
        return f"to_date({self.of(self.rng.choice(['timestamp', 'timestamp_ntz']), depth)})"

    def instant(self, kind, depth):
        return (
            f"{self.rng.choice(['timestamp_millis', 'timestamp_micros', 'timestamp_seconds'])}({self.of('int', depth)})"
        )

    def part(self, kind, depth):
        function, of = self.rng.choice([
            ("year", "date"), ("month", "date"), ("day", "timestamp"), ("year", "timestamp"), ("hour", "timestamp"),
            ("minute", "timestamp_ntz"), ("second", "timestamp"), ("length", "string"), ("char_length", "string"),
        ])  # fmt: skip
        made = f"{function}({self.of(of, depth)})"
        return made if kind == "int" else f"cast({made} as bigint)"


def table_of(seed, rows=60):
    rng = random.Random(seed)
    columns = {
        name: pa.array([None if rng.random() < 0.1 else rng.choice(values) for _ in range(rows)], arrow)
        for kind, (arrow, values) in KINDS.items()
        for name in COLUMNS[kind]
    }
    return pa.table(columns)


def plain(column):
    """Values in a form in which equal ones are equal, and a zero is none of the other sign."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return [repr(value) for value in column.to_pylist()]


@pytest.fixture
def conf(spark):
    """Sets options of the session, for one test."""
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    before = {name: spark.conf.get(name) for name in names.values()}
    # It adds up whole numbers in another order, which overflows for other rows.
    rule = "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
    spark.conf.set("spark.sql.optimizer.excludedRules", rule)
    yield lambda **given: [spark.conf.set(names[one], value) for one, value in given.items()]
    spark.conf.unset("spark.sql.optimizer.excludedRules")
    for name, value in before.items():
        spark.conf.set(name, value)


def translation(streaming, expressions):
    """By name: the translated expression; those that are refused are left out."""
    found = {}
    for i, text in enumerate(expressions):
        try:
            found[f"e{i}"] = relation_of(streaming.selectExpr(f"{text} as e{i}"), [f"e{i}"])
        except OptionError:
            continue
    return found


def computed(relation, table):
    (batch,) = table.combine_chunks().to_batches()
    given = pa.RecordBatch.from_arrays(
        [batch.column(one.column) for one in relation.picked.values()], names=list(relation.picked)
    )
    return Rows(given).of(relation.computed.columns[0])


@settings(
    deadline=None,
    max_examples=2,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 30), ansi=st.booleans())
def test_drawn_expressions_are_what_plain_spark_makes_of_them(spark, conf, tmp_path_factory, seed, ansi):
    conf(ansi=str(ansi).lower(), zone="UTC")
    table, drawn = table_of(seed), Drawn(seed)
    folder = tmp_path_factory.mktemp("typed")
    pq.write_table(table, folder / "rows.parquet")
    static = spark.read.parquet(str(folder))
    streaming = spark.readStream.schema(static.schema).parquet(str(folder))
    expressions = []
    while len(expressions) < AT_ONCE:
        text = drawn.any(drawn.rng.randint(1, 4))
        try:
            streaming.selectExpr(text)
        except PySparkException:  # types that do not go together
            continue
        expressions.append(text)
    ours = {name: computed(one, table) for name, one in translation(streaming, expressions).items()}
    assert len(ours) > 0.6 * len(expressions)
    nowhere = pa.array([False] * table.num_rows)
    wrong = {name: nowhere if value.wrong is None else value.wrong for name, value in ours.items()}
    with_guards = table
    for name, where in wrong.items():
        with_guards = with_guards.append_column(f"{name}_wrong", where)
    pq.write_table(with_guards, folder / "guards")
    guarded = [f"CASE WHEN not {name}_wrong THEN {expressions[int(name[1:])]} END as {name}" for name in ours]
    theirs = spark.read.parquet(str(folder / "guards")).coalesce(1).selectExpr(*guarded).toArrow()
    for name, value in ours.items():
        text = f"ansi={ansi}: {expressions[int(name[1:])]}"
        kept = [not one for one in wrong[name].to_pylist()]
        left, right = value.array.filter(pa.array(kept)), theirs.column(name).filter(pa.array(kept))
        assert left.type == right.type, text
        assert plain(left) == plain(right), text


@pytest.mark.parametrize(
    "expression",
    ["n + 1", "m - 2", "m * 3", "-m", "abs(m)", "1 / z", "n % z", "cast(n as smallint)", "cast(x as int)",
     "cast(x as bigint)", "case when n > 0 then n / z end", "timestamp_seconds(m)", "coalesce(z, 1) / z",
     "z is null or n / z > 0"],
)  # fmt: skip
def test_what_spark_raises_on_fails_here_too_and_what_it_passes_over_does_not(spark, conf, tmp_path, expression):
    conf(ansi="true")
    row = {"n": pa.array([2**31 - 1], pa.int32()), "m": pa.array([-(2**63)]), "z": [0], "x": [float("nan")]}
    pq.write_table(pa.table(row), tmp_path / "rows.parquet")
    static = spark.read.parquet(str(tmp_path))
    streaming = spark.readStream.schema(static.schema).parquet(str(tmp_path))
    with pytest.raises(PySparkException):
        static.selectExpr(expression).collect()
    (raising,) = translation(streaming, [expression]).values()
    batch = pa.table(row).rename_columns(list("nmzx"))
    given = batch.select([one.column for one in raising.picked.values()]).rename_columns(list(raising.picked))
    with pytest.raises(BatchError, match="column 'e0' cannot be computed for 1 row: "):
        raising.computed(given.combine_chunks().to_batches()[0])
    for lazily in (
        f"case when x = 0 then cast({expression} as string) end is null",
        f"z <> 0 and ({expression}) is null",
        f"z = 0 or ({expression}) is null",
        f"coalesce(z = 0, ({expression}) is null)",
    ):
        assert static.selectExpr(lazily).collect()
        found = translation(streaming, [lazily])
        for one in found.values():
            given = batch.select([used.column for used in one.picked.values()]).rename_columns(list(one.picked))
            assert one.computed(given.combine_chunks().to_batches()[0]).num_rows == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.where("rlike(string, 'a+')"), "cannot filter by .*RLIKE"),
        (lambda s: s.withColumn("m", F.upper("string")), r"cannot compute column 'm': upper\(string#"),
        (lambda s: s.withColumn("m", F.rand()), "cannot compute column 'm': rand"),
        (lambda s: s.withColumn("m", F.hour("at")), "cannot compute column 'm': hour"),
        (lambda s: s.withColumn("m", F.col("string").cast("int")), "cannot compute column 'm': cast"),
        (lambda s: s.withColumn("m", F.input_file_name()), "cannot compute column 'm': input_file_name"),
        (lambda s: s.withColumn("m", F.col("_metadata.file_path")), "cannot compute column 'm'"),
        (lambda s: s.where(F.col("caseless") == "a").withColumn("m", F.lit(1)), "cannot filter by "),
        (lambda s: s.withColumn("m", F.udf(lambda x: x)("string")), "cannot compute column 'm'"),
        (lambda s: s.withColumn("m", F.expr("string like 'a/_b' escape '/'")), "cannot compute column 'm'"),
    ],
)
def test_what_is_not_certainly_the_same_is_refused_by_its_name(spark, conf, tmp_path, change, says):
    conf(zone="Europe/Paris")
    schema = "string string, at timestamp, caseless string collate UTF8_LCASE"
    frame = change(spark.readStream.schema(schema).parquet(str(tmp_path)))
    with pytest.raises(OptionError, match=f"{says}.*Instead, do it in .map"):
        relation_of(frame, ["m"])
    assert relation_of(spark.readStream.schema(schema).parquet(str(tmp_path)).withColumn("m", F.rand()), ["string"])
