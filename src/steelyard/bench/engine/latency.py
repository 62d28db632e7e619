"""Latency from Kafka to Kafka: a running count on Spark's real-time mode, resident workers and Structured Streaming."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.bench import Cell, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.engine.broker import running_broker
from steelyard.bench.engine.latency_contenders import CHECKPOINT_SECONDS, CONTENDERS, Request
from steelyard.core.errors import SteelyardError
from steelyard.resident.kafka import ANSWER_SECONDS, client

RATES, QUICK_RATES = (1_000, 10_000), (10_000,)
KEYS = 1_000
PARTITIONS = 2
REAL_TIME, OURS, EACH_SECOND, PLAIN = CONTENDERS
MEASURED_SECONDS, QUICK_SECONDS = 30.0, 4.0
WARM_SECONDS, QUICK_WARM_SECONDS = 15.0, 3.0
"""Rows at the same rate before those that are measured; just-in-time compilers need them."""
ROUNDS, QUICK_ROUNDS = 3, 1
READY_SECONDS = 120.0
END_SECONDS = 30.0
"""How long results may take to come after the last row."""
TICK = 0.001
QUANTILES = (0.5, 0.9, 0.99, 0.999)
FIRST = b"first"
"""A key of its own, for the rows that tell when a contender is ready."""


class LatencyError(SteelyardError):
    """A contender that did not start, or counted otherwise than the rows that were sent."""


@dataclass(frozen=True)
class Seen:
    """A topic, as a consumer reads it: key, what a result says, and when the broker got each record, in ms."""

    key: np.ndarray[Any, np.dtype[np.object_]]
    count: np.ndarray[Any, np.dtype[np.int64]]
    at: np.ndarray[Any, np.dtype[np.int64]]


def make_topic(servers: str, name: str, partitions: int) -> None:
    """A topic whose records carry the broker's own time."""
    from confluent_kafka import admin as kafka_admin  # noqa: PLC0415 - an extra

    made: Any = kafka_admin
    admin = made.AdminClient({"bootstrap.servers": servers})
    topic = made.NewTopic(name, partitions, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([topic])[name].result(ANSWER_SECONDS)


def send(servers: str, topic: str, rate: int, seconds: float, seed: int) -> None:
    """Rows of drawn keys at a steady rate; run in a process of its own."""
    producer = client().Producer({"bootstrap.servers": servers, "linger.ms": 0})
    keys = [str(key).encode() for key in np.random.default_rng(seed).integers(0, KEYS, int(rate * seconds))]
    begun, sent = time.perf_counter(), 0
    while sent < len(keys):
        due = min(len(keys), int((time.perf_counter() - begun) * rate))
        for key in keys[sent:due]:
            producer.produce(topic, b"", key)
        sent = due
        producer.poll(0)
        time.sleep(TICK)
    producer.flush(ANSWER_SECONDS)


@contextmanager
def consuming(servers: str, topic: str) -> Iterator[tuple[Any, Any, int]]:
    """A consumer, the partitions of a topic from their beginning, and how many records there are."""
    library = client()
    consumer = library.Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex})
    try:
        parts = [library.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        yield consumer, parts, sum(consumer.get_watermark_offsets(part, timeout=ANSWER_SECONDS)[1] for part in parts)
    finally:
        consumer.close()


def records_of(servers: str, topic: str) -> int:
    """How many records a topic has."""
    with consuming(servers, topic) as (_, _, count):
        return count


def read_all(servers: str, topic: str) -> Iterator[Any]:
    """Every record of a topic, in order within a partition."""
    with consuming(servers, topic) as (consumer, parts, count):
        consumer.assign(parts)
        left = count
        while left:
            found = consumer.consume(min(left, 10_000), ANSWER_SECONDS)
            if not found:
                raise LatencyError(f"topic {topic} was not read to its end: {left} records are missing")
            left -= len(found)
            yield from found


def seen(servers: str, topic: str, *, results: bool) -> Seen:
    """What a topic has; of results, which counts they give."""
    found = list(read_all(servers, topic))
    told = [json.loads(one.value()) for one in found] if results else []
    keys = [one["key"].encode() for one in told] if results else [one.key() for one in found]
    counts = [int(one["n"]) for one in told] if results else [0] * len(found)
    return Seen(np.array(keys, object), np.array(counts, np.int64), np.array([one.timestamp()[1] for one in found]))


def latencies(rows: Seen, results: Seen, since: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row that the broker got at `since` or later, ms until it got the first result that counts the row.

    The n-th row of a key is counted by the first result of the key that says n or more.

    >>> rows = Seen(np.array([b"a", b"a", b"b"], object), np.zeros(3, int), np.array([10, 11, 12]))
    >>> results = Seen(np.array([b"a", b"b"], object), np.array([2, 1]), np.array([15, 13]))
    >>> latencies(rows, results, since=10).tolist()
    [5, 4, 1]
    """
    told: dict[bytes, tuple[list[int], list[int]]] = {}
    for key, count, at in zip(results.key, results.count.tolist(), results.at.tolist(), strict=True):
        counts, times = told.setdefault(key, ([], []))
        counts.append(count)
        times.append(at)
    ordinal: dict[bytes, int] = {}
    found = []
    for key, at in zip(rows.key, rows.at.tolist(), strict=True):
        ordinal[key] = ordinal.get(key, 0) + 1
        if at >= since:
            counts, times = told.get(key, ([], []))
            first = int(np.searchsorted(counts, ordinal[key]))
            if first == len(counts):
                raise LatencyError(f"row {ordinal[key]} of key {key!r} is in no result")
            found.append(times[first] - at)
    most = {key: counts[-1] for key, (counts, _) in told.items()}
    if most != ordinal:
        wrong = next(key for key in most.keys() | ordinal.keys() if most.get(key) != ordinal.get(key))
        raise LatencyError(f"key {wrong!r} has {ordinal.get(wrong)} rows, and was counted {most.get(wrong)} times")
    return np.array(found, np.int64)


@contextmanager
def running(name: str, request: Request, log: Path) -> Iterator[None]:
    """A contender in a process of its own, from when it has given its first result."""
    command = [sys.executable, "-m", "steelyard.bench.engine.latency_contenders", name, json.dumps(asdict(request))]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _until_ready(request, process, log, name)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        process.kill()
        process.wait()


def _until_ready(request: Request, process: subprocess.Popen[bytes], log: Path, name: str) -> None:
    """Send a row and wait for a result of it."""
    producer = client().Producer({"bootstrap.servers": request.servers})
    producer.produce(request.source, b"", FIRST)
    producer.flush(ANSWER_SECONDS)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LatencyError(f"{name} ended before its first result: {log.read_text(errors='replace')[-2000:]}")
        if records_of(request.servers, request.target):
            return
        time.sleep(0.2)
    raise LatencyError(f"{name} gave no result in {READY_SECONDS:g} s: {log.read_text(errors='replace')[-2000:]}")


def measure(name: str, servers: str, jars: str, rate: int, run: Run, turn: int, log: Path) -> np.ndarray[Any, Any]:
    """Latencies, in ms, of the rows of one run of one contender, behind the warm-up."""
    source, target = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("rows", "counts"))
    for topic in (source, target):
        make_topic(servers, topic, PARTITIONS)
    request = Request(servers, source, target, PARTITIONS, jars)
    warm, measured = (QUICK_WARM_SECONDS, QUICK_SECONDS) if run.quick else (WARM_SECONDS, MEASURED_SECONDS)
    with running(name, request, log):
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(servers, source, rate, warm + measured, run.seed + turn)
        )
        sender.start()
        sender.join()
        if sender.exitcode:
            raise LatencyError(f"the process that sends rows ended with {sender.exitcode}")
        counted = _until_counted(servers, source, target, name)
    rows = seen(servers, source, results=False)
    return latencies(rows, counted, int(rows.at.max() - measured * 1000))


def _until_counted(servers: str, source: str, target: str, name: str) -> Seen:
    """Wait until the last results have come, and give all of them."""
    rows = records_of(servers, source)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        most: dict[bytes, int] = {}
        found = seen(servers, target, results=True)
        most.update(zip(found.key, found.count.tolist(), strict=True))
        if sum(most.values()) >= rows:
            return found
        time.sleep(0.5)
    raise LatencyError(f"{name} had counted {sum(most.values())} of {rows} rows {END_SECONDS:g} s after the last one")


@experiment("latency", title="Latency from Kafka to Kafka, beside Spark's real-time mode")
def latency(run: Run) -> Result:
    """Milliseconds from a row in Kafka to the count of it in Kafka, on three engines and at two rates."""
    from steelyard.bench.engine.connector import connector_jars  # noqa: PLC0415 - loads Spark

    jars, note = connector_jars()
    found: dict[tuple[str, int], list[np.ndarray[Any, Any]]] = {}
    rounds = QUICK_ROUNDS if run.quick else ROUNDS
    rates = QUICK_RATES if run.quick else RATES
    turns = [(turn, rate, name) for turn in range(rounds) for rate in rates for name in _order(turn, run.quick)]
    with running_broker() as servers, tempfile.TemporaryDirectory(prefix="steelyard-latency-") as scratch:
        for number, (turn, rate, name) in enumerate(run.progress.track(turns, "latency")):
            run.progress.say(f"{name}, {rate:,} rows per second")
            log = Path(scratch) / f"{number}.log"
            found.setdefault((name, rate), []).append(measure(name, servers, jars, rate, run, turn, log))
    return result_of(found, rounds, run, note)


def _order(turn: int, quick: bool) -> Sequence[str]:
    """Each round another contender begins; a quick run has the two that are compared."""
    names = [REAL_TIME, OURS] if quick else list(CONTENDERS)
    return names[turn % len(names) :] + names[: turn % len(names)]


def result_of(
    found: Mapping[tuple[str, int], Sequence[np.ndarray[Any, Any]]], rounds: int, run: Run, note: str
) -> Result:
    """Percentiles of each run, the median of the runs, and ours over the real-time mode's."""
    figures = {
        (name, rate, q): float(np.median([np.quantile(one, q) for one in runs]))
        for (name, rate), runs in found.items()
        for q in QUANTILES
    }
    metrics: dict[str, float] = {}
    rates = sorted({rate for _, rate in found})
    for percent, q in (("p50", 0.5), ("p99", 0.99)):
        ratio = {rate: figures[OURS, rate, q] / figures[REAL_TIME, rate, q] for rate in rates}
        metrics[f"{percent}_vs_real_time"] = max(ratio.values())
        metrics |= {f"{percent}_vs_real_time_{rate}": value for rate, value in ratio.items()}
    for name, rate in found:
        short = name.replace(",", "").replace(" ", "_").replace("-", "_").lower()
        metrics |= {f"{short}_{rate}_p{q * 100:g}_ms".replace(".", "_"): figures[name, rate, q] for q in QUANTILES}
    rows: list[list[Cell]] = [[name, rate, *[figures[name, rate, q] for q in QUANTILES]] for name, rate in found]
    warm, measured = (QUICK_WARM_SECONDS, QUICK_SECONDS) if run.quick else (WARM_SECONDS, MEASURED_SECONDS)
    why = (
        "the broker, the sender and the workers share the machine's cores, which are full at the higher rate: the tail "
        "are bursts in which all of them wait for each other"
    )
    return Result(
        parameters={
            "keys": KEYS,
            "partitions": PARTITIONS,
            "rates": list(rates),
            "seconds": measured,
            "warm_up_seconds": warm,
            "rounds": rounds,
            "checkpoint_seconds": CHECKPOINT_SECONDS,
        },
        metrics=metrics,
        tables=[Table("milliseconds", ("engine", "rows per second", "p50", "p90", "p99", "p99.9"), rows)],
        series=_series(found),
        targets=[
            Target("p50_vs_real_time", at_most=0.5, explanation=why),
            Target("p99_vs_real_time", at_most=0.5, explanation=why),
        ],
        notes=[
            "From when the broker has a row to when it has the first result that counts it, by the broker's own clock, "
            "in whole milliseconds. …_vs_real_time is time here over time of Spark's real-time mode, at the worse of "
            "both rates; a figure is the median of the rounds.",
            "Each engine runs in a process of its own beside the broker and the sender, sends at least once, without "
            "lingering (ours gathers records for 1 ms, and has the broker gather for its reads for 10 ms at most), and "
            "reads the same two partitions; every row was counted.",
            *([note] if note else []),
        ],
    )


def _series(found: Mapping[tuple[str, int], Sequence[np.ndarray[Any, Any]]]) -> list[Series]:
    """Latency by the share of rows that have less."""
    shares = np.concatenate([np.linspace(0, 0.99, 100), [0.995, 0.999]])
    return [
        Series(
            f"{name}, {rate:,} rows/s",
            (shares * 100).tolist(),
            np.quantile(np.concatenate(list(runs)), shares).tolist(),
        )
        for (name, rate), runs in found.items()
    ]


@latency.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """How many rows are counted within how long, for each rate."""
    rates = result.parameters["rates"]
    figure.set_size_inches(12, 4.8)
    panels = []
    for place, rate in enumerate(rates):
        axes = figure.add_subplot(1, len(rates), place + 1)
        mine = [
            Series(one.name.rpartition(", ")[0], one.x, [max(value, 0.5) for value in one.y])
            for one in result.series
            if one.name.endswith(f", {rate:,} rows/s")
        ]
        charts.lines(axes, mine, title=f"{rate:,} rows per second", x="rows, %", y="latency, ms", log="y", legend=False)
        panels.append(axes)
    charts.legend_below(figure, *panels)
