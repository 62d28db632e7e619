"""Groups of batches that are scheduled ahead, on resident workers, beside one Spark job a batch."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from steelyard.bench import Claim, Published, Result, Run, Target, WrongAnswerError, charts, experiment, mean, spark_for
from steelyard.bench.engine.aggregate import write_rows
from steelyard.bench.prompt.plus_rates import LEAST, WARM_UP, Taken, apart, ratios, sustained
from steelyard.bench.prompt.plus_techniques import Waiting
from steelyard.bench.tables import Cell, Series, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
KEYS, EXPONENT = 10_000, 1.2
SIZES, QUICK_SIZES = (1_000, 20_000, 100_000, 400_000, 2_000_000, 5_000_000), (1_000, 100_000, 1_000_000)
"""Rows of a batch. Those of a quick run are so large that Spark takes longer for the largest than for none."""
EQUAL_SIZES, QUICK_EQUAL_SIZES = (1_000, 20_000, 100_000, 400_000, 1_000_000), (1_000, 100_000)
ROW_US = 2.0
"""What a row waits in a map function in Python, on Spark as on resident workers, where rows are to cost the same."""
INTERVALS = (0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
HEADLINE = 0.1
AT = {0.05: "50ms", 0.1: "100ms", 1.0: "1s"}
"""Intervals at which the strategy is tested, and how metrics call them."""
AT_EQUAL = {**AT, 0.2: "200ms", 0.5: "500ms"}
"""The same where rows cost the same as on Spark."""
CLEAR = 0.9
"""The share of an interval that Spark's smallest job may take: beyond it a millisecond decides what is left."""
STRATEGY, ALL = 4.0, 5.0
"""Published: the least that the strategy alone brings, and the most of Fig 3.7a."""
GROUP = 10
ROUNDS, QUICK_ROUNDS = 3, 1
WARM_UPS, QUICK_WARM_UPS = 30, 12
"""Batches of a thousand rows before the first that count."""
SPARK = "one Spark job a batch"
EQUAL = ", rows cost the same"
AHEAD = "groups of 10 ahead"
ONE = "one batch at a time"
BOUNDARY = "groups of 10, one after the other"
ROW = "key bigint, value bigint"
PARTITIONERS = ("prompt", "hash", "shuffle")


@dataclass(frozen=True)
class Way:
    """A way to run batches on resident workers."""

    name: str
    partitioner: str
    group: int
    ahead: int
    wait_us: float = 0.0


WAYS = (
    *(Way(f"{AHEAD}, {name}", name, GROUP, 2) for name in PARTITIONERS),
    Way(f"{BOUNDARY}, prompt", "prompt", GROUP, 0),
    Way(f"{ONE}, prompt", "prompt", 1, 0),
)
QUICK_WAYS = (WAYS[0], WAYS[-1])
HEADLINE_WAY, ONE_WAY = WAYS[0].name, WAYS[-1].name
EQUAL_WAYS = tuple(replace(way, name=f"{way.name}{EQUAL}", wait_us=ROW_US) for way in (WAYS[0], WAYS[-1]))
QUICK_EQUAL_WAYS = EQUAL_WAYS[:1]
EQUAL_SPARK, EQUAL_HEADLINE, EQUAL_ONE = f"{SPARK}{EQUAL}", EQUAL_WAYS[0].name, EQUAL_WAYS[1].name


def batches_of(rows: int, quick: bool = False) -> int:
    """How many batches of a size are run: enough to time, in a few seconds."""
    return 12 if quick or rows > 200_000 else 40


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


