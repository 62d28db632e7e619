"""Kafka without Spark: a source that is read by partition and offset, and a sink that gives results once or at once.

The client is Confluent's, over librdkafka: it has wheels for every platform, and transactions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.core import OptionError, SteelyardError
from steelyard.resident.documents import documents
from steelyard.resident.kafka_records import RECORDS, batch_of
from steelyard.resident.operator import Batches, InstanceContext, State, Step
from steelyard.resident.sinks import SinkLogic
from steelyard.resident.sources import Read, Reader

EPOCH_HEADER = "steelyard-batch"
"""The header that tells a record's epoch; the micro-batch engine writes its batch there."""
WAIT_SECONDS = 0.05
"""How long a read waits for the first record, and a full queue for room."""
_SETTLING_SECONDS = 0.05
"""How long a partition that has no leader yet is given before it is asked for again."""
ANSWER_SECONDS = 30.0
"""How long a broker has to answer."""
LAST_SECONDS = 1.0
"""How long a job that is stopped waits for records on their way."""
CONSUME_MOST = 10_000
FETCH_MS, FETCH_BYTES = 10, 1 << 20
"""How long a broker keeps the answer to a read back for more records, unless so many bytes have come: each answer costs
everybody more than a record, and where all cores are busy, time. A topic where nothing comes is asked as often."""
GATHER_MS = 1
"""How long records that are sent at once wait for others, for the same reason."""
_AT_ONCE = {"socket.nagle.disable": True}
"""Small requests do not wait for the answer to those before them."""
_PREFIX = "kafka."
_IGNORED = ("maxoffsetspertrigger", "minoffsetspertrigger", "failondataloss")
"""Options of Spark's source that are about batches, or whose strict form is the only one here."""


class KafkaFailedError(SteelyardError):
    """Kafka did not do what it was asked for; says what and why."""


def client() -> Any:
    """Confluent's client; OptionError that says how to get it where it is missing."""
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra, which not everybody has
    except ImportError as error:
        raise OptionError(
            "Kafka on the resident engine needs the package confluent-kafka: pip install 'steelyard[kafka]'"
        ) from error
    return confluent_kafka


def _split(topic: str, partition: int) -> str:
    return f"{topic}:{partition}"


def _parted(split: str) -> tuple[str, int]:
    topic, _, partition = split.rpartition(":")
    return topic, int(partition)


