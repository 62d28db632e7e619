"""Kafka without Spark: a source that is read by partition and offset.

The client is Confluent's, over librdkafka: it has wheels for every platform, and transactions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.core import OptionError, SteelyardError
from steelyard.resident.kafka_records import RECORDS, batch_of
from steelyard.resident.sources import Read, Reader

WAIT_SECONDS = 0.05
"""How long a read waits for the first record, and a full queue for room."""
_SETTLING_SECONDS = 0.05
"""How long a partition that has no leader yet is given before it is asked for again."""
ANSWER_SECONDS = 30.0
"""How long a broker has to answer."""
END_SECONDS, END_AGAIN = 0.2, 5.0
"""The same where one only wants to know where a partition ends, and for how long nobody asks again if it does not."""
CONSUME_MOST = 10_000
FETCH_MS, FETCH_BYTES = 10, 1 << 20
"""How long a broker keeps the answer to a read back for more records, unless so many bytes have come: each answer costs
everybody more than a record, and where all cores are busy, time. A topic where nothing comes is asked as often."""
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
    tells_end: ClassVar[bool] = True
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

    @property
    def waited(self) -> float:  # type: ignore[override]
        """Seconds in which no record came."""
        return float(self._opened.get("waited", 0.0))

    def end(self, split: str) -> int | None:
        """The offset behind the newest record, of which the broker is asked; not known before the first read."""
        opened = self._opened
        if self.ends is not None or "closing" not in opened:
            return self.ends[split] if self.ends is not None else None
        with opened["closing"]:
            if "consumer" not in opened or time.monotonic() < opened["silent"]:
                return None
            try:
                found = opened["consumer"].get_watermark_offsets(client().TopicPartition(*_parted(split)), END_SECONDS)
            except client().KafkaException:
                found = None
            if found is None:
                opened["silent"] = time.monotonic() + END_AGAIN
            return None if found is None else int(found[1])

    def begin(self, split: str) -> int:
        """The first offset that is read."""
        return self.starts[split]

    def splits(self, parallelism: int) -> list[str]:
        """The partitions."""
        return sorted(self.starts, key=_parted)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Records that have come; waits for the first ones for a moment."""
        at = max(offset, self.begin(split))
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
            self._opened.update(closing=threading.Lock(), silent=0.0)
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
            begun = time.perf_counter()
            first = consumer.poll(WAIT_SECONDS)
            self._opened["waited"] = self.waited + time.perf_counter() - begun
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
            with self._opened["closing"]:  # nobody asks it for ends meanwhile
                self._opened.pop("consumer").close()


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
