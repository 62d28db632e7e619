"""The exactly-once sink of Kafka over a client that is made up: whose mark tells what was sent."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from steelyard.core.dataflow import Instance
from steelyard.resident.kafka_sink import Kafka
from steelyard.resident.operator import Attempt, InstanceContext

SCHEMA = pa.schema({"k": pa.string()})


class Partition:
    def __init__(self, topic, partition, offset=-1001, metadata=None):
        self.topic, self.partition, self.offset, self.metadata, self.error = topic, partition, offset, metadata, None


class Marks:
    """A broker that keeps the newest mark of each group, as far as the sink is concerned."""

    def __init__(self):
        self.groups, self.sent = {}, []

    def client(self):
        def consumer(config, logger):
            group = config["group.id"]

            def committed(partitions, timeout):
                return [self.groups.get(group, Partition("t", 0))]

            return SimpleNamespace(committed=committed, consumer_group_metadata=lambda: group, close=lambda: None)

        def producer(config, logger):
            def marked(offsets, group, timeout):
                self.groups[group] = offsets[0]

            def produce(topic, value, key, headers, on_delivery):
                self.sent.append((dict(headers)["steelyard-batch"], value))

            done = lambda *_: None  # noqa: E731
            return SimpleNamespace(
                init_transactions=done,
                begin_transaction=done,
                commit_transaction=done,
                send_offsets_to_transaction=marked,
                produce=produce,
            )

        return SimpleNamespace(
            Consumer=consumer, Producer=producer, TopicPartition=Partition, KafkaException=RuntimeError
        )


@pytest.fixture
def marks(monkeypatch):
    made = Marks()
    monkeypatch.setattr("steelyard.resident.kafka_sink.client", made.client)
    return made


def sink(run, state):
    context = InstanceContext(Instance("sink", 0), 1, [SCHEMA], SCHEMA, attempt=Attempt(run, 0))
    step = Kafka({}, "t", ("k",), "name").start(context)
    step.restore(state)
    return step


def epochs(step, *numbers):
    """Write these epochs, all but the last of them heard of."""
    for number in numbers:
        step.process(0, pa.record_batch({"k": [f"of {number}"]}))
        state = step.snapshot(number)
        if number != numbers[-1]:
            step.committed(number)
    return state


def test_a_job_begun_anew_under_a_name_does_not_take_the_mark_of_the_one_before_for_its_own(marks):
    old = sink("a", {})
    epochs(old, 1, 2, 50)
    old.committed(50)
    marks.sent.clear()
    state = epochs(sink("b", {}), 1)  # durable, but the worker dies before it hears of that
    for _ in range(2):
        sink("b", state)
    assert marks.sent == [(b"1", '{"k":"of 1"}')]


def test_a_job_that_goes_on_in_another_run_knows_its_own_mark(marks):
    state = epochs(sink("a", {}), 1, 2)
    state = epochs(sink("b", state), 3, 4)
    sink("c", state)
    sink("d", state)
    assert [epoch for epoch, _ in marks.sent] == [b"1", b"2", b"3", b"4"]


def test_a_snapshot_of_an_earlier_release_goes_on_by_the_number_of_its_mark(marks):
    state = epochs(sink("a", {}), 6, 7)
    del state["run"]
    marks.groups = {"steelyard-name-0": Partition("t", 0, 7)}
    marks.sent.clear()
    sink("b", state)
    assert marks.sent == []
    marks.groups = {"steelyard-name-0": Partition("t", 0, 6)}
    for _ in range(2):
        again = sink("c", state)
    assert marks.sent == [(b"7", '{"k":"of 7"}')]
    state = epochs(again, 8)
    for _ in range(2):
        sink("d", state)
    assert [epoch for epoch, _ in marks.sent] == [b"7", b"8"]
