"""Kafka on the resident engine, with a real broker: records by offset, and results exactly once."""

from __future__ import annotations

import builtins
import json
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core import OptionError
from steelyard.core.topology import Instance
from steelyard.resident import Flow, Memory, Settings, Step, run
from steelyard.resident.json_rows import JsonRows
from steelyard.resident.kafka import ANSWER_SECONDS, KafkaTopic, client
from steelyard.resident.kafka_sink import AT_LEAST_ONCE, EPOCH_HEADER, EXACTLY_ONCE, Kafka
from steelyard.resident.operator import Attempt, InstanceContext
from steelyard.resident.transformed import Transformed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PARTITIONS = 3
EVENT = pa.schema({"k": pa.string(), "at": pa.timestamp("us", "UTC")})
RESULT = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})


@pytest.fixture
def topic(kafka_servers):
    """A new topic of three partitions, and what writes to it."""
    return Topic(kafka_servers)


class Topic:
    def __init__(self, servers):
        self.servers, self.name = servers, f"t-{uuid.uuid4().hex[:8]}"
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(ANSWER_SECONDS)

    @property
    def config(self):
        return {"bootstrap.servers": self.servers}

    def write(self, values, **transaction):
        producer = client().Producer({**self.config, **transaction})
        if transaction:
            producer.init_transactions(ANSWER_SECONDS)
            producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(self.name, value, str(number).encode(), partition=number % PARTITIONS)
        if transaction:
            producer.commit_transaction(ANSWER_SECONDS)
        assert producer.flush(ANSWER_SECONDS) == 0

    def source(self, available_now=True, starting="earliest", known=None):
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, "startingoffsets": starting}
        return KafkaTopic.of(options, available_now, known)

    def first(self):
        """Some record, as the client gives it."""
        consumer = client().Consumer({**self.config, "group.id": uuid.uuid4().hex})
        consumer.assign([client().TopicPartition(self.name, number, 0) for number in range(PARTITIONS)])
        try:
            return consumer.consume(1, ANSWER_SECONDS)[0]
        finally:
            consumer.close()

    def committed(self):
        """(key, value) of the records that a consumer of committed records sees."""
        options = {"kafka.bootstrap.servers": self.servers, "kafka.isolation.level": "read_committed"}
        reader = KafkaTopic.of({**options, "subscribe": self.name, "startingoffsets": "earliest"}, True)
        found = []
        for split in reader.splits(1):
            offset, ended = 0, False
            while not ended:
                batch, offset, ended = reader.read(split, offset, 100)
                found += batch.to_pylist() if batch is not None else []
        reader.close()
        return [(json.loads(one["key"]), json.loads(one["value"])) for one in found]


def test_records_are_read_by_partition_and_offset_again_and_again(topic):
    topic.write([f"v{number}".encode() for number in range(20)])
    reader = topic.source()
    assert reader.splits(2) == [f"{topic.name}:{number}" for number in range(PARTITIONS)]
    for start in (0, 0, 4):
        again = reader.fresh()
        split, values, offset, ended = f"{topic.name}:1", [], start, False
        while not ended:
            batch, offset, ended = again.read(split, offset, 3)
            if batch is not None:
                assert batch.column("offset").to_pylist() == list(range(offset - batch.num_rows, offset))
                values += batch.column("value").to_pylist()
        assert values == [f"v{number}".encode() for number in range(1 + 3 * start, 20, 3)]
        again.close()


def test_records_that_come_later_are_left_for_the_next_time_which_knows_where_it_was(topic):
    topic.write([b"before"] * 3)
    known = {}
    topic.source(starting="latest", known=known)
    assert set(known.values()) == {1}
    topic.write([b"later"] * 6)
    reader = topic.source(starting="latest", known=known)
    topic.write([b"too late"] * 3)
    flow = Flow(parallelism=2)
    flow.source(reader).sink(Memory(), name="out")
    assert run(flow.dataflow()).table("out").column("value").to_pylist() == [b"later"] * 6


def test_the_end_is_found_behind_the_marks_of_transactions(topic):
    topic.write([b"x"] * 5, **{"transactional.id": uuid.uuid4().hex})
    flow = Flow()
    flow.source(topic.source()).sink(Memory(), name="out")
    assert run(flow.dataflow()).table("out").num_rows == 5


class FailOnce(Step):
    def __init__(self, marker):
        self.marker, self.epochs = Path(marker), 0

    def process(self, port, batch):
        if self.epochs >= 2 and not self.marker.exists():
            self.marker.touch()
            raise RuntimeError("a failure in the middle")
        yield batch

    def committed(self, number):
        self.epochs = number


