"""OSG beside round robin on real rows of 0.2 to 5 ms that wait or compute, with columns that tell costs or do not."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.bench import Result, Run, Table, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.osg.completion import WORKERS, Completed, Edge, Waiting, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAITING, COMPUTING = "waiting", "computing"
SLOTS = {WAITING: 8, COMPUTING: WORKERS}
"""Instances: those that wait need no core of their own."""
MEANS_MS = (0.2, 1.0, 5.0)
CASES = tuple((kind, mean) for kind in SLOTS for mean in MEANS_MS)
QUICK_CASES = ((WAITING, 1.0), (COMPUTING, 1.0))
CUSTOMERS, SHAPE, LARGEST = 256, 1.3, 40.0
"""Costs of customers: a Pareto law, cut at so many times its least; they come equally often."""
PROVISIONING = 1.05
SECONDS, QUICK_SECONDS = 4.0, 2.0
"""How long the rows of a run come."""
CALIBRATION_SECONDS = 0.5
REPETITIONS, QUICK_REPETITIONS = 5, 1
ROUND_ROBIN, OSG = "round robin", "tracking OSG"
WAYS = {
    ROUND_ROBIN: "round_robin",
    OSG: "tracking_osg?cost_of=label&resync=4&window=64&tolerance=0.5&keep=0.9&columns=1024",
}
HEAVY_TAIL, UNRELATED = "heavy_tail", "unrelated"
AIMS = {HEAVY_TAIL: 0.85, UNRELATED: 1.03}

Case = tuple[str, float]
Runs = dict[tuple[Case, str], dict[str, list[Completed]]]


@dataclass(frozen=True)
class Computing:
    """Work that computes: what a row costs is what its item costs."""

    rounds: Mapping[str, int]

    def __call__(self, item: str) -> int:
        """Hash, again and again, while other threads of the process do the same."""
        return hashlib.pbkdf2_hmac("sha256", item.encode(), b"salt", self.rounds[item])[0]


def rounds_per_second() -> float:
    """How often a core hashes in a second."""
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"item", b"salt", 20_000)
        taken.append(time.perf_counter() - begun)
    return 20_000 / min(taken)


@dataclass(frozen=True)
class Stream:
    """What rows are about, what they cost, and what is known of them."""

    items: Sequence[str]
    labels: Mapping[str, Sequence[str]]
    """By kind of column: the item itself, or one drawn for each row."""
    work: Work
    slots: int
    costs: Mapping[str, float]
    """By item: seconds of its work alone."""

    @property
    def cost(self) -> float:
        """Seconds of a row's work, on average."""
        return statistics.fmean(self.costs[item] for item in self.items)


def stream(case: Case, rows: int, seed: int) -> Stream:
    """Rows of a case: each customer's cost is drawn once."""
    kind, mean_ms = case
    rng = np.random.default_rng([seed, 21])
    costs = np.minimum(1.0 + rng.pareto(SHAPE, CUSTOMERS), LARGEST)
    costs *= mean_ms / 1000 / costs.mean()
    names = [f"customer {number}" for number in range(CUSTOMERS)]
    items, others = ([names[number] for number in rng.integers(CUSTOMERS, size=rows)] for _ in range(2))
    by_name = dict(zip(names, costs.tolist(), strict=True))
    work: Work = Waiting(by_name)
    if kind == COMPUTING:
        speed = rounds_per_second()
        work = Computing({name: max(1, round(cost * speed)) for name, cost in by_name.items()})
    return Stream(items, {HEAVY_TAIL: items, UNRELATED: others}, work, SLOTS[kind], by_name)


@experiment("osg-live", title="OSG beside round robin on real rows of 0.2 to 5 ms that wait or compute")
def osg_live(run: Run) -> Result:
    """Mean completion time by OSG over round robin's, with a column that tells what rows cost and with another one."""

    found: Runs = {}
    taken = {}
    with spark_for("osg-live", WORKERS) as (spark, _):
        for case in run.progress.track(QUICK_CASES if run.quick else CASES, "osg-live"):
            some, cost = calibrated(spark, case, run)
            taken[case] = cost
            for column in AIMS:
                found[case, column] = measured(spark, some, column, cost, run)
    return result_of(found, taken)


def calibrated(spark: SparkSession, case: Case, run: Run) -> tuple[Stream, float]:
    """The rows of a case, and the seconds that an instance spends on one where round robin sends them.

    Fewer rows tell what is spent beside their work, which by chance is more or less than that of all.
    """
    slots = SLOTS[case[0]]
    few = stream(case, max(100, round(CALIBRATION_SECONDS * slots / case[1] * 1000)), run.seed)
    edge = Edge(few.items, few.work, slots, spark=spark)
    spent = few.cost
    for _ in range(3):  # the first job of a session is slow, and the next ones come at a more and more likely pace
        spent = edge.run(WAYS[ROUND_ROBIN], spent / slots * PROVISIONING).executing
    seconds = QUICK_SECONDS if run.quick else SECONDS
    some = stream(case, round(seconds * slots / (spent * PROVISIONING)), run.seed)
    return some, some.cost + spent - few.cost