@dataclass(frozen=True)
class KafkaTopic(Reader):
    """Records of Kafka topics. A split is a partition, and an offset Kafka's own.

    Parameters
    ----------
    config
        Of the consumer: `bootstrap.servers` and whatever the broker asks for.
    starts
        The first offset of each partition.
    ends
        Where each partition is at its end; None where it has none.
    """

    config: Mapping[str, str]
    starts: Mapping[str, int]
    ends: Mapping[str, int] | None = None
    grows: ClassVar[bool] = True
    together: ClassVar[bool] = True
    schema: pa.Schema = RECORDS
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, options: Mapping[str, str], available_now: bool, known: dict[str, int] | None = None) -> KafkaTopic:
        """From the options of Spark's Kafka source, their names in lower case.

        Parameters
        ----------
        options
            `subscribe`, `startingoffsets` and `kafka.*`.
        available_now
            Whether records that come from now on are left for the next time.
        known
            First offsets of partitions that were read before; those of new ones are added.
        """
        config = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
        own = {name: value for name, value in options.items() if not name.startswith(_PREFIX)}
        for option in own:
            if option not in ("subscribe", "startingoffsets", *_IGNORED):
                raise OptionError(
                    f"engine('resident') does not know option {option!r} of a kafka source: it knows subscribe, "
                    "startingOffsets and kafka.*"
                )
        if "bootstrap.servers" not in config or not own.get("subscribe"):
            raise OptionError("a kafka source needs the options kafka.bootstrap.servers and subscribe")
        starting = own.get("startingoffsets", "latest")
        if starting not in ("earliest", "latest"):
            raise OptionError(f"startingOffsets must be earliest or latest on engine('resident'), got {starting!r}")
        starts = known if known is not None else {}
        fresh = not starts  # partitions that a topic gets later are read from their beginning
        ends: dict[str, int] = {}
        consumer = _consumer(config)
        try:
            for topic in own["subscribe"].split(","):
                for partition in _partitions(consumer, topic.strip()):
                    low, high = _bounds(consumer, partition)
                    split = _split(partition.topic, partition.partition)
                    starts.setdefault(split, high if starting == "latest" and fresh else low)
                    ends[split] = high
        finally:
            consumer.close()
        return cls(config, dict(starts), ends if available_now else None)

    def splits(self, parallelism: int) -> list[str]:
        """The partitions."""
        return sorted(self.starts, key=_parted)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Records that have come; waits for the first ones for a moment."""
        at = max(offset, self.starts[split])
        end = None if self.ends is None else self.ends[split]
        if end is not None and at >= end:
            return Read(None, at, True)
        waiting = self._waiting(split, at)
        if not waiting and self._has_room(split, rows):
            self._consume(min(rows, CONSUME_MOST))
        taken = [waiting.popleft() for _ in range(min(rows, len(waiting)))]
        if taken:
            self._opened["barred"].clear()
        after = taken[-1].offset() + 1 if taken else at
        if not waiting:  # what is left may be marks of transactions, which nobody reads
            after = max(after, self._opened["ended"].get(split, after))
        ended = end is not None and after >= end
        if end is not None and ended:  # records behind it are the next start's; the last before it may be a mark
            taken, after = [message for message in taken if message.offset() < end], end
            self._let_go(split)
        return Read(batch_of(taken) if taken else None, after, ended)

    def _waiting(self, split: str, at: int) -> deque[Any]:
        if "consumer" not in self._opened:
            # Without an end nobody asks where it is, and to be told would interrupt the wait for records.
            ends = {"enable.partition.eof": str(self.ends is not None).lower()}
            self._opened.update(consumer=_consumer({**ends, **self.config}), waiting={}, ended={}, barred=set())
        if split not in self._opened["waiting"]:
            topic, partition = _parted(split)
            self._opened["consumer"].incremental_assign([client().TopicPartition(topic, partition, at)])
            self._opened["waiting"][split] = deque()
        found: deque[Any] = self._opened["waiting"][split]
        return found

    def _has_room(self, split: str, rows: int) -> bool:
        """Whether no more than so many records wait to be read: a busy partition's must not pile up behind idle ones.

        Whoever asks for a split twice, and takes nothing meanwhile, wants this one alone: then others are let go.
        """
        waiting: dict[str, deque[Any]] = self._opened["waiting"]
        barred: set[str] = self._opened["barred"]
        while sum(map(len, waiting.values())) > rows:
            if split not in barred:
                barred.add(split)
                return False
            self._let_go(max(waiting, key=lambda one: len(waiting[one])))
        return True

    def _let_go(self, split: str) -> None:
        """Take no records of a split any more, until somebody reads it again."""
        self._opened["waiting"].pop(split).clear()
        self._opened["ended"].pop(split, None)
        self._opened["consumer"].incremental_unassign([client().TopicPartition(*_parted(split))])

    def _consume(self, most: int) -> None:
        """Take what has come, of whatever partition; where nothing has, wait for the first record, and no longer."""
        at_end, consumer = client().KafkaError._PARTITION_EOF, self._opened["consumer"]
        found = consumer.consume(most, 0)
        if not found and not any(self._opened["waiting"].values()):
            first = consumer.poll(WAIT_SECONDS)
            found = [] if first is None else [first, *consumer.consume(most, 0)]
        waiting: dict[str, deque[Any]] = self._opened["waiting"]
        queues = {_parted(split): queue for split, queue in waiting.items()}
        for message in found:
            error = message.error()
            if error is None:
                queue = queues.get((message.topic(), message.partition()))
                if queue is not None:  # else it was let go
                    queue.append(message)
                continue
            split = _split(message.topic(), message.partition()) if message.topic() else ""
            if error.code() == at_end:
                if split in waiting:  # else its records were let go, and are still to come
                    self._opened["ended"][split] = message.offset()
            elif error.fatal() or not error.retriable():
                raise KafkaFailedError(f"{split or 'the broker'} cannot be read: {error.str()}")

    def close(self) -> None:
        """Leave the broker."""
        if "consumer" in self._opened:
            self._opened.pop("consumer").close()
        self._opened.clear()


def _consumer(config: Mapping[str, str]) -> Any:
    # Offsets are in snapshots, not in Kafka. Uncommitted records are read, as Spark's source does, unless told not to.
    own = {
        **_AT_ONCE,
        "group.id": "steelyard",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": FETCH_MS,
        "fetch.min.bytes": FETCH_BYTES,
    }
    return client().Consumer({**own, **config}, logger=None)


def _partitions(consumer: Any, topic: str) -> list[Any]:
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise OptionError(f"topic {topic!r} cannot be read: {found.error or 'it has no partitions'}")
    return [client().TopicPartition(topic, number) for number in sorted(found.partitions)]


def _bounds(consumer: Any, partition: Any) -> tuple[int, int]:
    """The first offset of a partition, and the one behind its last; a partition may be new, and have no leader yet."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)
            return int(low), int(high)
        except client().KafkaException as error:
            settling = (client().KafkaError.NOT_LEADER_FOR_PARTITION, client().KafkaError.LEADER_NOT_AVAILABLE)
            if error.args[0].code() not in settling or time.monotonic() > deadline:
                split = _split(partition.topic, partition.partition)
                raise KafkaFailedError(f"{split} cannot be read: {error.args[0].str()}") from error
            time.sleep(_SETTLING_SECONDS)


