"""Queries of NexMark, each for workers that stay and for plain Spark, over the streams of the workload `nexmark`.

They are those that checkpointing protocols (Q1, Q3, Q8, Q12) and autoscalers (Q1, Q2, Q3, Q5, Q11) were measured with
(Siachamis 2024, chapters 3 and 4). There, windows of Q8 and Q12 go by the clock; here all go by event time, so that the
answers are the same at every run, and are those of plain Spark over the same rows where none comes late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from steelyard.core import OptionError
from steelyard.core.aggregates import count
from steelyard.core.dataflow import Dataflow
from steelyard.resident import Flow, Generated, Memory, Step, Stream
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK
from steelyard.resident.sinks import SinkLogic
from steelyard.resident.windows import Window, timely
from steelyard.workloads import Arrivals, Constant, Nexmark
from steelyard.workloads.nexmark import AUCTIONS, BIDS, PERSONS
from steelyard.workloads.workload import TIMESTAMP

EURO_CENTS = 82
"""Of a dollar."""
CHOSEN_AUCTIONS = (1007, 1020, 2001, 2019, 2087)
"""Q2 keeps bids for auctions whose number is a multiple of one of these."""
CHOSEN_STATES = ("OR", "ID", "CA")
SHARES = {"persons": PERSONS, "auctions": AUCTIONS, "bids": BIDS}
SINK = "results"
"""The name of the last operator."""


class Query(ABC):
    """A query of NexMark.

    Examples
    --------
    >>> from steelyard.resident import run
    >>> results = run(QUERIES["q3"]().dataflow(rows=400, parallelism=2))
    >>> results.table("results").column_names
    ['id', 'name', 'city', 'state', 'auction']
    """

    name: ClassVar[str]
    streams: ClassVar[tuple[str, ...]]
    """What it reads, in the order in which the functions below take it."""

    @abstractmethod
    def resident(self, *streams: Stream) -> Stream:
        """The query on workers that stay."""

    @abstractmethod
    def plain(self, *streams: DataFrame) -> DataFrame:
        """The same answers by plain Spark, over static rows."""

    def dataflow(
        self,
        rows: int,
        rate: float = 1000.0,
        paced: bool = False,
        parallelism: int = 1,
        sink: SinkLogic | None = None,
        delay: str | None = None,
        **parameters: float,
    ) -> Dataflow:
        """The query over generated streams.

        Parameters
        ----------
        rows, rate
            How many rows its streams have together, and how many a second.
        paced
            Whether rows come by the clock; otherwise as fast as they are read.
        parallelism
            Of all operators.
        sink
            Where results go; by default into memory.
        delay
            How late rows may come.
        parameters
            Of the workload, such as `skew=0.2` or `seed=7`.
        """
        flow = Flow(self.name, parallelism)
        sources = []
        for stream in self.streams:
            share = SHARES[stream] / sum(SHARES[one] for one in self.streams)
            speed = Constant(rate * share)
            made = Generated(
                Nexmark(stream, **parameters),  # type: ignore[arg-type]
                rows=round(rows * share),
                arrivals=Arrivals(speed),
                pace=speed if paced else None,
            )
            sources.append(flow.source(made, time="event_time", delay=delay, name=stream))
        self.resident(*sources).sink(sink or Memory(), name=SINK)
        return flow.dataflow()


@dataclass(frozen=True)
class Q1(Query):
    """Each bid with its price in euros, in whole cents, rounded down."""

    name: ClassVar[str] = "q1"
    streams: ClassVar[tuple[str, ...]] = ("bids",)

    def resident(self, *streams: Stream) -> Stream:
        """A map without state."""
        (bids,) = streams
        return bids.select("auction", "bidder", "price", "event_time", name="fields").map(_in_euros, name="euros")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """A projection."""
        (bids,) = streams
        return bids.selectExpr("auction", "bidder", f"price * {EURO_CENTS} div 100 as price", "event_time")


def _in_euros(bids: pa.RecordBatch) -> pa.RecordBatch:
    price = pc.divide(pc.multiply(bids.column("price"), EURO_CENTS), 100)
    return bids.set_column(bids.schema.get_field_index("price"), "price", price)


@dataclass(frozen=True)
class Q2(Query):
    """Bids for some auctions, by their numbers."""

    name: ClassVar[str] = "q2"
    streams: ClassVar[tuple[str, ...]] = ("bids",)

    def resident(self, *streams: Stream) -> Stream:
        """A filter."""
        (bids,) = streams
        return bids.filter(_is_chosen, name="filter").select("auction", "price", name="fields")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """A filter."""
        (bids,) = streams
        chosen = " or ".join(f"auction % {number} = 0" for number in CHOSEN_AUCTIONS)
        return bids.where(chosen).select("auction", "price")


def _is_chosen(bids: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    auction = bids.column("auction").to_numpy()
    return np.asarray((auction[:, None] % np.array(CHOSEN_AUCTIONS) == 0).any(axis=1))


@dataclass(frozen=True)
class Q3(Query):
    """Who sells what, of persons in three states: a join of all rows so far, whose state grows.

    Parameters
    ----------
    category
        Only auctions of this one, as in the first NexMark (there 10); None takes all, as both published evaluations do.
    """

    category: int | None = None

    name: ClassVar[str] = "q3"
    streams: ClassVar[tuple[str, ...]] = ("persons", "auctions")

    def resident(self, *streams: Stream) -> Stream:
        """A filter, and a join that gives pairs as they come; nothing is forgotten."""
        persons, auctions = streams
        sellers = persons.filter(pc.field("state").isin(CHOSEN_STATES), name="filter")
        if self.category is not None:
            auctions = auctions.filter(pc.field("category") == self.category, name="category")
        chosen = sellers.select("id", "name", "city", "state", name="sellers").key_by("id")
        return chosen.join(auctions.select("seller", auction="id", name="sold").key_by("seller"), name="join")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """A join."""
        persons, auctions = streams
        sellers = persons.where(F.col("state").isin(*CHOSEN_STATES)).select("id", "name", "city", "state")
        if self.category is not None:
            auctions = auctions.where(F.col("category") == self.category)
        return _joined(sellers, auctions.selectExpr("seller", "id as auction"), [])


@dataclass(frozen=True)
class Q5(Query):
    """Bids of each auction in sliding windows. (No second stage looks for the auction with most of them.)"""

    window: str = "5 minutes"
    slide: str = "1 minute"

    name: ClassVar[str] = "q5"
    streams: ClassVar[tuple[str, ...]] = ("bids",)

    def resident(self, *streams: Stream) -> Stream:
        """Counts when a window closes."""
        (bids,) = streams
        return bids.key_by("auction").aggregate(bids=count(), window=self.window, slide=self.slide, name="count")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """Spark's own windows."""
        return _counted(streams[0], "auction", F.window("event_time", self.window, self.slide))


