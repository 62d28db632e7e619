"""Table 3.3: checkpoints until the failure, and how many of them were invalid."""

from __future__ import annotations

from steelyard.bench import Claim, Published, Result, Run, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CIC,
    COOR,
    HOW,
    OWN,
    QUERIES,
    SHORT,
    SOURCE,
    UNC,
    WHO,
    lines,
    observe,
    parameters,
)
from steelyard.checkpoint import ROUND
from steelyard.sim.checkpoints import Outcome, query

WORKERS = (10, 50)
COMPARED = (UNC, OWN, CIC, COOR)
UNTIL = 48.0
"""Seconds from the first row to the failure, at which the published counters stop."""
INTERVAL, AFTER = 5.0, 3.0
PUBLISHED = {
    (10, UNC): ((303, 0), (455, 4), (384, 2), (282, 3)),
    (10, CIC): ((285, 0), (471, 3), (386, 3), (282, 4)),
    (10, COOR): ((240, 0), (400, 0), (360, 0), (240, 0)),
    (50, UNC): ((1437, 0), (2399, 3), (1924, 2), (1446, 3)),
    (50, CIC): ((1428, 0), (2517, 4), (1920, 3), (1451, 3)),
    (50, COOR): ((1200, 0), (2000, 0), (1800, 0), (1200, 0)),
}
ROUNDS = {"q1": 8, "q3": 8, "q8": 9, "q12": 8}
"""Of the published totals: they are workers times operators times these."""
SINKS = (
    "whoever processed what a rolled-back sender sent must go back too, also on the same worker: the published search "
    "leaves such channels out, and without them the share is that of the next line"
)
Found = dict[tuple[str, int, str], Outcome]


@experiment("checkmate-counts", title="Checkpoints, and invalid ones", figure=f"{SOURCE}, Table 3.3")
def counts(run: Run) -> Result:
    """A failure at the 48th second; rounds are counted to as many as the published totals have."""
    workers, names = run.pick(WORKERS, (10,)), run.pick(COMPARED, (UNC, COOR))
    found: Found = {}
    points = [(one, count, name) for count in workers for one in QUERIES for name in names]
    for one, count, name in run.progress.track(points, "counts"):
        until = ROUNDS[one] * INTERVAL + AFTER if name == COOR else UNTIL
        found[one, count, name] = observe(query(one, count), name, until + 2.0, failure=until)
    metrics: dict[str, float] = {}
    rows = []
    for (one, count, name), outcome in found.items():
        restart = outcome.restarts[0]
        known = PUBLISHED.get((count, name))
        total, invalid = known[QUERIES.index(one)] if known else (None, None)
        across = restart.invalid_across / restart.taken
        rows.append((name, count, one, total, restart.taken, invalid, 100 * restart.invalid_share, 100 * across))
        metrics[f"{SHORT[name]}_{one}_{count}"] = restart.taken
        metrics[f"{SHORT[name]}_invalid_{one}_{count}"] = restart.invalid_share
        metrics[f"{SHORT[name]}_forced_{one}_{count}"] = outcome.taken.get("forced", 0)
    columns = (
        "protocol",
        "workers",
        "query",
        "published",
        "simulated",
        "invalid published, %",
        "invalid, %",
        "by channels between workers alone, %",
    )
    return Result(
        parameters=parameters(workers=workers, until=UNTIL, rounds=ROUNDS),
        metrics=metrics,
        kind="simulated",
        tables=[Table("checkpoints until the failure", columns, rows)],
        claims=claims_of(found, workers, names),
        series=[
            series
            for one in QUERIES
            for series in lines(
                {
                    (name, count): 100 * found[one, count, name].restarts[0].invalid_share
                    for name in names
                    for count in workers
                },
                one,
                names,
                workers,
            )
        ],
        published=[
            Published(values[place][0], f"{SOURCE}, Table 3.3", f"{SHORT[name]}_{one}_{count}")
            for (count, name), values in PUBLISHED.items()
            for place, one in enumerate(QUERIES)
            if count in workers and name in names
        ],
        notes=[
            HOW,
            WHO,
            "Invalid are checkpoints behind the line to which all go back. COOR's published totals are 8 rounds of "
            "every instance, 9 of Q8: the published counter is a round's number from zero. Ours runs so many rounds.",
        ],
    )


def claims_of(found: Found, workers: tuple[int, ...], names: tuple[str, ...]) -> list[Claim]:
    """C6 and T13, T14."""

    def shares(name: str, queries: tuple[str, ...], across: bool = False) -> list[float]:
        restarts = [found[one, count, name].restarts[0] for one in queries for count in workers]
        return [one.invalid_across / one.taken if across else one.invalid_share for one in restarts]

    off = [
        abs(found[one, count, COOR].taken[ROUND] - PUBLISHED[count, COOR][QUERIES.index(one)][0])
        for one in QUERIES
        for count in workers
    ]
    shuffled = ("q3", "q8", "q12")
    totals = [
        found[one, count, UNC].restarts[0].taken / PUBLISHED[count, UNC][QUERIES.index(one)][0]
        for one in QUERIES
        for count in workers
    ]
    chain = "an instance goes back behind the oldest clock of those before it, stage by stage; forced ones come on top"
    claims = [
        Claim("COOR's totals are as printed (largest difference)", "240 to 2,000", [max(off)], at_most=0),
        Claim("C6: COOR has no invalid checkpoints (largest share)", "0", [max(shares(COOR, QUERIES))], at_most=0),
        Claim("UNC's totals are as printed, within a tenth (largest ratio)", "282 to 2,399", [max(totals)], 0.9, 1.1),
        Claim("UNC has no invalid checkpoints on Q1 (largest share)", "0", shares(UNC, ("q1",))[:1], at_most=0),
        Claim(
            "UNC: at most 5 % are invalid (largest share)",
            "0 to 4 %",
            [max(shares(UNC, shuffled))],
            at_most=0.05,
            reason=SINKS,
        ),
        Claim(
            "the same by channels between workers alone", "0 to 4 %", [max(shares(UNC, shuffled, True))], at_most=0.05
        ),
    ]
    for name in (OWN, CIC):
        if name in names:
            most = [max(shares(name, shuffled))]
            claims.append(
                Claim(f"{name}: at most 5 % are invalid (largest)", "0 to 4 %", most, at_most=0.05, reason=chain)
            )
    return claims


@counts.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A panel for each query."""
    for axes, one in zip(charts.panels(figure, len(QUERIES), (13, 3.6)), QUERIES, strict=True):
        charts.lines(
            axes, result.panel(one), title=one.upper(), x="workers", y="invalid checkpoints, %, simulated", legend=False
        )
    charts.legend_below(figure, *figure.axes)
