"""Near-duplicate text through the similarity join: every pair that brute force finds, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Table, Target, charts, experiment
from steelyard.core.counts import Ints
from steelyard.similarity import Formulation, Metric, Rows, SpacePartitions, WindowJoin, metric
from steelyard.similarity.members import SELF
from steelyard.workloads import workload

TEXTS, QUICK_TEXTS = 20_000, 4_000
PARTS = 4
BATCHES = 5
SAMPLE = 2_000
"""Texts of the first batch that centroids are chosen from, as on Spark."""
SHARES = (0.3, 0.6, 0.9)
HEADLINE = 0.6
"""The share of copies that metrics are taken at."""
BLOCK = 500
SPACE_SEED = 42
WARM_UP = 300
MOST_TEXTS = 1 << 31


@dataclass(frozen=True)
class Kind:
    """One way to say that two texts are nearly the same: a metric, a threshold, and how copies were edited."""

    metric: str
    threshold: float
    edits: str


KINDS = (Kind("edit", 3.0, "letters"), Kind("jaccard", 0.4, "words"))


@dataclass(frozen=True)
class Answer:
    """Pairs, as sorted codes, and the processor time that they took."""

    pairs: Ints
    seconds: float


@dataclass(frozen=True)
class Joined(Answer):
    """What the join found, and what it did for it."""

    longest: float
    """Seconds of the slowest part, as if each had a core of its own, with its share of the routing."""
    distances: int
    """To centroids of space partitions and of worksets."""
    comparisons: int
    free: int
    members: int
    worksets: int


@dataclass(frozen=True)
class Case:
    """One share of copies and one metric: the join beside two ways without it."""

    kind: Kind
    copies: float
    texts: int
    planted: int
    """Copies that are within the threshold of their original."""
    planted_found: int
    joined: Joined
    brute: Answer
    scan: Answer

    @property
    def recall(self) -> float:
        """Share of brute force's pairs that the join has."""
        return float(np.isin(self.brute.pairs, self.joined.pairs).mean()) if len(self.brute.pairs) else 1.0

    @property
    def extra(self) -> int:
        """Pairs of the join that brute force has not, or that it has twice."""
        twice = len(self.joined.pairs) - len(np.unique(self.joined.pairs))
        return int((~np.isin(self.joined.pairs, self.brute.pairs)).sum()) + twice

    @property
    def compared(self) -> float:
        """Distances of any kind that the join computed, over all pairs that there are."""
        return (self.joined.distances + self.joined.comparisons) / (self.texts * (self.texts - 1) / 2)


def codes(left: Ints, right: Ints) -> Ints:
    """One whole number for each pair, whichever way round it is; sorted.

    >>> codes(np.array([2, 0]), np.array([1, 3])).tolist() == [3, MOST_TEXTS + 2]
    True
    """
    return np.sort(np.minimum(left, right) * MOST_TEXTS + np.maximum(left, right))


def join_in_process(measure: Metric, t: float, column: pa.ChunkedArray, parts: int, batches: int) -> Joined:
    """A self-join of one window, batch after batch: what the tasks on Spark do, one after the other."""
    clock = time.process_time()
    records, _ = measure.records(column)
    first = np.array_split(np.arange(len(records)), batches)[0][:SAMPLE]
    space = SpacePartitions.farthest(measure.take(records, first), parts, measure, t, SPACE_SEED)
    formulations = [Formulation(measure, t, part) for part in range(len(space))]
    joins = [WindowJoin(measure, t, self_join=True) for _ in formulations]
    shared = time.process_time() - clock
    alone = [0.0] * len(joins)
    found: list[Ints] = []
    distances = members = 0
    for batch in np.array_split(np.arange(len(records)), batches):
        begun = time.process_time()
        whole = _rows(measure, measure.take(records, batch), batch)
        routed = space.route(whole.records)
        distances += routed.distances
        shared += time.process_time() - begun
        for part, (formulation, join) in enumerate(zip(formulations, joins, strict=True)):
            begun = time.process_time()
            position, outer = routed.of(part)
            placed = formulation.add(whole.take(measure, position), outer)
            pairs = join.add(placed.members)
            found.append(codes(pairs.left, pairs.right))
            distances += placed.distances
            members += len(placed.members)
            alone[part] += time.process_time() - begun
    loads = [join.loads() for join in joins]
    return Joined(
        pairs=np.sort(np.concatenate(found)),
        seconds=time.process_time() - clock,
        longest=max(alone) + shared / len(joins),
        distances=distances,
        comparisons=int(sum(load.comparisons.sum() for load in loads)),
        free=int(sum(load.free.sum() for load in loads)),
        members=members,
        worksets=sum(len(formulation.worksets) for formulation in formulations),
    )


