"""Groups of batches that are scheduled ahead, on resident workers, beside one Spark job a batch."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from steelyard.bench import charts
from steelyard.bench.aggregate import WrongAnswerError, write_rows
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Cell, Number, Published, Result, Series, Table, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

SLOTS = 2
KEYS, EXPONENT = 10_000, 1.2
SIZES, QUICK_SIZES = (1_000, 20_000, 100_000, 400_000, 2_000_000, 5_000_000), (1_000, 200_000, 2_000_000)
_LEAST = 0.001
"""Seconds by which the largest batch takes longer than the smallest, at least: clocks are noisy."""
INTERVALS = (0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
HEADLINE = 0.1
GROUP = 10
ROUNDS, QUICK_ROUNDS = 3, 1
WARM_UP = 0.3
"""The share of a run's batches before the ones that count."""
SPARK = "one Spark job a batch"
AHEAD = "groups of 10 ahead"
ONE = "one batch at a time"
BOUNDARY = "groups of 10, one after the other"
PARTITIONERS = ("prompt", "hash", "shuffle")
PUBLISHED = "Abdelhamid 2021, Fig 3.7a and section 3.3, text"


@dataclass(frozen=True)
class Way:
    """A way to run batches on resident workers."""

    name: str
    partitioner: str
    group: int
    ahead: int


WAYS = (
    *(Way(f"{AHEAD}, {name}", name, GROUP, 2) for name in PARTITIONERS),
    Way(f"{BOUNDARY}, prompt", "prompt", GROUP, 0),
    Way(f"{ONE}, prompt", "prompt", 1, 0),
)
QUICK_WAYS = (WAYS[0], WAYS[1])
HEADLINE_WAY = WAYS[0].name


def batches_of(rows: int) -> int:
    """How many batches of a size are run: enough to time, in a few seconds."""
    return 40 if rows <= 200_000 else 12


def linked(folder: Path, batches: int) -> list[str]:
    """The files of a folder under a name for each batch, so that nobody finds one that it has read before."""
    files = sorted(folder.glob("*.parquet"))
    paths = []
    for batch in range(batches):
        for file in files:
            path = folder / f"batch{batch}-{file.name}.link"
            if not path.exists():
                os.link(file, path)
            paths.append(str(path))
    return paths


