"""Which cells of the contest foresight wins: the lowest latency, and nobody near it with fewer workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steelyard.bench import Cell, Claim, Table, mean
from steelyard.bench.autoscale.contest import FORESIGHT
from steelyard.bench.autoscale.outcome import Outcome
from steelyard.bench.autoscale.verdicts import Found, Runs

TWICE = 2.0
"""A rival whose p95 is no more than so many times as long is near."""
TOLD_APART = 1.0
"""Seconds."""
WINS = (
    "Foresight wins a cell where no rival's p95 is lower, and no rival whose p95 is within twice its own has fewer "
    "worker-hours. A second is added to each p95: less is not told apart. Its price, "
    "20, was chosen on other seeds."
)
AT_FIRST = (
    "its cosine begins at 1.4 M rows/s with 10 instances each, and guards let an operator have 15 more every five "
    "and a half minutes: whoever begins so has 5 of 100 rows that wait for about two minutes, and nothing that is done "
    "later changes that; Foresight goes on to pay workers for latency that p95 does not see"
)
AT_THE_CAP = (
    "more comes than 70 workers can read, so that p95 is a matter of that time for all; in the rest of the run "
    "Foresight pays workers for latency that p95 does not see"
)
REASONS: Mapping[tuple[str, str], str] = {
    ("SWA", "cosine"): AT_FIRST,
    ("SWA", "increasing"): AT_THE_CAP,
    ("SWA", "decreasing"): AT_THE_CAP,
    ("SWA", "random"): AT_THE_CAP,
}
"""Why a cell is lost, as far as the figures tell."""


def near(own: float, other: float) -> bool:
    """Whether a rival's p95 is within twice our own.

    >>> near(10.0, 20.0), near(10.0, 22.0), near(0.0, 1.0)
    (True, False, True)
    """
    return TOLD_APART + other <= TWICE * (TOLD_APART + own)


def beaten_by(runs: Iterable[Runs]) -> dict[str, str]:
    """Rivals for which a cell is lost, each with the figures; means over the seeds that are given."""
    seeds = list(runs)
    own = [seed[FORESIGHT] for seed in seeds]
    p95, hours = _means(own)
    found = {}
    for who in seeds[0]:
        if who == FORESIGHT:
            continue
        their_p95, their_hours = _means([seed[who] for seed in seeds])
        if their_p95 + TOLD_APART < p95 or (near(p95, their_p95) and their_hours < hours):
            found[who] = f"{their_p95:,.1f} s with {their_hours:,.1f} worker-hours"
    return found


def _means(each: Iterable[Outcome]) -> tuple[float, float]:
    every = list(each)
    return mean(one.p95 for one in every), mean(one.worker_hours for one in every)


def cell_metrics(found: Found) -> dict[str, float]:
    """Share of the cells that are won, by the means over seeds."""
    return {"cells_won_share": mean(float(not beaten_by(seeds)) for seeds in found.values())}


def cells_table(found: Found) -> Table:
    """A row for each cell."""
    rows: list[tuple[Cell, ...]] = []
    for (query, pattern), seeds in found.items():
        p95, hours = _means(seed[FORESIGHT] for seed in seeds)
        lost = beaten_by(seeds)
        won = sum(not beaten_by([seed]) for seed in seeds)
        said = "; ".join(f"{who}: {figures}" for who, figures in lost.items())
        why = REASONS.get((query, pattern), "") if lost else ""
        rows.append((query, pattern, p95, hours, "lost" if lost else "won", f"{won} of {len(seeds)}", said, why))
    columns = ("query", "pattern", "p95, s", "worker-hours", "cell", "seeds won alone", "better", "why")
    return Table("cells of Foresight, simulated", columns, rows)


def cell_claims(found: Found) -> list[Claim]:
    """A claim for each cell, and one for all: the share of seeds in which it is won."""
    claims = [
        Claim(
            f"{query}, {pattern}: Foresight wins the cell (share of seeds)",
            "ours: to be won in every cell",
            [float(not beaten_by([seed])) for seed in seeds],
            1.0,
            reason=REASONS.get((query, pattern), "a rival is as fast with fewer workers, in some seeds"),
        )
        for (query, pattern), seeds in found.items()
    ]
    count = min(len(seeds) for seeds in found.values())
    shares = [mean(float(not beaten_by([seeds[seed]])) for seeds in found.values()) for seed in range(count)]
    lost = ", ".join(f"{query} {pattern}" for (query, pattern), seeds in found.items() if beaten_by(seeds))
    every = Claim(
        "Share of the cells that Foresight wins",
        "ours: 1.0",
        shares,
        1.0,
        reason=f"lost by the means: {lost or 'none'}",
    )
    return [*claims, every]
