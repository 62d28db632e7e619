"""Sinks: every format that Spark can write, how often, and what is refused where it is said."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

import steelyard as sy
from steelyard.core import OptionError
from steelyard.spark.arrow import frame_of, in_driver
from steelyard.spark.formats import FormatSink
from steelyard.spark.sinks import FileSink, MemorySink, claim, opened, sink, tell_what_is_gone

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame([("a", 1), ("b", 2)], "k string, v bigint")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("json", {"compression": "gzip"}),
        ("csv", {"header": True}),
        ("orc", {"compression": "zlib"}),
        ("parquet", {"compression": "gzip"}),
    ],
)
def test_every_format_of_files_is_written_once_a_batch_with_its_options(spark, rows, tmp_path, kind, options):
    made = sink(kind, ("k",), spark, "append", {"path": str(tmp_path), **options})
    assert isinstance(made, FileSink)
    opened(made, spark, rows.schema, "one")
    for batch, part in ((0, rows), (0, rows.limit(0)), (1, rows)):  # batch 0 comes again after a crash
        assert made.write(part, batch) == 2
    found = spark.read.format(kind).schema("k string, v bigint, batch_id int").options(**made.options)
    assert sorted(map(tuple, found.load(str(tmp_path)).collect())) == [
        (*row, batch) for row in (("a", 1), ("b", 2)) for batch in (0, 1)
    ]
    names = [path.name for path in tmp_path.glob("batch_id=1/*") if not path.name.startswith(("_", "."))]
    assert all({"json": ".gz", "csv": ".csv", "orc": ".zlib", "parquet": ".gz"}[kind] in name for name in names)
    with pytest.raises(OptionError, match="belongs to another query"):
        opened(made, spark, rows.schema, "two")


class Into(DataSource):
    """A destination of one's own: each task writes a file that says what it got."""

    @classmethod
    def name(cls):
        return "into"

    def writer(self, schema, overwrite):
        return IntoWriter(self.options["path"], overwrite)


class IntoWriter(DataSourceWriter):
    def __init__(self, path, overwrite):
        self.path, self.overwrite = path, overwrite

    def write(self, rows):
        from pathlib import Path
        from uuid import uuid4

        lines = [f"{row.k} {row.v} {self.overwrite}" for row in rows]
        (Path(self.path) / uuid4().hex).write_text("\n".join(lines), encoding="utf-8")
        return WriterCommitMessage()


@pytest.mark.parametrize(("mode", "overwrites"), [("append", False), ("complete", True)])
def test_a_python_data_source_gets_each_batch_and_at_least_once_is_said_aloud(
    spark, rows, tmp_path, mode, overwrites, caplog
):
    spark.dataSource.register(Into)
    made = sink("into", (), spark, mode, {"path": str(tmp_path), "mode": "hash", "keys": "k"})
    with caplog.at_level(logging.WARNING, logger="steelyard"):
        opened(made, spark, rows.schema, "one")
    assert "sink 'into' writes at least once" in caplog.text
    assert made.write(rows, 0) == 2
    lines = sorted(line for file in tmp_path.iterdir() for line in file.read_text().splitlines())
    assert lines == [f"a 1 {overwrites}", f"b 2 {overwrites}"]


def test_delta_is_told_the_query_and_the_batch_and_nothing_else_is(spark, rows, monkeypatch):
    told = {}
    writer = type(rows.write)
    monkeypatch.setattr(writer, "options", lambda self, **given: told.update(given) or self)
    delta = FormatSink("delta", {"path": "table", "mergeSchema": "true"})
    opened(delta, spark, rows.schema, "the checkpoint")
    delta.writer(rows, 7)
    assert told == {"path": "table", "mergeSchema": "true", "txnAppId": "the checkpoint", "txnVersion": "7"}
    told.clear()
    FormatSink("noop", {}).writer(rows, 7)
    assert told == {}


def test_the_noop_format_takes_results_and_says_nothing(spark, rows, caplog):
    made = opened(sink("noop", (), spark, "append", {}), spark, rows.schema, "one")
    assert made.write(rows, 0) == 2
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("jsn", {"path": "x"}, "unknown sink 'jsn': did you mean 'json'"),
        ("delta", {"path": "x"}, "unknown sink 'delta'"),
        ("json", {}, "the json sink needs path"),
        ("parquet", {"compression": "zstd"}, "the parquet sink needs path"),
        ("csv", {"path": "x", "header": [1]}, "option 'header' of the csv sink must be text, a number"),
        ("csv", {"path": "x", "mode": "overwrite"}, r"has no option 'mode': .* said by \.output_mode\('append'\)"),
        ("memory", {"name": "x", "mode": "complete"}, r"has no option 'mode': .*\.output_mode"),
        ("parquet", {"path": "x", "partitionBy": "k"}, r"no option 'partitionBy': .*rows\.write\.partitionBy"),
        ("json", {"path": "x", "partition_by": "k"}, "the json sink has no option 'partition_by'"),
        ("memory", {"name": "a b"}, "letters, digits"),
        ("memory", {"nam": "a"}, "did you mean 'name'"),
        ("foreach_batch", {"function": 3}, "needs a function of"),
        ("kafka", {"servers": "x"}, "the kafka sink needs topic"),
    ],
)
def test_a_wrong_sink_or_option_is_refused_where_it_is_said(rows, kind, options, said):
    with pytest.raises(OptionError, match=said):
        sy.stream(rows).sink(kind, **options)


def test_results_that_went_elsewhere_are_told_of_and_a_first_start_is_not(spark, tmp_path, caplog):
    out, memory = FileSink(str(tmp_path / "out")), MemorySink("of_before", spark)
    for first in (out, memory):
        tell_what_is_gone(spark, first, None, "one", -1)
    claim(spark, str(tmp_path / "out"), "one")
    tell_what_is_gone(spark, out, None, "one", 3)
    tell_what_is_gone(spark, MemorySink("of_before", spark, "complete"), None, "one", 3)
    assert not caplog.records
    tell_what_is_gone(spark, FileSink(str(tmp_path / "new")), None, "one", 3)
    assert "new has no results of batches 0 to 3: they went elsewhere, or were removed" in caplog.text
    tell_what_is_gone(spark, memory, None, "one", 3)
    assert "table of_before of the memory sink begins empty: results of batches 0 to 3 were given before" in caplog.text


def test_rows_behind_an_empty_piece_of_a_table_are_rows(spark, rows):
    piece = rows.toArrow()
    nested = spark.createDataFrame([([(1,)],)], "states array<struct<n: int>>")
    for made in (frame_of, in_driver):
        assert made(spark, pa.Table.from_batches([], nested.toArrow().schema), nested.schema).collect() == []
    table = pa.concat_tables([piece, piece[:0], piece, piece[:0]])
    for made in (frame_of, in_driver):
        assert sorted(map(tuple, made(spark, table, rows.schema).collect())) == [("a", 1)] * 2 + [("b", 2)] * 2
        assert made(spark, piece[:0], rows.schema).collect() == []
