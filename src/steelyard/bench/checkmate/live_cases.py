"""What contenders run on real workers: queries of NexMark, hot bidders, a cycle, and a graph of two regions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from steelyard.applications import nexmark
from steelyard.applications.reachability import reachability
from steelyard.core.aggregates import count
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Generated, Stream
from steelyard.workloads import Arrivals, Constant, Links, Nexmark, Workload

WORKERS = 4
BLOCK_ROWS = 64
"""Rows that a source has before the next one has some, and the most of a message: at any rate all of them have work."""
HOT_SHARE = 0.3
"""Of bids that are those of one bidder."""
QUERIES: dict[str, nexmark.Query] = {"q12": nexmark.Q12(running=True), "q8": nexmark.Q8()}
REGION_WORKERS = 2
"""Of each region."""
SKEWED = ("bids", "count", "counts", f"{nexmark.SINK} of bidders")
"""Operators of the skewed region."""


class FirstResult:
    """Takes results of a sink, and writes down when a process has its first ones: `process moment` on a line.

    Nobody wants the results: how long they took is told by probes, which travel beside them.

    Parameters
    ----------
    file
        Where it is written; None writes nothing.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def __call__(self, batch: pa.RecordBatch) -> None:
        """A batch has come."""
        if self._file is not None and batch.num_rows:
            with self._file.open("a") as file:
                file.write(f"{os.getpid()} {time.time()}\n")
            self._file = None


def first_result(file: Path, since: float, before: set[int]) -> float | None:
    """When the first process that was not there before had its first results; None where none had any."""
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    told = (line.split() for line in whole.splitlines())
    return min((float(at) for pid, at in told if float(at) > since and int(pid) not in before), default=None)


@dataclass(frozen=True)
class Rows:
    """Rows that come by the clock, or as fast as they are read.

    Parameters
    ----------
    rate
        Rows per second of event time, of all streams together.
    rows
        How many.
    began
        The moment from which they come by the clock; None has them come as fast as they are read.
    block_rows
        The most of a message.
    """

    rate: float
    rows: int
    began: float | None
    block_rows: int = BLOCK_ROWS

    def source(self, flow: Flow, name: str, workload: Workload, share: float = 1.0) -> Stream:
        """A share of them, as a source."""
        speed = Constant(self.rate * share)
        reader = Generated(
            workload,
            rows=round(self.rows * share),
            arrivals=Arrivals(speed),
            pace=None if self.began is None else speed,
            began=self.began,
            block_rows=self.block_rows,
        )
        return flow.source(reader, time="event_time", name=name)

    def streams(self, flow: Flow, streams: tuple[str, ...], skew: float = 0.0) -> list[Stream]:
        """Streams of NexMark, each with its share of the rows."""
        whole = sum(nexmark.SHARES[one] for one in streams)
        return [self.source(flow, one, Nexmark(one, skew=skew), nexmark.SHARES[one] / whole) for one in streams]


def dataflow(query: nexmark.Query, rows: Rows, first: Path | None = None, skew: float = 0.0) -> Dataflow:
    """A query over its streams."""
    flow = Flow(query.name, WORKERS)
    query.resident(*rows.streams(flow, query.streams, skew)).sink(Callback(FirstResult(first)), name=nexmark.SINK)
    return flow.dataflow()


def cycle(rows: Rows, first: Path | None = None) -> Dataflow:
    """What can be reached in a graph that changes: paths go round until no link leads on."""
    flow = Flow("cyclic", WORKERS)
    changes = rows.source(flow, "changes", Links())
    reachability(changes).sink(Callback(FirstResult(first)), name=nexmark.SINK)
    return flow.dataflow()


def _every_fifth(counts: pa.RecordBatch) -> pa.Array:
    return pa.array(counts.column("bids").to_numpy() % 5 == 0)


def regions(rows: Rows, first: Path | None = None) -> Dataflow:
    """A skewed region, in which bids are counted by bidder and one is hot, and an even one, of persons who sell.

    Persons are joined with what they sell, and counted with every fifth count of bids: the edge from one region to
    the other, as in the simulated graph.
    """
    flow = Flow("regions", REGION_WORKERS)
    (bids,) = rows.streams(flow, ("bids",), HOT_SHARE)
    sellers = Rows(rows.rate / 5, rows.rows // 5, rows.began, rows.block_rows)
    pairs = nexmark.Q8().resident(*sellers.streams(flow, ("persons", "auctions")))
    counts = nexmark.Q12(running=True).resident(bids)
    counts.sink(Callback(FirstResult(first)), name=SKEWED[-1])
    told = counts.filter(_every_fifth, name="counts").select(seller="bidder", name="bidders")
    sold = pairs.select(seller="id", name="sellers")
    by_seller = sold.union(told).key_by("seller").aggregate(n=count(), emit="updates", name="sell")
    by_seller.sink(Callback(FirstResult(first)), name=nexmark.SINK)
    return flow.dataflow()


def spread(made: Dataflow) -> Placement:
    """An instance of every operator on each worker."""
    return Placement.spread(made, WORKERS)


def by_region(made: Dataflow) -> Placement:
    """Each region on workers of its own."""
    first = {one.name: 0 if one.name in SKEWED else REGION_WORKERS for one in made.operators}
    return Placement({one: first[one.operator] + one.number for one in made.instances}, WORKERS)


Made = Callable[[Rows, Path | None], Dataflow]


@dataclass(frozen=True)
class Case:
    """What all contenders run in one experiment.

    Parameters
    ----------
    title
        What it is.
    made
        A dataflow for such rows, which writes down when a process has its first results.
    even
        The same without hot keys, by which the highest rate is found.
    query
        The same as plain Spark has it, where it can be said there.
    skew
        Share of rows with a hot key.
    placed
        Where its instances are.
    refused
        Protocols that cannot run it, and why.
    saturating
        Rows to find the highest rate with, in a full run and in a quick one.
    """

    title: str
    made: Made
    even: Made
    query: nexmark.Query | None = None
    skew: float = 0.0
    placed: Callable[[Dataflow], Placement] = spread
    refused: Mapping[str, str] = field(default_factory=dict)
    saturating: tuple[int, int] = (500_000, 200_000)


def of_query(query: nexmark.Query, skew: float = 0.0) -> Case:
    """A query of NexMark, which plain Spark has too."""
    hot = f", {skew:.0%} of the bids are of one bidder" if skew else ""
    return Case(query.name.upper() + hot, partial(dataflow, query, skew=skew), partial(dataflow, query), query, skew)


CASES = {
    "q1": of_query(nexmark.Q1()),
    "q3": of_query(nexmark.Q3()),
    "q8": of_query(QUERIES["q8"]),
    "q12": of_query(QUERIES["q12"]),
    "skew": of_query(QUERIES["q12"], HOT_SHARE),
    "cyclic": Case(
        "reachability, with a cycle",
        cycle,
        cycle,
        refused={"coordinated": "an instance on a cycle would wait for its own marker"},
        saturating=(100_000, 10_000),
    ),
    "regions": Case("a skewed and an even region", regions, regions, placed=by_region),
}
