"""Whether the policy that needs no choice is ever much worse than the best of those one could choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Table, Target, charts, experiment, mean
from steelyard.bench.prompt.cluster_model import Shape, measure_costs
from steelyard.core import Batched, BatchObservation, KeyCounts, Observing, Partitioner, RowRule, TaskObservation
from steelyard.core.counts import Ints
from steelyard.core.plans import spread
from steelyard.partition import policy
from steelyard.sim.task_times import TaskCosts

BLOCKS, BUCKETS = 16, 16
ROWS, KEYS = 100_000, 20_000
BATCHES, QUICK_BATCHES = 120, 60
SEEDS, QUICK_SEEDS = 3, 1
NOISE = 0.05
"""Spread of task times (lognormal), so that what is reported is not what the model would compute."""
AUTO = "auto"
FIXED = ("in_place", "hash", "prompt", "shuffle", "pk2", "pk5", "dagreedy", "dalton")
MOVING_US = (0.2, 1.0, 5.0)
"""Prices of moving a row, in microseconds: the network of a cluster, this machine's shuffle, a slow one."""
FIXED_SECONDS = 0.02
"""What a batch takes whatever is in it. Spark's jobs take more; a small figure hides no regret."""
WAIT_US = 250.0
"""What a row of the operator `remote` waits, in microseconds."""
UNEVEN = 3.0
"""How much larger the largest partition of an uneven source is than the mean."""


@dataclass(frozen=True)
class Workload:
    """A stream of batches: the Zipf exponent of each, and how evenly the source deals its rows."""

    name: str
    """What it is called."""
    exponents: tuple[float, ...]
    """Taken in turn, each for `stretch` batches."""
    source: float = 1.0
    """Rows of the source's largest partition over the mean."""
    drifts: bool = False
    """Whether other keys are hot after each stretch."""
    stretch: int = 20

    def batches(self, count: int, seed: int) -> Iterator[Ints]:
        """Keys of each batch, in order of arrival."""
        draws = np.random.default_rng(seed)
        names = np.arange(KEYS)
        for number in range(count):
            turn, first = divmod(number, self.stretch)
            if self.drifts and number and not first:
                names = draws.permutation(KEYS)
            weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -self.exponents[turn % len(self.exponents)]
            yield names[np.searchsorted(np.cumsum(weights / weights.sum()), draws.random(ROWS)).clip(0, KEYS - 1)]


WORKLOADS = (
    *(Workload(f"Zipf {exponent:g}", (exponent,)) for exponent in (0.0, 0.8, 1.0, 1.2, 1.5, 2.0)),
    Workload("Zipf 1.2, uneven source", (1.2,), source=UNEVEN),
    Workload("uniform, uneven source", (0.0,), source=UNEVEN),
    Workload("uniform and Zipf 1.5 in turn", (0.0, 1.5)),
    Workload("Zipf 1.2, drifting", (1.2,), drifts=True),
    Workload("skew at random, uneven source", (0.5, 1.4, 0.9, 1.1, 0.7), source=UNEVEN, drifts=True),
)
QUICK_WORKLOADS = tuple(one for one in WORKLOADS if one.name in ("Zipf 1.2", "uniform, uneven source"))


@dataclass
class Chosen:
    """One policy over one stream, with what it carries from batch to batch."""

    name: str
    """In the registry."""
    source: float
    """Rows of the source's largest partition over the mean."""

    def __post_init__(self) -> None:
        from steelyard.spark.statistics import Carried  # noqa: PLC0415 - loads Spark

        self.known = Carried(("key",))  # the engine's own statistics of the batches before
        self.policy = policy(self.name)
        if isinstance(self.policy, Batched):
            self.policy = self.policy.in_batches()
        self.router = None if isinstance(self.policy, Partitioner) else self.policy.router(BLOCKS)
        self.number = 0

    def blocks(self, keys: Ints) -> Layout:
        """Rows and distinct keys of each block of the next batch, and whether rows moved."""
        number, self.number = self.number, self.number + 1
        if self.router is not None:
            slide = getattr(self.policy, "slide", 1)
            routed = self.router.route(scattered(keys), np.full(len(keys), number * slide, dtype=np.int64))
            return *tallied(keys, routed.block), True
        assert isinstance(self.policy, Partitioner)
        plan = self.policy.plan(self.known.counts, BLOCKS)
        rows = np.bincount(keys, minlength=KEYS)
        seen = np.flatnonzero(rows)
        self.known.update(KeyCounts(pa.array(seen), rows[seen]))
        if plan.rule is RowRule.IN_PLACE:
            return *self._in_place(keys), False
        if plan.rule is RowRule.ROUND_ROBIN:
            return *tallied(keys, np.arange(len(keys)) % BLOCKS), True
        return *tallied(keys, follow(plan, keys)), True

    def _in_place(self, keys: Ints) -> tuple[Any, Any]:
        """The source's partitions: one of them larger than the mean, the others equal."""
        largest = int(len(keys) / BLOCKS * self.source)
        rest = spread(len(keys) - largest, BLOCKS - 1)
        return tallied(keys, np.repeat(np.arange(BLOCKS), [largest, *rest]))

    def show(self, batch: BatchObservation) -> None:
        """Show the policy what its batch took, if it looks."""
        if isinstance(self.policy, Observing):
            self.policy.observe(batch.at())


