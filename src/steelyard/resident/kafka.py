"""Kafka without Spark: a source that is read by partition and offset, and a sink that gives each epoch once.

The client is Confluent's, over librdkafka: it has wheels for every platform, and transactions.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.core import OptionError, SteelyardError
from steelyard.resident.operator import Batches, InstanceContext, State, Step
from steelyard.resident.sinks import SinkLogic
from steelyard.resident.sources import Read, Reader

EPOCH_HEADER = "steelyard-batch"
"""The header that tells a record's epoch; the micro-batch engine writes its batch there."""
WAIT_SECONDS = 0.05
"""How long a read waits for records."""
ANSWER_SECONDS = 30.0
"""How long a broker has to answer."""
CONSUME_MOST = 10_000
_PREFIX = "kafka."
_IGNORED = ("maxoffsetspertrigger", "minoffsetspertrigger", "failondataloss")
"""Options of Spark's source that are about batches, or whose strict form is the only one here."""

RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
    }
)
"""The columns of records, as Spark's source has them."""


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
                    low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)
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
        if self.ends is not None and at >= self.ends[split]:
            return Read(None, at, True)
        waiting = self._waiting(split, at)
        if not waiting:
            self._consume(min(rows, CONSUME_MOST))
        taken = [waiting.popleft() for _ in range(min(rows, len(waiting)))]
        if self.ends is not None:
            taken = [message for message in taken if message.offset() < self.ends[split]]
        after = taken[-1].offset() + 1 if taken else at
        if not waiting:  # what is left may be marks of transactions, which nobody reads
            after = max(after, self._opened["ended"].get(split, after))
        return Read(_batch(taken) if taken else None, after, self.ends is not None and after >= self.ends[split])

    def _waiting(self, split: str, at: int) -> deque[Any]:
        if "consumer" not in self._opened:
            self._opened.update(consumer=_consumer(self.config), waiting={}, ended={})
        if split not in self._opened["waiting"]:
            topic, partition = _parted(split)
            self._opened["consumer"].incremental_assign([client().TopicPartition(topic, partition, at)])
            self._opened["waiting"][split] = deque()
        found: deque[Any] = self._opened["waiting"][split]
        return found

    def _consume(self, most: int) -> None:
        """Take what has come, of whatever partition."""
        at_end = client().KafkaError._PARTITION_EOF
        for message in self._opened["consumer"].consume(most, WAIT_SECONDS):
            error = message.error()
            split = _split(message.topic(), message.partition()) if message.topic() else ""
            if error is None:
                self._opened["waiting"][split].append(message)
            elif error.code() == at_end:
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
        "group.id": "steelyard",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
    }
    return client().Consumer({**own, **config}, logger=None)


def _partitions(consumer: Any, topic: str) -> list[Any]:
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise OptionError(f"topic {topic!r} cannot be read: {found.error or 'it has no partitions'}")
    return [client().TopicPartition(topic, number) for number in sorted(found.partitions)]


def _batch(messages: list[Any]) -> pa.RecordBatch:
    """Records as a batch. The client gives them one by one, so this is the one place that looks at each."""
    stamps = [message.timestamp() for message in messages]
    return pa.record_batch(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.topic() for message in messages], pa.string()),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([at * 1000 for _, at in stamps], pa.timestamp("us", "UTC")),
            pa.array([kind - 1 for kind, _ in stamps], pa.int32()),  # Spark counts from 0: when it was created
        ],
        schema=RECORDS,
    )


@dataclass(frozen=True)
class Kafka(SinkLogic):
    """Writes each row as a record, key and value as JSON; exactly once, for consumers that read committed records.

    An instance keeps the rows of an epoch until the snapshot that ends it, which holds them too. When the snapshot is
    durable they are sent in one transaction, which also commits the epoch's number as the offset of a consumer group.
    After a failure that group tells whether the transaction went through; if not, the rows come out of the snapshot.

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
    """

    config: Mapping[str, str]
    topic: str
    key_columns: tuple[str, ...]
    name: str

    def start(self, context: InstanceContext) -> Step:
        """A producer for one instance."""
        return _KafkaStep(self, context)


