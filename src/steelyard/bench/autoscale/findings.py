"""The document's global findings F1 to F6 as predicates, and reasons of what does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from steelyard.bench import Claim
from steelyard.bench.autoscale.contest import CPU, DHALION, DS2, PUBLISHED, VARGA
from steelyard.bench.autoscale.outcome import Outcome
from steelyard.bench.autoscale.patterns import COSINE, DECREASING, INCREASING, RANDOM
from steelyard.bench.autoscale.verdicts import LOW, Found, Runs

STATELESS, COMPLEX = ("Map", "FQ"), ("SWA", "IJ", "SA")
MEMORY_BOUND = ("SWA", "IJ")
RESTART = 15.0
"""Seconds of latency that a restart leaves at least: a look after it, rows of the restart are still being read."""
DELAY = "a correlation sees no delay: its workers rise and fall with the rate, and are too few throughout"
SPARE = (
    "a fifth more than needed works off what a restart of 30 s leaves before the next one; longer restarts would not"
)
FEWER = "who does not keep up has fewer workers: those that a rate needs are not taken for it"
BUSY = "all four act as soon as the five minutes are over: none acts less than another"
AT_PEAK = (
    "the run begins at the peak with few instances; what is behind is worked off when the rate has fallen, and workers "
    "follow what is behind"
)
RATIO = (
    "no processor is used for more than all of the time, so that it grows by 1 / 0.7 at once, five minutes apart: a "
    "cosine rises faster"
)
SUDDEN = "the rate moves by up to a fifth of the most each minute, and nobody acts more often than every five"
REASONS: Mapping[tuple[str, str, str], str] = {
    ("Map", INCREASING, DHALION): DELAY,
    ("SWA", INCREASING, DHALION): DELAY,
    ("Map", DECREASING, DHALION): DELAY,
    ("Map", INCREASING, DS2): SPARE,
    ("SWA", INCREASING, DS2): FEWER,
    ("Map", DECREASING, DS2): f"{SPARE}; {FEWER}",
    ("Map", INCREASING, CPU): BUSY,
    ("Map", DECREASING, CPU): BUSY,
    ("Map", INCREASING, VARGA): "time at work and processor time are the same where nothing waits for memory",
    ("Map", DECREASING, VARGA): "time at work and processor time are the same where nothing waits for memory",
    ("SWA", DECREASING, CPU): "all of them need nearly all workers at first and most of them later",
    ("Map", COSINE, DHALION): AT_PEAK,
    ("Map", COSINE, DS2): FEWER,
    ("Map", COSINE, CPU): RATIO,
    ("Map", COSINE, VARGA): RATIO,
    ("FQ", COSINE, DHALION): AT_PEAK,
    ("FQ", COSINE, DS2): FEWER,
    ("FQ", COSINE, CPU): RATIO,
    ("FQ", COSINE, VARGA): RATIO,
    ("SWA", COSINE, CPU): RATIO,
    ("SWA", COSINE, DS2): AT_PEAK,
    ("Map", RANDOM, DHALION): DELAY,
    ("Map", RANDOM, DS2): SPARE,
    ("Map", RANDOM, CPU): SUDDEN,
    ("SWA", RANDOM, DHALION): SUDDEN,
    ("SWA", RANDOM, DS2): SUDDEN,
    ("SWA", RANDOM, CPU): SUDDEN,
    ("IJ", COSINE, DHALION): "one bottleneck at a time, five minutes apart, is slower than the rate",
    ("IJ", COSINE, DS2): SPARE,
    ("IJ", COSINE, CPU): FEWER,
    ("SA", COSINE, DHALION): FEWER,
    ("SA", COSINE, VARGA): SPARE,
    ("SA", COSINE, DS2): "workers are too many, and still go with the rate",
    ("SA", COSINE, CPU): RATIO,
}
"""Why a cell of the table does not hold, as far as the figures tell: by query, pattern and autoscaler."""


def _of_some_queries(found: Found) -> list[Claim]:
    """F1, F2 and F6, which are of stateless queries, of complex ones, and of those that wait for memory."""
    claims = []
    plain, stateful = _cases(found, STATELESS), _cases(found, COMPLEX)
    if plain:
        claims += [
            _claim(
                "F1: HPA-CPU's p95 over the lowest of the others, stateless queries (mean)",
                "HPA-CPU is best for stateless queries",
                plain,
                _cpu_over_others,
                at_most=1.0,
                reason=f"{RATIO}; DS2 asks at once for all that is needed",
            )
        ]
    if stateful:
        claims += [
            _claim(
                "F2: lowest p95 of all four, complex queries, s (mean)",
                "nobody copes with complex queries",
                stateful,
                lambda runs: min(runs[who].p95 for who in PUBLISHED),
                at_least=LOW,
            ),
        ]
    waiting = _cases(found, MEMORY_BOUND)
    if waiting:
        claims += [
            _claim(
                "F6: HPA-CPU's p95 over the lowest of the others, queries that wait for memory (mean)",
                "CPU is a poor signal for stateful, memory-bound work",
                waiting,
                _cpu_over_others,
                at_least=1.0,
            )
        ]
    return claims


def findings_of(found: Found) -> list[Claim]:
    """F1 to F6, as far as these cases tell: a figure for each seed, the mean over the cases."""
    every = list(found.values())
    return [
        *_of_some_queries(found),
        _claim(
            "F3: DS2's worker-hours over the fewest of the others (mean)",
            "DS2 uses least",
            every,
            lambda runs: runs[DS2].worker_hours / min(runs[who].worker_hours for who in PUBLISHED if who != DS2),
            at_most=1.0,
        ),
        _claim(
            "F3: DS2's p95, s (mean)",
            "and accumulates lag",
            every,
            lambda runs: runs[DS2].p95,
            at_least=LOW,
            reason=SPARE,
        ),
        _claim(
            "F4: Dhalion's worker-hours over the most of the others (mean)",
            "Dhalion reacts late and uses most",
            every,
            lambda runs: (
                runs[DHALION].worker_hours / max(runs[who].worker_hours for who in PUBLISHED if who != DHALION)
            ),
            at_least=1.0,
        ),
        _claim(
            "F5: longest wait within a minute and a half of an action, least of all four, s (mean)",
            "all suffer from lag of restarts",
            every,
            lambda runs: min(after_actions(runs[who]) for who in PUBLISHED),
            at_least=RESTART,
        ),
    ]


def after_actions(one: Outcome) -> float:
    """Mean over actions of the longest wait of rows in the minute and a half behind each."""
    behind = [one.waits[(one.time > moment) & (one.time <= moment + 90)] for moment in one.actions]
    found = [float(waits.max()) for waits in behind if len(waits)]
    return sum(found) / len(found) if found else 0.0


def _cpu_over_others(runs: Runs) -> float:
    return (1 + runs[CPU].p95) / (1 + min(runs[who].p95 for who in PUBLISHED if who != CPU))


def _cases(found: Found, queries: Sequence[str]) -> list[Sequence[Runs]]:
    return [seeds for (query, _), seeds in found.items() if query in queries]


def _claim(
    words: str,
    published: str,
    cases: Sequence[Sequence[Runs]],
    figure: Callable[[Runs], float],
    at_least: float = -float("inf"),
    at_most: float = float("inf"),
    reason: str = FEWER,
) -> Claim:
    seeds = range(len(cases[0]))
    values = [sum(figure(case[seed]) for case in cases) / len(cases) for seed in seeds]
    return Claim(words, published, values, at_least, at_most, reason)