def spark_seconds(spark: SparkSession, paths: Sequence[str], files: int) -> tuple[float, pa.Table]:
    """Median seconds of a job that aggregates a batch, and one batch's results."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

    taken = []
    answer = pa.table({})
    for first in range(0, len(paths), files):
        clock = time.perf_counter()
        rows = spark.read.schema("key bigint, value bigint").parquet(*paths[first : first + files])
        answer = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total")).toArrow()
        taken.append(time.perf_counter() - clock)
    return statistics.median(taken[int(len(taken) * WARM_UP) :]), answer


def resident_seconds(spark: SparkSession, way: Way, paths: Sequence[str], rows: int) -> tuple[float, pa.Table]:
    """Seconds from the end of a batch to that of the next where batches never wait for their rows, and results."""
    from steelyard.resident import ParquetFiles, count, sum  # noqa: PLC0415
    from steelyard.resident.groups import BatchProgram, Scheduling  # noqa: PLC0415
    from steelyard.spark.groups import run_batches  # noqa: PLC0415 - loads Spark

    program = BatchProgram(
        ParquetFiles(tuple(paths)),
        ("key",),
        {"n": count(), "total": sum("value")},
        batch_rows=rows,
        partitioner=way.partitioner,
    )
    scheduling = Scheduling(
        interval=0.001, group=way.group, ahead=way.ahead, blocks=SLOTS, buckets=SLOTS, slots=1, backlog=3
    )
    found = run_batches(spark, program, scheduling, workers=SLOTS)
    ends = [found.batches[batch].done for batch in sorted(found.batches) if found.batches[batch].rows]
    first = int(len(ends) * WARM_UP)
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first), found.results[0]


def sustained(seconds: Mapping[int, float], interval: float) -> tuple[float, bool]:
    """Rows a second at which a batch takes just its interval, between measured sizes; and whether beyond them.

    >>> sustained({100: 0.02, 200: 0.03, 400: 0.05}, 0.04)
    (7500.0, False)
    >>> sustained({100: 0.02, 200: 0.03}, 0.01)
    (0.0, False)
    """
    sizes = sorted(seconds)
    times = np.maximum.accumulate([seconds[size] for size in sizes])
    if times[0] > interval:
        return 0.0, False
    if times[-1] >= interval:
        return float(np.interp(interval, times, sizes)) / interval, False
    per_row = max(times[-1] - times[0], _LEAST) / (sizes[-1] - sizes[0])
    return float((sizes[-1] + (interval - times[-1]) / per_row) / interval), True


@benchmark(
    "promptplus-groups",
    title="Groups of batches scheduled ahead, beside one Spark job a batch",
    figure="Abdelhamid 2021, Fig 3.7a",
)
def promptplus_groups(run: Run) -> Result:
    """The rate that is sustained at intervals of 50 ms to 3 s, by groups ahead and by a Spark job for each batch."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    sizes = QUICK_SIZES if run.quick else SIZES
    ways = QUICK_WAYS if run.quick else WAYS
    config = {
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.adaptive.enabled": "false",  # it plans stages one by one: dear where a job takes milliseconds
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
    }
    spark = sy.session("steelyard bench promptplus-groups", master=f"local[{SLOTS}]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    taken: dict[str, dict[int, list[float]]] = {name: {} for name in (SPARK, *(way.name for way in ways))}
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-groups-") as scratch:
            few = write_rows(Path(scratch) / "few", 1_000, KEYS, EXPONENT, run.seed, files=SLOTS)
            run.progress.say("warming up")
            spark_seconds(spark, linked(few, 30), SLOTS)
            for way in ways[:1]:
                resident_seconds(spark, way, linked(few, 20), 1_000)
            rounds = QUICK_ROUNDS if run.quick else ROUNDS
            for rows in run.progress.track(sizes, "promptplus-groups"):
                run.progress.say(f"batches of {rows:,} rows")
                folder = write_rows(Path(scratch) / str(rows), rows, KEYS, EXPONENT, run.seed, files=SLOTS)
                paths = linked(folder, batches_of(rows))
                for _ in range(rounds):
                    seconds, right = spark_seconds(spark, paths, SLOTS)
                    taken[SPARK].setdefault(rows, []).append(seconds)
                    for way in ways:
                        seconds, answer = resident_seconds(spark, way, paths, rows)
                        require_equal(answer, right, way.name)
                        taken[way.name].setdefault(rows, []).append(seconds)
    finally:
        spark.stop()
    medians = {name: {rows: statistics.median(times) for rows, times in by.items()} for name, by in taken.items()}
    return result_of(medians, rounds)


def require_equal(answer: pa.Table, right: pa.Table, way: str) -> None:
    """WrongAnswerError where two ways gave other sums."""
    columns = ("key", "n", "total")
    left, expected = (one.select(columns).sort_by("key").combine_chunks() for one in (answer, right))
    if not left.cast(expected.schema).equals(expected):
        raise WrongAnswerError(f"{way} and {SPARK} gave different answers")


def result_of(seconds: Mapping[str, Mapping[int, float]], rounds: int) -> Result:
    """Rates at every interval, and what they are over Spark's."""
    least = min(seconds[SPARK])
    overhead = seconds[SPARK][least]
    rates = {name: [sustained(by, interval) for interval in INTERVALS] for name, by in seconds.items()}
    series = [Series(name, list(INTERVALS), [rate for rate, _ in found]) for name, found in rates.items()]
    gains = {one.name: one.y for one in gains_of(series, least)}
    at = INTERVALS.index(HEADLINE)
    none = rates[SPARK][at][0] == 0
    metrics = {
        "group_ahead_vs_spark_100ms": gains[HEADLINE_WAY][at],
        "group_ahead_vs_spark_1s": gains[HEADLINE_WAY][INTERVALS.index(1.0)],
        "group_ahead_rows_per_s_100ms": rates[HEADLINE_WAY][at][0],
        "spark_rows_per_s_100ms": rates[SPARK][at][0],
        "spark_fixed_ms": 1000 * overhead,
        "group_ahead_fixed_ms": 1000 * seconds[HEADLINE_WAY][least],
    }
    notes = [
        f"A batch counts rows and sums values of {KEYS:,} keys by Zipf {EXPONENT}; both ways read it from the same two "
        f"Parquet files with {SLOTS} slots, and the driver gets the results, which were compared. Ways took turns "
        f"({rounds} rounds, medians).",
        "Resident workers read and cut the next batch, in a thread beside the slots, while they run the one before; "
        "Spark's jobs follow each other.",
        "Batches are fed without pause: a rate is sustained at an interval if the next batch ends an interval after "
        "the one before. Rates lie between measured sizes of batches; those marked with * beyond the largest.",
        f"o is the share of the interval that a Spark job of {least:,} rows takes; amortised over {GROUP} batches it "
        "would give the gain under 'by formula', (1 - o/G) / (1 - o), if nothing else changed.",
    ]
    if none:
        notes.append(
            f"A Spark job of {least:,} rows took {1000 * overhead:.0f} ms: at 100 ms Spark sustains nothing here. "
            f"group_ahead_vs_spark_100ms is then over {least:,} rows a batch, a bound from below."
        )
    reason = (
        f"at 100 ms a job of {least:,} rows took Spark {1000 * overhead:.0f} ms and groups ahead "
        f"{1000 * seconds[HEADLINE_WAY][least]:.0f} ms; what is left of the interval goes to rows"
    )
    return Result(
        parameters={
            "slots": SLOTS,
            "keys": KEYS,
            "zipf_exponent": EXPONENT,
            "group": GROUP,
            "sizes": list(seconds[SPARK]),
        },
        metrics=metrics,
        published=[Published("up to 5x; 4x to 8x for the strategy alone", PUBLISHED, "group_ahead_vs_spark_1s")],
        tables=[_rate_table(rates, overhead, gains[HEADLINE_WAY]), _seconds_table(seconds)],
        series=series,
        targets=[Target("group_ahead_vs_spark_100ms", at_least=5, explanation=reason)],
        notes=notes,
    )


def gains_of(rates: Sequence[Series], least: int) -> list[Series]:
    """Rates of groups over those of one Spark job per batch.

    Where Spark sustains nothing it is a bound from below: the smallest batch that was tried, were it in time.

    >>> gains_of([Series(SPARK, [0.1, 1.0], [0, 4_000]), Series("groups", [0.1, 1.0], [50_000, 8_000])], 1_000)
    [Series(name='groups', x=[0.1, 1.0], y=[5.0, 2.0], kind='measured')]
    """
    spark = next(one for one in rates if one.name == SPARK)
    over = [max(rate, least / interval) for interval, rate in zip(spark.x, spark.y, strict=True)]
    return [
        Series(one.name, one.x, [rate / bound for rate, bound in zip(one.y, over, strict=True)])
        for one in rates
        if one is not spark
    ]


def _rate_table(rates: Mapping[str, Sequence[tuple[float, bool]]], overhead: float, gains: Sequence[Number]) -> Table:
    rows: list[Sequence[Cell]] = []
    for i, interval in enumerate(INTERVALS):
        o = overhead / interval
        formula = f"{(1 - o / GROUP) / (1 - o):.2f}" if o < 1 else "no end"
        cells = [f"{rate:,.0f}{'*' * beyond}" for rate, beyond in (found[i] for found in rates.values())]
        rows.append((f"{interval:g} s", f"{o:.2f}", formula, *cells, gains[i]))
    columns = ("interval", "o", "by formula", *rates, "gain, prompt")
    return Table("rows a second that are sustained", columns, rows)


def _seconds_table(seconds: Mapping[str, Mapping[int, float]]) -> Table:
    sizes = sorted(seconds[SPARK])
    rows: list[Sequence[Cell]] = [(f"{size:,}", *(1000 * by[size] for by in seconds.values())) for size in sizes]
    return Table("milliseconds from batch to batch", ("rows of a batch", *seconds), rows)


@charts.drawing("promptplus-groups")
def draw(figure: Figure, result: Result) -> None:
    """Rates by interval, and how they compare with one Spark job per batch."""
    figure.set_size_inches(14, 5)
    left, right = panels = figure.subplots(1, 2)
    x = "interval, s"
    rates = [Series(one.name, one.x, [rate / 1e6 or np.nan for rate in one.y]) for one in result.series]
    charts.lines(left, rates, title="Rates that are sustained", x=x, y="million rows per second", log="x", legend=False)
    gains = gains_of(result.series, min(result.parameters["sizes"]))
    title = f"Rates over {SPARK} (where that sustains nothing: at least)"
    for one, drawn in zip(gains, left.lines[1:], strict=True):
        right.plot(one.x, one.y, marker="o", markersize=5, color=drawn.get_color(), label=one.name)
    charts.logarithmic(right, "xy")
    charts.finish(right, title=title, x=x, y="rate / Spark's rate")
    charts.bound(right, 5, "target at 100 ms", legend=False)
    for axes in panels:
        charts.only_ticks(axes.xaxis, result.series[0].x)
    charts.legend_below(figure, *panels)
