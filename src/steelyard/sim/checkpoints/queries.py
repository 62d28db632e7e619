"""Q1, Q3, Q8, Q12 and the cyclic query as jobs, with the operators' costs of `measured.json`.

Instances per worker are those of the published runs (Siachamis 2024, chapter 3): three, five, four, three and six.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from steelyard.core import OptionError
from steelyard.sim.checkpoints.costs import measured
from steelyard.sim.checkpoints.job import Feed, Hop, Job, Stage

WINDOW = 10.0
"""Seconds, of Q8 and Q12."""
PERSONS, AUCTIONS, BIDS = 1, 3, 46
ACTIVE = 1_010
"""Persons who may bid at a moment."""
LINKS, DELETED = 0.8, 0.25
"""Share of changes that are about links, and share of deletions, which go to everybody."""


def _hop(query: str, sender: str, receiver: str, keyed: bool = False, feedback: bool = False) -> Hop:
    found = measured()["operators"][f"{query}.{sender}.{receiver}"]
    known = {field.name for field in fields(Hop)}
    figures = {name: value for name, value in found.items() if name in known}
    return Hop(sender, receiver, keyed=keyed, feedback=feedback, **figures)


def _feed(query: str, name: str, share: float = 1.0, **more: Any) -> Feed:
    return Feed(name, share, measured()["operators"][f"{query}.{name}"]["row_seconds"], **more)


def _q1(hot: float) -> Job:
    """Dollars to euros, without a shuffle."""
    hops = (_hop("q1", "source", "map"), _hop("q1", "map", "sink"))
    return Job("q1", (_feed("q1", "source"),), (Stage("map"), Stage("sink")), hops)


def _sides(query: str, hot: float) -> tuple[Feed, Feed]:
    both = PERSONS + AUCTIONS
    ids = PERSONS / both
    persons = _feed(query, "persons", PERSONS / both, ids_per_row=ids)
    return persons, _feed(query, "auctions", AUCTIONS / both, hot=hot, ids_per_row=ids)


def _q3(hot: float) -> Job:
    """Persons of three states with what they sell; nothing is forgotten."""
    hops = (
        _hop("q3", "persons", "filter", keyed=True),
        _hop("q3", "filter", "join"),
        _hop("q3", "auctions", "join", keyed=True),
        _hop("q3", "join", "sink"),
    )
    return Job("q3", _sides("q3", hot), (Stage("filter"), Stage("join"), Stage("sink")), hops)


def _q8(hot: float) -> Job:
    """Persons with what they sell, in windows."""
    hops = (
        _hop("q8", "persons", "join", keyed=True),
        _hop("q8", "auctions", "join", keyed=True),
        _hop("q8", "join", "sink"),
    )
    return Job("q8", _sides("q8", hot), (Stage("join", WINDOW), Stage("sink")), hops)


def _q12(hot: float) -> Job:
    """Bids of each bidder, in windows."""
    hops = (_hop("q12", "source", "count", keyed=True), _hop("q12", "count", "sink"))
    base = ACTIVE * measured()["operators"]["q12.source.count"]["bytes_of_a_key"]
    source = _feed("q12", "source", hot=hot, hot_place=1, ids_per_row=PERSONS / BIDS)
    return Job("q12", (source,), (Stage("count", WINDOW, base), Stage("sink")), hops)


def _cyclic(hot: float) -> Job:
    """What can be reached from where; `project` leads back to `join`."""
    feeds = (
        _feed("cyclic", "links", LINKS, broadcast=DELETED),
        _feed("cyclic", "sources", 1 - LINKS, broadcast=DELETED),
    )
    hops = (
        _hop("cyclic", "links", "join", keyed=True),
        _hop("cyclic", "sources", "join", keyed=True),
        _hop("cyclic", "join", "select"),
        _hop("cyclic", "select", "project"),
        _hop("cyclic", "project", "join", keyed=True, feedback=True),
        _hop("cyclic", "project", "sink"),
    )
    return Job("cyclic", feeds, (Stage("join"), Stage("select"), Stage("project"), Stage("sink")), hops)


def _one_sided(hot: float) -> Job:
    """The same as the published program computes it: links that come find no source, only sources find links."""
    job = _cyclic(hot)
    return replace(job, hops=(replace(job.hops[0], gives=0.0), *job.hops[1:]))


QUERIES: dict[str, Callable[[float], Job]] = {
    "q1": _q1,
    "q3": _q3,
    "q8": _q8,
    "q12": _q12,
    "cyclic": _cyclic,
    "one_sided": _one_sided,
}


def query(name: str, workers: int, hot: float = 0.0, rows_per_message: int = 1) -> Job:
    """A query as it was published, on so many workers.

    Parameters
    ----------
    name
        `q1`, `q3`, `q8`, `q12`, `cyclic`, or `one_sided`, which is `cyclic` as the published program computes it.
    workers
        How many.
    hot
        Probability that a bidder or seller is the hot one.
    rows_per_message
        At most; one in the published system.

    Examples
    --------
    >>> query("q3", 10).instances
    50
    """
    if name not in QUERIES:
        raise OptionError.unknown("query", name, QUERIES)
    job = QUERIES[name](hot).on(workers)
    return Job(job.name, job.feeds, job.stages, job.hops, workers, rows_per_message)
