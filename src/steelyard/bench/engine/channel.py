"""What a channel costs beside a bare socket, and how fast words are counted through it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment
from steelyard.core.aggregates import count
from steelyard.core.topology import Channel, Instance
from steelyard.resident import Callback, Flow, run
from steelyard.resident.channel import Mailbox, Message, Outlet
from steelyard.resident.connection import Connection
from steelyard.resident.seal import Seal
from steelyard.resident.sources import Read, Reader
from steelyard.resident.wire import CREDIT, DATA, Kind, Packer, batch_bytes, batch_from
from steelyard.workloads import Words

MIB = 1 << 20
SMALL_ROWS = 16
WORKERS = 4
WORDS = 100_000
TABLE_ROWS = 1 << 19
"""Words that are made once and read again and again, so that making them is not measured."""
DEPLOY_OPERATORS, DEPLOY_PARALLELISM = 20, 2

_SCHEMA = pa.schema({"value": pa.int64()})
_THERE = Channel(0, 0, Instance("here", 0), Instance("there", 0), 0, False)
_BACK = Channel(1, 1, Instance("there", 0), Instance("here", 0), 0, False)


class End:
    """One end of two channels, one each way, over a connection: what a worker has, in a single thread."""

    def __init__(self, sock: socket.socket, out: Channel, into: Channel) -> None:
        seals = Seal(bytes([out.number])), Seal(bytes([into.number]))
        self.connection = Connection(sock, checks=seals)
        self._outlet = Outlet(out, self._transmit)
        self._into = into
        self._packer = Packer(_SCHEMA)
        self._mailbox = Mailbox([(into, self._grant)])
        self._waiting = 0

    def _transmit(self, message: Message) -> None:
        payload: Any = self._packer.payload(message.value) if message.kind is DATA else b""
        self.connection.send(message.kind, self._outlet.channel.number, message.number, payload)

    def _grant(self, batches: int) -> None:
        self.connection.send(CREDIT, self._into.number, batches)

    def _hear(self) -> None:
        frame = self.connection.receive()
        if frame.kind is CREDIT:
            self._outlet.grant(frame.number)
            return
        value = batch_from(frame.payload, _SCHEMA) if frame.kind is DATA else None
        self._mailbox.put(frame.channel, Message(frame.kind, frame.number, value, frame.note))
        self._waiting += 1

    def send(self, kind: Kind, batch: pa.RecordBatch | None) -> None:
        """Send when there is credit."""
        while not self._outlet.has_credit:
            self._hear()
        self._outlet.send(kind, batch)

    def take(self) -> Message:
        """The next message, worked off."""
        while not self._waiting:
            self._hear()
        taken = self._mailbox.take(timeout=0)
        assert taken is not None
        self._waiting -= 1
        self._mailbox.finished(taken[0].number, taken[1].kind)
        return taken[1]


def _sink_of_channel(sock: socket.socket, repetitions: int, size: int) -> None:
    end = End(sock, _BACK, _THERE)
    while end.take().kind is Kind.DATA:
        pass
    end.send(Kind.END, None)


def _through_channel(sock: socket.socket, repetitions: int, size: int) -> None:
    end = End(sock, _THERE, _BACK)
    batch = pa.record_batch({"value": np.arange(size // 8)}, schema=_SCHEMA)
    for _ in range(repetitions):
        end.send(Kind.DATA, batch)
    end.send(Kind.END, None)
    end.take()


def _echo_of_channel(sock: socket.socket, repetitions: int, size: int) -> None:
    end = End(sock, _BACK, _THERE)
    for _ in range(repetitions):
        end.send(Kind.DATA, end.take().value)


def _ping_channel(sock: socket.socket, repetitions: int, size: int) -> None:
    end = End(sock, _THERE, _BACK)
    batch = pa.record_batch({"value": np.arange(SMALL_ROWS)}, schema=_SCHEMA)
    for _ in range(repetitions):
        end.send(Kind.DATA, batch)
        end.take()


def _received(sock: socket.socket, buffer: bytearray) -> None:
    view, at = memoryview(buffer), 0
    while at < len(buffer):
        at += sock.recv_into(view[at:])


def _sink_of_socket(sock: socket.socket, repetitions: int, size: int) -> None:
    buffer = bytearray(size)
    for _ in range(repetitions):
        _received(sock, buffer)
    sock.sendall(b"!")


def _through_socket(sock: socket.socket, repetitions: int, size: int) -> None:
    data = bytes(size)
    for _ in range(repetitions):
        sock.sendall(data)
    sock.recv(1)


def _echo_of_socket(sock: socket.socket, repetitions: int, size: int) -> None:
    buffer = bytearray(size)
    for _ in range(repetitions):
        _received(sock, buffer)
        sock.sendall(buffer)


def _ping_socket(sock: socket.socket, repetitions: int, size: int) -> None:
    buffer = bytearray(size)
    for _ in range(repetitions):
        sock.sendall(buffer)
        _received(sock, buffer)


Half = Callable[[socket.socket, int, int], None]


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and those that it starts, on one core, where the system can.

    Left alone, a scheduler wakes the other end sometimes on the same core and sometimes on one that sleeps, which
    takes several times as long and has nothing to do with what is compared. On one core the bare socket is at its
    fastest, and the comparison at its hardest.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def seconds_between(here: Half, there: Half, repetitions: int, size: int) -> float:
    """How long one half takes in this process while the other runs in another, over a loopback connection."""
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()

    def other() -> None:
        with socket.create_connection(address) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there(sock, repetitions, size)
            sock.recv(1)  # until this side has closed

    process = multiprocessing.get_context("fork").Process(target=other)
    process.start()
    sock, _ = server.accept()
    with server, sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.perf_counter()
        here(sock, repetitions, size)
        taken = time.perf_counter() - begun
    process.join()
    return taken


@dataclass(frozen=True)
class Pair:
    """The channel's and the bare socket's seconds, one of each for every round."""

    channel: list[float]
    bare: list[float]
    repetitions: int

    @property
    def channel_each(self) -> float:
        """Median seconds of one message."""
        return statistics.median(self.channel) / self.repetitions

    @property
    def bare_each(self) -> float:
        """Median seconds of one message."""
        return statistics.median(self.bare) / self.repetitions

    @property
    def times_bare(self) -> float:
        """How often the bare socket's time the channel takes: the median over rounds, whose two were neighbours."""
        return statistics.median(ours / bare for ours, bare in zip(self.channel, self.bare, strict=True))