EXACTLY_ONCE, AT_LEAST_ONCE = DELIVERIES = ("exactly_once", "at_least_once")
"""What a sink may promise."""


@dataclass(frozen=True)
class Kafka(SinkLogic):
    """Writes each row as a record, key and value as JSON; exactly once, or at once and at least once.

    Exactly once, for consumers that read committed records: an instance keeps the rows of an epoch until the snapshot
    that ends it, which holds them too. When the snapshot is durable they are sent in one transaction, which also
    commits the epoch's number as the offset of a consumer group, and beside it the run that began the job. After a
    failure that group tells whether the transaction went through; if not, the rows come out of the snapshot. What
    another job of the same name left there tells nothing.

    At least once: rows are sent as they come, and a snapshot waits until the broker has all of them. After a failure
    those since the last snapshot are sent again.

    Parameters
    ----------
    config
        Of the producer: `bootstrap.servers` and whatever the broker asks for.
    topic
        Where to.
    key_columns
        Of the record's key.
    name
        Of transactions and groups: one for each job, and the same when it goes on from its snapshots.
    delivery
        `"exactly_once"` or `"at_least_once"`.
    """

    config: Mapping[str, str]
    topic: str
    key_columns: tuple[str, ...]
    name: str
    delivery: str = EXACTLY_ONCE

    def __post_init__(self) -> None:
        if self.delivery not in DELIVERIES:
            raise OptionError.unknown("value of option 'delivery':", self.delivery, DELIVERIES)

    def start(self, context: InstanceContext) -> Step:
        """A producer for one instance."""
        return _TransactionStep(self, context) if self.delivery == EXACTLY_ONCE else _AtOnceStep(self)


