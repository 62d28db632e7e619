"""The data source "steelyard": what its readers promise, then the same inside Spark."""

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructType

from steelyard.core import OptionError
from steelyard.spark.source import CHUNK_ROWS, RowReader, RowStreamReader, SourceOptions, SteelyardSource
from steelyard.workloads import WORKLOADS

SMALL = {"workload": "zipf", "keys": "50", "row_numbers": "true"}
BY_COUNT = {**SMALL, "rows_per_batch": "1000"}
NOW = 1_700_000_000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def stream(clock: Clock | None = None, **options: str) -> RowStreamReader:
    return RowStreamReader(SourceOptions.parse(options), clock or Clock())


def rows_between(reader: RowStreamReader, start: dict[str, int], end: dict[str, int]) -> pa.Table:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return pa.Table.from_batches(batches)


def next_offset(reader: RowStreamReader, start: dict[str, int]) -> dict[str, int]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_batch_has_exactly_the_rows_it_was_told() -> None:
    reader = stream(**BY_COUNT)
    first = next_offset(reader, reader.initialOffset())
    assert first == {"row": 1000}
    assert next_offset(reader, first) == {"row": 2000}
    assert rows_between(reader, first, {"row": 2000})["row_number"].to_pylist() == list(range(1000, 2000))


def test_the_clock_says_how_many_rows_there_are() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    start = reader.initialOffset()
    assert next_offset(reader, start) == start
    clock.now += 2.5
    assert next_offset(reader, start) == {"row": 500, "started": int(NOW * 1e6)}


def test_the_start_does_not_move_while_there_is_no_batch_yet() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL)
    before = reader.initialOffset()
    clock.now += 1
    assert reader.initialOffset() == before


def test_after_a_restart_the_clock_goes_on_from_the_first_start() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    clock.now += 1
    logged = next_offset(reader, {"row": 0, "started": int(NOW * 1e6)})
    clock.now += 9
    assert next_offset(stream(clock, **SMALL, rate="200"), logged)["row"] == 2000


def test_a_first_batch_that_is_run_again_has_the_same_event_times() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    start = reader.initialOffset()
    clock.now += 1
    end = next_offset(reader, start)
    before = rows_between(reader, start, end)
    clock.now += 100
    restarted = stream(clock, **SMALL, rate="200")
    assert rows_between(restarted, restarted.initialOffset(), end).equals(before)


def test_a_clock_that_is_set_back_takes_no_rows_away() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    start = {"row": 500, "started": int(NOW * 1e6)}
    clock.now -= 60
    assert next_offset(reader, start) == start


def test_a_query_by_count_can_go_on_by_the_clock() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    offset = next_offset(reader, {"row": 1000})
    assert offset["row"] == 1000
    clock.now += 1
    assert next_offset(reader, offset)["row"] == 1200


def test_events_by_the_clock_happen_between_the_start_and_now() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200")
    start = reader.initialOffset()
    clock.now += 2
    times = rows_between(reader, start, next_offset(reader, start))["event_time"].cast(pa.int64()).to_pylist()
    assert times[0] == int(NOW * 1e6)
    assert times == sorted(times)
    assert times[-1] <= int(clock.now * 1e6)


def test_the_start_option_is_the_event_time_of_the_first_row() -> None:
    reader = stream(**BY_COUNT, start="2013-01-01T00:00:00")
    first = rows_between(reader, {"row": 0}, {"row": 1})["event_time"][0].as_py()
    assert first.isoformat() == "2013-01-01T00:00:00+00:00"


def test_at_most_so_many_rows_a_batch_and_the_rest_later() -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, rate="200", max_rows_per_batch="300")
    start = reader.initialOffset()
    clock.now += 2
    assert reader.getDefaultReadLimit() == ReadMaxRows(300)
    first = next_offset(reader, start)
    assert first["row"] == 300
    assert next_offset(reader, first)["row"] == 400
    assert reader.reportLatestOffset() == {"row": 400, "started": int(NOW * 1e6)}