def _rows(measure: Metric, records: object, ids: Ints) -> Rows:
    count = len(ids)
    return Rows(ids.astype(np.int64), np.full(count, SELF, np.int8), np.zeros((count, 2), np.int64), records)


def brute_force(measure: Metric, t: float, column: pa.ChunkedArray) -> Answer:
    """Every distance, in blocks."""

    def block(rows: Ints, later: Ints) -> tuple[Ints, Ints]:
        i, j = np.nonzero(measure.pairwise(measure.take(records, rows), measure.take(records, later)) <= t)
        return i, j

    clock = time.process_time()
    records, _ = measure.records(column)
    return _each_with_later(len(records), block, clock)


def scan(measure: Metric, t: float, column: pa.ChunkedArray) -> Answer:
    """The fast search that worksets use (it stops a comparison early, or has an index), over all texts in blocks."""

    def block(rows: Ints, later: Ints) -> tuple[Ints, Ints]:
        i, j, _ = measure.within(measure.take(records, rows), measure.take(records, later), t)
        return i, j

    clock = time.process_time()
    records, _ = measure.records(column)
    return _each_with_later(len(records), block, clock)


def _each_with_later(count: int, block: Callable[[Ints, Ints], tuple[Ints, Ints]], clock: float) -> Answer:
    """Blocks of records with those that do not come before them; each pair once."""
    found = []
    for start in range(0, count, BLOCK):
        rows = np.arange(start, min(count, start + BLOCK))
        i, j = block(rows, np.arange(start, count))
        found.append(codes(i[i < j] + start, j[i < j] + start))
    pairs = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
    return Answer(pairs, time.process_time() - clock)


def measured(kind: Kind, copies: float, texts: int, seed: int) -> Case:
    """One case, all three ways over the same texts."""
    rows = workload("near_duplicates", copies=copies, edit=kind.edits, seed=seed).rows(
        0, texts, np.zeros(texts, np.int64)
    )
    column = pa.chunked_array([rows.column("text")])
    measure = metric(kind.metric)
    t = measure.threshold(kind.threshold)
    joined = join_in_process(measure, t, column, PARTS, BATCHES)
    ids, originals = (rows.column(name).to_numpy() for name in ("id", "original"))
    copied = np.flatnonzero(ids != originals)
    brute = brute_force(measure, t, column)
    planted = np.intersect1d(codes(ids[copied], originals[copied]), brute.pairs)
    found = int(np.isin(planted, joined.pairs).sum())
    return Case(kind, copies, texts, len(planted), found, joined, brute, scan(measure, t, column))


@experiment("s3j-real", title="Near-duplicate text: the exact join beside brute force")
def real(run: Run) -> Result:
    """Short texts of which a share are edited copies, joined by edit distance and by Jaccard distance of words."""
    texts = run.pick(TEXTS, QUICK_TEXTS)
    for kind in KINDS:  # whatever is compiled is compiled before the clock runs
        measured(kind, HEADLINE, WARM_UP, run.seed)
    wanted = [(kind, copies) for kind in KINDS for copies in SHARES]
    return result_of(
        [measured(kind, copies, texts, run.seed) for kind, copies in run.progress.track(wanted, "s3j-real")]
    )