def measured(spark: SparkSession, some: Stream, column: str, cost: float, run: Run) -> dict[str, list[Completed]]:
    """Both ways over the same rows, in turn; the other one begins in every turn."""
    found: dict[str, list[Completed]] = {way: [] for way in WAYS}
    edge = Edge(some.items, some.work, some.slots, labels=some.labels[column], spark=spark)
    for turn in range(QUICK_REPETITIONS if run.quick else REPETITIONS):
        answers = []
        for way in list(WAYS)[:: -1 if turn % 2 else 1]:
            done = edge.run(WAYS[way], cost / some.slots * PROVISIONING)
            found[way].append(done)
            answers.append(done.answers)
        if not np.array_equal(answers[0], answers[1]):
            raise WrongAnswerError("OSG and round robin gave different answers")
    return found


def ratio(by_way: Mapping[str, Sequence[Completed]]) -> float:
    """The median over turns of OSG's mean completion over round robin's in the same turn."""
    return statistics.median(
        ours.mean / theirs.mean for ours, theirs in zip(by_way[OSG], by_way[ROUND_ROBIN], strict=True)
    )


def result_of(found: Runs, taken: Mapping[Case, float]) -> Result:
    """Ratios of all cases, and the worst of each kind of column."""
    ratios = {at: ratio(by_way) for at, by_way in found.items()}
    metrics: dict[str, Any] = {}
    targets = []
    for column, aim in AIMS.items():
        mine = {case: value for (case, of), value in ratios.items() if of == column}
        worst = max(mine, key=lambda case: mine[case])
        metrics[f"osg_{column}_vs_round_robin"] = mine[worst]
        metrics |= {f"osg_{column}_{kind}_{mean:g}ms": value for (kind, mean), value in mine.items()}
        targets.append(
            Target(
                f"osg_{column}_vs_round_robin", at_most=aim, explanation=f"rows of {worst[1]:g} ms that are {worst[0]}"
            )
        )
    rows: list[tuple[Any, ...]] = [
        (
            case[0],
            case[1],
            column.replace("_", " "),
            len(by_way[OSG][0].seconds),
            round(1000 * taken[case], 3),
            *(round(1000 * statistics.median(one.mean for one in by_way[way]), 2) for way in WAYS),
            *(round(1000 * statistics.median(one.executing for one in by_way[way]), 3) for way in WAYS),
            round(ratios[case, column], 3),
        )
        for (case, column), by_way in found.items()
    ]
    columns = ("rows are", "mean ms", "column", "rows", "executing ms", *(f"{way}, ms" for way in WAYS))
    executing = (f"executing by {way}, ms" for way in WAYS)
    return Result(
        parameters={"slots": dict(SLOTS), "provisioning": PROVISIONING, "ways": dict(WAYS), "customers": CUSTOMERS},
        metrics=metrics,
        tables=[Table("mean completion", (*columns, *executing, "OSG over round robin"), rows)],
        targets=targets,
        notes=[
            "Rows come by the clock, 5 % slower than all instances together work them off when round robin sends them "
            "(`executing ms`, measured just before, with all that a row takes beside its work). Both ways get the same "
            "rows in turn; a ratio is the median over turns, the metric the worst of all cases.",
            f"A row's cost is that of its customer, of {CUSTOMERS}, by a Pareto law. `heavy tail`: OSG is told the "
            "customer; `unrelated`: a name that is drawn for each row.",
            f"Workers are {WORKERS} Python processes of Spark; rows that compute hash, without Python's lock.",
        ],
    )


@osg_live.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The ratio of every case."""
    (axes,) = charts.panels(figure, 1, (8, 4.5))
    rows = list(result.tables[0].records())
    cases = [f"{kind},\n{mean:g} ms" for kind, mean in dict.fromkeys((one["rows are"], one["mean ms"]) for one in rows)]
    groups = {
        column: [one["OSG over round robin"] for one in rows if one["column"] == column]
        for column in dict.fromkeys(one["column"] for one in rows)
    }
    title = "Mean completion time by OSG over round robin's"
    charts.grouped(axes, cases, groups, title=title, x="rows, and their mean cost", y="ratio")
    axes.axhline(1.0, color="black", linewidth=0.8)
    charts.legend_below(figure, axes)
