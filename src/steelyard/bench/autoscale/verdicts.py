"""The published table of results as predicates: what each cell says, and which figure must be so for it to hold.

The published curves are lost, and words are all that there is. They were made into figures before the first full run:

- *follows*: workers and rate go together, with a correlation of 0.8 or more;
- *low latency*: 95 of 100 rows wait for no more than a minute, twice a restart; *latency*: more than 5 of 100 do;
- *never recovers*: rows that are read in the last ten minutes have waited for more than a minute;
- *recovers in valleys*: in half of the quarter of the time in which least comes, rows wait for no more than a minute;
- *fewer*, *most*: worker-hours or actions over those of others, seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from steelyard.bench import Claim
from steelyard.bench.autoscale.contest import CPU, DHALION, DS2, PUBLISHED, VARGA
from steelyard.bench.autoscale.outcome import Outcome
from steelyard.bench.autoscale.patterns import COSINE, DECREASING, INCREASING, RANDOM
from steelyard.bench.autoscale.queries import WORKERS

FOLLOWS, LOW = 0.8, 60.0
CAP_SHARE = 0.5
"""Of the time, for who goes to the cap and stays."""
Runs: TypeAlias = Mapping[str, Outcome]
"""One seed of a query under a pattern: by contestant."""
Found: TypeAlias = Mapping[tuple[str, str], Sequence[Runs]]
"""By query and pattern, one for each seed."""


class Check(NamedTuple):
    """Something that a cell says."""

    words: str
    figure: Callable[[Runs], float]
    at_least: float = -float("inf")
    at_most: float = float("inf")


class Row(NamedTuple):
    """A cell of the table."""

    pattern: str
    query: str
    who: str
    published: str
    checks: tuple[Check, ...]


def follows(who: str) -> Check:
    """Workers go with the rate."""
    return Check("correlation of workers with the rate", lambda runs: runs[who].follows, at_least=FOLLOWS)


def does_not_follow(who: str) -> Check:
    """They do not."""
    return Check("correlation of workers with the rate", lambda runs: runs[who].follows, at_most=FOLLOWS)


def low(who: str) -> Check:
    """Rows hardly wait."""
    return Check("p95 of latency, s", lambda runs: runs[who].p95, at_most=LOW)


def high(who: str) -> Check:
    """Some rows wait for long."""
    return Check("p95 of latency, s", lambda runs: runs[who].p95, at_least=LOW)


def never_recovers(who: str) -> Check:
    """Rows wait for long at the end."""
    return Check("latency of the last ten minutes, s", lambda runs: runs[who].at_last, at_least=LOW)


def recovers(who: str) -> Check:
    """In valleys rows do not wait."""

    def share(runs: Runs) -> float:
        one = runs[who]
        low_rate = one.rate <= sorted(one.rate)[len(one.rate) // 4]
        return float((one.waits[low_rate] <= LOW).mean())

    return Check("share of valleys with low latency", share, at_least=0.5)


def fewer_workers(who: str, *others: str) -> Check:
    """Worker-hours over the fewest of others."""
    return Check(
        f"worker-hours over {_those(others)}",
        lambda runs: runs[who].worker_hours / min(runs[other].worker_hours for other in others),
        at_most=1.0,
    )


def more_workers(who: str, *others: str) -> Check:
    """Worker-hours over the most of others."""
    return Check(
        f"worker-hours over {_those(others)}",
        lambda runs: runs[who].worker_hours / max(runs[other].worker_hours for other in others),
        at_least=1.0,
    )


def fewer_actions(who: str, *others: str) -> Check:
    """Actions more than the fewest of others have."""
    return Check(
        f"actions less those of {_those(others)}",
        lambda runs: len(runs[who].actions) - min(len(runs[other].actions) for other in others),
        at_most=0.0,
    )


def more_actions(who: str, *others: str) -> Check:
    """Actions more than the most of others have."""
    return Check(
        f"actions less those of {_those(others)}",
        lambda runs: len(runs[who].actions) - max(len(runs[other].actions) for other in others),
        at_least=0.0,
    )


def lower(who: str, *others: str) -> Check:
    """p95 over the lowest of others."""
    return Check(
        f"p95 over that of {_those(others)}",
        lambda runs: (1 + runs[who].p95) / (1 + min(runs[other].p95 for other in others)),
        at_most=1.0,
    )


def reaches_cap(who: str) -> Check:
    """All workers are used at some time."""
    return Check("most workers", lambda runs: float(runs[who].workers.max()), at_least=WORKERS)


def stays_at_cap(who: str) -> Check:
    """They are for long."""
    return Check(
        "share of time with nearly all workers",
        lambda runs: float((runs[who].workers >= WORKERS - 2).mean()),
        at_least=CAP_SHARE,
    )


def _those(others: Sequence[str]) -> str:
    return others[0] if len(others) == 1 else "the others"


def _others(who: str) -> tuple[str, ...]:
    return tuple(one for one in PUBLISHED if one != who)


D, S, C, V = DHALION, DS2, CPU, VARGA
TABLE: tuple[Row, ...] = (
    Row(INCREASING, "Map", D, "does not follow, late; latency rises", (does_not_follow(D), high(D))),
    Row(
        INCREASING,
        "Map",
        S,
        "fewest actions and workers at first; latency rises steadily",
        (fewer_workers(S, *_others(S)), never_recovers(S)),
    ),
    Row(INCREASING, "Map", C, "follows, low latency, more actions than DS2", (follows(C), low(C), more_actions(C, S))),
    Row(
        INCREASING,
        "Map",
        V,
        "follows, low latency, fewer workers than HPA-CPU",
        (follows(V), low(V), fewer_workers(V, C)),
    ),
    Row(INCREASING, "SWA", D, "as on Map", (does_not_follow(D), high(D))),
    Row(
        INCREASING,
        "SWA",
        S,
        "frequent actions, fewest workers, latency never recovers",
        (fewer_workers(S, *_others(S)), never_recovers(S)),
    ),
    Row(INCREASING, "SWA", C, "follows, latency not kept low", (follows(C), high(C))),
    Row(INCREASING, "SWA", V, "hits the cap, latency still high", (reaches_cap(V), high(V))),
    Row(DECREASING, "Map", D, "fluctuates, late", (does_not_follow(D),)),
    Row(
        DECREASING,
        "Map",
        S,
        "few workers, latency high until the input has dropped",
        (fewer_workers(S, *_others(S)), high(S)),
    ),
    Row(
        DECREASING,
        "Map",
        C,
        "follows, low latency, slightly fewer actions",
        (follows(C), low(C), fewer_actions(C, *_others(C))),
    ),
    Row(DECREASING, "Map", V, "fairly low latency, fewer workers than HPA-CPU", (low(V), fewer_workers(V, C))),
    Row(DECREASING, "SWA", D, "jumps to the cap; latency falls late", (reaches_cap(D), high(D))),
    Row(DECREASING, "SWA", S, "follows, latency not low", (follows(S), high(S))),
    Row(DECREASING, "SWA", C, "latency of Dhalion with far fewer workers", (fewer_workers(C, D), high(C))),
    Row(DECREASING, "SWA", V, "goes to the cap and stays, latency not low", (stays_at_cap(V), high(V))),
    Row(COSINE, "Map", D, "follows late; latency at peaks, recovers in valleys", (follows(D), high(D), recovers(D))),
    Row(COSINE, "Map", S, "follows, fewer workers", (follows(S), fewer_workers(S, C))),
    Row(COSINE, "Map", C, "low latency, on time", (follows(C), low(C))),
    Row(COSINE, "Map", V, "slow to scale up", (lower(C, V),)),
    Row(COSINE, "SWA", D, "late, latency", (high(D),)),
    Row(COSINE, "SWA", S, "follows, high latency even in valleys", (follows(S), high(S))),
    Row(COSINE, "SWA", C, "latency in peaks, fewer workers than Varga", (high(C), fewer_workers(C, V))),
    Row(COSINE, "SWA", V, "latency in peaks, late", (high(V),)),
    Row(RANDOM, "Map", D, "fails, long high latency", (does_not_follow(D), high(D))),
    Row(RANDOM, "Map", S, "follows; fails in long high phases", (follows(S), high(S))),
    Row(RANDOM, "Map", C, "low latency except one sudden rise", (lower(C, *_others(C)),)),
    Row(RANDOM, "Map", V, "follows mostly; latency on sudden rises", (high(V),)),
    Row(RANDOM, "SWA", D, "best latency although not following", (does_not_follow(D), lower(D, *_others(D)))),
    Row(RANDOM, "SWA", S, "only one that follows", (follows(S), high(S))),
    Row(RANDOM, "SWA", C, "never matches", (does_not_follow(C), high(C))),
    Row(RANDOM, "SWA", V, "never matches", (does_not_follow(V), high(V))),
    Row(COSINE, "FQ", D, "slight delay, latency at peaks", (follows(D), high(D))),
    Row(COSINE, "FQ", S, "as on Map", (follows(S), fewer_workers(S, C))),
    Row(COSINE, "FQ", C, "as on Map", (follows(C), low(C))),
    Row(COSINE, "FQ", V, "slightly better latency than on Map", (low(V),)),
    Row(
        COSINE,
        "IJ",
        D,
        "low latency all along, twice the workers of DS2 and HPA-CPU",
        (low(D), more_workers(D, S, C)),
    ),
    Row(COSINE, "IJ", S, "few actions and workers, latency rises", (fewer_workers(S, D, V), high(S))),
    Row(COSINE, "IJ", C, "few actions and workers, latency rises", (fewer_workers(C, D, V), high(C))),
    Row(COSINE, "IJ", V, "slow, latency at peaks", (high(V),)),
    Row(COSINE, "SA", D, "competitive; more workers than HPA-CPU", (more_workers(D, C),)),
    Row(COSINE, "SA", S, "raises resources wrongly between firings", (more_workers(S, C), does_not_follow(S))),
    Row(COSINE, "SA", C, "best: follows, low latency, fewest workers", (follows(C), low(C), lower(C, *_others(C)))),
    Row(COSINE, "SA", V, "as many workers as HPA-CPU, badly allocated; latency", (high(V),)),
)
"""Section 4.14's table, cell by cell."""


def claims_of(found: Found, rows: Sequence[Row], reasons: Mapping[tuple[str, str, str], str]) -> list[Claim]:
    """A claim for everything that these cells say."""
    return [
        Claim(
            f"{row.query}, {row.pattern}: {row.who}: {check.words}",
            row.published,
            [check.figure(runs) for runs in found[row.query, row.pattern]],
            check.at_least,
            check.at_most,
            reasons.get((row.query, row.pattern, row.who), ""),
        )
        for row in rows
        for check in row.checks
    ]