def result_of(cases: Sequence[Case]) -> Result:
    """Figures, tables and targets."""
    metrics: dict[str, float] = {}
    targets = []
    for kind in KINDS:
        own = [case for case in cases if case.kind == kind]
        head = next(case for case in own if case.copies == HEADLINE)
        name = kind.metric
        metrics[f"{name}_recall"] = min(case.recall for case in own)
        metrics[f"{name}_extra_pairs"] = sum(case.extra for case in own)
        metrics[f"{name}_pairs"] = len(head.brute.pairs)
        metrics[f"{name}_compared_share"] = head.compared
        metrics[f"{name}_join_s"] = head.joined.seconds
        metrics[f"{name}_brute_force_s"] = head.brute.seconds
        metrics[f"{name}_vs_brute_force"] = head.brute.seconds / head.joined.seconds
        metrics[f"{name}_vs_scan"] = head.scan.seconds / head.joined.seconds
        wrong = "the join and brute force differ: this is a bug, not a matter of the machine"
        targets += [
            Target(f"{name}_recall", at_least=1, explanation=wrong),
            Target(f"{name}_extra_pairs", at_most=0, explanation=wrong),
        ]
    return Result(
        parameters={
            "texts": cases[0].texts,
            "space_partitions": PARTS,
            "batches": BATCHES,
            "copies": HEADLINE,
            **{f"{kind.metric}_threshold": kind.threshold for kind in KINDS},
        },
        metrics=metrics,
        tables=[_answers(cases), _work(cases), _times(cases)],
        targets=targets,
        notes=[
            "Everything runs in this process on one core, the parts of the join one after the other; seconds are of "
            "processor time, which others on the machine do not lengthen. "
            "'longest part' is what the slowest would take on a core of its own; what Spark adds is not in it.",
            "Brute force computes every distance. The scan is the search that worksets use, over all texts: "
            "for edit distance it stops where a pair is sure to be too far, for Jaccard it has an index of words.",
            "Texts without a copy become centroids, and each later text is compared with them: where copies are few, "
            "the join computes nearly as many distances as there are pairs.",
        ],
    )


def _answers(cases: Sequence[Case]) -> Table:
    return Table.of(
        "answers",
        [
            {
                "metric": case.kind.metric,
                "copies": case.copies,
                "pairs": len(case.brute.pairs),
                "pairs of the join": len(case.joined.pairs),
                "recall": case.recall,
                "extra": case.extra,
                "copies found with their original": f"{case.planted_found:,} of {case.planted:,}",
            }
            for case in cases
        ],
    )


def _work(cases: Sequence[Case]) -> Table:
    return Table.of(
        "work",
        [
            {
                "metric": case.kind.metric,
                "copies": case.copies,
                "all pairs": case.texts * (case.texts - 1) // 2,
                "distances to centroids": case.joined.distances,
                "comparisons": case.joined.comparisons,
                "free pairs": case.joined.free,
                "computed over all pairs": case.compared,
                "worksets": case.joined.worksets,
                "members a text": case.joined.members / case.texts,
            }
            for case in cases
        ],
    )


def _times(cases: Sequence[Case]) -> Table:
    return Table.of(
        "seconds",
        [
            {
                "metric": case.kind.metric,
                "copies": case.copies,
                "join": case.joined.seconds,
                "longest part": case.joined.longest,
                "brute force": case.brute.seconds,
                "scan": case.scan.seconds,
            }
            for case in cases
        ],
    )


@real.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Seconds of all three ways, by the share of copies; one panel for each metric."""
    panels = charts.panels(figure, len(KINDS), (10, 4.5))
    ways = {"brute force": "brute force", "scan": "scan", "join": "join", "longest part": "join, longest part"}
    colours = [charts.COLOURS[number] for number in (1, 4, 0, 5)]
    for axes, kind in zip(panels, KINDS, strict=True):
        own = [one for one in result.tables[2].records() if one["metric"] == kind.metric]
        groups = {label: [one[column] for one in own] for column, label in ways.items()}
        title = f"{kind.metric} distance up to {kind.threshold:g}, {result.parameters['texts']:,} texts"
        x, y = "texts that are changed copies", "processor time, s"
        charts.grouped(axes, [f"{one['copies']:.0%}" for one in own], groups, title=title, x=x, y=y, colours=colours)
    charts.legend_below(figure, *panels)
