"""Workers that stay take files that come while a query runs, each once; answers are plain Spark's over all of them."""

from __future__ import annotations

import json
import os
import time

import pyarrow.parquet as pq
import pytest

from steelyard.core import OptionError
from tests.spark.cases import same
from tests.spark.test_either_engine import SCHEMA, listed, plain, program, rows_of, table_of

pytestmark = pytest.mark.spark
SIZE, SLIDE = "20 seconds", "10 seconds"
BY = ["window_start", "k"]


def put(folder, number, made, kind):
    """A file that appears whole, younger than those before."""
    aside, file = folder / f".{number}", folder / f"{number}.{kind}"
    if kind == "parquet":
        pq.write_table(table_of(made), aside)
    else:
        lines = (json.dumps(row, default=lambda at: at.isoformat()) for row in table_of(made).to_pylist())
        aside.write_text("".join(line + "\n" for line in lines))
    os.utime(aside, (number + 1, number + 1))
    aside.rename(file)


def count_of(out):
    """Rows of whole files: those that are being written have hidden names."""
    found = [*out.glob("[!_.]*.parquet"), *out.glob("batch_id=*/[!_.]*.parquet")]
    return sum(pq.read_metadata(file).num_rows for file in found)


def wait_for(query, out, rows):
    deadline = time.monotonic() + 120
    while count_of(out) < rows:
        assert query.exception() is None
        assert time.monotonic() < deadline, (count_of(out), rows)
        time.sleep(0.1)


@pytest.mark.parametrize(("engine", "kind"), [("resident", "parquet"), ("resident", "json"), ("groups", "json")])
def test_files_that_come_are_read_once_over_restarts_and_those_that_were_read_may_go(spark, tmp_path, engine, kind):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    made = rows_of(3, 700)
    parts = [made[first : first + 100] for first in range(0, 700, 100)]
    read = spark.readStream.schema(SCHEMA).format(kind).load(str(folder))
    described = program(read, SIZE, SLIDE).partition_by("hash", blocks=2, buckets=2).engine(engine)
    described = described.sink("parquet", path=str(out)).checkpoint(str(tmp_path / "state"))
    running = described.trigger(processing_time="300 milliseconds")
    put(folder, 0, parts[0], kind)
    for life in range(2):
        query = running.start()
        for number in range(3 * life, 3 * life + 3):
            put(folder, number, parts[number], kind) if number else None
            wait_for(query, out, plain(spark, made[: 100 * (number + 1)], SIZE, SLIDE).count())
        query.stop()
        assert query.exception() is None
        for file in folder.iterdir():  # all of them were read
            file.unlink()
    put(folder, 6, parts[6], kind)
    assert described.trigger(available_now=True).start().await_termination(120)
    same(listed(spark.read.parquet(str(out)).drop("batch_id")), listed(plain(spark, made, SIZE, SLIDE)), BY)


def test_a_folder_that_was_read_as_it_was_is_not_watched_from_the_same_checkpoint(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    read = spark.readStream.schema(SCHEMA).parquet(str(folder))
    described = program(read, SIZE, SLIDE).engine("resident").checkpoint(str(tmp_path / "state"))
    described = described.sink("memory", name="not_watched")
    with pytest.raises(OptionError, match=r"there is no file in .*leave out .trigger\(available_now=True\)"):
        described.start()
    put(folder, 0, rows_of(3, 50), "parquet")
    assert described.start().await_termination(120)
    with pytest.raises(OptionError, match=r"was begun with .trigger.* files are read side by side: go on so"):
        described.trigger(processing_time="1 second").start()
    several = program(spark.readStream.schema(SCHEMA).parquet(str(folder / "*.parquet")), SIZE, SLIDE)
    several = several.engine("resident").trigger(processing_time="1 second").sink("memory", name="several")
    with pytest.raises(OptionError, match=r"watches one folder, and .* is none: give the folder"):
        several.start()