def spark_seconds(
    spark: SparkSession, paths: Sequence[str], files: int, wait_us: float = 0.0
) -> tuple[float, pa.Table]:
    """Median seconds of a job that aggregates a batch, and one batch's results; a row may wait in Python first."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

    waited = Waiting(wait_us / 1e6)
    taken = []
    answer = pa.table({})
    for first in range(0, len(paths), files):
        clock = time.perf_counter()
        rows = spark.read.schema(ROW).parquet(*paths[first : first + files])
        if wait_us:
            rows = rows.mapInArrow(lambda batches: map(waited, batches), ROW)
        answer = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total")).toArrow()
        taken.append(time.perf_counter() - clock)
    return statistics.median(taken[int(len(taken) * WARM_UP) :]), answer


def resident_seconds(spark: SparkSession, way: Way, paths: Sequence[str], rows: int) -> tuple[float, pa.Table]:
    """Seconds from the end of a batch to that of the next where batches never wait for their rows, and results."""
    from steelyard.core.aggregates import count, sum  # noqa: PLC0415
    from steelyard.resident import ParquetFiles  # noqa: PLC0415
    from steelyard.resident.groups import BatchProgram, GroupWorker, Scheduling, run_batches  # noqa: PLC0415
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    program = BatchProgram(
        ParquetFiles(tuple(paths)),
        ("key",),
        {"n": count(), "total": sum("value")},
        batch_rows=rows,
        function=Waiting(way.wait_us / 1e6) if way.wait_us else None,
        partitioner=way.partitioner,
    )
    scheduling = Scheduling(
        interval=0.001, group=way.group, ahead=way.ahead, blocks=SLOTS, buckets=SLOTS, slots=1, backlog=3
    )
    launcher = SparkLauncher(spark, GroupWorker)
    found = run_batches(program, scheduling, workers=SLOTS, launcher=launcher)
    ends = [found.batches[batch].done for batch in sorted(found.batches) if found.batches[batch].rows]
    return apart(ends), found.results[0]


@experiment(
    "promptplus-groups",
    title="Groups of batches scheduled ahead, beside one Spark job a batch",
    figure="Abdelhamid 2021, Fig 3.7a",
)
def promptplus_groups(run: Run) -> Result:
    """The rate that is sustained at intervals of 50 ms to 3 s, by groups ahead and by a Spark job for each batch."""

    kinds = [
        (QUICK_SIZES if run.quick else SIZES, QUICK_WAYS if run.quick else WAYS),
        (QUICK_EQUAL_SIZES, QUICK_EQUAL_WAYS) if run.quick else (EQUAL_SIZES, EQUAL_WAYS),
    ]
    config = {
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.adaptive.enabled": "false",  # it plans stages one by one: dear where a job takes milliseconds
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
    }
    with spark_for("promptplus-groups", SLOTS, config) as (spark, scratch):
        warm_ups = QUICK_WARM_UPS if run.quick else WARM_UPS
        few = linked(write_rows(scratch / "few", 1_000, KEYS, EXPONENT, run.seed, files=SLOTS), warm_ups)
        run.progress.say("warming up")
        for _, ways in kinds:
            spark_seconds(spark, few, SLOTS, ways[0].wait_us)
            resident_seconds(spark, ways[0], few, 1_000)
        cases = [(rows, ways) for sizes, ways in kinds for rows in sizes]
        taken: Taken = {}
        for rows, ways in run.progress.track(cases, "promptplus-groups"):
            run.progress.say(f"batches of {rows:,} rows, {ways[0].name}")
            folder = scratch / f"{ways[0].wait_us:g}-{rows}"
            write_rows(folder, rows, KEYS, EXPONENT, run.seed, files=SLOTS)
            paths = linked(folder, batches_of(rows, run.quick))
            for _ in range(QUICK_ROUNDS if run.quick else ROUNDS):
                one_round(spark, paths, rows, ways, taken)
    return result_of(taken)


def one_round(spark: SparkSession, paths: Sequence[str], rows: int, ways: Sequence[Way], taken: Taken) -> None:
    """Spark and every way once over the same batches, with rows that cost the same; adds seconds to those taken."""
    wait_us = ways[0].wait_us
    seconds, right = spark_seconds(spark, paths, SLOTS, wait_us)
    taken.setdefault(EQUAL_SPARK if wait_us else SPARK, {}).setdefault(rows, []).append(seconds)
    for way in ways:
        seconds, answer = resident_seconds(spark, way, paths, rows)
        require_equal(answer, right, way.name)
        taken.setdefault(way.name, {}).setdefault(rows, []).append(seconds)


def require_equal(answer: pa.Table, right: pa.Table, way: str) -> None:
    """WrongAnswerError where two ways gave other sums."""
    columns = ("key", "n", "total")
    left, expected = (one.select(columns).sort_by("key").combine_chunks() for one in (answer, right))
    if not left.cast(expected.schema).equals(expected):
        raise WrongAnswerError(f"{way} and {SPARK} gave different answers")


def claims_of(taken: Taken) -> list[Claim]:
    """What the texts on Fig 3.7a and of section 3.3 say, beside what was found, one figure a round."""
    alone = {interval: ratios(taken, HEADLINE_WAY, ONE_WAY, interval) for interval in AT}
    claims = [
        Claim(
            f"groups ahead are faster than one batch at a time on the same engine, {label} (rate over rate)",
            "4x to 8x, the strategy alone; no interval",
            alone[interval],
            1.0,
            reason=_same_engine(taken, interval),
        )
        for interval, label in AT.items()
    ]
    if EQUAL_ONE in taken:
        claims += [
            Claim(
                f"groups ahead are faster than one batch at a time where a row waits {ROW_US:g} us, {label}",
                "4x to 8x, the strategy alone; no interval",
                ratios(taken, EQUAL_HEADLINE, EQUAL_ONE, interval),
                1.0,
                reason=_same_engine(taken, interval),
            )
            for interval, label in AT.items()
        ]
    best = max(AT, key=lambda interval: mean(alone[interval]))
    claims.append(
        Claim(
            f"the strategy alone brings {STRATEGY:g}x at its best interval, {AT[best]}",
            "4x to 8x",
            alone[best],
            STRATEGY,
            reason=_same_engine(taken, best),
        )
    )
    job = 1000 * statistics.median(taken[EQUAL_SPARK][min(taken[EQUAL_SPARK])])
    reason = (
        f"rows wait {ROW_US:g} us in Python on both sides; a Spark job without rows takes {job:.0f} ms, and no more of "
        "a second than that can be saved"
    )
    beside = ratios(taken, EQUAL_HEADLINE, EQUAL_SPARK, 1.0)
    return [
        *claims,
        Claim("groups ahead are faster than one Spark job a batch, 1s", "up to 5x", beside, 1.0, reason=reason),
        Claim(f"groups ahead sustain {ALL:g}x of one Spark job a batch, 1s", "up to 5x", beside, ALL, reason=reason),
    ]


def _same_engine(taken: Taken, interval: float) -> str:
    """What of an interval a batch takes without rows, in both ways."""
    ahead, one = (1000 * statistics.median(taken[way][min(taken[way])]) for way in (HEADLINE_WAY, ONE_WAY))
    most = interval / max(interval - one / 1000, LEAST)
    return (
        f"a batch without rows takes {one:.1f} ms one at a time and {ahead:.1f} ms in groups ahead, of "
        f"{1000 * interval:g} ms: workers that stay are told of a batch in no time. If that cost nothing at all it "
        f"would bring {1000 * interval:g} / ({1000 * interval:g} - {one:.1f}) = {most:.2f}; the rest of a gain is "
        "slots that begin with the next batch while another still maps this one"
    )


def result_of(taken: Taken) -> Result:
    """Rates at every interval, and what they are over Spark's."""
    seconds = {name: {rows: statistics.median(times) for rows, times in by.items()} for name, by in taken.items()}
    rounds = max(len(times) for by in taken.values() for times in by.values())
    least = min(seconds[SPARK])
    overhead = seconds[SPARK][least]
    rates = {name: [sustained(by, interval) for interval in INTERVALS] for name, by in seconds.items()}
    series = [Series(name, list(INTERVALS), [rate for rate, _ in found]) for name, found in rates.items()]
    gains = [_gain(seconds, rates, interval) for interval in INTERVALS]
    alone = {
        f"group_ahead_vs_one_at_a_time_{label}": _over(rates, HEADLINE_WAY, ONE_WAY, at) for at, label in AT.items()
    }
    if EQUAL_ONE in rates:
        alone |= {
            f"group_ahead_vs_one_at_a_time_equal_cost_{label}": _over(rates, EQUAL_HEADLINE, EQUAL_ONE, at)
            for at, label in AT_EQUAL.items()
        }
    at = INTERVALS.index(HEADLINE)
    metrics = {
        "group_ahead_vs_spark_100ms": gains[at],
        **alone,
        "group_ahead_vs_spark_1s": _over(rates, EQUAL_HEADLINE, EQUAL_SPARK, 1.0),
        "group_ahead_vs_spark_1s_cheap_rows": gains[INTERVALS.index(1.0)],
        "group_ahead_rows_per_s_100ms": rates[HEADLINE_WAY][at][0],
        "spark_rows_per_s_100ms": rates[SPARK][at][0],
        "spark_fixed_ms": 1000 * overhead,
        "group_ahead_fixed_ms": 1000 * seconds[HEADLINE_WAY][least],
    }
    targets = _targets(taken, overhead, seconds[HEADLINE_WAY][least], least)
    return Result(
        parameters={
            "slots": SLOTS,
            "keys": KEYS,
            "zipf_exponent": EXPONENT,
            "group": GROUP,
            "sizes": list(seconds[SPARK]),
        },
        metrics={name: value for name, value in metrics.items() if value is not None},
        published=[
            Published("up to 5x", "Abdelhamid 2021, Fig 3.7a, text", "group_ahead_vs_spark_1s"),
            *(Published("4x to 8x", "Abdelhamid 2021, section 3.3, text", name) for name in alone),
        ],
        claims=claims_of(taken),
        tables=[_rate_table(rates, overhead, gains), *(_seconds_table(seconds, names) for names in _kinds(seconds))],
        series=series,
        targets=[target for target in targets if metrics.get(target.metric) is not None],
        notes=_notes(rounds, least, overhead, is_told=gains[at] is not None),
    )