def compare(ours: tuple[Half, Half], bare: tuple[Half, Half], rounds: int, repetitions: int, size: int) -> Pair:
    """Both in turn, so that a slow moment of the machine hits both; the first round is not counted."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for kept, halves in zip(times, (ours, bare), strict=True):
            taken = seconds_between(*halves, repetitions, size)
            if number:
                kept.append(taken)
    return Pair(*times, repetitions)


@dataclass(frozen=True)
class Repeated(Reader):
    """The same rows again and again: a source that costs nothing."""

    table: pa.Table
    rows: int

    @property
    def schema(self) -> pa.Schema:
        """The table's."""
        return self.table.schema

    def splits(self, parallelism: int) -> list[str]:
        """One for each instance."""
        return [str(number) for number in range(parallelism)]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Rows of the table, from its beginning again behind its end."""
        at = offset % self.table.num_rows
        number = min(rows, self.rows - offset, self.table.num_rows - at)
        part = self.table.slice(at, number).to_batches()[0]
        return Read(part, offset + number, offset + number >= self.rows)


class WrongCountError(AssertionError):
    """Words were lost or counted twice."""


def count_words(rows: int, seed: int, combine: bool) -> float:
    """Seconds that a count of `rows` words through key-by takes in four processes, once they run."""
    made = Words(words=WORDS, seed=seed).rows(0, TABLE_ROWS, np.zeros(TABLE_ROWS, np.int64))
    table = pa.Table.from_batches([made]).select(["word"])
    total = multiprocessing.get_context("fork").Value("q", 0)

    def add(batch: pa.RecordBatch) -> None:
        with total.get_lock():
            total.value += int(np.asarray(batch.column("n")).sum())

    flow = Flow("word count", parallelism=WORKERS)
    words = flow.source(Repeated(table, rows // WORKERS), name="words")
    counted = words.key_by("word").aggregate(n=count(), emit="end", combine=combine, name="count")
    counted.sink(Callback(add))
    outcome = run(flow.dataflow(), workers=WORKERS, processes=True).outcome
    if total.value != rows // WORKERS * WORKERS:
        raise WrongCountError(f"{total.value} words were counted of {rows}")
    return outcome.seconds["run"]


def deploy_seconds() -> float:
    """Seconds to deploy 20 operators with 40 instances on four processes that have come."""
    flow = Flow("chain", parallelism=DEPLOY_PARALLELISM)
    stream = flow.source(_Nothing())
    for number in range(DEPLOY_OPERATORS - 2):
        stream = stream.key_by("value").map(lambda batch: batch, name=f"map {number}")
    stream.sink(Callback(lambda batch: None))
    return run(flow.dataflow(), workers=WORKERS, processes=True).outcome.seconds["deploy"]


@dataclass(frozen=True)
class _Nothing(Reader):
    """No rows at all."""

    schema: pa.Schema = _SCHEMA

    def splits(self, parallelism: int) -> list[str]:
        return []

    def read(self, split: str, offset: int, rows: int) -> Read:
        return Read(None, offset, True)


@experiment("channel", title="Channels between workers, beside bare sockets, and a word count through them")
def channel(run_as: Run) -> Result:
    """Large batches per second, round trips of small ones, and words counted per second by four workers."""
    rounds, large, small = (5, 100, 500) if run_as.quick else (25, 200, 2000)
    words = 4_000_000 if run_as.quick else 20_000_000
    steps = run_as.progress.track(
        ["large batches", "small batches", "words", "combined words", "deployment"], "channel"
    )
    small_size = len(batch_bytes(pa.record_batch({"value": np.arange(SMALL_ROWS)}, schema=_SCHEMA)))
    through: Pair | None = None
    trips: Pair | None = None
    seconds: dict[str, list[float]] = {"words": [], "combined words": [], "deployment": []}
    for step in steps:
        if step == "large batches":
            halves = (_through_channel, _sink_of_channel), (_through_socket, _sink_of_socket)
            through = compare(*halves, rounds, large, MIB)
        elif step == "small batches":
            halves = (_ping_channel, _echo_of_channel), (_ping_socket, _echo_of_socket)
            with one_core():
                trips = compare(*halves, rounds, small, small_size)
        elif step == "deployment":
            seconds[step] = [deploy_seconds()]
        else:
            repetitions = 1 if run_as.quick else 3
            seconds[step] = [count_words(words, run_as.seed, step != "words") for _ in range(repetitions)]
    assert through is not None
    assert trips is not None
    return result_of(through, trips, words, {step: statistics.median(taken) for step, taken in seconds.items()})


def result_of(through: Pair, trips: Pair, words: int, seconds: dict[str, float]) -> Result:
    """The figures from what was timed."""
    counted = words / seconds["words"] / 1e6
    return Result(
        parameters={
            "large_batch_bytes": MIB,
            "small_batch_rows": SMALL_ROWS,
            "rounds": len(through.channel),
            "large_batches": through.repetitions,
            "small_batches": trips.repetitions,
            "words": words,
            "distinct_words": WORDS,
            "workers": WORKERS,
        },
        metrics={
            "throughput_vs_bare_socket": 1 / through.times_bare,
            "rtt_vs_bare_socket": trips.times_bare,
            "wordcount_mrps": counted,
            "wordcount_combined_mrps": words / seconds["combined words"] / 1e6,
            "channel_mib_per_s": 1 / through.channel_each,
            "bare_mib_per_s": 1 / through.bare_each,
            "channel_rtt_us": trips.channel_each * 1e6,
            "bare_rtt_us": trips.bare_each * 1e6,
            "deploy_40_instances_s": seconds["deployment"],
        },
        tables=[_table(through, trips)],
        series=[
            Series("channel, 1 MiB", range(len(through.channel)), [through.repetitions / t for t in through.channel]),
            Series("bare socket, 1 MiB", range(len(through.bare)), [through.repetitions / t for t in through.bare]),
        ],
        targets=[
            Target("throughput_vs_bare_socket", at_least=0.5, explanation=_why(through)),
            Target("rtt_vs_bare_socket", at_most=5.0, explanation=_why(trips)),
            Target(
                "wordcount_mrps",
                at_least=1.0,
                explanation=f"four workers, the coordinator and whatever else runs share the cores; {counted:.2f} M/s",
            ),
            Target("deploy_40_instances_s", at_most=5.0, explanation="the machine was busy while workers connected"),
        ],
        notes=[
            "Both ends are processes on one machine, over the loopback interface. Channel and bare socket take turns, "
            "and what is compared are neighbours: the median over rounds of the ratio of their times.",
            "Round trips have both ends on one core, where the bare socket is fastest; large batches have all cores.",
            "A channel serialises batches, checks MACs, numbers and credit; the bare socket sends ready bytes.",
            "wordcount_mrps moves every word to the worker of its key; combined, batches are counted before they move.",
        ],
    )


def _table(through: Pair, trips: Pair) -> Table:
    rows = [
        (what, one.repetitions, statistics.median(times) / one.repetitions * 1e6, min(times) / one.repetitions * 1e6)
        for name, one in (("1 MiB one way", through), ("small, there and back", trips))
        for what, times in ((f"{name}, channel", one.channel), (f"{name}, bare socket", one.bare))
    ]
    return Table("time of one message", ("what", "messages", "median us", "least us"), rows)


def _why(pair: Pair) -> str:
    more = (pair.channel_each - pair.bare_each) * 1e6
    spread = max(pair.bare) / min(pair.bare)
    return (
        f"packing, checksums, numbers and credit took {more:.0f} us per message more than the bare socket, whose own "
        f"rounds differ by a factor of {spread:.1f}"
    )


@channel.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """MiB per second in every round, through a channel and through a bare socket."""
    title = "Messages of 1 MiB between two processes"
    charts.lines(figure.add_subplot(), result.series, title=title, x="round", y="MiB per second")
