"""Table 3.4: a query with a cycle, and what becomes of COOR there."""

from __future__ import annotations

from steelyard.bench import Claim, Published, Result, Run, Series, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CIC,
    CONTENDERS,
    COOR,
    HOW,
    MAPS,
    NONE,
    OWN,
    SHORT,
    SOURCE,
    UNALIGNED,
    UNC,
    WHO,
    observe,
    parameters,
    rate_of,
)
from steelyard.sim.checkpoints import Outcome, Simulation, query

WORKERS = (5, 10)
DEFINED, ONE_SIDED = "cyclic", "one_sided"
COMPARED = (UNC, OWN, CIC, MAPS, UNALIGNED)
FAILURE, SECONDS = 48.0, 60.0
FEW = 200.0
"""Rows per second of a run in which little goes round."""
PUBLISHED = {
    (5, UNC): (0.01, 620, 1.4),
    (5, CIC): (2.73, 347, 1.7),
    (10, UNC): (1.38, 344, 1.4),
    (10, CIC): (8.39, 399, 1.6),
}
"""Milliseconds of a checkpoint and of a restart, and invalid checkpoints in per cent."""
ROUND = (
    "rows go round on every channel between any two checkpoints, and then there is no line but the first: in the "
    "published program links find no sources, and hardly anything goes round"
)
FORCED = "of two checkpoints that are forced right behind each other the older one is often in the line"
Found = dict[tuple[str, int, str], Outcome]


@experiment("checkmate-cyclic", title="A query with a cycle", figure=f"{SOURCE}, Table 3.4")
def cycle(run: Run) -> Result:
    """Reachability at 80 % of the sustained rate, with a failure at second 48."""
    failure, seconds = run.pick((FAILURE, SECONDS), (18.0, 22.0))
    workers, names = run.pick(WORKERS, WORKERS[:1]), run.pick(COMPARED, (UNC, OWN, CIC))
    found: Found = {}
    points = [(one, count, name) for one in (DEFINED, ONE_SIDED) for count in workers for name in (NONE, *names)]
    for one, count, name in run.progress.track(points, "cycles"):
        failed = None if name == NONE else failure
        found[one, count, name] = observe(query(one, count), name, seconds, failure=failed, after=3.0)
    rare = {
        (one, name): observe(query(one, workers[0]), name, seconds, rate=FEW, failure=failure)
        for one in (DEFINED, ONE_SIDED)
        for name in (UNC, CIC)
    }
    job = query(DEFINED, 5)
    stuck = Simulation(job, CONTENDERS[COOR], rate_of(job, COOR), unchecked=True).run(20.0)
    return result_of(found, rare, stuck, workers)