def _notes(rounds: int, least: int, overhead: float, is_told: bool) -> list[str]:
    """Sentences that a reader needs; `overhead` is seconds of a Spark job of `least` rows."""
    notes = [
        f"A batch counts rows and sums values of {KEYS:,} keys by Zipf {EXPONENT}; both ways read it from the same two "
        f"Parquet files with {SLOTS} slots, and the driver gets the results, which were compared. Ways took turns "
        f"({rounds} rounds, medians).",
        "Resident workers read and cut the next batch, in a thread beside the slots, while they run the one before; "
        "Spark's jobs follow each other.",
        "Batches are fed without pause: a rate is sustained at an interval if the next batch ends an interval after "
        "the one before. Rates lie between measured sizes of batches; those marked with * beyond the largest.",
        f"Where rows cost the same, each waits {ROW_US:g} us in a map function in Python, in Spark's jobs as on "
        "resident workers: group_ahead_vs_spark_1s is of those. group_ahead_vs_spark_1s_cheap_rows is of rows that the "
        "JVM reads and adds up for less than Python's workers do, which is what stood under that name before.",
        "group_ahead_vs_one_at_a_time: the same workers, rows and cutting; only when batches are handed out differs. "
        "equal_cost: of the rows that wait. The last batch of a run does not count, since none stands behind it; where "
        "it did, groups ahead looked up to an eighth faster.",
        f"o is the share of the interval that a Spark job of {least:,} rows takes; amortised over {GROUP} batches it "
        "would give the gain under 'by formula', (1 - o/G) / (1 - o), if nothing else changed.",
    ]
    if not is_told:
        notes.append(
            f"group_ahead_vs_spark_100ms cannot be told: a Spark job of {least:,} rows took {1000 * overhead:.1f} ms, "
            "so that of 100 ms nothing is left for rows, or no more than a slow moment of the machine takes."
        )
    return notes