class _KafkaStep(Step):
    def __init__(self, logic: Kafka, context: InstanceContext) -> None:
        self._logic, self._schema = logic, context.schema
        self._rows: list[pa.RecordBatch] = []
        self._ready: tuple[int, pa.Table] | None = None
        self._who = f"steelyard-{logic.name}-{context.instance.number}"
        library = client()
        plain = dict(logic.config)
        self._marks = library.Consumer({"group.id": self._who, "enable.auto.commit": False, **plain}, logger=None)
        self._producer = library.Producer({"transactional.id": self._who, "linger.ms": 5, **plain}, logger=None)
        self._mark = library.TopicPartition(logic.topic, 0)
        self._asked(self._producer.init_transactions)  # ends what an instance of an earlier generation left open

    def _asked(self, action: Any, *what: Any) -> Any:
        try:
            return action(*what, ANSWER_SECONDS)
        except client().KafkaException as error:
            said = error.args[0]
            why = said.str() if hasattr(said, "str") else str(said)
            raise KafkaFailedError(f"topic {self._logic.topic!r} cannot be written: {why}") from error

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._rows.append(batch)
        return ()

    def snapshot(self, epoch: int) -> State:
        table = pa.Table.from_batches(self._rows, self._schema)
        self._rows, self._ready = [], (epoch, table)
        return {"epoch": epoch, "rows": table}

    def restore(self, state: State) -> None:
        """Called in every generation, with no state in the first."""
        if state and self._written() < int(state["epoch"]):
            self._write(int(state["epoch"]), state["rows"])

    def committed(self, epoch: int) -> None:
        if self._ready is not None:
            self._write(*self._ready)
            self._ready = None

    def _written(self) -> int:
        """The newest epoch whose transaction went through."""
        found = self._marks.committed([self._mark], timeout=ANSWER_SECONDS)[0]
        if found.error is not None:
            raise KafkaFailedError(f"group {self._who!r} cannot be read: {found.error}")
        return int(found.offset)

    def _write(self, epoch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        library = client()
        failed: list[Any] = []

        def noted(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        producer, header = self._producer, [(EPOCH_HEADER, str(epoch).encode())]
        producer.begin_transaction()
        for row in table.to_pylist():
            key = _document({name: row[name] for name in self._logic.key_columns})
            value = _document(row)
            while True:
                try:
                    producer.produce(self._logic.topic, value, key, headers=header, on_delivery=noted)
                    break
                except BufferError:  # its queue is full: let some go
                    producer.poll(WAIT_SECONDS)
        marked = library.TopicPartition(self._mark.topic, self._mark.partition, epoch)
        self._asked(producer.send_offsets_to_transaction, [marked], self._marks.consumer_group_metadata())
        self._asked(producer.commit_transaction)
        if failed:
            raise KafkaFailedError(f"topic {self._logic.topic!r} refused a record: {failed[0].str()}")

    def close(self) -> None:
        self._marks.close()


def _document(row: Mapping[str, Any]) -> str:
    """A row as Spark's to_json writes it, nulls included; JSON has no NaN and nothing infinite, so these are text."""
    odd = {name: str(at).replace("nan", "NaN").replace("inf", "Infinity") for name, at in row.items() if _is_odd(at)}
    return json.dumps({**row, **odd}, default=_plain, separators=(",", ":"), ensure_ascii=False)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _plain(value: Any) -> Any:
    """What JSON has no type for, as Spark's to_json writes it."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.removesuffix("+00:00") + "Z" if value.tzinfo else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def job_name(checkpoint: str) -> str:
    """A name for the transactions of a query, from where its state lives.

    >>> job_name("a") == job_name("a") != job_name("b")
    True
    """
    return hashlib.sha256(checkpoint.encode()).hexdigest()[:16]