class _Producer:
    """Sends rows to a topic, and tells when the broker did not take one."""

    def __init__(self, logic: Kafka, **config: Any) -> None:
        self._logic = logic
        self._failed: list[Any] = []
        # Of each record that was taken we need not hear.
        self.client = client().Producer({"delivery.report.only.error": True, **config, **logic.config}, logger=None)

    def _noted(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def send(self, rows: pa.RecordBatch | pa.Table, headers: list[tuple[str, bytes]] | None = None) -> None:
        """Give rows to the client, which sends them by itself."""
        topic, produce, noted = self._logic.topic, self.client.produce, self._noted
        keys, values = documents(rows, self._logic.key_columns), documents(rows, rows.schema.names)
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    produce(topic, value, key, headers=headers, on_delivery=noted)
                    break
                except BufferError:  # its queue is full: let some go
                    self.client.poll(WAIT_SECONDS)

    def poll(self) -> None:
        """Hear what became of what was sent."""
        self.client.poll(0)
        self.require()

    def require(self) -> None:
        """KafkaFailedError where the broker did not take a record."""
        if self._failed:
            raise KafkaFailedError(f"topic {self._logic.topic!r} refused a record: {self._failed[0].str()}")

    def asked(self, action: Any, *what: Any) -> Any:
        """What the client gives when it is asked to do something, within the time that a broker has to answer."""
        try:
            return action(*what, ANSWER_SECONDS)
        except client().KafkaException as error:
            said = error.args[0]
            why = said.str() if hasattr(said, "str") else str(said)
            raise KafkaFailedError(f"topic {self._logic.topic!r} cannot be written: {why}") from error


class _AtOnceStep(Step):
    """Rows as they come; a snapshot waits until the broker has those before it."""

    def __init__(self, logic: Kafka) -> None:
        self._topic = logic.topic
        self._producer = _Producer(logic, **{"linger.ms": GATHER_MS, "enable.idempotence": True})

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._producer.send(batch)
        self._producer.poll()
        return ()

    def _flushed(self) -> None:
        left = self._producer.asked(self._producer.client.flush)
        self._producer.require()
        if left:
            raise KafkaFailedError(f"topic {self._topic!r} did not take {left} records in {ANSWER_SECONDS:g} s")

    def snapshot(self, epoch: int) -> State:
        self._flushed()
        return {}

    def restore(self, state: State) -> None:
        """Called with rows where the job delivered exactly once before, whose transaction may not have gone through."""
        if state:
            self._producer.send(state["rows"])

    def finish(self) -> Batches:
        self._flushed()
        return ()

    def close(self) -> None:
        self._producer.client.flush(LAST_SECONDS)


class _TransactionStep(Step):
    """Rows of an epoch in one transaction, when the snapshot that ends it is durable."""

    def __init__(self, logic: Kafka, context: InstanceContext) -> None:
        self._schema = context.schema
        self._rows: list[pa.RecordBatch] = []
        self._ready: tuple[int, pa.Table] | None = None
        self._run = context.attempt.run
        """The run that began the job, which its snapshots know: epochs are counted from there."""
        self._who = f"steelyard-{logic.name}-{context.instance.number}"
        library = client()
        config = {"group.id": self._who, "enable.auto.commit": False, **logic.config}
        self._marks = library.Consumer(config, logger=None)
        self._producer = _Producer(logic, **{"transactional.id": self._who, "linger.ms": 5})
        self._mark = library.TopicPartition(logic.topic, 0)
        # Ends what an instance of an earlier generation left open.
        self._producer.asked(self._producer.client.init_transactions)

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._rows.append(batch)
        return ()

    def snapshot(self, epoch: int) -> State:
        table = pa.Table.from_batches(self._rows, self._schema)
        self._rows, self._ready = [], (epoch, table)
        return {"epoch": epoch, "rows": table, "run": self._run}

    def restore(self, state: State) -> None:
        """Called in every generation, with no state in the first."""
        if state:
            self._run = state.get("run", "")  # snapshots and marks of earlier releases know none
            if self._written() < int(state["epoch"]):
                self._write(int(state["epoch"]), state["rows"])

    def committed(self, epoch: int) -> None:
        if self._ready is not None:
            self._write(*self._ready)
            self._ready = None

    def _written(self) -> int:
        """The newest epoch of this job whose transaction went through; -1 where there is none."""
        found = self._marks.committed([self._mark], timeout=ANSWER_SECONDS)[0]
        if found.error is not None:
            raise KafkaFailedError(f"group {self._who!r} cannot be read: {found.error}")
        return max(-1, int(found.offset)) if (found.metadata or "") == self._run else -1

    def _write(self, epoch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        producer, sent = self._producer, self._producer.client
        sent.begin_transaction()
        producer.send(table, [(EPOCH_HEADER, str(epoch).encode())])
        marked = client().TopicPartition(self._mark.topic, self._mark.partition, epoch, self._run)
        producer.asked(sent.send_offsets_to_transaction, [marked], self._marks.consumer_group_metadata())
        producer.asked(sent.commit_transaction)
        producer.require()

    def close(self) -> None:
        self._marks.close()
