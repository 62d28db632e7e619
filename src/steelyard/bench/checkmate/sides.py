"""A graph with a skewed and an even region, on workers of their own, and its rates."""

from __future__ import annotations

from dataclasses import replace

from steelyard.bench.checkmate.contest import CONTENDERS, LOAD, UNC
from steelyard.sim.checkpoints import Job, Stage, measured_costs, query
from steelyard.sim.checkpoints.graph import Graph
from steelyard.sim.checkpoints.queries import WINDOW

SIDES = "sides"
SKEWED, EVEN = 10, 5
"""Workers of each region: as many for hot keys as in the contest. Of five, the hot one would keep up."""
HOT, HOT_LOAD = 0.3, 0.5
"""Share of bids of the hot bidder, and what the skewed region's workers would have to do on average without him."""
TOLD = 0.2
"""Of the bids that are counted, as many counts go on."""
SKEWED_SINK, EVEN_SINK = "counts", "sellers"


def sides() -> tuple[Job, float]:
    """The graph, and rows per second.

    Bids are counted by bidder, as in Q12, where one bidder is hot. Persons are joined with what they sell, as in Q8,
    and the pairs are counted by seller, where counts of bidders come too: the channel from one region to the other.
    """
    skewed, even = tuple(range(SKEWED)), tuple(range(SKEWED, SKEWED + EVEN))
    counts, joins = query("q12", len(skewed), HOT), query("q8", len(even))
    counted = counts.into("count")[0]
    by_seller = replace(counted, receiver="sell", keyed=True, kept_bytes=0.0)
    hops = (
        replace(counted, sender="bids", gives=TOLD),
        replace(counts.into("sink")[0], receiver=SKEWED_SINK),
        *joins.into("join"),
        replace(by_seller, sender="join"),
        replace(by_seller, sender="count"),
        replace(joins.into("sink")[0], sender="sell", receiver=EVEN_SINK),
    )
    stages = (
        replace(next(one for one in counts.stages if one.name == "count"), on=skewed),
        Stage(SKEWED_SINK, on=skewed),
        Stage("join", WINDOW, on=even),
        Stage("sell", WINDOW, on=even),
        Stage(EVEN_SINK, on=even),
    )

    def job(bids: float) -> Job:
        first = replace(counts.feeds[0], name="bids", share=bids, on=skewed)
        others = [replace(one, share=one.share * (1 - bids), on=even) for one in joins.feeds]
        return Job(SIDES, (first, *others), stages, hops, SKEWED + EVEN)

    bids = HOT_LOAD / seconds_of(job(1.0), skewed)
    others = (LOAD - bids * seconds_of(job(1.0), even)) / seconds_of(job(0.0), even)
    return job(bids / (bids + others)), bids + others


def seconds_of(job: Job, workers: tuple[int, ...]) -> float:
    """What each of these workers has to do for a row of the job, with logs and without checkpoints."""
    charges = Graph(job, CONTENDERS[UNC], measured_costs()).charges
    seconds = sum(feed.share * feed.row_seconds for feed in job.feeds if feed.on == workers)
    for hop, rows in job.flows().items():
        each = charges[hop]
        if job.hosts(hop.sender) == workers:
            seconds += rows * (each.make_message + each.make_row)
        if job.hosts(hop.receiver) == workers:
            seconds += rows * (each.read_message + each.read_row + each.work_message + each.work_row)
    return seconds / len(workers)