def _targets(taken: Taken, overhead: float, fixed: float, least: int) -> list[Target]:
    """What is aimed at; `overhead` and `fixed` are seconds of a batch of `least` rows, on Spark and here."""
    reason = (
        f"at 100 ms {least:,} rows took Spark {1000 * overhead:.0f} ms and groups ahead {1000 * fixed:.0f} ms; "
        "what is left of the interval goes to rows"
    )
    job = f"a Spark job of {least:,} rows took {1000 * overhead:.0f} ms of a second, which is all that can be saved"
    return [
        Target("group_ahead_vs_spark_100ms", at_least=5, explanation=reason),
        Target("group_ahead_vs_spark_1s", at_least=1.0, explanation=job),
        *(
            Target(f"group_ahead_vs_one_at_a_time_{rows}100ms", at_least=1.2, explanation=_same_engine(taken, HEADLINE))
            for rows in ("", "equal_cost_")
        ),
    ]


def _over(rates: Mapping[str, Sequence[tuple[float, bool]]], ours: str, other: str, interval: float) -> float:
    at = INTERVALS.index(interval)
    return rates[ours][at][0] / rates[other][at][0] if rates[other][at][0] else math.inf


def _gain(
    seconds: Mapping[str, Mapping[int, float]], rates: Mapping[str, Sequence[tuple[float, bool]]], interval: float
) -> float | None:
    """The rate of groups ahead over Spark's; None where Spark's cannot be told.

    That is where its smallest job leaves hardly anything of the interval, or where it sustains less than the second
    smallest batch, which takes as long as the smallest: the clock's noise would then say what its rate is.
    """
    at, (least, second) = INTERVALS.index(interval), sorted(seconds[SPARK])[:2]
    spark = rates[SPARK][at][0]
    told = spark * interval >= second and seconds[SPARK][least] <= CLEAR * interval
    return rates[HEADLINE_WAY][at][0] / spark if told else None


