"""Figure 3.8: how long checkpoints take."""

from __future__ import annotations

from steelyard.bench import Claim, Result, Run, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CIC,
    COOR,
    HOW,
    QUERIES,
    SHORT,
    SOURCE,
    UNALIGNED,
    UNC,
    WHO,
    lines,
    observe,
    parameters,
)
from steelyard.sim.checkpoints import Outcome, query

WORKERS = (10, 30, 50)
COMPARED = (COOR, UNC, CIC, UNALIGNED)
SECONDS, TICK = 13.0, 0.1
"""Of a run, and of an epoch: the same with any number of workers, since a round waits behind what a source reads."""
ROUNDS_OF = (COOR, UNALIGNED)


def taken_seconds(name: str, outcome: Outcome) -> float:
    """As published: of a checkpoint until somebody writes it, of a round until its last state is taken."""
    return outcome.round_seconds if name in ROUNDS_OF else outcome.pause_seconds


@experiment("checkmate-time", title="Time of a checkpoint, or of a round", figure=f"{SOURCE}, Fig 3.8")
def durations(run: Run) -> Result:
    """At 80 % of the rate that is sustained, behind half a minute of the stream."""
    workers = run.pick(WORKERS, (5, 10))
    found: dict[tuple[str, int, str], Outcome] = {}
    points = [(one, count, name) for count in workers for one in QUERIES for name in COMPARED]
    for one, count, name in run.progress.track(points, "times"):
        found[one, count, name] = observe(query(one, count), name, SECONDS, tick=TICK)
    times = {key: 1_000 * taken_seconds(key[2], outcome) for key, outcome in found.items()}
    rows = [
        (one, count, name, times[one, count, name], 1_000 * found[one, count, name].checkpoint_seconds)
        for one, count, name in found
    ]
    series = []
    for one in QUERIES:
        series += lines(
            {(name, count): times[one, count, name] for name in COMPARED for count in workers}, one, COMPARED, workers
        )
    return Result(
        parameters=parameters(workers=workers),
        metrics={f"{SHORT[name]}_{one}_{count}_ms": value for (one, count, name), value in times.items()},
        kind="simulated",
        tables=[Table("milliseconds, simulated", ("query", "workers", "protocol", "taken", "durable"), rows)],
        claims=claims_of(times, workers),
        series=series,
        notes=[
            HOW,
            WHO,
            "Published: UNC and CIC a few ms everywhere, COOR up to two orders of magnitude more on Q3, Q8 and Q12, "
            "most on Q3 and with many workers. As there, writing is left out of 'taken': of a round, from its "
            "beginning to the last state. 'durable' has it.",
        ],
    )


def claims_of(times: dict[tuple[str, int, str], float], workers: tuple[int, ...]) -> list[Claim]:
    """T16."""
    shuffled = ("q3", "q8", "q12")
    ratios = [times[one, count, COOR] / times[one, count, UNC] for one in shuffled for count in workers]
    few = [times[one, count, name] for one in QUERIES for count in workers for name in (UNC, CIC)]
    rise = [times[one, workers[-1], COOR] / times[one, workers[0], COOR] for one in shuffled]
    return [
        Claim(
            "UNC and CIC take a few ms everywhere (largest)",
            "a few ms",
            [max(few)],
            at_most=100.0,
            reason="a state of Q3 that has grown for 50 s",
        ),
        Claim(
            "COOR takes ten times as long on shuffled queries (least ratio)",
            "up to 100x",
            [min(ratios)],
            10.0,
            reason="a state of Q3 takes as long to copy for everybody",
        ),
        Claim(
            "COOR takes longer with more workers (least rise)",
            "worst at high parallelism",
            [min(rise)],
            1.0,
            reason="the rate of each worker is the same at any number of them, and rounds of Q3 show no trend",
        ),
    ]


@durations.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A panel for each query."""
    for axes, one in zip(charts.panels(figure, len(QUERIES), (13, 3.6)), QUERIES, strict=True):
        charts.lines(axes, result.panel(one), title=one.upper(), x="workers", y="ms, simulated", log="y", legend=False)
    charts.legend_below(figure, *figure.axes)
