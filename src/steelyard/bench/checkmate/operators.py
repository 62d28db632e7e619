"""What rows of the queries cost, weigh and give, measured on the resident engine's own operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench.timing import line_of, processor_seconds
from steelyard.core.key_groups import DEFAULT_GROUPS, KeyGroups
from steelyard.core.topology import Instance
from steelyard.resident.join import Join
from steelyard.resident.operator import InstanceContext, Step
from steelyard.resident.routing import ByHash
from steelyard.resident.snapshot import packed
from steelyard.resident.windows import Window
from steelyard.resident.wire import batch_bytes, batch_from
from steelyard.workloads import Links, Nexmark
from steelyard.workloads.nexmark import AUCTIONS, EVENTS, FIRST_ID, PERSONS

ROWS = 1_000
"""Of the large one of two batches: the small one has a single row."""
KNOWN = 2_000
"""Rows that a join has when it is measured."""
SECOND = 1_000_000
Figures = dict[str, float]


def operators() -> dict[str, Figures]:
    """By hop, `query.sender.receiver`, and by source, `query.source`: seconds, bytes, rows that come out."""
    from steelyard.applications.nexmark import _in_euros, _RunningCount  # noqa: PLC0415 - loads Spark

    bids, persons, auctions = (rows_of(stream) for stream in ("bids", "persons", "auctions"))
    euros = _in_euros(bids.select(["auction", "bidder", "price", "event_time"]))
    window = Window.of("event_time", "10 seconds")
    counting = _RunningCount(window)
    counts = next(iter(counting.process(0, bids)))
    sides = [persons, auctions]
    pairs, windowed_pairs = (example(joined(sides, one), sides) for one in (None, (window, window)))
    found = {
        "q1.source": source(bids),
        "q1.source.map": hop(bids, lambda one: _in_euros(one.select(["auction", "bidder", "price", "event_time"]))),
        "q1.map.sink": hop(euros, batch_bytes),
        "q3.persons": source(persons, "id"),
        "q3.auctions": source(auctions, "seller"),
        "q3.persons.filter": {**hop(persons, _chosen), "gives": _chosen(rows_of("persons", 50_000)).num_rows / 50_000},
        "q3.join.sink": hop(pairs, batch_bytes),
        "q8.persons": source(persons, "id"),
        "q8.auctions": source(auctions, "seller"),
        "q8.join.sink": hop(windowed_pairs, batch_bytes),
        "q12.source": source(bids, "bidder"),
        "q12.source.count": {
            **hop(bids, lambda one: list(counting.process(0, one))),
            "kept_bytes": state_bytes(_RunningCount(window), [bids]) / len(set(bids.column("bidder").to_pylist())) / 46,
            "bytes_of_a_key": state_bytes(_RunningCount(window), [bids]) / len(set(bids.column("bidder").to_pylist())),
        },
        "q12.count.sink": hop(counts, batch_bytes),
    }
    for query, windows, chosen in (("q3", None, True), ("q8", (window, window), False)):
        gives = dict(zip(("persons", "auctions"), matches(chosen), strict=True))
        for port, (side, rows) in enumerate((("persons", persons), ("auctions", auctions))):
            sender = "filter" if (query, side) == ("q3", "persons") else side
            step = joined(sides, windows)
            example(step, [one.slice(0, KNOWN) for one in sides])
            found[f"{query}.{sender}.join"] = {
                **hop(rows, _through(step, port), grows=True),
                "gives": gives[side],
                "kept_bytes": state_bytes(joined(sides, windows), [rows], port) / rows.num_rows,
            }
    return found | cyclic()


def _through(step: Step, port: int) -> Callable[[pa.RecordBatch], object]:
    return lambda batch: list(step.process(port, batch))


def rows_of(stream: str, rows: int = ROWS) -> pa.RecordBatch:
    """Rows of a stream, in the first second of event time."""
    return Nexmark(stream, seed=1).rows(0, rows, np.zeros(rows, np.int64))


def _chosen(persons: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc  # noqa: PLC0415

    return persons.filter(pc.field("state").isin(["OR", "ID", "CA"]))


def hop(batch: pa.RecordBatch, work: Callable[[pa.RecordBatch], object], grows: bool = False) -> Figures:
    """Seconds of the receiver and bytes on the wire, for a message and for each row in it."""
    one = batch.slice(0, 1)
    times = (60, 2) if grows else (400, 20)
    seconds = [processor_seconds(lambda: work(some), many) for some, many in zip((one, batch), times, strict=True)]  # noqa: B023
    message, row = line_of((1, batch.num_rows), seconds)
    sizes = [len(batch_bytes(some)) for some in (one, batch)]
    message_bytes, row_bytes = line_of((1, batch.num_rows), sizes)
    return {
        "message_seconds": message,
        "row_seconds": row,
        "message_bytes": message_bytes,
        "row_bytes": row_bytes,
    }


def source(batch: pa.RecordBatch, key: str | None = None) -> Figures:
    """Seconds to read a row out of a log in which it is alone, and to find its receiver."""
    one = batch.slice(0, 1)
    data = batch_bytes(one)
    by_hash = ByHash(KeyGroups(DEFAULT_GROUPS, 10), (key,)) if key else None

    def read() -> object:
        row = batch_from(data, one.schema)
        return list(by_hash.split(row)) if by_hash else row

    return {"row_seconds": processor_seconds(read, 400)}


def joined(sides: list[pa.RecordBatch], windows: tuple[Window, Window] | None) -> Step:
    """A join of persons and auctions, with all their columns."""
    logic = Join(("id",), ("seller",), windows)
    inputs = [side.schema for side in sides]
    step: Step = logic.start(InstanceContext(Instance("join", 0), 1, inputs, logic.output(inputs)))
    return step


def example(step: Step, sides: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows that a join gives, when it is given both sides."""
    made = [batch for port, side in enumerate(sides) for batch in step.process(port, side)]
    return max(made, key=lambda batch: batch.num_rows)