def result_of(
    found: Found, rare: dict[tuple[str, str], Outcome], stuck: Simulation, workers: tuple[int, ...]
) -> Result:
    """Tables, claims, pictures."""
    rows: list[tuple[str | float | None, ...]] = []
    metrics: dict[str, float] = {}
    for (one, count, name), outcome in found.items():
        if name == NONE:
            continue
        restart = outcome.restarts[0]
        taken = 1_000 * (outcome.round_seconds if name == UNALIGNED else outcome.pause_seconds)
        known = PUBLISHED.get((count, name), (None, None, None))
        ours = (taken, 1_000 * restart.seconds, 100 * restart.invalid_share)
        pairs = [value for pair in zip(known, ours, strict=True) for value in pair]
        rows.append((one, count, name, *pairs, restart.rollback_seconds))
        metrics[f"{SHORT[name]}_invalid_{one}_{count}"] = restart.invalid_share
        metrics[f"{SHORT[name]}_rollback_{one}_{count}_s"] = restart.rollback_seconds
        metrics[f"{SHORT[name]}_restart_{one}_{count}_ms"] = 1_000 * restart.seconds
        metrics[f"{SHORT[name]}_checkpoint_{one}_{count}_ms"] = taken
    slow = [
        (one, name, 100 * outcome.restarts[0].invalid_share, outcome.restarts[0].rollback_seconds)
        for (one, name), outcome in rare.items()
    ]
    late = stuck.outcome(8.0).rows
    blocked = sum(bool(one.blocked) for one in stuck.graph.instances.values())
    metrics |= {"coor_rounds": stuck.outcome().rounds, "coor_blocked": blocked, "coor_late_rows": late}
    columns = ("query", "workers", "protocol", "ms published", "ms", "restart published, ms", "restart, ms")
    more = ("invalid published, %", "invalid, %", "line is older by, s")
    return Result(
        parameters=parameters(workers=workers, few=FEW),
        metrics=metrics,
        kind="simulated",
        tables=[
            Table("the cyclic query, published and simulated", (*columns, *more), rows),
            Table(
                f"at {FEW:g} rows/s on {workers[0]} workers, simulated",
                ("query", "protocol", "invalid, %", "line is older by, s"),
                slow,
            ),
        ],
        claims=claims_of(found, rare, metrics, workers),
        series=[
            Series(f"{one}, {count} workers: {name}", outcome.seconds, [1_000 * p for p in outcome.p50], "simulated")
            for (one, count, name), outcome in found.items()
        ],
        published=[
            Published(values[2] / 100, f"{SOURCE}, Table 3.4", f"{SHORT[name]}_invalid_{ONE_SIDED}_{count}")
            for (count, name), values in PUBLISHED.items()
            if count in workers
        ],
        notes=[
            HOW,
            WHO,
            "'cyclic' is the query as it is defined; in 'one_sided', as in the published program, links that come find "
            "no sources.",
            "COOR refuses such a query. To see why, it was run all the same: every instance of `join` waits for the "
            f"markers of `project`, which wait behind it. {blocked} instances wait for ever, no round is complete.",
        ],
    )


def claims_of(
    found: Found, rare: dict[tuple[str, str], Outcome], metrics: dict[str, float], workers: tuple[int, ...]
) -> list[Claim]:
    """C4, C7, T19."""

    def most(name: str, one: str, figure: str = "invalid_share") -> list[float]:
        return [max(float(getattr(found[one, count, name].restarts[0], figure)) for count in workers)]

    p50 = [
        found[DEFINED, count, name].p50[4] / found[DEFINED, count, NONE].p50[4]
        for count in workers
        for name in (UNC, CIC)
    ]
    seldom = [max(rare[ONE_SIDED, name].restarts[0].invalid_share for name in (UNC, CIC))]
    claims = [
        Claim(
            f"C4: no domino with UNC, {one} (line is older by, s)",
            "none",
            most(UNC, one, "rollback_seconds"),
            at_most=15.0,
            reason=ROUND,
        )
        for one in (DEFINED, ONE_SIDED)
    ]
    claims += [
        Claim(
            f"{name}: at most 5 % are invalid, {one} (largest share)",
            "1.4 to 1.7 %",
            most(name, one),
            at_most=0.05,
            reason=ROUND if name == UNC else FORCED,
        )
        for name in (UNC, CIC)
        for one in (DEFINED, ONE_SIDED)
    ]
    return [
        *claims,
        Claim("at most 5 % are invalid where little goes round", "1.4 to 1.7 %", seldom, at_most=0.05, reason=ROUND),
        Claim(
            "CIC's lines are never older than 15 s",
            "no domino",
            [max(most(CIC, one, "rollback_seconds")[0] for one in (DEFINED, ONE_SIDED))],
            at_most=15.0,
        ),
        Claim(
            "latency of UNC and CIC is as without checkpoints (largest p50 over none)",
            "like none",
            [max(p50)],
            at_most=1.3,
            reason="each runs at 80 % of its own rate",
        ),
        Claim("C7: COOR completes no round", "it deadlocks", [float(metrics["coor_rounds"])], at_most=0.0),
        Claim(
            "C7: nothing comes to the sink any more (rows from 3 s behind the first round on)",
            "it deadlocks",
            [float(metrics["coor_late_rows"])],
            at_most=0.0,
        ),
    ]


@cycle.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """p50 by second."""
    names = [f"{DEFINED}, {count} workers" for count in result.parameters["workers"]]
    for axes, name in zip(charts.panels(figure, len(names), (12, 4)), names, strict=True):
        charts.lines(axes, result.panel(name), title=name, x="second", y="p50, ms, simulated", log="y", legend=False)
    charts.legend_below(figure, *figure.axes)