def test_results_are_in_the_topic_once_after_a_failure(topic, kafka_servers, tmp_path):
    out = Topic(kafka_servers)
    times = [f"2024-05-01T00:{n // 60:02}:{n % 60:02}Z" for n in range(3600)]
    values = [json.dumps({"k": f"k{n % 5}", "at": at}) for n, at in enumerate(times)]
    topic.write(values)
    documents = JsonRows(EVENT)
    read = Transformed(topic.source(), lambda batch: (documents(batch.column("value")), 0), EVENT)
    flow = Flow("fares", parallelism=2)
    events = flow.source(read, time="at", delay="2 seconds", batch_rows=20)
    passed = events.shuffle().process(lambda context: FailOnce(tmp_path / "failed"), name="fail")
    made = passed.key_by("k").aggregate(n=count(), window="1 minute")
    made.sink(Kafka(out.config, out.name, ("k", "window_start"), uuid.uuid4().hex))
    settings = Settings(store=str(tmp_path / "store"), interval=0.05, heartbeat=0.1)
    outcome = run(flow.dataflow(), workers=2, settings=settings).outcome
    assert outcome.restarts == 1
    found = out.committed()
    expected = Counter((json.loads(value)["k"], json.loads(value)["at"][:16] + ":00.000Z") for value in values)
    assert {(value["k"], value["window_start"]): value["n"] for _, value in found} == expected
    assert len(found) == len(expected)
    assert all(key == {"k": value["k"], "window_start": value["window_start"]} for key, value in found)


def step_of(topic, name, delivery=EXACTLY_ONCE, begun="r"):
    context = InstanceContext(Instance("sink", 0), 1, [RESULT], RESULT, attempt=Attempt(begun, 0))
    return Kafka(topic.config, topic.name, ("k",), name, delivery).start(context)


def test_results_that_go_out_at_once_are_there_before_a_snapshot_and_none_is_missing_after_a_failure(
    topic, kafka_servers, tmp_path
):
    out = Topic(kafka_servers)
    topic.write([json.dumps({"k": f"k{n % 5}", "at": None}) for n in range(3000)])
    documents = JsonRows(EVENT)
    read = Transformed(topic.source(), lambda batch: (documents(batch.column("value")), 0), EVENT)
    flow = Flow("counts", parallelism=2)
    passed = flow.source(read, batch_rows=20).shuffle().process(lambda _: FailOnce(tmp_path / "failed"), name="fail")
    counts = passed.key_by("k").aggregate(n=count())
    counts.sink(Kafka(out.config, out.name, ("k",), uuid.uuid4().hex, AT_LEAST_ONCE))
    settings = Settings(store=str(tmp_path / "store"), interval=0.05, heartbeat=0.1)
    outcome = run(flow.dataflow(), workers=2, settings=settings).outcome
    assert outcome.restarts == 1
    found = out.committed()
    assert all(key == {"k": value["k"]} for key, value in found)
    # A failure sends some again, from the count at the last snapshot on: each key still comes to its last count.
    assert {value["k"]: value["n"] for _, value in found} == {f"k{n}": 600 for n in range(5)}


def test_a_row_that_goes_out_at_once_does_not_wait_for_a_snapshot(topic):
    step = step_of(topic, uuid.uuid4().hex, AT_LEAST_ONCE)
    step.restore({})
    list(step.process(0, pa.RecordBatch.from_pylist([{"k": "a", "n": 1, "at": 0}], RESULT)))
    assert json.loads(topic.first().value())["n"] == 1
    assert step.snapshot(1) == {}
    step.close()


def test_a_record_that_has_come_is_read_though_more_were_asked_for(topic, monkeypatch):
    """Also where a read would wait for an hour: it waits for the first record alone."""
    monkeypatch.setattr("steelyard.resident.kafka.WAIT_SECONDS", 3600.0)
    reader = topic.source(available_now=False)
    topic.write([b"one"])
    offset, found = 0, None
    while found is None:
        found, offset, ended = reader.read(f"{topic.name}:0", offset, 10_000)
    assert (found.column("value").to_pylist(), offset, ended) == ([b"one"], 1, False)
    reader.close()


def test_rows_of_a_snapshot_whose_transaction_did_not_go_through_are_sent_by_the_next_generation(topic):
    name, rows = uuid.uuid4().hex, pa.RecordBatch.from_pylist([{"k": "a", "n": 1, "at": 0}], RESULT)
    first = step_of(topic, name)
    first.restore({})
    list(first.process(0, rows))
    state = first.snapshot(1)
    first.close()  # it dies before it hears that the snapshot is durable
    for _ in range(2):
        again = step_of(topic, name)
        again.restore(state)
        again.close()
    assert topic.committed() == [({"k": "a"}, {"k": "a", "n": 1, "at": "1970-01-01T00:00:00.000Z"})]