def state_bytes(step: Step, batches: Iterable[pa.RecordBatch], port: int = 0) -> float:
    """What a step writes of these rows."""
    for batch in batches:
        list(step.process(port, batch))
    return float(len(packed(step.snapshot(0))))


def matches(chosen: bool, auctions: int = 200_000) -> tuple[float, float]:
    """Pairs that a person finds when it comes, and an auction, of all so far; persons of three states alone, or all.

    In windows of ten seconds it is the same at the rates of these experiments: the last thousand persons, who offer
    everything, have all come within a second.
    """
    numbers = np.arange(auctions)
    event = numbers // AUCTIONS * EVENTS + PERSONS + numbers % AUCTIONS
    table = Nexmark("auctions", hot_sellers=1, seed=1).rows(0, auctions, np.zeros(auctions, np.int64))
    seller = table.column("seller").to_numpy() - FIRST_ID
    came = seller * EVENTS
    persons = auctions // AUCTIONS
    states = (
        Nexmark("persons", seed=1).rows(0, persons + 20, np.zeros(persons + 20, np.int64)).column("state").to_pylist()
    )
    kept = np.array([not chosen or state in ("OR", "ID", "CA") for state in states])[seller]
    return float((kept & (came > event)).sum() / kept.sum() * auctions / persons), float((kept & (came < event)).mean())


def cyclic(changes: int = 60_000) -> dict[str, Figures]:
    """Reachability over a graph that changes, one instance of each operator."""
    from steelyard.applications.reachability import _Join, _leads_on, _project, _source  # noqa: PLC0415 - loads Spark

    table = Links(seed=1).rows(0, changes, np.zeros(changes, np.int64))
    kinds = np.array(table.column("change").to_pylist())
    links = table.filter(pa.array(kinds == "new link")).select(["id", "start", "end"])
    sources = _source(table.filter(pa.array(kinds == "new source")))
    deleted = table.filter(pa.array(np.char.startswith(kinds, "delete"))).select(["id"])
    join = _Join()
    given, came = Counter[str](), Counter[str]()
    seen: list[pa.RecordBatch] = []

    def through(port: int, batch: pa.RecordBatch, whence: str) -> None:
        came[whence] += batch.num_rows
        for pairs in join.process(port, batch):
            given[whence] += pairs.num_rows
            seen.append(pairs)
            kept = pairs.filter(pa.array(_leads_on(pairs)))
            came["pairs"] += pairs.num_rows
            given["pairs"] += kept.num_rows
            made = _project(kept)
            back = made.filter(made.column("added"))
            if back.num_rows:
                through(1, back, "project")

    parts = 60
    for part in range(parts):
        for port, batch, whence in ((0, links, "links"), (1, sources, "sources"), (2, deleted, "deleted")):
            size = batch.num_rows // parts
            through(port, batch.slice(part * size, size), whence)
    pairs = pa.Table.from_batches(seen).combine_chunks().to_batches()[0].slice(0, ROWS)
    paths = _project(pairs)
    kept_bytes = len(packed(join.snapshot(0))) / came.total()
    shares = {whence: given[whence] / came[whence] for whence in came}
    return {
        "cyclic.links": source(links, "start"),
        "cyclic.sources": source(sources, "reachable"),
        "cyclic.links.join": {**_kept(links, join, 0), "gives": shares["links"], "kept_bytes": kept_bytes},
        "cyclic.sources.join": {**_kept(sources, join, 1), "gives": shares["sources"], "kept_bytes": kept_bytes},
        "cyclic.join.select": {**hop(pairs, _leads_on), "gives": shares["pairs"]},
        "cyclic.select.project": hop(pairs, _project),
        "cyclic.project.join": {**_kept(paths, join, 1), "gives": shares["project"], "kept_bytes": kept_bytes},
        "cyclic.project.sink": hop(paths, batch_bytes),
    }


def _kept(batch: pa.RecordBatch, join: Any, port: int) -> Figures:
    return hop(batch.slice(0, ROWS), _through(join, port), grows=True)