@dataclass(frozen=True)
class Q8(Query):
    """Persons who offered something in the window in which they came.

    Pairs are given as their second row arrives, and a window is forgotten when event time has passed it: that is the
    running form of the query.
    """

    window: str = "10 seconds"

    name: ClassVar[str] = "q8"
    streams: ClassVar[tuple[str, ...]] = ("persons", "auctions")

    def resident(self, *streams: Stream) -> Stream:
        """A join in windows."""
        persons, auctions = streams
        came = persons.select("id", "name", "event_time", name="came").key_by("id")
        offered = auctions.select("seller", "event_time", auction="id", name="offered").key_by("seller")
        joined = came.join(offered, window=self.window, name="join")
        return joined.select("id", "name", "auction", "window_start", "window_end", name="fields")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """A join on the person and the window."""
        persons, auctions = streams
        window = F.window("event_time", self.window)
        spans = [window["start"].alias("window_start"), window["end"].alias("window_end")]
        came = persons.select("id", "name", *spans)
        offered = auctions.select("seller", F.col("id").alias("auction"), *spans)
        joined = _joined(came, offered, ["window_start", "window_end"])
        return joined.select("id", "name", "auction", "window_start", "window_end")


@dataclass(frozen=True)
class Q11(Query):
    """Bids of each bidder in sessions.

    The published query also fires after each 100,000 events; here a session is given once, when it is over.
    """

    gap: str = "10 seconds"

    name: ClassVar[str] = "q11"
    streams: ClassVar[tuple[str, ...]] = ("bids",)

    def resident(self, *streams: Stream) -> Stream:
        """Counts when a session closes."""
        (bids,) = streams
        return bids.key_by("bidder").aggregate(bids=count(), session=self.gap, name="count")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """Spark's own sessions."""
        return _counted(streams[0], "bidder", F.session_window("event_time", self.gap))


