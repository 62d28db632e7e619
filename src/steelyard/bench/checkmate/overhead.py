"""Table 3.2: bytes that travel, over those without checkpoints."""

from __future__ import annotations

from steelyard.bench import Cell, Claim, Published, Result, Run, Table, charts, experiment, mean
from steelyard.bench.checkmate.contest import (
    CIC,
    COOR,
    HOW,
    MAPS,
    QUERIES,
    SHORT,
    SOURCE,
    UNC,
    WHO,
    lines,
    observe,
    parameters,
)
from steelyard.sim.checkpoints import query

WORKERS = (10, 50)
COMPARED = (COOR, UNC, CIC, MAPS)
ROWS = (1, 10, 100)
"""In a message."""
SECONDS, NOTED = 8.0, 1.5
"""Of runs with markers or reports in them, and of those whose messages all have a note."""
PUBLISHED = {
    (10, COOR): (1.00, 1.00, 1.00, 1.00),
    (10, UNC): (1.00, 1.00, 1.00, 1.00),
    (10, CIC): (2.10, 1.82, 1.74, 1.79),
    (50, COOR): (1.00, 1.00, 1.00, 1.00),
    (50, UNC): (1.00, 1.01, 1.01, 1.00),
    (50, CIC): (2.53, 2.58, 2.49, 2.58),
}


@experiment("checkmate-overhead", title="Bytes over those without checkpoints", figure=f"{SOURCE}, Table 3.2")
def overhead(run: Run) -> Result:
    """Exact from the sizes of messages: frames, Arrow payloads, notes, markers, reports."""
    found: dict[tuple[str, int, str, int], float] = {}
    points = [(one, count, name, rows) for one in QUERIES for count in WORKERS for name in COMPARED for rows in ROWS]
    points = [point for point in points if point[3] == 1 or point[2] in (CIC, MAPS)]
    for one, count, name, rows in run.progress.track(points, "bytes"):
        job = query(one, count, rows_per_message=rows)
        found[one, count, name, rows] = observe(
            job, name, NOTED if name in (CIC, MAPS) else run.pick(SECONDS, 6.0)
        ).overhead
    metrics = {
        f"overhead_{SHORT[name]}_{count}": mean(found[one, count, name, 1] for one in QUERIES)
        for name in COMPARED
        for count in WORKERS
    }
    metrics |= {
        f"overhead_{SHORT[name]}": mean(metrics[f"overhead_{SHORT[name]}_{count}"] for count in WORKERS)
        for name in (COOR, UNC)
    }
    table = [
        (name, count, one, PUBLISHED[count, CIC if name == MAPS else name][place], found[one, count, name, 1])
        for name in COMPARED
        for count in WORKERS
        for place, one in enumerate(QUERIES)
    ]
    batches: list[tuple[Cell, ...]] = [
        (name, count, one, *(found[one, count, name, rows] for rows in ROWS))
        for name in (CIC, MAPS)
        for count in WORKERS
        for one in QUERIES
    ]
    series = []
    for one in QUERIES:
        series += lines(
            {(name, count): found[one, count, name, 1] for name in COMPARED for count in WORKERS},
            one,
            COMPARED,
            WORKERS,
        )
    return Result(
        parameters=parameters(workers=WORKERS, rows_per_message=ROWS),
        metrics=metrics,
        kind="simulated",
        tables=[
            Table(
                "bytes over none, one row a message", ("protocol", "workers", "query", "published", "simulated"), table
            ),
            Table(
                "by rows in a message", ("protocol", "workers", "query", *(f"{rows} rows" for rows in ROWS)), batches
            ),
        ],
        claims=claims_of(found, metrics),
        series=series,
        published=[
            Published(mean(values), f"{SOURCE}, Table 3.2, mean of four queries", f"overhead_{SHORT[name]}_{count}")
            for (count, name), values in PUBLISHED.items()
        ],
        notes=[
            HOW,
            WHO,
            "Messages have a frame of 30 bytes and an Arrow payload, which is 300 to 1,300 bytes for one row.",
        ],
    )


def claims_of(found: dict[tuple[str, int, str, int], float], metrics: dict[str, float]) -> list[Claim]:
    """T12 of the published table."""
    quiet = [found[one, count, name, 1] for one in QUERIES for count in WORKERS for name in (COOR, UNC)]
    compact = "four bytes and two bits for each instance, beside an Arrow payload of some hundred bytes"
    rises = [found[one, 50, name, 1] - found[one, 10, name, 1] for one in QUERIES for name in (CIC, MAPS)]
    claims = [
        Claim("COOR and UNC send no more than 1 % beside data (largest)", "1.00 to 1.01", [max(quiet)], at_most=1.015),
        Claim("CIC's bytes rise from 10 to 50 workers (least rise)", "1.86 to 2.54 on average", [min(rises)], 0.01),
    ]
    for name, published in ((CIC, CIC), (MAPS, CIC)):
        for count in WORKERS:
            expected = mean(PUBLISHED[count, published])
            claims.append(
                Claim(
                    f"{name}: bytes over none at {count} workers, within a quarter (mean of queries)",
                    f"{expected:.2f}",
                    [metrics[f"overhead_{SHORT[name]}_{count}"]],
                    0.75 * expected,
                    1.25 * expected,
                    compact
                    if name == CIC
                    else "a map for each worker and array, pickled, beside a payload as of Arrow",
                )
            )
    return claims


@overhead.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A panel for each query."""
    for axes, one in zip(charts.panels(figure, len(QUERIES), (13, 3.6)), QUERIES, strict=True):
        charts.lines(
            axes, result.panel(one), title=one.upper(), x="workers", y="bytes over none, simulated", legend=False
        )
    charts.legend_below(figure, *figure.axes)