@pytest.mark.parametrize("pace", [{"rows_per_batch": "400"}, {"rate": "1000000"}])
def test_a_stream_ends_after_its_last_row(pace: dict[str, str]) -> None:
    clock = Clock()
    reader = stream(clock, **SMALL, **pace, max_rows="1000")
    offset = reader.initialOffset()
    seen = []
    for _ in range(5):
        clock.now += 1
        offset = next_offset(reader, offset)
        seen.append(offset["row"])
    assert seen[-2:] == [1000, 1000]
    assert seen == sorted(seen)


@pytest.mark.parametrize(("pace", "ends"), [({"rows_per_batch": "400"}, [400, 800, 1000]), ({"rate": "1"}, [1000])])
def test_available_now_reaches_the_last_row_without_waiting(pace: dict[str, str], ends: list[int]) -> None:
    reader = stream(**SMALL, **pace, max_rows="1000")
    reader.prepareForTriggerAvailableNow()
    offset = reader.initialOffset()
    for end in [*ends, 1000]:
        offset = next_offset(reader, offset)
        assert offset["row"] == end


def test_available_now_needs_an_end() -> None:
    with pytest.raises(OptionError, match="option 'max_rows' is missing"):
        stream(**BY_COUNT).prepareForTriggerAvailableNow()


def test_a_trigger_that_wants_everything_gets_one_batch_of_an_endless_stream() -> None:
    reader = stream(**BY_COUNT)
    assert reader.latestOffset({"row": 0}, ReadAllAvailable()) == {"row": 1000}


def test_offsets_are_json() -> None:
    reader = stream(**SMALL)
    assert json.loads(json.dumps(reader.initialOffset())) == reader.initialOffset()


@settings(deadline=None)
@given(first=st.integers(0, 10**9), rows=st.integers(0, 500), parts=st.integers(1, 20))
def test_partitions_are_even_and_hold_every_row_once(first: int, rows: int, parts: int) -> None:
    reader = stream(**BY_COUNT, partitions=str(parts))
    ranges = reader.partitions({"row": first}, {"row": first + rows})
    if not rows:
        assert ranges == []
        return
    assert len(ranges) == parts
    sizes = [part.end - part.first for part in ranges]
    assert max(sizes) - min(sizes) <= 1
    numbers = rows_between(reader, {"row": first}, {"row": first + rows})["row_number"].to_pylist()
    assert numbers == list(range(first, first + rows))


def test_a_task_reads_in_chunks() -> None:
    reader = stream(**SMALL, partitions="1")
    (part,) = reader.partitions({"row": 0}, {"row": CHUNK_ROWS + 5})
    assert [batch.num_rows for batch in reader.read(part)] == [CHUNK_ROWS, 5]


