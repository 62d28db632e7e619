"""What readers and aggregates must do as Spark does: names, sums that overflow, many files, names in another case."""

from __future__ import annotations

import resource
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard import count, max, mean, min, sum, variance
from steelyard.core import BadRowError, OptionError
from steelyard.resident import Flow, JobError, Memory, ParquetFiles, Rows, run
from steelyard.resident.transformed import conformed

AT = [datetime(2024, 5, 1, tzinfo=UTC)] * 4


def aggregated(columns, keys, windowed, uses):
    table = pa.table({**columns, "at": pa.array(AT[: len(next(iter(columns.values())))], pa.timestamp("us", "UTC"))})
    flow = Flow("drawn", parallelism=2)
    keyed = flow.source(Rows(table), time="at").key_by(*keys, grouping="shuffle" if windowed == "split" else "hash")
    made = keyed.aggregate(uses, window="1 minute") if windowed else keyed.aggregate(uses, emit="end")
    made.sink(Memory(), name="out")
    return run(flow.dataflow()).table("out").select([*keys, *uses]).sort_by([(key, "ascending") for key in keys])


@pytest.mark.parametrize("windowed", ["split", "whole", ""])
def test_keys_and_aggregates_named_like_our_own_columns_stay_what_they_are(windowed):
    keys = {"n.count_all": ["a", "a", "b"], "count_all": [1, 1, 2], "key0": [5, 6, 7]}
    uses = {"n": count(), "n.count": sum("x"), "part0": mean("x"), "row": max("x"), "part0.sum": min("x")}
    uses["name"] = count()
    found = aggregated({**keys, "x": [1, 2, 3]}, list(keys), windowed, uses).to_pylist()
    assert [[row[key] for key in keys] for row in found] == [["a", 1, 5], ["a", 1, 6], ["b", 2, 7]]
    for row, x in zip(found, [1, 2, 3], strict=True):
        assert [row[name] for name in uses] == [1, x, x, x, x, 1]
    if windowed:
        with pytest.raises(OptionError, match="'__pane' is a name of ours"):
            aggregated({"__pane": [1], "x": [1]}, ["__pane"], windowed, {"n": count()})


def test_a_state_may_have_the_name_of_a_part_and_a_part_that_of_a_key():
    rows = {"m.sum": ["a", "a"], "v": [1, 1], "x": [1.0, 3.0]}
    uses = {"v": variance("x"), "m": sum("x"), "v'": mean("x")}
    found = aggregated(rows, ["m.sum"], "whole", uses)
    assert found.to_pylist() == [{"m.sum": "a", "v": 2.0, "m": 4.0, "v'": 2.0}]


@pytest.mark.parametrize("windowed", ["split", "whole", ""])
def test_a_mean_of_large_whole_numbers_does_not_overflow(windowed):
    found = aggregated({"k": [1, 1, 1], "x": [2**63 - 1] * 3}, ["k"], windowed, {"m": mean("x")})
    assert found.column("m").to_pylist() == [pytest.approx(2.0**63)]


LARGE = Decimal("9" * 38)


@pytest.mark.parametrize(
    ("values", "windowed"),
    [
        (pa.array([2**63 - 1, 1, 0, 0]), "split"),
        (pa.array([2**63 - 1, 1, 0, 0]), "whole"),
        (pa.array([2**63 - 1, 0, 0, 1]), ""),
        (pa.array([2**64 - 1, 1, 0, 0], pa.uint64()), "split"),
        (pa.array([2**64 - 1, 0, 0, 1], pa.uint64()), ""),
        (pa.array([LARGE, LARGE, LARGE, LARGE], pa.decimal128(38, 0)), "split"),
        (pa.array([LARGE, LARGE, LARGE, LARGE], pa.decimal128(38, 0)), "whole"),
    ],
)
def test_a_sum_that_overflows_ends_the_job_and_does_not_wrap(values, windowed):
    with pytest.raises((BadRowError, JobError), match=r"the sum 's.*' of values of type .* does not fit into"):
        aggregated({"k": [1, 1, 1, 1], "x": values}, ["k"], windowed, {"s": sum("x")})


@pytest.mark.parametrize("windowed", ["split", "whole"])
def test_large_sums_that_fit_are_exact(windowed):
    large = {"k": [1, 1, 2, 2], "x": [2**62, 2**62 - 1, -(2**62), -(2**62)]}
    found = aggregated(large, ["k"], windowed, {"s": sum("x")})
    assert found.column("s").to_pylist() == [2**63 - 1, -(2**63)]
    half = Decimal("4" * 38)
    halves = {"k": [1, 1], "x": pa.array([half, half], pa.decimal128(38, 0))}
    found = aggregated(halves, ["k"], windowed, {"s": sum("x")})
    assert found.column("s").to_pylist() == [Decimal("8" * 38)]


@pytest.mark.parametrize("windowed", ["split", "whole", ""])
def test_large_unsigned_numbers_are_added_and_compared_as_they_are(windowed):
    large = {"k": [1, 1, 2, 2], "x": pa.array([2**63, 5, 2**62, 2**64 - 2**62 - 1], pa.uint64())}
    found = aggregated(large, ["k"], windowed, {"s": sum("x"), "low": min("x"), "high": max("x")})
    assert found.column("s").type == pa.uint64()
    assert found.to_pylist() == [
        {"k": 1, "s": 2**63 + 5, "low": 5, "high": 2**63},
        {"k": 2, "s": 2**64 - 1, "low": 2**62, "high": 2**64 - 2**62 - 1},
    ]


def test_more_files_than_a_process_may_open_are_read(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 300
    for number in range(files):
        table = pa.table({"k": [number % 7], "at": pa.array(AT[:1], pa.timestamp("us", "UTC"))})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    flow = Flow("files", parallelism=1)
    read = flow.source(ParquetFiles([str(path) for path in tmp_path.iterdir()]), time="at")
    read.key_by("k").aggregate(n=count(), window="1 minute").sink(Memory(), name="out")
    resource.setrlimit(resource.RLIMIT_NOFILE, (250, limits[1]))
    try:
        found = run(flow.dataflow(), workers=1).table("out")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sorted(found.column("n").to_pylist()) == [42, 43, 43, 43, 43, 43, 43]


def test_times_of_old_parquet_files_may_be_after_2262(tmp_path):
    at = datetime(3000, 1, 1, tzinfo=UTC)
    table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    path = str(tmp_path / "old.parquet")
    reader = ParquetFiles([path])
    assert reader.read(path, 0, 10).batch.column("at").to_pylist() == [at]
    assert reader.schema.field("at").type == pa.timestamp("us", "UTC")  # an instant, as in Spark


def test_columns_of_files_are_found_in_another_case_and_in_types_that_spark_reads():
    rows = pa.record_batch({"K": ["a"], "n": pa.array([1], pa.int32())})
    wanted = pa.schema({"k": pa.string(), "n": pa.int64()})
    assert conformed(rows, wanted, case_sensitive=False).to_pylist() == [{"k": "a", "n": 1}]
    assert conformed(rows, wanted).to_pylist() == [{"k": None, "n": 1}]
    with pytest.raises(OptionError, match="2 columns named 'k': their names differ in case alone"):
        conformed(pa.record_batch({"K": ["a"], "k": ["b"]}), wanted, case_sensitive=False)
    with pytest.raises(OptionError, match="column 'n' as string, which cannot be read as int64"):
        conformed(pa.record_batch({"n": ["1"]}), wanted)
