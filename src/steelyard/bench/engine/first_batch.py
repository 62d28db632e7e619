"""From `sy.session` to the first result, in processes that have just started: how much of it is Spark's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steelyard.bench import Cell, Result, Run, Table, Target, WrongAnswerError, charts, experiment, over
from steelyard.bench.engine.aggregate import write_rows
from steelyard.core.errors import SteelyardError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
ROWS, KEYS, EXPONENT, BATCHES = 20_000, 1_000, 1.2, 3
TURNS, QUICK_TURNS = 7, 1
PATIENCE = 300.0
PLAIN, ALONE, AHEAD = "plain Spark", "Steelyard, nothing ahead", "Steelyard"
WAYS = (PLAIN, ALONE, AHEAD)
CONFIG = {"spark.sql.shuffle.partitions": str(SLOTS)}
SCHEMA = "key bigint, value bigint"
Took = Callable[["DataFrame | None"], None]
"""Called with nothing when Spark is there, and with the results of each batch."""
STEPS = ("session", "first", "second")
"""Seconds from the beginning of a program until Spark is there, and until the first and the second result."""


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function in Python that changes nothing."""
    return batches


def _plain_session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loads Spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.port", "0").getOrCreate()


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))


def _plain(folder: Path, took: Took) -> SparkSession:
    """Structured Streaming as it is: a function in Python, and a sum for each key."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a part of what is timed
    from pyspark.sql import functions as F  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    for option, value in {**CONFIG, "spark.ui.port": "0", "spark.ui.showConsoleProgress": "false"}.items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    took(None)
    rows = _input(spark, folder).mapInArrow(_same, SCHEMA)
    sums = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    writer = sums.writeStream.outputMode("update").foreachBatch(lambda frame, _: took(frame))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return spark


def _ours(folder: Path, took: Took, ahead: bool) -> SparkSession:
    """The same program here."""
    import steelyard as sy  # noqa: PLC0415 - a part of what is timed

    spark = sy.session(master=f"local[{SLOTS}]", config=CONFIG, ahead=ahead, quiet=True)
    took(None)
    rows = sy.stream(_input(spark, folder)).map(lambda table: table, SCHEMA).group_by("key")
    query = rows.agg(n=sy.count(), total=sy.sum("value")).output_mode("update")
    query = query.sink("foreach_batch", function=lambda frame, _: took(frame)).checkpoint(str(folder / "checkpoint"))
    query.trigger(available_now=True).start().await_termination()
    return spark


def program(way: str, folder: Path) -> dict[str, Any]:
    """Run the program of one way in this process: seconds until the end of each step, and the newest answers."""
    ends: list[float] = []
    answer: dict[int, list[int]] = {}

    def took(frame: DataFrame | None) -> None:
        rows = [] if frame is None else frame.select("key", "n", "total").collect()
        ends.append(time.perf_counter() - begun)
        answer.update((row[0], [row[1], row[2]]) for row in rows)

    begun = time.perf_counter()
    spark = _plain(folder, took) if way == PLAIN else _ours(folder, took, ahead=way == AHEAD)
    spark.stop()
    return {"seconds": dict(zip(STEPS, ends, strict=False)), "answer": sorted(answer.items())}


def cold(way: str, rows: Path) -> dict[str, Any]:
    """The same in a process of its own, with an empty checkpoint."""
    with tempfile.TemporaryDirectory(prefix="steelyard-first-batch-") as scratch:
        (Path(scratch) / "rows").symlink_to(rows)
        command = [sys.executable, "-m", __name__, way, scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise SteelyardError(f"{way} ended with code {done.returncode}: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


@experiment("first-batch", title="From a session to the first result, in processes that have just started")
def first_batch(run: Run) -> Result:
    """Seconds to the first result of plain Spark, and of Steelyard with and without what it does while Spark starts."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="steelyard-first-batch-") as scratch:
        rows = write_rows(Path(scratch) / "rows", ROWS * BATCHES, KEYS, EXPONENT, run.seed, files=BATCHES)
        ways = WAYS[1:] if run.quick else WAYS
        cold(AHEAD, rows)  # what is compiled is kept for later processes
        answers = []
        for turn in run.progress.track(range(run.pick(TURNS, QUICK_TURNS)), "turns"):
            for way in ways if turn % 2 == 0 else reversed(ways):
                one = cold(way, rows)
                found[way].append(one["seconds"])
                answers.append(one["answer"])
                if one["answer"] != answers[0]:
                    raise WrongAnswerError(f"{way} gave other answers than the process before")
    return result_of({way: taken for way, taken in found.items() if taken})


def result_of(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Result:
    """Medians over the turns, and ratios turn by turn."""
    middle = {way: {step: median(one[step] for one in taken) for step in STEPS} for way, taken in found.items()}
    first = {way: [one["first"] for one in taken] for way, taken in found.items()}
    metrics = {
        "first_result_s": middle[AHEAD]["first"],
        "first_result_nothing_ahead_s": middle[ALONE]["first"],
        "session_s": middle[AHEAD]["session"],
        "session_share": middle[AHEAD]["session"] / middle[AHEAD]["first"],
        "first_result_vs_nothing_ahead": median(over(first[AHEAD], first[ALONE])),
    }
    if PLAIN in found:
        metrics["first_result_plain_spark_s"] = middle[PLAIN]["first"]
        metrics["first_result_vs_plain_spark"] = median(over(first[AHEAD], first[PLAIN]))
    rows: list[list[Cell]] = [
        [way, *(middle[way][step] for step in STEPS), min(first[way]), max(first[way])] for way in found
    ]
    return Result(
        parameters={"slots": SLOTS, "rows": ROWS, "keys": KEYS, "turns": len(found[AHEAD])},
        metrics=metrics,
        tables=[Table("seconds until", ("way", *STEPS, "first, least", "first, most"), rows)],
        targets=[
            Target(
                "first_result_vs_nothing_ahead",
                at_most=1.0,
                explanation="what is loaded ahead takes processor time from the JVM, which starts beside it",
            )
        ],
        notes=[
            f"From before `import steelyard` to the first result of batches of {ROWS:,} rows with a function in Python "
            "and two sums for each key. Each process is new, ways take turns, and what numba compiles is kept from "
            "one before. session: Spark is there; first, second: the sink has a batch's results.",
            "Plain Spark has no log of partials and no plan. A quick run leaves it out.",
        ],
    )


@first_batch.picture
def _picture(figure: charts.Figure, result: Result) -> None:
    times = {str(row["way"]): float(row["first"]) for row in result.tables[0].records()}
    charts.bars(figure.add_subplot(), times, title="To the first result of a new process", x="seconds", y="way")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(program(sys.argv[1], Path(sys.argv[2]))) + "\n")
