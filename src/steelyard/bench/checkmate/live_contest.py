"""Checkpoint protocols on real workers: latency, checkpoints, and what a worker that is killed costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from steelyard.bench import Cell, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.checkmate import structured
from steelyard.bench.checkmate.live import CALM_WINDOWS, NORMAL, SNAPSHOT_SECONDS, WINDOW_SECONDS, Live, Seen, plainly
from steelyard.bench.checkmate.live_cases import CASES, WORKERS
from steelyard.bench.registry import spark_for
from steelyard.checkpoint import PROTOCOLS
from steelyard.resident.settings import DEFAULT_PROTOCOL

SLOTS = WORKERS + 1
SHARE = 0.5
"""Of the highest rate."""
WARM_SECONDS, QUICK_WARM_SECONDS = 6.0, 2.0
"""That do not count, since windows and caches fill, and `hybrid` logs everything in its first rounds."""
SECONDS, QUICK_SECONDS = 12.0, 5.0
"""Of a run that nothing disturbs."""
KILLS, QUICK_KILLS = (8.0, 16.0, 24.0), (3.0,)
"""Seconds in which a worker is killed."""
FAILED_SECONDS, QUICK_FAILED_SECONDS = 32.0, 6.0
"""Of a run with failures."""
ROUNDS = 2
TITLE = "Latency around killed workers"
QUICK = ("none", "stop_the_world", DEFAULT_PROTOCOL)
PARTS = ("coordinated", "uncoordinated")
"""What `hybrid` is made of."""
WORSE = 1.1
"""A tenth more than the better of the parts is allowed."""


def protocols(quick: bool) -> list[str]:
    """Those that take part: all, with no checkpoints first."""
    return list(dict.fromkeys(QUICK if quick else ("none", "stop_the_world", *PROTOCOLS.names())))


def contest(run: Run, name: str) -> Result:
    """All protocols with one case, in turns, and each once with failures."""
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    case = CASES[name]
    contenders = [one for one in protocols(run.quick) if one not in case.refused]
    seconds, warm = run.pick((SECONDS, WARM_SECONDS), (QUICK_SECONDS, QUICK_WARM_SECONDS))
    whole, kills = run.pick((FAILED_SECONDS, KILLS), (QUICK_FAILED_SECONDS, QUICK_KILLS))
    calm: dict[str, list[Seen]] = {}
    failed: dict[str, Seen] = {}
    with spark_for("live", SLOTS, structured.CONFIG) as (spark, scratch):
        spark.sparkContext.setLogLevel("OFF")  # Spark tells of every task that was killed
        made, plain = Live(SparkLauncher(spark), scratch, case), structured.Plain(spark, scratch)
        with_spark = case.query is not None and not run.quick
        rate = SHARE * max(made.highest(run.pick(*case.saturating)) for _ in range(2))  # the first also warms up
        if with_spark:
            plainly(plain, case, rate, seconds)  # warms up
        for turn in run.progress.track(range(run.pick(ROUNDS, 1)), name):
            for one in contenders if turn % 2 == 0 else reversed(contenders):
                calm.setdefault(one, []).append(made.run(rate, one, seconds))
            if with_spark:
                calm.setdefault(structured.NAME, []).append(plainly(plain, case, rate, seconds))
        for one in run.progress.track([one for one in contenders if one != "none"], "kills"):
            failed[one] = made.run(rate, one, whole, kills)
        if with_spark:
            failed[structured.NAME] = plainly(plain, case, rate, whole, kills)
    told = {"case": case.title, "rows_per_s": round(rate), "seconds": seconds, "warm_seconds": warm}
    return result_of(calm, failed, warm, told, case.refused)


def result_of(
    calm: Mapping[str, Sequence[Seen]],
    failed: Mapping[str, Seen],
    warm: float,
    told: Mapping[str, object],
    refused: Mapping[str, str],
) -> Result:
    """Medians over rounds of percentiles, what checkpoints came to, and the costs of failures."""
    p50, p99 = ({name: _percentile(seen, share, warm) for name, seen in calm.items()} for share in (50, 99))
    metrics = {f"p99_vs_{other}": p99[DEFAULT_PROTOCOL] / p99[other] for other in ("none", "stop_the_world")}
    latency: list[list[Cell]] = []
    for name, seen in calm.items():
        metrics |= {f"{name}_p50_ms": p50[name], f"{name}_p99_ms": p99[name]}
        commits = [1000 * seconds for one in seen for seconds in one.commits]
        if commits:
            metrics[f"{name}_commit_ms"] = statistics.fmean(commits)
            latency.append(
                [name, p50[name], p99[name], len(commits) / len(seen), "", "", "", metrics[f"{name}_commit_ms"]]
            )
        else:
            figures, cells = _checkpoints(name, seen)
            metrics |= figures
            latency.append([name, p50[name], p99[name], *cells])
    felt: list[list[Cell]] = []
    for name, one in failed.items():
        figures, cells = _failures(name, one, warm)
        metrics |= figures
        felt.append([name, *cells])
    metrics |= _beside_parts(p99, metrics)
    counted = ("checkpoints", "rounds", "a round takes", "stands still", "durable after")
    noticed = ("kills", "noticed", "first new result", "least", "most", "back to normal", "times back")
    return Result(
        parameters={
            "workers": WORKERS,
            "snapshot_seconds": SNAPSHOT_SECONDS,
            "rounds": max(len(seen) for seen in calm.values()),
            "kills": max((len(one.killed) for one in failed.values()), default=0),
            "default": DEFAULT_PROTOCOL,
            "refused": dict(refused),
            **told,
        },
        metrics=metrics,
        tables=[
            Table("a run without failures: counts, and milliseconds", ("protocol", "p50", "p99", *counted), latency),
            Table("killed workers: milliseconds, and counts", ("protocol", *noticed, "taken", "useless"), felt),
        ],
        series=[_felt(name, seen) for name, seen in failed.items()],
        targets=[
            Target("p99_vs_none", at_most=1.3),
            Target("p99_vs_stop_the_world", at_most=0.5),
            *(Target(one, at_most=WORSE) for one in metrics if one.endswith("_vs_parts")),
        ],
        notes=_notes(refused),
    )


def _checkpoints(name: str, seen: Sequence[Seen]) -> tuple[dict[str, float], list[Cell]]:
    """Checkpoints of instances and whole rounds of a run, and means of what one of a chain of instances took."""
    totals = [one.totals for one in seen]
    taken = sum(sum(one.taken.values()) for one in totals)
    if not taken:
        return {}, [0, "", "", "", ""]
    chains = sum(one.chains for one in totals)
    rounds = [1000 * seconds for one in totals for seconds in one.rounds]
    figures = {
        f"taken_{name}": taken / len(seen),
        f"stands_still_ms_{name}": 1000 * sum(one.stood for one in totals) / chains,
        f"durable_ms_{name}": 1000 * sum(one.seconds for one in totals) / chains,
    }
    if rounds:
        figures |= {f"rounds_{name}": len(rounds) / len(seen), f"round_ms_{name}": statistics.median(rounds)}
    columns = ("taken", "rounds", "round_ms", "stands_still_ms", "durable_ms")
    return figures, [figures.get(f"{one}_{name}", "") for one in columns]


def _failures(name: str, seen: Seen, warm: float) -> tuple[dict[str, float], list[Cell]]:
    """Medians over kills, and how many checkpoints they made useless."""
    restarts = [1000 * seconds for seconds in seen.restarts]
    back = [math.inf if seconds is None else 1000 * seconds for seconds in seen.back(warm)]
    figures = {f"restart_ms_{name}": statistics.median(restarts)}
    if math.isfinite(statistics.median(back)):
        figures[f"recovery_ms_{name}"] = statistics.median(back)
    noticed = [1000 * one.detected for one in seen.recoveries]
    if noticed:
        figures[f"noticed_ms_{name}"] = statistics.median(noticed)
    taken: Cell = sum(seen.totals.taken.values()) or ""
    if taken:
        figures[f"useless_{name}"] = seen.totals.useless
    return figures, [
        len(restarts),
        figures.get(f"noticed_ms_{name}", ""),
        figures[f"restart_ms_{name}"],
        min(restarts),
        max(restarts),
        figures.get(f"recovery_ms_{name}", "not before the next"),
        sum(map(math.isfinite, back)),
        taken,
        figures.get(f"useless_{name}", ""),
    ]


def _beside_parts(p99: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, float]:
    """`hybrid` over the better of its parts that could run, in p99 and until latency is back to normal."""
    parts = [one for one in PARTS if one in p99]
    found = {}
    if "hybrid" in p99 and parts:
        found["p99_vs_parts"] = p99["hybrid"] / min(p99[one] for one in parts)
    back = [metrics[f"recovery_ms_{one}"] for one in parts if metrics.get(f"recovery_ms_{one}")]
    if back and "recovery_ms_hybrid" in metrics:
        found["recovery_vs_parts"] = metrics["recovery_ms_hybrid"] / min(back)
    return found


def _notes(refused: Mapping[str, str]) -> list[str]:
    return [
        "From when a row was there for its source until it had passed the sink, by probes that travel beside rows, "
        f"at {SHARE:.0%} of the highest rate that was measured just before (without hot keys). `p99_vs_…` is "
        f"{DEFAULT_PROTOCOL} over the other, `…_vs_parts` is hybrid over the better of {' and '.join(PARTS)}. A figure "
        "is the median of the rounds.",
        "Checkpoints are those of instances, but the last of all; a round is from its order until all of it is "
        "durable. Useless: those that a failure found behind the line.",
        "First new result: from `kill -9` of a worker's process until a process that was not there before gave its "
        "first result to the sink; noticed is a part of it. Back to normal: until the medians of "
        f"{CALM_WINDOWS} windows of {WINDOW_SECONDS:g} s were at most {NORMAL:g} times the median before the first "
        "kill. Medians over the kills; one that is not over when the next worker is killed, or rows end, counts as "
        "longest.",
        f"{structured.NAME}: plain Spark over the same streams at the same rate, one batch after the other, each "
        "with its own checkpoint (RocksDB with changelogs); durable after: its logs of offsets and commits. It "
        "loses no process, but is stopped and started again in the same driver, the least that Spark takes; its first "
        "new result is the end of the first batch.",
        *(f"{name} is left out: {why}." for name, why in refused.items()),
    ]


def _felt(name: str, seen: Seen) -> Series:
    ages = sorted(seen.ages)
    return Series(name, [at for at, _ in ages], [age for _, age in ages])


def _percentile(seen: Sequence[Seen], share: float, warm: float) -> float:
    return statistics.median(float(np.percentile(one.took(warm), share)) for one in seen)


def draw(figure: charts.Figure, result: Result) -> None:
    """The longest that probes took around failures, by protocol; plain Spark in grey."""
    axes = figure.add_subplot()
    lines = [longest(one) for one in result.series]
    charts.lines(axes, lines, title=TITLE, x="seconds", y="longest of a quarter of a second, s", log="y", legend=False)
    for line in axes.lines:
        if line.get_label() == structured.NAME:
            line.set_color(charts.GREY)
    charts.legend_beside(axes)


def longest(ages: Series) -> Series:
    """The largest of each window.

    >>> longest(Series("x", [0.0, 0.1, 0.2, 0.3], [5.0, 7.0, 6.0, 1.0]))
    Series(name='x', x=[0.125, 0.375], y=[7.0, 1.0], kind='measured')
    """
    largest: dict[int, float] = {}
    for at, age in zip(ages.x, ages.y, strict=True):
        window = int(at // WINDOW_SECONDS)
        largest[window] = max(age, largest.get(window, 0.0))
    return replace(ages, x=[(one + 0.5) * WINDOW_SECONDS for one in largest], y=list(largest.values()))


def _registered(name: str) -> Callable[[Run], Result]:
    """The contest of a case, as an experiment."""

    def live(run: Run) -> Result:
        return contest(run, name)

    live.__doc__ = "Latency with a checkpoint per second beside that without any, and how long killed workers are felt."
    made = experiment(f"checkmate-live-{name}", title=f"Checkpoint protocols on real workers: {CASES[name].title}")(
        live
    )
    made.picture(draw)
    return made


EXPERIMENTS = {name: _registered(name) for name in CASES}