def scattered(keys: Ints) -> Ints:
    """Ids as engines have them: a hash of each key."""
    return np.asarray(_ids()[keys])


@cache
def _ids() -> Ints:
    from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - compiled when it is used

    return spark_hash(pa.array(np.arange(KEYS)))


def follow(plan: Any, keys: Ints) -> Ints:
    """Where rows go by a plan made for other rows: listed keys along their fragments, the others by hash."""
    block = np.mod(scattered(keys), BLOCKS)
    if not len(plan.counts):
        return block
    listed = np.full(KEYS, -1)
    listed[plan.counts.keys.to_numpy()] = np.arange(len(plan.counts))
    at = listed[keys]
    rows = np.flatnonzero(at >= 0)
    if not len(rows):
        return block
    ends = np.cumsum(plan.rows)
    first = np.r_[0, np.cumsum(plan.fragments_of_key)]
    began = np.r_[0, ends][first[at[rows]]]
    total = plan.counts.rows[at[rows]]
    # A row's place among its key's rows, by its position: as an engine spreads a key's rows over its fragments.
    place = (rows * 2_654_435_761 >> 7) % total
    block[rows] = plan.block[np.searchsorted(ends, began + place, side="right")]
    return np.asarray(block)


def tallied(keys: Ints, block: Any) -> tuple[Any, Any]:
    """Rows and distinct keys of each block."""
    rows = np.bincount(block, minlength=BLOCKS)
    pairs = np.zeros(KEYS * BLOCKS, dtype=bool)
    pairs[keys * BLOCKS + block] = True
    return rows, pairs.reshape(KEYS, BLOCKS).sum(axis=0)


def distinct_of(keys: Ints) -> int:
    """How many keys there are."""
    return int(np.count_nonzero(np.bincount(keys, minlength=KEYS)))


Layout = tuple[Any, Any, bool]
"""Rows and distinct keys of each block of a batch, and whether rows moved."""


def priced(layout: Layout, keys: int, costs: TaskCosts, moving: float) -> float:
    """Seconds of a batch."""
    rows, distinct, moved = layout
    records = np.full(BUCKETS, distinct.sum() / BUCKETS)
    shape = Shape(rows, distinct, records, np.full(BUCKETS, keys / BUCKETS))
    return FIXED_SECONDS + float(shape.seconds(costs)) + moved * moving * int(rows.sum()) / BLOCKS


def taken_by_auto(workload: Workload, batches: Sequence[Ints], costs: TaskCosts, moving: float) -> float:
    """Seconds that `auto` needs for all batches of a stream, told after each what it took."""
    chosen, total = Chosen(AUTO, workload.source), 0.0
    draws = np.random.default_rng(len(batches))
    for number, keys in enumerate(batches):
        layout = chosen.blocks(keys)
        seconds = priced(layout, distinct_of(keys), costs, moving)
        total += seconds
        noisy = costs.map_seconds(*layout[:2]) * draws.lognormal(0.0, NOISE, BLOCKS)
        tasks = tuple(
            TaskObservation(block, int(rows), int(distinct), float(taken), 0.0)
            for block, (rows, distinct, taken) in enumerate(zip(*layout[:2], noisy, strict=True))
        )
        said = seconds * draws.lognormal(0.0, NOISE)
        chosen.show(BatchObservation(number, len(keys), 0, BLOCKS, BUCKETS, said, 0.0, tasks=tasks))
    return total