def _kinds(seconds: Mapping[str, object]) -> list[list[str]]:
    """Ways whose rows cost the same stand beside each other."""
    return [[name for name in seconds if name.endswith(EQUAL) == equal] for equal in (False, True)]


def gains_of(rates: Sequence[Series], least: int) -> list[Series]:
    """Rates of groups over those of one Spark job per batch whose rows cost the same.

    Where Spark sustains nothing it is a bound from below: the smallest batch that was tried, were it in time.

    >>> gains_of([Series(SPARK, [0.1, 1.0], [0, 4_000]), Series("groups", [0.1, 1.0], [50_000, 8_000])], 1_000)
    [Series(name='groups', x=[0.1, 1.0], y=[5.0, 2.0], kind='measured')]
    """
    over = {
        one.name: [max(rate, least / interval) for interval, rate in zip(one.x, one.y, strict=True)]
        for one in rates
        if one.name in (SPARK, EQUAL_SPARK)
    }
    return [
        Series(one.name, one.x, [rate / bound for rate, bound in zip(one.y, over[_spark(one.name)], strict=True)])
        for one in rates
        if one.name not in over
    ]


def _spark(way: str) -> str:
    """The Spark jobs whose rows cost what those of a way do."""
    return EQUAL_SPARK if way.endswith(EQUAL) else SPARK


def _rate_table(
    rates: Mapping[str, Sequence[tuple[float, bool]]], overhead: float, gains: Sequence[float | None]
) -> Table:
    rows: list[Sequence[Cell]] = []
    for i, interval in enumerate(INTERVALS):
        o = overhead / interval
        formula = f"{(1 - o / GROUP) / (1 - o):.2f}" if o < 1 else "no end"
        cells = [f"{rate:,.0f}{'*' * beyond}" for rate, beyond in (found[i] for found in rates.values())]
        rows.append((f"{interval:g} s", f"{o:.2f}", formula, *cells, gains[i]))
    columns = ("interval", "o", "by formula", *rates, "gain, prompt")
    return Table("rows per second that are sustained", columns, rows)


def _seconds_table(seconds: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> Table:
    rows: list[Sequence[Cell]] = [
        (f"{size:,}", *(1000 * seconds[name][size] for name in names)) for size in sorted(seconds[names[0]])
    ]
    return Table("milliseconds from batch to batch", ("rows of a batch", *names), rows)


@promptplus_groups.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates by interval, and how they compare with one Spark job per batch."""
    left, right = panels = charts.panels(figure, 2, (14, 5))
    x = "interval, s"
    rates = [Series(one.name, one.x, [rate / 1e6 or np.nan for rate in one.y]) for one in result.series]
    charts.lines(left, rates, title="Rates that are sustained", x=x, y="million rows per second", log="x", legend=False)
    gains = gains_of(result.series, min(result.parameters["sizes"]))
    title = f"Rates over {SPARK} (where that sustains nothing: at least)"
    drawn = {line.get_label(): line for line in left.lines}
    for one in gains:
        same = drawn[one.name]
        right.plot(one.x, one.y, marker=same.get_marker(), markersize=5, color=same.get_color(), label=one.name)
    charts.logarithmic(right, "xy")
    charts.finish(right, title=title, x=x, y="rate / Spark's rate")
    charts.bound(right, 5, "target at 100 ms", legend=False)
    for axes in panels:
        charts.only_ticks(axes.xaxis, result.series[0].x)
    charts.legend_below(figure, *panels)