def test_a_reader_that_is_sent_to_a_task_reads_the_same() -> None:
    reader = RowStreamReader(SourceOptions.parse(BY_COUNT))
    part = reader.partitions({"row": 0}, {"row": 100})[1]
    sent_reader, sent_part = pickle.loads(pickle.dumps((reader, part)))
    assert list(sent_reader.read(sent_part)) == list(reader.read(part))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "option 'workload' is missing"),
        ({"workload": "zpif"}, "did you mean 'zipf'"),
        ({"workload": "zipf", "exponnet": "1"}, "unknown option of workload zipf 'exponnet': did you mean 'exponent'"),
        ({"workload": "zipf", "row_per_batch": "1"}, "did you mean 'rows_per_batch'"),
        ({"workload": "taxi", "keys": "1"}, "unknown option of workload taxi 'keys'"),
        ({"workload": "zipf", "partitions": "0"}, "option 'partitions' must be at least 1, got 0"),
        ({"workload": "zipf", "partitions": "two"}, "option 'partitions' must be a whole number, got 'two'"),
        ({"workload": "zipf", "rate": "fast"}, "rate 'fast'"),
        ({"workload": "zipf", "start": "yesterday"}, "option 'start' must be a date and time"),
        ({"workload": "zipf", "late_share": "0.1"}, "'late_share' .* and 'event_delay' .* belong together"),
        ({"workload": "zipf", "row_numbers": "maybe"}, "option 'row_numbers' must be true or false"),
        ({"workload": "zipf", "rows_per_batch": "1", "max_rows_per_batch": "1"}, "exclude each other"),
        ({"workload": "zipf", "path": "/somewhere"}, "unknown option of workload zipf 'path'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        SteelyardSource(options).schema()


def test_options_of_one_kind_of_read_are_refused_by_the_other() -> None:
    with pytest.raises(OptionError, match=r"for spark\.readStream give 'max_rows'"):
        stream(**SMALL, rows="5")
    with pytest.raises(OptionError, match=r"for spark\.read give 'rows'"):
        RowReader(SourceOptions.parse({**SMALL, "max_rows": "5"}))
    with pytest.raises(OptionError, match="option 'rows' is missing"):
        RowReader(SourceOptions.parse(SMALL))


def test_another_schema_is_refused() -> None:
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        SteelyardSource(SMALL).reader(StructType().add("x", LongType()))
    # A stream's reader says it when Spark first asks it: PySpark hides what is raised while it is made.
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        SteelyardSource(SMALL).streamReader(StructType().add("x", LongType())).initialOffset()


def read(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("steelyard").options(**options).load()


def run_until_end(frame: DataFrame, folder: Path) -> None:
    """One run of a query, as a restart makes it: results and checkpoint stay in `folder`."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


@pytest.mark.spark
@pytest.mark.parametrize("name", WORKLOADS)
def test_spark_reads_every_workload(spark: SparkSession, name: str) -> None:
    frame = read(spark, workload=name, rows=1000, partitions=2)
    assert frame.count() == 1000
    assert frame.schema[WORKLOADS[name].event_time].dataType.typeName() == "timestamp"


@pytest.mark.spark
def test_spark_makes_the_partitions_that_were_asked_for(spark: SparkSession) -> None:
    frame = read(spark, workload="zipf", rows=1000, partitions=5)
    assert frame.rdd.getNumPartitions() == 5
    assert [row["count"] for row in frame.groupBy(f.spark_partition_id()).count().collect()] == [200] * 5


@pytest.mark.spark
def test_option_names_may_be_written_in_any_case(spark: SparkSession) -> None:
    assert read(spark, WORKLOAD="zipf", Rows=10, Keys=1).where("key = 0").count() == 10


@pytest.mark.spark
def test_a_typo_in_an_option_is_reported_at_load(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="unknown option of workload zipf 'exponnet': did you mean 'exponent'"):
        spark.readStream.format("steelyard").options(workload="zipf", exponnet=1).load()


@pytest.mark.spark
def test_a_restart_from_the_checkpoint_gives_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    options = {**SMALL, "rows_per_batch": "300", "partitions": "3", "seed": "5"}
    for end in (1000, 1000, 2500):
        frame = spark.readStream.format("steelyard").options(**options, max_rows=end).load()
        run_until_end(frame, tmp_path)
    written = spark.read.parquet(str(tmp_path / "rows"))
    expected = read(spark, **{**SMALL, "rows": 2500, "seed": 5})
    assert written.count() == 2500
    assert written.exceptAll(expected).count() == 0


@pytest.mark.spark
def test_a_batch_whose_commit_was_lost_is_replayed_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    options = {**SMALL, "rows_per_batch": "400", "max_rows": "1200", "jitter": "3"}
    seen: dict[int, list[list[Any]]] = {}

    def remember(batch: DataFrame, number: int) -> None:
        seen.setdefault(number, []).append(sorted(batch.collect(), key=lambda row: row["row_number"]))

    def run() -> None:
        frame = spark.readStream.format("steelyard").options(**options).load()
        query = (
            frame.writeStream.foreachBatch(remember)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    for kept in (tmp_path / "commits").glob("*2*"):
        kept.unlink()
    run()
    assert [len(seen[number]) for number in (0, 1, 2)] == [1, 1, 2]
    assert seen[2][0] == seen[2][1]


@pytest.mark.spark
def test_a_stream_by_the_clock_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("steelyard").options(**SMALL, rate="2000", max_rows=3000).load()
    for _ in range(2):
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()
    run_until_end(frame, tmp_path)
    numbers = spark.read.parquet(str(tmp_path / "rows")).select("row_number", "event_time")
    got = numbers.orderBy("row_number").collect()
    assert [row["row_number"] for row in got] == list(range(3000))
    times = [row["event_time"] for row in got]
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() == pytest.approx(2999 / 2000, abs=1e-3)
