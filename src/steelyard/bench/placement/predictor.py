"""What the predictor is made of: kernels, one regression or many, and how its model is searched."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.bench import Claim, Result, Run, Table, charts, experiment, mean
from steelyard.bench.placement.contest import policy_of
from steelyard.bench.placement.predicted import learnt, looked
from steelyard.bench.placement.published import MODEL, SEARCH
from steelyard.placement.draws import drawn
from steelyard.placement.learnt import Learnt, training_rows
from steelyard.placement.regression import KERNELS, Parameters, accuracy, cross_validated, thinned
from steelyard.sim.placed import FastCluster, deployed

APPLICATIONS, QUICK = ("lsp-33", "wc-15"), ("lsp-33",)
SECONDS, QUICK_SECONDS = 90.0, 30.0
DRAWN = 60
"""Placements by which models are compared with the simulator's formulas."""
SEEDS = 5
KERNEL_ROWS = 800
"""Rows of each part by which kernels are compared: some of them take very long for more."""
PENALTIES, QUICK_PENALTIES = (1.0, 10.0, 100.0), (10.0,)
POOLED = "pooled"
_KINDS = {"processing": "component", "transfer": "edge"}


@dataclass(frozen=True)
class Searched:
    """A policy on a model: the time that it predicts, the settled one, and how long it searched."""

    predicted: float
    settled: float
    seconds: float


@dataclass(frozen=True)
class Compared:
    """One application and one seed."""

    kernels: Mapping[str, float]
    """Percent: cross-validated accuracy with the best penalty, mean over components and streams."""
    ranks: Mapping[str, float]
    """Spearman's coefficient of predicted times with the formulas', one regression for each part or pooled."""
    accuracies: Mapping[str, float]
    """Percent, of the same."""
    searched: Mapping[str, Searched]


def compared(name: str, seed: int, run: Run) -> Compared:
    """Train once; then compare kernels, pooled regressions, and searches."""
    made = deployed(name)
    setup, seconds = made.setup, run.pick(SECONDS, QUICK_SECONDS)
    policies: dict[str, Any] = {who: policy_of(who, run) for who in (MODEL, SEARCH)}
    policy = policies[MODEL]
    known, _ = learnt(policy, made, seed)
    for one in policies.values():
        one.learnt = known
    seen = looked(made, setup.round_robin(), seed, seconds).reading
    kernels = _kernels(known, run.pick(PENALTIES, QUICK_PENALTIES))
    true = FastCluster(made, seed=seed)
    some = drawn(setup, DRAWN, seed + 1_000)
    expected = true.times(some)[:, 0]
    ranks, accuracies = {}, {}
    for kind in ("own", POOLED):
        known.fit(policy.parameters, pooled=kind == POOLED)
        found = policy.prediction(setup, seen).times(some)[:, 0]
        ranks[kind], accuracies[kind] = spearman(found, expected), 100 * accuracy(found, expected)
    known.fit(policy.parameters)
    searched = {}
    for who in (MODEL, SEARCH):
        begun = time.perf_counter()
        chosen = setup.assignment(policies[who].place(setup, seen), seen.assignment)
        took = time.perf_counter() - begun
        told = float(policy.prediction(setup, seen).times(chosen[None])[0, 0])
        after = float(looked(made, chosen, seed, seconds).reading.times[0])
        searched[who] = Searched(1000 * told, 1000 * after, took)
    return Compared(kernels, ranks, accuracies, searched)


def _kernels(learnt: Learnt, penalties: Sequence[float]) -> dict[str, float]:
    """By kernel: the mean over components and streams of the best accuracy."""
    found: dict[str, list[float]] = {kernel: [] for kernel in KERNELS}
    for kind, by in _KINDS.items():
        table = getattr(learnt.rows, kind)
        for _, own in table.groupby(by):
            rows, seconds, groups = thinned(*training_rows(own, kind), KERNEL_ROWS)
            for kernel, scores in found.items():
                each = [cross_validated(rows, seconds, groups, Parameters(kernel, C)) for C in penalties]
                scores.append(100 * max(each))
    return {kernel: mean(scores) for kernel, scores in found.items()}


