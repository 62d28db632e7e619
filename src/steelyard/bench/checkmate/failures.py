"""Figures 3.9 to 3.11: latency before and after a failure, recovery and restart."""

from __future__ import annotations

import math

from steelyard.bench import Claim, Result, Run, Series, Table, charts, experiment
from steelyard.bench.checkmate.contest import (
    CIC,
    COOR,
    FAILURE,
    HOW,
    MAPS,
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
from steelyard.sim.checkpoints import Outcome, query

SECONDS = 60.0
Found = dict[tuple[str, int, str], Outcome]
COMPARED = (COOR, UNC, OWN, CIC, MAPS)


@experiment("checkmate-latency", title="Latency around a failure", figure=f"{SOURCE}, Figs 3.9, 3.10")
def latency(run: Run) -> Result:
    """60 s at 80 % of the sustained rate; a worker fails at second 18."""
    workers, names = run.pick((10, 30, 50), (5,)), run.pick(COMPARED, (COOR, UNC, CIC))
    found: Found = {}
    points = [
        (one, count, name)
        for count in workers
        for one in QUERIES
        for name in names
        if count == workers[0] or name in (COOR, UNC, CIC)
    ]
    for one, count, name in run.progress.track(points, "latency"):
        found[one, count, name] = observe(query(one, count), name, run.pick(SECONDS, 45.0), failure=FAILURE, after=3.0)
    rows, metrics = [], {}
    for (one, count, name), outcome in found.items():
        before = _before(outcome)
        recovery = outcome.recovery_seconds()
        restart = outcome.restarts[0]
        rows.append((one, count, name, 1_000 * before[0], 1_000 * before[1], _number(recovery), restart.replayed_rows))
        metrics[f"{SHORT[name]}_p50_{one}_{count}_ms"] = 1_000 * before[0]
        metrics[f"{SHORT[name]}_recovery_{one}_{count}_s"] = recovery
    columns = (
        "query",
        "workers",
        "protocol",
        "p50 before, ms",
        "p99 before, ms",
        "recovery, s",
        "rows that came again",
    )
    return Result(
        parameters=parameters(workers=workers, failure=FAILURE),
        metrics=metrics,
        kind="simulated",
        tables=[Table("latency before the failure, and recovery, simulated", columns, rows)],
        claims=_latency_claims(found, workers),
        series=[
            Series(f"{one}, {share}: {name}", outcome.seconds, [1_000 * value for value in values], "simulated")
            for (one, count, name), outcome in found.items()
            if count == workers[0]
            for share, values in (("p50", outcome.p50), ("p99", outcome.p99))
        ],
        notes=[
            HOW,
            WHO,
            "Recovery is from when the failure is noticed, which is at once, until p50 is at most 1.2 times its "
            "median before, for three seconds. None: not within the run. Rows that come again are counted with the age "
            "that they have then.",
            "Published: Q1 about 10 s for all with 10 workers, CIC 10 s longer with 50; Q8 and Q12 CIC marginally "
            "better than UNC with 10, 10 s worse above; Q3 CIC up to 20 s faster than UNC with 10 and 30, 10 s slower "
            "with 50; COOR best on average.",
        ],
    )


def _before(outcome: Outcome) -> tuple[float, float]:
    early = [place for place, second in enumerate(outcome.seconds) if second < FAILURE - 1]
    middle = sorted(outcome.p50[place] for place in early)[len(early) // 2]
    return middle, max(outcome.p99[place] for place in early)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _latency_claims(found: Found, workers: tuple[int, ...]) -> list[Claim]:
    easy = ("q1", "q8", "q12")
    alike = max(
        _before(found[one, count, name])[0] / _before(found[one, count, COOR])[0]
        for one in easy
        for count in workers
        if count < 50
        for name in (UNC, CIC)
    )
    times = {key: min(outcome.recovery_seconds(), SECONDS - FAILURE) for key, outcome in found.items()}
    averages = {
        name: sum(times[one, count, name] for one in QUERIES for count in workers) / len(QUERIES) / len(workers)
        for name in (COOR, UNC, CIC)
    }
    spikes = found["q3", workers[0], COOR]
    early = [place for place, second in enumerate(spikes.seconds) if second < FAILURE - 1]
    peak = max(spikes.p99[place] for place in early) / _before(spikes)[0]
    return [
        Claim(
            "p50 before the failure is alike, Q1, Q8, Q12 up to 30 workers (largest over COOR's)",
            "alike",
            [alike],
            at_most=1.5,
            reason="each runs at 80 % of its own rate, and a row costs more with notes",
        ),
        Claim(
            "Q3: COOR has spikes at checkpoints (largest p99 over the median)",
            "spikes that grow with state",
            [peak],
            2.0,
        ),
        Claim(
            "recovery on Q1 with 10 workers is about 10 s with COOR",
            "about 10 s",
            [times["q1", workers[0], COOR]],
            5.0,
            20.0,
            reason="three seconds are lost, and a fifth of the rate is left to catch up",
        ),
        Claim(
            "COOR recovers fastest on average (over UNC)",
            "best on average",
            [averages[COOR] / averages[UNC]],
            at_most=1.0,
        ),
        Claim(
            "COOR recovers fastest on average (over CIC)",
            "best on average",
            [averages[COOR] / averages[CIC]],
            at_most=1.0,
        ),
    ]


@latency.picture
def draw_latency(figure: charts.Figure, result: Result) -> None:
    """p50 and p99 by second, a column for each query."""
    names = [f"{one}, {share}" for share in ("p50", "p99") for one in QUERIES]
    for axes, name in zip(charts.panels(figure, len(QUERIES), (15, 7), down=2), names, strict=True):
        charts.lines(axes, result.panel(name), title=name, x="second", y="ms, simulated", log="y", legend=False)
    charts.legend_below(figure, *figure.axes)


@experiment("checkmate-restart", title="Time to restart after a failure", figure=f"{SOURCE}, Fig 3.11")
def restart(run: Run) -> Result:
    """From when a failure is noticed until all states are loaded, and what comes again is read from logs."""
    workers = run.pick((10, 50, 100), (5, 10))
    names = (COOR, UNC, OWN, CIC)
    found: Found = {}
    points = [(one, count, name) for count in workers for one in QUERIES for name in names]
    for one, count, name in run.progress.track(points, "restarts"):
        found[one, count, name] = observe(query(one, count), name, FAILURE + 0.5, failure=FAILURE)
    seconds = {key: 1_000 * outcome.restarts[0].seconds for key, outcome in found.items()}
    rows = [
        (*key, seconds[key], outcome.restarts[0].replayed_messages, 100 * outcome.restarts[0].invalid_share)
        for key, outcome in found.items()
    ]
    ratios = {
        count: [seconds[one, count, name] / seconds[one, count, COOR] for one in QUERIES for name in (UNC, CIC)]
        for count in workers
    }
    series = []
    for one in QUERIES:
        series += lines(
            {(name, count): seconds[one, count, name] for name in names for count in workers}, one, names, workers
        )
    last = workers[-1]
    return Result(
        parameters=parameters(workers=workers, failure=FAILURE),
        metrics={f"{SHORT[name]}_{one}_{count}_ms": value for (one, count, name), value in seconds.items()},
        kind="simulated",
        tables=[
            Table(
                "restart, simulated",
                ("query", "workers", "protocol", "ms", "messages that came again", "invalid, %"),
                rows,
            )
        ],
        claims=[
            Claim(
                "COOR restarts fastest (least ratio of UNC or CIC)",
                "fastest on average",
                [min(min(one) for one in ratios.values())],
                1.0,
                reason="where loading a state is nearly all of a restart (Q3), an older line has less to load",
            ),
            Claim(
                f"UNC and CIC take up to ten times as long with {last} workers (largest ratio)",
                "up to 10x",
                [max(ratios[last])],
                3.0,
                30.0,
                reason="loading states is quick here, and everything that comes again is a message of its own",
            ),
            Claim(
                "the ratio rises with workers (mean, most over fewest)",
                "rises",
                [sum(ratios[last]) / sum(ratios[workers[0]])],
                1.0,
                reason="a worker's share of what comes again does not grow with workers; only its channels do",
            ),
        ],
        series=series,
        notes=[
            HOW,
            WHO,
            "Line search, loading of states, all workers at once, and reading of logs. Starting processes is left out.",
        ],
    )


@restart.picture
def draw_restart(figure: charts.Figure, result: Result) -> None:
    """A panel for each query."""
    for axes, one in zip(charts.panels(figure, len(QUERIES), (13, 3.6)), QUERIES, strict=True):
        charts.lines(axes, result.panel(one), title=one.upper(), x="workers", y="ms, simulated", log="y", legend=False)
    charts.legend_below(figure, *figure.axes)