def test_an_epoch_that_was_sent_is_not_sent_again(topic):
    name = uuid.uuid4().hex
    first = step_of(topic, name)
    list(first.process(0, pa.RecordBatch.from_pylist([{"k": "b", "n": 2, "at": None}], RESULT)))
    state = first.snapshot(7)
    first.committed(7)
    first.close()  # it dies before the next snapshot
    again = step_of(topic, name)
    again.restore(state)
    again.close()
    assert topic.committed() == [({"k": "b"}, {"k": "b", "n": 2, "at": None})]
    assert topic.first().headers() == [(EPOCH_HEADER, b"7")]
    assert topic.first().value() == b'{"k":"b","n":2,"at":null}'


def test_a_job_begun_anew_under_a_name_sends_what_a_crash_held_back_whatever_the_mark_of_the_one_before_says(topic):
    name, rows = uuid.uuid4().hex, [pa.RecordBatch.from_pylist([{"k": "a", "n": n, "at": 0}], RESULT) for n in range(2)]
    old = step_of(topic, name)
    list(old.process(0, rows[0]))
    old.snapshot(50)
    old.committed(50)
    old.close()
    new = step_of(topic, name, begun="s")
    new.restore({})
    list(new.process(0, rows[1]))
    state = new.snapshot(1)
    new.close()  # it dies before it hears that the snapshot is durable
    for run_of in ("s", "t"):
        again = step_of(topic, name, begun=run_of)
        again.restore(state)
        again.close()
    assert [value["n"] for _, value in topic.committed()] == [0, 1]


def test_whoever_reads_one_partition_alone_gets_all_of_it_and_then_all_of_the_other(topic):
    topic.write([str(number).encode() for number in range(3000)])
    reader = topic.source(available_now=False)
    splits, at, found = reader.splits(1), {}, {}
    for split in splits:  # of all of them some records wait
        found[split], at[split] = [], 0
        while not found[split]:
            batch, at[split], _ = reader.read(split, at[split], 10)
            found[split] += batch.column("value").to_pylist() if batch is not None else []
    for split in splits:
        while len(found[split]) < 1000:
            batch, at[split], _ = reader.read(split, at[split], 10)
            found[split] += batch.column("value").to_pylist() if batch is not None else []
    assert [found[split] for split in splits] == [[str(n).encode() for n in range(k, 3000, 3)] for k in range(3)]
    reader.close()


def test_a_partition_that_was_read_to_its_end_leaves_what_comes_behind_it_to_the_next_start(topic):
    marked = {"transactional.id": uuid.uuid4().hex}
    topic.write([b"x"] * 6, **marked)
    known = {}
    reader = topic.source(known=known)
    topic.write([b"y"] * 6, **marked)
    topic.write([b"y"] * 6)
    ends = {}
    for expected in ([b"x"] * 6, [b"y"] * 12):
        found = []
        for split in reader.splits(1):
            ended = False
            while not ended:
                batch, ends[split], ended = reader.read(split, ends.get(split, 0), 100)
                found += batch.column("value").to_pylist() if batch is not None else []
        assert found == expected
        reader.close()
        reader = topic.source(known=known)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "t"}, "needs the options kafka.bootstrap.servers and subscribe"),
        ({"kafka.bootstrap.servers": "x", "subscribe": "t", "includeheaders": "true"}, "option 'includeheaders'"),
        ({"kafka.bootstrap.servers": "x", "subscribe": "t", "startingoffsets": "{}"}, "must be earliest or latest"),
    ],
)
def test_options_that_are_not_known_here_are_named(options, says):
    with pytest.raises(OptionError, match=says):
        KafkaTopic.of(options, available_now=True)


def test_a_topic_that_is_not_there_is_named(kafka_servers):
    with pytest.raises(OptionError, match="topic 'nowhere' cannot be read"):
        KafkaTopic.of({"kafka.bootstrap.servers": kafka_servers, "subscribe": "nowhere"}, available_now=True)


def test_a_missing_client_is_named_with_the_remedy(monkeypatch):
    real = builtins.__import__

    def importing(name, *rest, **more):
        if name == "confluent_kafka":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(OptionError, match=r"needs the package confluent-kafka: pip install 'steelyard\[kafka\]'"):
        client()