@dataclass(frozen=True)
class Q12(Query):
    """Bids of each bidder in tumbling windows.

    Parameters
    ----------
    window
        Its length.
    running
        Whether a batch of bids gives at once how many each of its bidders has by then, and a window is forgotten when
        event time has passed it. Otherwise a window is given when it closes. The last that is given of a bidder and
        window, which is the greatest, is the same in both forms.
    """

    window: str = "10 seconds"
    running: bool = False

    name: ClassVar[str] = "q12"
    streams: ClassVar[tuple[str, ...]] = ("bids",)

    def resident(self, *streams: Stream) -> Stream:
        """Counts of each window."""
        (bids,) = streams
        if self.running:
            window = Window.of("event_time", self.window)
            return bids.key_by("bidder").process(lambda context: _RunningCount(window), _COUNTS, name="count")
        return bids.key_by("bidder").aggregate(bids=count(), window=self.window, name="count")

    def plain(self, *streams: DataFrame) -> DataFrame:
        """Spark's own windows."""
        return _counted(streams[0], "bidder", F.window("event_time", self.window))


_COUNTS = pa.schema({"bidder": pa.int64(), "window_start": TIMESTAMP, "window_end": TIMESTAMP, "bids": pa.int64()})


class _RunningCount(Step):
    """Bids of each bidder in each open window, given as they come."""

    def __init__(self, window: Window) -> None:
        self._window, self._watermark = window, MIN_WATERMARK
        self._open: dict[int, Counter[int]] = {}

    def process(self, port: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The counts of the bidders of a batch, with this batch."""
        bids, times = timely(batch, self._window, self._watermark)
        self.refused += batch.num_rows - bids.num_rows
        bidders, starts = bids.column("bidder").to_numpy(), times - times % self._window.size
        for start in np.unique(starts).tolist():
            who, many = np.unique(bidders[starts == start], return_counts=True)
            known = self._open.setdefault(start, Counter())
            known.update(dict(zip(who.tolist(), many.tolist(), strict=True)))
            yield self._counts(start, who.tolist())

    def _counts(self, start: int, bidders: Iterable[int]) -> pa.RecordBatch:
        known = self._open[start]
        rows = [(bidder, start, start + self._window.size, known[bidder]) for bidder in bidders]
        columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), _COUNTS, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_COUNTS)

    def on_watermark(self, time: int) -> tuple[pa.RecordBatch, ...]:
        """Forget windows that are over."""
        if time != MAX_WATERMARK:
            self._watermark = time
            self._open = {start: known for start, known in self._open.items() if start + self._window.size > time}
        return ()

    def snapshot(self, number: int) -> dict[str, Any]:
        """The open windows."""
        found = [self._counts(start, known) for start, known in self._open.items()]
        return {"watermark": self._watermark, "counts": pa.Table.from_batches(found, _COUNTS)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with these."""
        if state:
            self._watermark = state["watermark"]
            counts = state["counts"]
            starts = counts.column("window_start").cast(pa.int64()).to_pylist()
            for start, bidder, bids in zip(
                starts, counts.column("bidder").to_pylist(), counts.column("bids").to_pylist(), strict=True
            ):
                self._open.setdefault(start, Counter())[bidder] = bids


QUERIES: dict[str, type[Query]] = {one.name: one for one in (Q1, Q2, Q3, Q5, Q8, Q11, Q12)}


def query(name: str) -> Query:
    """The query of this name, as it was published.

    >>> query("q4")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown query of NexMark 'q4': There are: q1, ...
    """
    if name not in QUERIES:
        raise OptionError.unknown("query of NexMark", name, QUERIES)
    return QUERIES[name]()


def _counted(bids: DataFrame, key: str, window: Column) -> DataFrame:
    counts = bids.groupBy(key, window.alias("window")).agg(F.count("*").alias("bids"))
    return counts.selectExpr(key, "window.start as window_start", "window.end as window_end", "bids")


def _joined(persons: DataFrame, auctions: DataFrame, beside: list[str]) -> DataFrame:
    """Persons with what they sell."""
    return persons.join(auctions.withColumnRenamed("seller", "id"), ["id", *beside])
