"""Queries of the contest: what runs, what each row costs, and what is kept.

Rates per instance are not published. They were chosen before the first full run, so that the peak of Map needs 40 to 60
of the 70 workers and that of SWA more than there are, since the text has SWA at the cap; all of them stand here and
nowhere else. Cosines of Map, FQ and SWA are not published either: they have the proportions of the published program's
defaults (mean to swing 3 to 2, and 2 to 1), and a peak that needs 60 % of the workers (FQ: fewer, at the rate of Map).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from steelyard.control.guards import squeezed
from steelyard.sim import Edge, Exactly, Growing, Operator, Scenario, Source, Window
from steelyard.workloads import Rate, Steps

WORKERS = 70
QUEUE_SECONDS = 0.1
"""What a queue of an instance holds, in seconds of its work: Flink's buffers are a tenth of a second."""
FIT = 0.8
"""Share of its time for which an instance works in a configuration that fits."""
LIGHT = 1 / 180_000
"""Seconds for a row of a source of small rows, a map, or a sink, which throws rows away: 42 workers at 2.5 M/s."""
SESSIONS = 1 / 40_000
"""Seconds for a row that goes into a session."""
FILTERING = 1 / 250_000
KEPT_OF_FILTER = 1 / 1007 + 1 / 1020 + 1 / 2001 + 1 / 2019 + 1 / 2087
"""Of all bids."""
PARSING = 1 / 10_000
"""Seconds for a row of the heavier sources of IJ and SA."""
JOINING, PER_KEPT = 200e-6, 2.8e-10
"""Seconds for a row of the join, and more for each that its instance keeps: as much again at the peak with 20."""
TIME_TO_LIVE = 300.0
JOINED_ROWS = 0.4
"""Results for a row of the join."""
PERSONS, OF_STATES = 0.25, 0.5
"""Share of persons, of which half live in OR, ID and CA."""
SLIDING, PER_RESULT = 600e-6, 200e-6
"""Seconds for a row that goes into five windows, and for each result of one."""
AUCTIONS = 3 / 46
"""New auctions for a bid."""
BIDDERS = 1 / 46
"""New bidders, and so sessions, for a bid."""
SWA_CPU, IJ_CPU = 0.8, 0.75
"""Share of its time for which the operator with state uses a processor; for the rest it waits for memory."""
JOIN_BYTES, SESSION_BYTES, AUCTION_BYTES = 300.0, 200.0, 5 * 64.0
"""Of state: for a row of the join, for a session, for an auction in five windows."""


@dataclass(frozen=True)
class Query:
    """One query.

    Parameters
    ----------
    name, title
        What figures call it, and what it is.
    wave
        Mean, swing and noise of its cosine, in rows per second.
    instances
        Of each operator to begin with.
    build
        Makes the scenario, with one instance each, of a rate.
    seconds
        For each operator, what a row of the input costs it.
    """

    name: str
    title: str
    wave: tuple[float, float, float]
    instances: int
    build: Callable[[Steps], Scenario]
    seconds: Mapping[str, float]

    def fitting(self, rate: float) -> dict[str, int]:
        """Instances that keep up with so many rows per second, as far as there are workers."""
        return squeezed({name: max(ceil(rate * one / FIT), 1) for name, one in self.seconds.items()}, WORKERS)


def _operator(name: str, seconds: float, **more: object) -> Operator:
    return Operator(name, Exactly(seconds), capacity=max(round(QUEUE_SECONDS / seconds), 10), **more)  # type: ignore[arg-type]


def _source(rate: Rate, seconds: float = LIGHT, name: str = "source") -> Source:
    return Source(name, rate, service=Exactly(seconds))


def _map(rate: Steps) -> Scenario:
    return Scenario.chain(_source(rate), _operator("map", LIGHT), _operator("sink", LIGHT))


def _filter(rate: Steps) -> Scenario:
    kept = _operator("filter", FILTERING, outputs=KEPT_OF_FILTER)
    return Scenario.chain(_source(rate), kept, _operator("sink", LIGHT))


def _sessions(rate: Steps) -> Scenario:
    law = Growing(SESSIONS, 0.0, bytes_per_kept=SESSION_BYTES * BIDDERS, ttl=10.0)
    count = Operator("sessions", law, capacity=round(QUEUE_SECONDS / SESSIONS), outputs=BIDDERS, cpu=SWA_CPU)
    return Scenario.chain(_source(rate), count, _operator("sink", LIGHT))


def _sliding(rate: Steps) -> Scenario:
    window = Window(300.0, PER_RESULT, AUCTION_BYTES, slide=60.0, new_keys=AUCTIONS)
    return Scenario.chain(
        _source(rate, PARSING), _operator("windows", SLIDING, window=window), _operator("sink", LIGHT)
    )


def _join(rate: Steps) -> Scenario:
    law = Growing(JOINING, PER_KEPT, bytes_per_kept=JOIN_BYTES, ttl=TIME_TO_LIVE)
    return Scenario(
        (
            _source(_share(rate, PERSONS), PARSING, "persons"),
            _source(_share(rate, 1 - PERSONS), PARSING, "auctions"),
            _operator("filter", PARSING, outputs=OF_STATES),
            Operator("join", law, capacity=round(QUEUE_SECONDS / JOINING), outputs=JOINED_ROWS, cpu=IJ_CPU),
            _operator("sink", LIGHT),
        ),
        (Edge("persons", "filter"), Edge("filter", "join"), Edge("auctions", "join"), Edge("join", "sink")),
    )


def _share(rate: Steps, share: float) -> Steps:
    return Steps(rate.seconds, tuple(share * level for level in rate.levels))


_JOINED = 1 - PERSONS + PERSONS * OF_STATES
MAP = Query("Map", "Q1, dollars to euros", (1.5e6, 1.0e6, 1e5), 5, _map, {"source": LIGHT, "map": LIGHT, "sink": LIGHT})
FQ = Query(
    "FQ",
    "Q2, bids of some auctions",
    MAP.wave,
    5,
    _filter,
    {"source": LIGHT, "filter": FILTERING, "sink": LIGHT * KEPT_OF_FILTER},
)
IJ = Query(
    "IJ",
    "Q3, persons of some states join their auctions, for 300 s",
    (3e4, 2.5e4, 250.0),
    10,
    _join,
    {
        "persons": PERSONS * PARSING,
        "auctions": (1 - PERSONS) * PARSING,
        "filter": PERSONS * PARSING,
        "join": 1.5 * _JOINED * JOINING,
        "sink": JOINED_ROWS * _JOINED * LIGHT,
    },
)
SA = Query(
    "SA",
    "Q5, bids by auction over 5 minutes, every minute",
    (1.2e4, 1e4, 250.0),
    10,
    _sliding,
    {"source": PARSING, "windows": SLIDING + 5 * AUCTIONS * PER_RESULT, "sink": 5 * AUCTIONS * LIGHT},
)
SWA = Query(
    "SWA",
    "Q11, bids by bidder in sessions, gap 10 s",
    (9.1e5, 4.6e5, 6e4),
    10,
    _sessions,
    {"source": LIGHT, "sessions": SESSIONS, "sink": LIGHT * BIDDERS},
)
QUERIES = {one.name: one for one in (MAP, FQ, IJ, SA, SWA)}
