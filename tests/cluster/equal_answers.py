"""Drawn dataflows beside plain Spark: python -m tests.cluster.equal_answers MASTER SLOTS CASES REPORT.

Each case is drawn from its number: rows, what is done with them, parallelism, groupings, workers and placement. The
same is done with the same rows by DataFrames, and both answers are compared, row by row.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import steelyard as sy
from steelyard import count, max, mean, min, sum
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows, Stream
from steelyard.spark import resident
from steelyard.workloads.workload import TIMESTAMP
from tests.tiny_spark import tiny

KINDS = ("windows", "join", "running", "windowed join", "join, then aggregate", "union")
GROUPINGS = ("hash", "hash", "shuffle", "pk2", "dalton", "prompt")
SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
WINDOWS = ((10, 10), (10, 5), (6, 4), (4, 1))
WIDEST = 3


@dataclass(frozen=True)
class Both:
    """Rows as a stream, and as a DataFrame; what is done is done to both."""

    draw: random.Random
    stream: Stream
    frame: DataFrame

    @property
    def width(self) -> int:
        return self.draw.randint(1, WIDEST)

    def _grouped(self) -> Stream:
        return self.stream.shuffle() if self.draw.random() < 0.5 else self.stream

    def _then(self, stream: Stream, frame: DataFrame) -> Both:
        return replace(self, stream=stream, frame=frame)

    def filtered(self) -> Both:
        least = self.draw.randint(-4, 0)
        condition = pc.field("value") > least
        return self._then(self._grouped().filter(condition), self.frame.where(F.col("value") > least))

    def mapped(self) -> Both:
        factor, more = self.draw.randint(-2, 3), self.draw.randint(-2, 2)

        def change(batch: pa.RecordBatch) -> pa.RecordBatch:
            value = pc.add(pc.multiply(batch["value"], factor), more)
            return pa.RecordBatch.from_arrays([batch["key"], value, batch["at"]], schema=SCHEMA)

        stream = self.stream.shuffle().map(change, parallelism=self.width)
        return self._then(stream, self.frame.withColumn("value", F.col("value") * factor + more))

    def doubled(self) -> Both:
        def some_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.concat_batches([batch, batch.filter(pc.greater(batch["value"], 0))])

        stream = self.stream.shuffle().flat_map(some_twice, parallelism=self.width)
        return self._then(stream, self.frame.unionAll(self.frame.where(F.col("value") > 0)))

    def changed(self) -> Both:
        """Up to three changes of single rows."""
        both = self
        for _ in range(self.draw.randint(0, 3)):
            both = self.draw.choice([Both.filtered, Both.mapped, Both.doubled])(both)
        return both

    def union(self, other: Both) -> Both:
        return self._then(self.stream.union(other.stream), self.frame.unionAll(other.frame))


RESIDENT = {"n": count(), "total": sum("value"), "low": min("value"), "high": max("value"), "middle": mean("value")}


def plain_aggregates() -> list[Any]:
    """The same for a DataFrame."""
    value = F.col("value")
    named = {
        "n": F.count("*"),
        "total": F.sum(value),
        "low": F.min(value),
        "high": F.max(value),
        "middle": F.avg(value),
    }
    return [column.alias(name) for name, column in named.items()]


class Case:
    """One drawn dataflow, and what plain Spark does with the same rows."""

    def __init__(self, spark: SparkSession, number: int) -> None:
        self.kind = KINDS[number % len(KINDS)]
        self._draw = random.Random(number)
        self._spark = spark
        self._flow = Flow(f"case {number}")
        self._sources = 0
        made = {
            "windows": self._windows,
            "join": self._join,
            "running": self._running,
            "windowed join": self._windowed_join,
            "join, then aggregate": self._join_then_aggregate,
            "union": lambda: self._running(self._read().union(self._read())),
        }[self.kind]()
        made.stream.sink(Memory(), name="out", parallelism=made.width)
        self.dataflow, self.frame = self._flow.dataflow(), made.frame

    def _read(self) -> Both:
        draw, rows = self._draw, self._draw.choice([0, 5, 60, 120, 120])
        table = pa.table(
            {
                "key": pa.array([draw.choice(["a", "b", "c", "dd", None]) for _ in range(rows)], pa.string()),
                "value": pa.array([draw.choice([None, *range(-5, 6)]) for _ in range(rows)], pa.int64()),
                "at": pa.array([draw.randrange(0, 30_000_000) for _ in range(rows)], TIMESTAMP),
            }
        )
        self._sources += 1
        stream = self._flow.source(
            Rows(table, pieces=draw.choice([None, 1, 3])),
            time="at",
            delay="1 minute",
            batch_rows=draw.choice([7, 50, 1000]),
            parallelism=draw.randint(1, WIDEST),
            name=f"read {self._sources}",
        )
        return Both(draw, stream, self._spark.createDataFrame(table)).changed()

    def _window(self) -> tuple[str, str]:
        size, slide = self._draw.choice(WINDOWS)
        return f"{size} seconds", f"{slide} seconds"

    def _windows(self) -> Both:
        both, (size, slide) = self._read(), self._window()
        keyed = both.stream.key_by("key", grouping=self._draw.choice(GROUPINGS))
        combine = self._draw.random() < 0.3
        stream = keyed.aggregate(window=size, slide=slide, combine=combine, parallelism=both.width, **RESIDENT)
        grouped = both.frame.groupBy("key", F.window("at", size, slide)).agg(*plain_aggregates())
        frame = grouped.select("key", "window.start", "window.end", *RESIDENT)
        return replace(both, stream=stream, frame=frame)

    def _running(self, both: Both | None = None) -> Both:
        both = both or self._read()
        keyed = both.stream.key_by("key", grouping=self._draw.choice(GROUPINGS))
        stream = keyed.aggregate(emit="end", parallelism=both.width, **RESIDENT)
        frame = both.frame.groupBy("key").agg(*plain_aggregates()).select("key", *RESIDENT)
        return replace(both, stream=stream, frame=frame)

    def _sides(self) -> tuple[Both, Both]:
        left, right = self._read(), self._read()
        spread = self._draw.choice([None, None, "left", "right"])
        if spread == "left":
            left = replace(left, stream=left.stream.broadcast())
        elif spread == "right":
            right = replace(right, stream=right.stream.broadcast())
        if spread is not None:
            name = "right" if spread == "left" else "left"
            other = right if name == "right" else left
            other = replace(other, stream=other.stream.shuffle())
            left, right = (left, other) if name == "right" else (other, right)
        return left, right

    def _join(self) -> Both:
        left, right = self._sides()
        stream = left.stream.join(right.stream, on="key", parallelism=left.width)
        renamed = right.frame.withColumnsRenamed({"value": "value_right", "at": "at_right"})
        frame = left.frame.join(renamed, "key").select("key", "value", "at", "value_right", "at_right")
        return replace(left, stream=stream, frame=frame)

    def _windowed_join(self) -> Both:
        (left, right), (size, slide) = self._sides(), self._window()
        stream = left.stream.join(right.stream, on="key", window=size, slide=slide, parallelism=left.width)
        renamed = right.frame.withColumnsRenamed({"value": "value_right", "at": "at_right"})
        # Each side's rows once for each window that holds them.
        ours = left.frame.withColumn("within", F.window("at", size, slide))
        theirs = renamed.withColumn("within", F.window("at_right", size, slide))
        pairs = ours.join(theirs, ["key", "within"])
        frame = pairs.select("key", "value", "at", "value_right", "at_right", "within.start", "within.end")
        return replace(left, stream=stream, frame=frame)

    def _join_then_aggregate(self) -> Both:
        return self._running(self._join())

    def placement(self, slots: int) -> Placement:
        """Any: on one machine on up to as many workers as there are slots, on a cluster on all of them."""
        local = self._spark.sparkContext.master.startswith("local")
        workers = self._draw.randint(1, slots) if local else slots
        return Placement({one: self._draw.randrange(workers) for one in self.dataflow.instances}, workers)


def rows_of(table: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def compared(spark: SparkSession, number: int, slots: int) -> dict[str, Any]:
    """A case's two answers, and whether they are one."""
    case = Case(spark, number)
    placement = case.placement(slots)
    got = rows_of(resident.run(spark, case.dataflow, placement=placement).table("out"))
    wanted = rows_of(case.frame.toArrow())
    more, less = (str(list((a - b).items())[:3]) for a, b in ((got, wanted), (wanted, got)))
    found = {"case": number, "kind": case.kind, "workers": placement.workers, "rows": got.total()}
    return {**found, "equal": got == wanted, "more": more, "less": less}


def main() -> None:
    master, slots, cases, report = sys.argv[1:5]
    config = {
        **tiny(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    spark = sy.session("equal answers", master=master, config=config)
    spark.sparkContext.setLogLevel("OFF")
    found = [compared(spark, number, int(slots)) for number in range(int(cases))]
    hosts = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    Path(report).write_text(json.dumps({"cases": found, "executors": len(hosts) - 1}))
    spark.stop()


if __name__ == "__main__":
    main()
