"""What plain Spark does with files, paths, times and sums, both engines do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import BadRowError, OptionError
from steelyard.resident import JobError, Memory, run
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.resident_program import SINK
from steelyard.spark.resident_start import planned
from tests.spark.cases import Kept

pytestmark = pytest.mark.spark
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)


def stamped(folder, name, rows):
    """A file of JSON lines, each with a time, and one an hour later that closes all windows."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"at": ORIGIN.isoformat(), **row} for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def described(read, keys=("k",), delay="0 seconds", **uses):
    made = sy.stream(read).with_watermark("at", delay).group_by(*keys).window("1 hour")
    return made.agg(**(uses or {"n": sy.count()})).on_bad_rows("drop").trigger(available_now=True)


def resident(stream):
    """The answer of the resident engine, in threads of this process."""
    stream = stream.engine("resident").sink("memory", name="unused")
    made = planned(stream.rows, stream._bound(), stream._settings(), stream._resident(), Memory(), {})
    return run(made).table(SINK).to_pylist()


def microbatch(stream, read, folder):
    """The answer of the micro-batch engine to a static DataFrame as one batch, and its report."""
    kept = Kept()
    engine = MicroBatch(read.sparkSession, stream._bound(), stream._settings(), kept, str(folder))
    report = engine.process(read, 0)
    return kept.batches.get(0, []), report


def by_plain_spark(spark, read, name, keys=("k",)):
    """The keys and counts that Structured Streaming itself gives."""
    counted = read.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 hour"), *keys).count()
    query = counted.writeStream.format("memory").queryName(name).outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table(name).collect()


def test_both_engines_read_the_files_that_spark_reads(spark, tmp_path):
    names = ["a.json", "b", "_p=1.json", "sp ace.json", "per%20cent.json", "ünï.json"]
    left_out = [
        "_temporary/0/x.json",
        "_x.json",
        ".h.json",
        "sub/y.json",
        "sub/deep/z.json",
        "_SUCCESS",
        "_metadata",
        "c._COPYING_",
    ]
    for name in [*names, *left_out]:
        stamped(tmp_path / "in", name, [{"k": name}])
    stamped(tmp_path / "in", "later.json", [{"k": "later", "at": (ORIGIN + timedelta(hours=2)).isoformat()}])
    (tmp_path / "in" / "empty.json").touch()
    (tmp_path / "nothing").mkdir()

    def read(path, **options):
        return spark.readStream.schema("k string, at timestamp").options(**options).json(path)

    folder = str(tmp_path / "in")
    assert {row["k"] for row in resident(described(read(folder)))} == {*names}
    assert {row.k for row in by_plain_spark(spark, read(folder), "listed_by_spark")} == {*names}
    assert {row["k"] for row in resident(described(read(f"{folder}/*.json")))} == {*names} - {"b"}
    deep = read(folder, recursiveFileLookup="true")
    assert {row["k"] for row in resident(described(deep))} == {*names, "sub/y.json", "sub/deep/z.json"}
    with pytest.raises(OptionError, match="there is no file in"):
        resident(described(read(str(tmp_path / "nothing"))))
    assert resident(described(read(str(tmp_path / "in" / "empty.json")))) == []


def test_parquet_that_spark_wrote_by_its_defaults_is_read_as_spark_reads_it(spark, tmp_path):
    """Spark's own files have times as INT96, which other writers do not use any more."""
    columns = "k string, at timestamp, local timestamp_ntz, day date, price decimal(10, 2), raw binary, shot timestamp"
    local = datetime(2024, 3, 31, 2, 30)  # a time that some zones skip
    rows = [
        ("a", ORIGIN, local, local.date(), Decimal("1.25"), b"r", datetime(1890, 1, 1, tzinfo=UTC)),
        ("a", ORIGIN, local, local.date(), Decimal("1.25"), b"r", datetime(2262, 5, 1, tzinfo=UTC)),
        ("z", ORIGIN + timedelta(hours=2), local, local.date(), Decimal("2.50"), b"", ORIGIN),
    ]
    folder = str(tmp_path / "in")
    spark.createDataFrame(rows, columns).coalesce(1).write.parquet(folder)
    keys = ("k", "local", "day", "price", "raw", "shot")
    read = spark.readStream.schema(columns).parquet(folder)
    found = [(*(row[key] for key in keys), row["n"]) for row in resident(described(read, keys).on_bad_rows("fail"))]
    plain = [(*(row[key] for key in keys), row["count"]) for row in by_plain_spark(spark, read, "by_defaults", keys)]
    assert len(plain) == 2
    assert sorted(map(_comparable, found)) == sorted(map(_comparable, plain))
    wrong = spark.readStream.schema("k string, at timestamp, price bigint").parquet(folder)
    with pytest.raises(OptionError, match=r"a file has column 'price' as decimal128.*cannot be read as int64"):
        resident(described(wrong, ("k", "price")))


def _comparable(row):
    """PySpark gives instants without a zone, in the machine's own."""
    return [
        str(value.astimezone().replace(tzinfo=None)) if getattr(value, "tzinfo", None) else str(value) for value in row
    ]