def spearman(one: Any, other: Any) -> float:
    """Rank correlation of values without ties.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    ranks = [np.argsort(np.argsort(values)).astype(np.float64) for values in (one, other)]
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 9)


@experiment("placement-predictor", title="Kernels, pooled regressions and searches of the predicting policies")
def placement_predictor(run: Run) -> Result:
    """Cross-validated accuracy by kernel, ranks of placements, and what two searches find."""
    names = run.pick(APPLICATIONS, QUICK)
    points = [(name, seed) for seed in run.seeds(SEEDS, 1) for name in names]
    found: dict[str, list[Compared]] = {name: [] for name in names}
    for name, seed in run.progress.track(points, "placement-predictor"):
        found[name].append(compared(name, seed, run))
    return result_of(found)


def result_of(found: Mapping[str, Sequence[Compared]]) -> Result:
    """Claims and tables."""
    each = [one for many in found.values() for one in many]
    seeds = list(zip(*found.values(), strict=True))
    best_other = [
        mean(one.kernels["rbf"] - max(one.kernels[kernel] for kernel in KERNELS if kernel != "rbf") for one in of)
        for of in seeds
    ]
    pooled = [mean(one.ranks["own"] - one.ranks[POOLED] for one in of) for of in seeds]
    kernels = [
        (name, kernel, mean(one.kernels[kernel] for one in many)) for name, many in found.items() for kernel in KERNELS
    ]
    models = [
        (name, kind, mean(one.ranks[kind] for one in many), mean(one.accuracies[kind] for one in many))
        for name, many in found.items()
        for kind in ("own", POOLED)
    ]
    searches = [
        (
            name,
            who,
            mean(one.searched[who].predicted for one in many),
            mean(one.searched[who].settled for one in many),
            mean(one.searched[who].seconds for one in many),
        )
        for name, many in found.items()
        for who in (MODEL, SEARCH)
    ]
    return Result(
        parameters={"applications": list(found)},
        metrics={
            "rbf_accuracy_percent": mean(one.kernels["rbf"] for one in each),
            "rank_own": mean(one.ranks["own"] for one in each),
            "rank_pooled": mean(one.ranks[POOLED] for one in each),
            "local_search_vs_model_based": mean(
                one.searched[SEARCH].settled / one.searched[MODEL].settled for one in each
            ),
            "model_based_search_s": mean(one.searched[MODEL].seconds for one in each),
        },
        kind="simulated",
        kinds={"model_based_search_s": "measured"},
        claims=[
            Claim(
                "radial basis functions over the best other kernel, points of accuracy",
                "the best of four (Li 2018, section 2.2.4)",
                best_other,
                at_least=0.0,
                reason="simulated latencies are smooth enough in the features that another kernel serves as well",
            ),
            Claim(
                "regressions of each part over pooled ones, rank of placements",
                "not said; none of the features tells components apart",
                pooled,
                at_least=0.0,
                reason="pooled rows are more rows, and the work of components is alike there",
            ),
        ],
        tables=[
            Table("cross-validated accuracy by kernel", ("application", "kernel", "accuracy %"), kernels),
            Table("models", ("application", "regressions", "Spearman with formulas", "accuracy %"), models),
            Table("searches", ("application", "policy", "predicted ms", "settled ms", "seconds"), searches),
        ],
        notes=[
            "Accuracy by kernel: the best of the penalties, on schedules that were not learnt from, mean over all "
            "components and streams. Ranks: of drawn placements, beside the formulas of the simulator's fast level.",
        ],
    )


@placement_predictor.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Accuracy by kernel."""
    (table,) = [one for one in result.tables if one.title.endswith("by kernel")]
    bars = {f"{row[0]}, {row[1]}": max(0.0, float(str(row[2]))) for row in table.rows}
    charts.bars(
        figure.add_subplot(),
        bars,
        title="Accuracy by kernel, percent; 0 where it is below",
        x="percent",
        y="model and kernel",
    )