def cases_of(workload: Workload, streams: Sequence[Sequence[Ints]], costs: Mapping[str, TaskCosts]) -> Iterator[Case]:
    """Every operator and price of moving. What a fixed policy does depends on neither, so it is done once."""
    distinct = [[distinct_of(keys) for keys in stream] for stream in streams]
    layouts: dict[str, list[tuple[Layout, int]]] = {}
    for name in FIXED:
        layouts[name] = []
        for stream, counts in zip(streams, distinct, strict=True):
            chosen = Chosen(name, workload.source)
            layouts[name] += [(chosen.blocks(keys), count) for keys, count in zip(stream, counts, strict=True)]
    for operator, prices in costs.items():
        for moving in MOVING_US:
            each = moving / 1e6
            seconds = {AUTO: sum(taken_by_auto(workload, stream, prices, each) for stream in streams)}
            for name, done in layouts.items():
                seconds[name] = sum(priced(layout, keys, prices, each) for layout, keys in done)
            yield Case(workload.name, operator, moving, seconds)


@dataclass(frozen=True)
class Case:
    """All policies over one workload, operator and price of moving: seconds, added up over the seeds."""

    workload: str
    operator: str
    moving_us: float
    seconds: Mapping[str, float]

    @property
    def best(self) -> str:
        """The fastest of those that one could have chosen."""
        return min((name for name in self.seconds if name != AUTO), key=lambda name: self.seconds[name])

    @property
    def regret(self) -> float:
        """How much longer `auto` took than the best, as a share."""
        return self.seconds[AUTO] / self.seconds[self.best] - 1


@experiment("partition-auto", title="The policy that needs no choice against the best fixed one")
def partition_auto(run: Run) -> Result:
    """Regret of `auto` on every workload, operator and price of moving rows, from measured task costs."""
    count = QUICK_BATCHES if run.quick else BATCHES
    seeds = QUICK_SEEDS if run.quick else SEEDS
    costs = {operator: measure_costs(operator, seed=run.seed) for operator in ("sum", "histogram")}
    costs["remote"] = replace(costs["sum"], map_row=costs["sum"].map_row + WAIT_US / 1e6)
    cases: list[Case] = []
    for workload in run.progress.track(QUICK_WORKLOADS if run.quick else WORKLOADS, "workloads"):
        streams = [list(workload.batches(count, run.seed + seed)) for seed in range(seeds)]
        cases += cases_of(workload, streams, costs)
    return result_of(cases, count, seeds)


def result_of(cases: Sequence[Case], batches: int, seeds: int) -> Result:
    """The worst regret, and who was best where."""
    worst = max(cases, key=lambda case: case.regret)
    best = {name: sum(case.best == name for case in cases) for name in FIXED}
    fixed = {name: max(case.seconds[name] / case.seconds[case.best] - 1 for case in cases) for name in FIXED}
    return Result(
        kind="simulated",
        parameters={
            "blocks": BLOCKS,
            "rows": ROWS,
            "keys": KEYS,
            "batches": batches,
            "seeds": seeds,
            "moving_us": list(MOVING_US),
        },
        metrics={
            "worst_regret": worst.regret,
            "mean_regret": mean(case.regret for case in cases),
            "cases": float(len(cases)),
            **{f"worst_regret_{name}": value for name, value in fixed.items()},
        },
        tables=[_table(cases)],
        targets=[
            Target(
                "worst_regret",
                at_most=0.05,
                explanation=f"{worst.workload}, {worst.operator}, moving {worst.moving_us:g} us: {worst.best} is best",
            )
        ],
        notes=[
            "Simulated: batches of real size through the real policies, priced by task costs that were measured in "
            "this process (Eq 2.1 of Abdelhamid 2021) and by three prices of moving a row, with noise in what is told.",
            "Best fixed policy, cases: " + ", ".join(f"{name} {n}" for name, n in best.items() if n) + ".",
        ],
    )


def _table(cases: Sequence[Case]) -> Table:
    return Table.of(
        "cases",
        [
            {
                "workload": case.workload,
                "operator": case.operator,
                "moving us": case.moving_us,
                "best": case.best,
                "best s": case.seconds[case.best],
                "auto s": case.seconds[AUTO],
                "regret": case.regret,
            }
            for case in cases
        ],
    )


@partition_auto.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The worst case of every policy."""
    worst = {AUTO: result.metrics["worst_regret"]} | {name: result.metrics[f"worst_regret_{name}"] for name in FIXED}
    times = {name: 1 + regret for name, regret in worst.items()}
    title = "Worst of all cases, against the policy that is best there"
    charts.bars(figure.add_subplot(), times, title=title, x="time / time of the best", y="policy", ours=(AUTO,))