def test_paths_with_and_without_a_scheme_are_one_folder_for_source_sink_and_checkpoint(spark, tmp_path):
    stamped(tmp_path / "a%20b", "0.json", [{"k": "a"}, {"k": "z", "at": (ORIGIN + timedelta(hours=2)).isoformat()}])
    for number, scheme in enumerate(("", "file:", "file://")):
        read = spark.readStream.schema("k string, at timestamp").json(f"{scheme}{tmp_path}/a%20b")
        stream = described(read).engine("resident", workers=1).checkpoint(f"{scheme}{tmp_path}/checkpoint {number}")
        query = stream.sink("parquet", path=f"{scheme}{tmp_path}/out%20{number}").start()
        assert query.await_termination(120)
        assert (tmp_path / f"checkpoint {number}" / "resident.json").exists()
        found = spark.read.parquet(f"{tmp_path}/out%20{number}").collect()
        assert [row.k for row in found] == ["a"]
    with pytest.raises(OptionError, match="keeps files in a folder that all machines see"):
        described(read).engine("resident").checkpoint("s3a://bucket/checkpoint").sink("memory", name="far").start()


def test_a_dropped_row_does_not_move_event_time_on_either_engine(spark, tmp_path):
    late = {"at": (ORIGIN + timedelta(days=400)).isoformat()}
    stamped(tmp_path / "in", "0.json", [{"k": "a"}, {"k": "b", "at": (ORIGIN + timedelta(hours=2)).isoformat()}, late])
    streaming = spark.readStream.schema("k string, at timestamp").json(str(tmp_path / "in"))
    static = spark.read.schema("k string, at timestamp").json(str(tmp_path / "in"))
    found, report = microbatch(described(static), static, tmp_path / "state")
    assert [row["k"] for row in found] == [row["k"] for row in resident(described(streaming))] == ["a"]
    assert report.watermark == "2024-05-01T02:00:00.000Z"


def test_rows_of_windows_before_1970_are_late_on_both_engines_as_in_spark(spark, tmp_path):
    times = ["1960-05-01T00:10:00Z", "1969-12-31T23:10:00Z", "1970-01-01T00:10:00Z", "1970-01-01T05:00:00Z"]
    stamped(tmp_path / "in", "0.json", [{"k": at, "at": at} for at in times])
    streaming = spark.readStream.schema("k string, at timestamp").json(str(tmp_path / "in"))
    static = spark.read.schema("k string, at timestamp").json(str(tmp_path / "in"))
    found, report = microbatch(described(static), static, tmp_path / "state")
    assert report.late_rows == 2
    expected = [row.k for row in by_plain_spark(spark, streaming, "before_1970")]
    assert [row["k"] for row in found] == [row["k"] for row in resident(described(streaming))] == expected == times[2:3]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [2**63 - 1, 1]),
        (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("9" * 38)]),
    ],
)
def test_a_sum_that_overflows_fails_on_plain_spark_and_on_both_engines(spark, tmp_path, kind, values):
    (tmp_path / "in").mkdir()
    times = [ORIGIN, ORIGIN, ORIGIN + timedelta(hours=2)]
    columns = {
        "k": ["a", "a", "b"],
        "x": pa.array([*values, None], kind),
        "at": pa.array(times, pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), tmp_path / "in" / "0.parquet")
    static = spark.read.parquet(str(tmp_path / "in"))
    streaming = spark.readStream.schema(static.schema).parquet(str(tmp_path / "in"))
    with pytest.raises(ArithmeticException):
        static.groupBy("k").agg({"x": "sum"}).collect()
    with pytest.raises(ArithmeticException):
        microbatch(described(static, s=sy.sum("x")), static, tmp_path / "state")
    with pytest.raises((BadRowError, JobError), match="does not fit into"):
        resident(described(streaming, s=sy.sum("x")))
    if kind == pa.int64():
        assert [row["m"] for row in resident(described(streaming, m=sy.mean("x")))] == [2.0**62]
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(OptionError, match=r"spark\.sql\.ansi\.enabled is false"):
            resident(described(streaming, s=sy.sum("x")))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_local_times_that_the_clocks_leave_out_are_keys_in_memory_and_parquet(spark, tmp_path):
    gap = datetime(2024, 3, 10, 2, 30)
    stamped(tmp_path / "in", "0.json", [{"k": gap.isoformat()}, {"k": "2024-01-01", "at": "2024-05-01T02:00:00Z"}])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        read = spark.readStream.schema("k timestamp_ntz, at timestamp").json(str(tmp_path / "in"))
        for sink in ({"name": "gaps"}, {"path": str(tmp_path / "out")}):
            for engine in ("microbatch", "resident"):
                kind = "memory" if "name" in sink else "parquet"
                options = {name: f"{value}_{engine}" for name, value in sink.items()}
                assert described(read).engine(engine).sink(kind, **options).start().await_termination(120)
                place = f"gaps_{engine}" if kind == "memory" else options["path"]
                found = spark.table(place) if kind == "memory" else spark.read.parquet(place)
                assert found.selectExpr("cast(k as string) k").first().k == "2024-03-10 02:30:00", (kind, engine)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
