"""Groupings on Spark, on the clock: how long rows take to be done where what a row costs depends on its content."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Published, Result, Run, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.osg.completion import WORKERS, Completed, Edge, Waiting
from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.bench.osg.settings import SOURCE
from steelyard.bench.tables import Series, Table
from steelyard.core.dataflow import Edge as FlowEdge
from steelyard.core.dataflow import Grouping, Route
from steelyard.core.topology import Instance
from steelyard.grouping import grouping as named
from steelyard.resident.keys import key_ids
from steelyard.resident.routing import ByCost, distributor
from steelyard.workloads.ranks import rank_table

SLOTS = 8
CUSTOMERS = 256
EXPONENT = 1.0
SHORTEST_MS, LONGEST_MS, VALUES = 1.0, 64.0, 64
PROVISIONING = (1.02, 1.05, 1.10)
AIMED = 1.05
ROWS = dict.fromkeys(PROVISIONING, 5_000)
QUICK_ROWS = {AIMED: 2_000}
"""Only where there is an aim: the first few hundred rows are what OSG learns from, so fewer would tell nothing."""
REPETITIONS, QUICK_REPETITIONS = 2, 1
CALIBRATION_ROWS = 200
ROUND_ROBIN, OSG, PAPER = "round robin", "tracking OSG", "OSG"
WAYS = {
    ROUND_ROBIN: "round_robin",
    OSG: "tracking_osg?cost_of=item&resync=4&window=16&tolerance=0.5&keep=0.5",
    PAPER: "osg?cost_of=item&window=32&tolerance=0.2",
}
"""Rows take milliseconds, so a message for every fourth of them is nothing; and windows of 1024 rows for each instance
would be longer than the stream."""
QUICK_WAYS = (ROUND_ROBIN, OSG)
ROUTED = 1 << 18
MOST_COMPLETION, LEAST_ROUTED = 0.85, 2.0

Runs = dict[float, dict[str, list[Completed]]]


def stream(rows: int, seed: int) -> tuple[list[str], Waiting]:
    """What each row is about, and what that costs: even steps from 1 to 64 ms, given to customers at random."""
    rng = np.random.default_rng([seed, 5])
    costs = rng.permutation(np.resize(np.linspace(SHORTEST_MS, LONGEST_MS, VALUES), CUSTOMERS)) / 1000
    drawn = rank_table(EXPONENT, CUSTOMERS).ranks(rng.random(rows))
    names = [f"customer {number}" for number in range(CUSTOMERS)]
    return [names[number] for number in drawn], Waiting(dict(zip(names, costs.tolist(), strict=True)))


def routed_mtps(seed: int, repetitions: int) -> dict[str, float]:
    """Millions of rows per second of processor time that a sender hashes, chooses for and cuts up, by grouping."""
    items, work = stream(ROUTED, seed)
    batch = pa.record_batch({"id": np.arange(ROUTED), "item": items, "due": np.zeros(ROUTED)})
    ids = key_ids(batch, ("item",))
    costs = np.array([work.seconds[item] for item in items])
    found = {}
    for way in (OSG, PAPER):
        policy = named(WAYS[way])
        edge = FlowEdge("rows", "work", Grouping(Route.COST, ("item",), policy))
        chooses = distributor(edge, Instance("rows", 0), SLOTS)
        assert isinstance(chooses, ByCost)
        warm = ShuffleEdge(ids[: ROUTED // 4], costs[: ROUTED // 4], SLOTS).run(policy)
        taken = []
        for _ in range(repetitions):
            chooses.know(warm.schedulers._asdict())
            begun = time.thread_time()
            sent = sum(part.num_rows for _, part, _ in chooses.addressed(batch))
            taken.append(time.thread_time() - begun)
            assert sent == ROUTED
        found[way] = ROUTED / statistics.median(taken) / 1e6
    return found


@experiment(
    "osg-spark",
    title="Groupings on Spark: how long rows take that cost 1 to 64 ms",
    figure="Rivetti et al. 2016, Fig 6",
)
def osg_spark(run: Run) -> Result:
    """Mean completion time of rows by OSG beside round robin, on resident workers, with 2 to 10 % of capacity spare."""

    rows = QUICK_ROWS if run.quick else ROWS
    ways = QUICK_WAYS if run.quick else tuple(WAYS)
    routed = routed_mtps(run.seed, 3 if run.quick else 7)
    items, work = stream(max(rows.values()), run.seed)
    with spark_for("osg-spark", WORKERS) as (spark, _):
        edge = Edge(items, work, SLOTS, spark=spark)
        mean = statistics.fmean(work.seconds[item] for item in items)
        for way in ways:  # the first job of a session is slow, and so is one whose workers compile: they would mislead
            edge.run(WAYS[way], mean / SLOTS, CALIBRATION_ROWS)
        calibrated = edge.run(WAYS[OSG], mean / SLOTS, CALIBRATION_ROWS)
        first = statistics.fmean(work.seconds[item] for item in items[:CALIBRATION_ROWS])
        beside = max(0.0, calibrated.executing - first)
        found = measured(edge, ways, mean + beside, rows, run)
    return result_of(found, routed, rows, {"mean_ms": 1000 * mean, "beside_ms": 1000 * beside})


def measured(edge: Edge, ways: Sequence[str], mean: float, rows: Mapping[float, int], run: Run) -> Runs:
    """Every way in turn over the same rows; another one begins in every turn."""
    found: Runs = {provisioning: {way: [] for way in ways} for provisioning in rows}
    turns = list(rows) * (QUICK_REPETITIONS if run.quick else REPETITIONS)
    for number, provisioning in enumerate(run.progress.track(turns, "rows on 8 slots")):
        right = None
        for at in range(len(ways)):
            way = ways[(number + at) % len(ways)]
            completed = edge.run(WAYS[way], mean / SLOTS * provisioning, rows[provisioning])
            right = completed.answers if right is None else right
            if not np.array_equal(completed.answers, right):
                raise WrongAnswerError(f"{way} gave other answers than the run before it")
            found[provisioning][way].append(completed)
    return found


def result_of(
    found: Runs, routed: Mapping[str, float], rows: Mapping[float, int], stream_of: Mapping[str, float]
) -> Result:
    """Means, and each way's over round robin's."""
    means = {
        provisioning: {way: statistics.fmean(one.mean for one in runs) for way, runs in by_way.items()}
        for provisioning, by_way in found.items()
    }
    metrics: dict[str, Any] = {"completion_vs_round_robin": means[AIMED][OSG] / means[AIMED][ROUND_ROBIN]}
    for provisioning, by_way in means.items():
        percent = round(100 * provisioning)
        if provisioning != AIMED:
            metrics[f"completion_vs_round_robin_{percent}"] = by_way[OSG] / by_way[ROUND_ROBIN]
        if PAPER in by_way:
            metrics[f"completion_paper_vs_round_robin_{percent}"] = by_way[PAPER] / by_way[ROUND_ROBIN]
    metrics["routing_mtps"] = min(routed.values())
    metrics["osg_messages_a_row"] = statistics.fmean(one.messages for one in found[AIMED][OSG]) / rows[AIMED]
    why = f"over {rows[AIMED]} rows round robin's queues had no time to grow, or the machine was busy with other work"
    beside = "completion_paper_vs_round_robin_105"
    published = Published(
        "a speed-up of 1.29 at 105 % with 5 instances, in the authors' simulator",
        f"{SOURCE}, Figure 6",
        beside if beside in metrics else "",
    )
    return Result(
        parameters={
            "rows": {f"{100 * provisioning:.0f} %": count for provisioning, count in rows.items()},
            "slots": SLOTS,
            "workers": WORKERS,
            "customers": CUSTOMERS,
            "zipf_exponent": EXPONENT,
            "ways": dict(WAYS),
            **stream_of,
        },
        metrics=metrics,
        tables=[_table(found, stream_of["mean_ms"] + stream_of["beside_ms"])],
        series=[
            Series(way, [100 * one for one in means], [1000 * by_way[way] for by_way in means.values()])
            for way in means[AIMED]
        ],
        published=[published],
        targets=[
            Target("completion_vs_round_robin", at_most=MOST_COMPLETION, explanation=why),
            Target("routing_mtps", at_least=LEAST_ROUTED, explanation="the machine is slower than was aimed at"),
        ],
        notes=[
            f"Every row waits 1 to 64 ms by its customer in one of {SLOTS} slots, instances of a map on {WORKERS} "
            "workers in a Spark barrier job. Completion counts from when a row is due to when it is done.",
            "Provisioning is over what slots can do, with what a row takes beside its wait by OSG, which is measured "
            "first; rows come as fast for all ways. All ways gave the same answers.",
            "`routing_mtps` is processor time of the sender's thread: hashes of a text column, choices, cut batches.",
        ],
    )


def _table(found: Runs, planned_ms: float) -> Table:
    """`had %` is the provisioning that a run had in the end, by what its rows took."""
    rows = [
        (
            round(100 * provisioning),
            way,
            round(100 * provisioning * planned_ms / (1000 * one.executing), 1),
            1000 * one.mean,
            1000 * float(np.percentile(one.seconds, 95)),
            1000 * float(one.seconds.max()),
            1000 * one.executing,
            one.messages,
        )
        for provisioning, by_way in found.items()
        for way, runs in by_way.items()
        for one in runs
    ]
    return Table(
        "completion times",
        ("provisioning %", "grouping", "had %", "mean ms", "95th ms", "longest ms", "executing ms", "reports"),
        rows,
    )


@osg_spark.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A bar for each grouping, a panel for each degree of provisioning."""
    runs = result.tables[0].records()
    degrees = list(dict.fromkeys(one["provisioning %"] for one in runs))
    for axes, degree in zip(charts.panels(figure, len(degrees), (12, 3.6)), degrees, strict=True):
        shown = {
            way: float(
                np.mean([one["mean ms"] for one in runs if (one["provisioning %"], one["grouping"]) == (degree, way)])
            )
            for way in dict.fromkeys(one["grouping"] for one in runs)
        }
        title = f"Slots for {degree} % of the need"
        charts.bars(axes, shown, title=title, x="mean completion time, ms", y="grouping")
