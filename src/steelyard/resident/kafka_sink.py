"""Kafka without Spark: a sink that gives results once or at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.topology import Instance
from steelyard.resident.documents import documents
from steelyard.resident.kafka import ANSWER_SECONDS, WAIT_SECONDS, KafkaFailedError, client
from steelyard.resident.operator import Batches, InstanceContext, State, Step
from steelyard.resident.shares import Share
from steelyard.resident.sinks import SinkLogic

EPOCH_HEADER = "steelyard-batch"
"""The header that tells a record's epoch; the micro-batch engine writes its batch there."""
LAST_SECONDS = 1.0
"""How long a job that is stopped waits for records on their way."""
GATHER_MS = 1
"""How long records that are sent at once wait for others: each answer of a broker costs more than a record."""
TAKEN = "taken over "
"""Before the names in a state that are of another instance."""
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

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """Rows that may not be written yet, each by one instance, and by whom they were to be written.

        An instance goes on with the rows of the one before of the same number, and takes others over under the names of
        those who had them: only their groups tell whether their transactions went through. Numbers of epochs are those
        of all, so that a group never goes back, also where an instance goes and comes again.
        """
        known = [state for state in states if "epoch" in state]
        if not known:
            return {}
        newest = max(int(state["epoch"]) for state in known)
        nothing = {"rows": known[0]["rows"].slice(0, 0), "run": known[0].get("run", ""), "epoch": newest}
        made: State = dict((states[share.number] if share.number < len(states) else {}) or nothing)
        others = [number for number in share.taken_over if number != share.number]
        return made | {f"{TAKEN}{one} {name}": value for one in others for name, value in states[one].items()}


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

    def snapshot(self, number: int) -> State:
        self._flushed()
        return {}

    def restore(self, state: State) -> None:
        """Called with rows where the job delivered exactly once before, whose transaction may not have gone through."""
        for rows in state.values():
            if isinstance(rows, pa.Table):
                self._producer.send(rows)

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
        self._ready: list[tuple[int, pa.Table]] = []
        """Rows that are not written yet, by the checkpoint from which on they may be."""
        self._run = context.attempt.run
        """The run that began the job, which its snapshots know: epochs are counted from there."""
        self._logic, self._context = logic, context
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

    def snapshot(self, number: int) -> State:
        self._ready.append((number, pa.Table.from_batches(self._rows, self._schema)))
        self._rows = []
        earlier = {f"rows {at}": table for at, table in self._ready[:-1]}
        return {"epoch": number, "rows": self._ready[-1][1], "run": self._run, **earlier}

    def restore(self, state: State) -> None:
        """Called in every generation, with no state in the first."""
        if state:
            self._run = state.get("run", "")  # snapshots and marks of earlier releases know none
            newest = self._written()
            earlier = [(int(name.removeprefix("rows ")), name) for name in state if name.startswith("rows ")]
            for number, name in [*sorted(earlier), (int(state["epoch"]), "rows")]:
                if newest < number:
                    self._write(number, state[name])
        for number in sorted({int(name.split()[2]) for name in state if name.startswith(TAKEN)}):
            prefix = f"{TAKEN}{number} "
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            other = _TransactionStep(self._logic, replace(self._context, instance=Instance("", number)))
            other.restore(own)  # who was that instance is fenced off by now
            other.close()

    def committed(self, number: int) -> None:
        for at, table in self._ready:
            if at <= number:
                self._write(at, table)
        self._ready = [one for one in self._ready if one[0] > number]

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
