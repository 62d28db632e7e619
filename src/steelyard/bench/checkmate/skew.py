"""Figures 3.12 and 3.13: hot keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from steelyard.bench import Claim, Result, Run, Series, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CIC,
    COOR,
    HOW,
    SHORT,
    SOURCE,
    UNALIGNED,
    UNC,
    WHO,
    observe,
    parameters,
    rate_of,
)
from steelyard.bench.checkmate.durations import taken_seconds
from steelyard.sim.checkpoints import Outcome, query

WORKERS = 10
SHUFFLED = ("q3", "q8", "q12")
RATIOS = (0.0, 0.1, 0.2, 0.3)
LOADS = (0.5, 0.8)
COMPARED = (COOR, UNC, CIC, UNALIGNED)
SECONDS, FAILURE = 30.0, 18.0
FIRST = "COOR, rounds first"
"""COOR where a source begins a round before what waits at its worker."""
Found = dict[tuple[str, float, float, str], Outcome]


@experiment(
    "checkmate-skew", title="Latency and time of checkpoints with hot keys", figure=f"{SOURCE}, Figs 3.12, 3.13"
)
def skew(run: Run) -> Result:
    """Ten workers, 50 and 80 % of the rate without hot keys, which ten workers always have on the same worker."""
    found: Found = {}
    loads, workers = run.pick(LOADS, LOADS[:1]), run.pick(WORKERS, 5)
    points = [
        (one, load, hot, name) for one in SHUFFLED for load in loads for hot in RATIOS for name in (*COMPARED, FIRST)
    ]
    for one, load, hot, name in run.progress.track(points, "hot keys"):
        who = COOR if name == FIRST else name
        rate = rate_of(query(one, workers), who, load)
        found[one, load, hot, name] = observe(
            query(one, workers, hot), who, run.pick(SECONDS, 20.0), rate=rate, after=5.0, orders_first=name == FIRST
        )
    failed = {
        (one, hot, name): observe(
            query(one, workers, hot),
            name,
            60.0,
            rate=rate_of(query(one, workers), name, 0.5),
            failure=FAILURE,
            after=3.0,
        )
        for one in run.pick(SHUFFLED, ("q12",))
        for hot in run.pick(RATIOS, (0.1,))
        for name in (COOR, UNC, CIC)
    }
    return result_of(found, failed, loads, workers)


def result_of(
    found: Found, failed: dict[tuple[str, float, str], Outcome], loads: tuple[float, ...], workers: int
) -> Result:
    """Tables, claims, pictures."""
    rows, metrics = [], {}
    for (one, load, hot, name), outcome in found.items():
        seconds = taken_seconds(COOR if name == FIRST else name, outcome)
        rows.append((one, load, hot, name, 1_000 * outcome.latency_p50, 1_000 * seconds, outcome.rounds))
        if name != FIRST:
            metrics[f"{SHORT[name]}_p50_{one}_{load:g}_{hot:g}_ms"] = 1_000 * outcome.latency_p50
    columns = ("query", "load", "hot", "protocol", "p50, ms", "checkpoint or round, ms", "rounds")
    after = [
        (*key, 1_000 * one.restarts[0].seconds, min(one.recovery_seconds(), 99.0), 100 * one.restarts[0].invalid_share)
        for key, one in failed.items()
    ]
    return Result(
        parameters=parameters(workers=workers, loads=loads, hot=RATIOS),
        metrics=metrics,
        kind="simulated",
        tables=[
            Table("hot keys without a failure, simulated", columns, rows),
            Table(
                "with a failure at 50 %, simulated (recovery of 99: not within the run)",
                ("query", "hot", "protocol", "restart, ms", "recovery, s", "invalid, %"),
                after,
            ),
        ],
        claims=claims_of(found),
        series=[
            Series(
                f"{one}: {name}",
                [100 * hot for hot in RATIOS],
                [1_000 * found[one, 0.5, hot, name].latency_p50 for hot in RATIOS],
                "simulated",
            )
            for one in SHUFFLED
            for name in (*COMPARED, FIRST)
        ],
        notes=[
            HOW,
            WHO,
            "A key goes to the worker of its number modulo the workers, as in the published system. The hot id is the "
            "first of a hundred, so that ten workers always have it on worker 0 (bidders: 1).",
            "Rounds are begun in a worker's turn, as in the published system, where a snapshot lets everything come to "
            f"an end first; {FIRST!r} begins them before what waits.",
        ],
    )


def claims_of(found: Found) -> list[Claim]:
    """C3 and T17."""

    def p50(one: str, hot: float, name: str) -> float:
        return found[one, 0.5, hot, name].latency_p50

    def taken(one: str, hot: float, name: str) -> float:
        return taken_seconds(COOR if name == FIRST else name, found[one, 0.5, hot, name])

    def least(name: str, hot: float) -> list[float]:
        return [min(p50(one, hot, name) / p50(one, hot, UNC) for one in SHUFFLED)]

    def steps(figure: Callable[[str, float, str], float]) -> list[float]:
        pairs = list(itertools.pairwise(RATIOS))
        return [min(figure(one, more, COOR) / figure(one, less, COOR) for one in SHUFFLED for less, more in pairs)]

    calm = "at half load the hot worker keeps up with 10 and 20 % of hot rows: nobody waits for it"
    return [
        Claim("C3: COOR's p50 is twice UNC's at 20 % (least)", "COOR worst", least(COOR, 0.2), 2.0, reason=calm),
        Claim("C3: COOR's p50 is ten times UNC's at 30 % (least)", "COOR worst", least(COOR, 0.3), 10.0, reason=calm),
        Claim(
            "C3: the same where rounds are begun before what waits",
            "COOR worst",
            least(FIRST, 0.3),
            10.0,
            reason="markers of the hot worker's sources do not wait behind its rows then, and nobody waits for them",
        ),
        Claim(
            "C3: COOR's rounds take longer than UNC's checkpoints (least ratio)",
            "COOR worst",
            [min(taken(one, hot, COOR) / taken(one, hot, UNC) for one in SHUFFLED for hot in RATIOS[1:])],
            1.0,
        ),
        Claim("p50 of COOR grows tenfold with each step (least)", "an order", steps(p50), 10.0, reason=calm),
        Claim(
            "rounds of COOR take ten times longer with each step (least)", "an order", steps(taken), 10.0, reason=calm
        ),
        Claim(
            "UNC's p50 stays low (largest, 30 % over none)",
            "low",
            [max(p50(one, 0.3, UNC) / p50(one, 0.0, UNC) for one in SHUFFLED)],
            at_most=2.0,
            reason="rows that the hot worker reads wait behind those that it gets",
        ),
        Claim(
            "UNC's checkpoints take as long as without hot keys (largest ratio)",
            "low",
            [max(taken(one, 0.3, UNC) / taken(one, 0.0, UNC) for one in SHUFFLED)],
            at_most=2.0,
        ),
    ]


@skew.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A panel for each query."""
    for axes, one in zip(charts.panels(figure, len(SHUFFLED), (13, 3.8)), SHUFFLED, strict=True):
        charts.lines(
            axes,
            result.panel(one),
            title=f"{one.upper()}, half load",
            x="hot rows, %",
            y="p50, ms, simulated",
            log="y",
            legend=False,
        )
    charts.legend_below(figure, *figure.axes)
