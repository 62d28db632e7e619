"""Whether a protocol for each region is as good as the better of its parts, and better where there are two regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from steelyard.bench import Cell, Claim, Result, Run, Series, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CONTENDERS,
    COOR,
    HOW,
    HYBRID,
    LOAD,
    OWN,
    QUERIES,
    SHORT,
    SOURCE,
    UNALIGNED,
    UNC,
    WARM,
    parameters,
    rate_of,
)
from steelyard.bench.checkmate.sides import EVEN_SINK, SIDES, sides
from steelyard.sim.checkpoints import Failure, Job, Outcome, Simulation, query

PARTS = (COOR, UNC, OWN)
FAILURE, SECONDS, AFTER = 38.0, 75.0, 3.0
"""Late enough for operators to have found their region, which takes three rounds."""
WORSE = 1.1
"""A tenth more than the better of the parts is allowed."""
RATIOS = (0.2, 0.3)
CYCLIC = "cyclic"
COUNTS_COME = "counts of the hot bidder, which come late, are among its rows"
REASONS = {
    "p99": "what is logged costs as much as with UNC, and an overloaded worker falls behind by that much more",
    "recovery": "logs take a part of what a hot worker has to catch up, and his sources join rounds behind what waits "
    "there, so that the line is older; counted in whole seconds",
}


@dataclass(frozen=True)
class Seen:
    """What came of one protocol on one graph.

    Parameters
    ----------
    calm
        Until the failure.
    even
        The same, at the sink of the even region, where there is one.
    whole
        With the failure.
    changes
        What a hybrid protocol changed, in words.
    """

    calm: Outcome
    even: Outcome | None
    whole: Outcome
    changes: str

    def recovery(self, most: float) -> float:
        """Seconds until latency is normal again; `most` where it is not within the run."""
        return min(self.whole.recovery_seconds(), most)


Found = dict[tuple[str, str], Seen]


def graphs(run: Run) -> dict[str, tuple[Job, float]]:
    """By name: what runs, and rows per second, the same for every protocol: a share of what UNC lets one expect."""
    workers = run.pick(10, 5)
    found: dict[str, tuple[Job, float]] = {}
    for one in run.pick(QUERIES, ("q3", "q12")):
        job = query(one, workers)
        found[one] = job, rate_of(job, UNC, LOAD)
    for one in run.pick(("q3", "q8", "q12"), ("q12",)):
        for hot in run.pick(RATIOS, RATIOS[-1:]):
            found[f"{one}, {hot:.0%} hot"] = query(one, workers, hot), rate_of(query(one, workers), UNC, 0.5)
    found[SIDES] = sides()
    if not run.quick:
        job = query(CYCLIC, 5)
        found[CYCLIC] = job, rate_of(job, UNC, LOAD)
    return found


def seen(job: Job, name: str, rate: float, failure: float, seconds: float) -> Seen:
    """One run with one failure."""
    simulated = Simulation(job, CONTENDERS[name], rate, warm=WARM, failures=[Failure(failure, 1)]).run(failure - 0.001)
    calm = simulated.outcome(AFTER)
    even = simulated.outcome(AFTER, EVEN_SINK) if job.name == SIDES else None
    changes = simulated.run(seconds).central.changes
    told = "; ".join(f"round {one.round}: {one.operator} {one.region}" for one in changes)
    return Seen(calm, even, simulated.outcome(AFTER), told)


@experiment("checkmate-hybrid", title="A protocol for each region beside its parts", figure=f"{SOURCE}, future work")
def hybrid(run: Run) -> Result:
    """Every query of the contest, hot keys at half load, a cycle, and a graph with a skewed and an even region."""
    failure, seconds = run.pick((FAILURE, SECONDS), (28.0, 60.0))
    names = run.pick((*PARTS, UNALIGNED, HYBRID), (COOR, UNC, HYBRID))
    made = graphs(run)
    found: Found = {}
    points = [(graph, name) for graph in made for name in names if (graph, name) != (CYCLIC, COOR)]
    for graph, name in run.progress.track(points, "regions"):
        job, rate = made[graph]
        found[graph, name] = seen(job, name, rate, failure, seconds)
    return result_of(found, failure, seconds)


def result_of(found: Found, failure: float, seconds: float) -> Result:
    """Tables, claims, pictures."""
    rows: list[tuple[Cell, ...]] = []
    metrics: dict[str, float] = {}
    for (graph, name), one in found.items():
        recovery, restart = one.whole.recovery_seconds(), one.whole.restarts[0]
        times = [1_000 * one.calm.latency_p50, 1_000 * one.calm.latency_p99]
        even = 1_000 * one.even.latency_p99 if one.even else None
        came = (restart.rollback_seconds, restart.replayed_rows)
        rows.append((graph, name, *times, even, recovery if math.isfinite(recovery) else None, *came, one.changes))
        key = graph.replace(", ", "_").replace("% ", "_")
        metrics[f"{SHORT[name]}_p50_{key}_ms"], metrics[f"{SHORT[name]}_p99_{key}_ms"] = times
        metrics[f"{SHORT[name]}_recovery_{key}_s"] = recovery
        metrics[f"{SHORT[name]}_rollback_{key}_s"] = restart.rollback_seconds
        if even is not None:
            metrics[f"{SHORT[name]}_p99_even_region_ms"] = even
    columns = ("graph", "protocol", "p50, ms", "p99, ms", "p99 of the even region, ms", "recovery, s")
    more = ("line is older by, s", "rows that came again", "regions that changed")
    return Result(
        parameters=parameters(
            failure=failure, seconds=seconds, graphs=list(dict.fromkeys(graph for graph, _ in found))
        ),
        metrics=metrics,
        kind="simulated",
        tables=[Table("before the failure, and recovery, simulated", (*columns, *more), rows)],
        claims=claims_of(found, seconds - failure),
        series=[
            Series(f"{figure}: {name}", *_over_best(found, name, figure, seconds - failure), "simulated")
            for figure in ("p99", "recovery")
            for name in dict.fromkeys(name for _, name in found)
        ],
        notes=[
            HOW,
            "All protocols have the same rows per second: 80 % of what UNC's costs let one expect, half of it with hot "
            "keys, as in checkmate-skew. p99 is from second 3 until the failure, the first rounds included. A recovery "
            "that does not end within the run is counted as long as the run.",
            f"'{SIDES}': bids by bidder, 30 % of one, on ten workers, and persons with what they sell, counted by "
            "seller, on five others; counts of bidders go from one region to the other.",
            "Hybrid begins uncoordinated everywhere, with the defaults of its parameters. 'unaligned', which is the "
            "usual protocol and no part of it, is beside it to show what is left to gain.",
        ],
    )


def _over_best(found: Found, name: str, figure: str, most: float) -> tuple[list[int], list[float]]:
    """Places of graphs, and a figure of a protocol on them over that of the better of the parts."""
    names = list(dict.fromkeys(graph for graph, _ in found))
    there = [place for place, graph in enumerate(names) if (graph, name) in found]
    return there, [
        _figure(found[names[place], name], figure, most) / _best(found, names[place], figure, most) for place in there
    ]


def _figure(one: Seen, figure: str, most: float) -> float:
    return one.calm.latency_p99 if figure == "p99" else one.recovery(most)


def _best(found: Found, graph: str, figure: str, most: float) -> float:
    return min(_figure(found[graph, one], figure, most) for one in PARTS if (graph, one) in found)


def claims_of(found: Found, most: float) -> list[Claim]:
    """What was asked of it: for every graph, and for the one with two regions."""
    claims = []
    for graph in dict.fromkeys(graph for graph, _ in found):
        for figure in ("p99", "recovery"):
            best = _best(found, graph, figure, most)
            ours = _figure(found[graph, HYBRID], figure, most)
            if figure == "recovery" and min(best, ours) >= most:
                continue  # nobody is back within the run: nothing can be said
            claims.append(
                Claim(
                    f"{graph}: {figure} over the better of the parts",
                    "not worse by more than 10 %",
                    [ours / best],
                    at_most=WORSE,
                    reason=REASONS[figure],
                )
            )
    parts = [one for one in PARTS if (SIDES, one) in found]
    two = found[SIDES, HYBRID]
    waits = (
        "rows of the hot bidder wait for his worker, whatever the protocol, and a little longer where logs take time"
    )
    for what, mine, theirs, why in (
        ("p99", two.calm.latency_p99, [found[SIDES, one].calm.latency_p99 for one in parts], waits),
        ("p99 of the even region", _even(two), [_even(found[SIDES, one]) for one in parts], COUNTS_COME),
        ("recovery", two.recovery(most), [found[SIDES, one].recovery(most) for one in parts], REASONS["recovery"]),
    ):
        title = f"two regions: {what} over the better of the parts"
        claims.append(Claim(title, "better than both", [mine / min(theirs)], at_most=1.0, reason=why))
    return claims


def _even(one: Seen) -> float:
    return cast("Outcome", one.even).latency_p99


@hybrid.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """p99 and recovery on every graph, over the better of the parts'."""
    names = [str(name) for name in result.parameters["graphs"]]
    titles = {"p99": "p99 before the failure", "recovery": "recovery"}
    for axes, (panel, title) in zip(charts.panels(figure, 1, (13, 8), down=2), titles.items(), strict=True):
        groups = {
            one.name: [dict(zip(one.x, one.y, strict=True)).get(place, math.nan) for place in range(len(names))]
            for one in result.panel(panel)
        }
        charts.grouped(axes, names, groups, title=title, x="graph", y="over the better of the parts, simulated")
        axes.axhline(WORSE, color="black", linewidth=1, linestyle=":")
        axes.tick_params(axis="x", labelsize=8)
    charts.legend_below(figure, *figure.axes)
