"""The source of Kafka over a client that is made up: moments that a broker does not give when it is asked to."""

from types import SimpleNamespace

import pytest

from steelyard.core.dataflow import Instance
from steelyard.resident.kafka import KafkaTopic
from steelyard.resident.operator import InstanceContext
from steelyard.resident.sources import Source

AT_END = -191


class Partition:
    def __init__(self, topic, partition, offset=-1001):
        self.topic, self.partition, self.offset = topic, partition, offset


class Message:
    def __init__(self, partition, offset, at_end=False):
        self._partition, self._offset = partition, offset
        self._error = SimpleNamespace(code=lambda: AT_END) if at_end else None

    def error(self):
        return self._error

    def topic(self):
        return "t"

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def key(self):
        return None

    def value(self):
        return str(self._offset).encode()

    def timestamp(self):
        return (1, 0)


class Broker:
    """Gives records of partitions that are assigned, those of the first one first, and ends where they end."""

    def __init__(self, records):
        self.records = records
        """By partition: the offsets that have a record, and the one behind the last, which need not follow it."""
        self.at = {}
        self.given = 0

    def client(self):
        return SimpleNamespace(
            Consumer=lambda config, logger: self,
            TopicPartition=Partition,
            KafkaError=SimpleNamespace(_PARTITION_EOF=AT_END),
            KafkaException=LookupError,
        )

    def incremental_assign(self, partitions):
        assert not {one.partition for one in partitions} & set(self.at)
        self.at |= {one.partition: one.offset for one in partitions}

    def incremental_unassign(self, partitions):
        for one in partitions:
            del self.at[one.partition]

    def consume(self, most, _):
        found = []
        for partition in sorted(self.at):
            offsets, end = self.records[partition]
            next_ones = [offset for offset in offsets if offset >= self.at[partition]][: most - len(found)]
            found += [Message(partition, offset) for offset in next_ones]
            if next_ones:
                self.at[partition] = next_ones[-1] + 1
            elif self.at[partition] < end and len(found) < most:
                self.at[partition] = end
                found.append(Message(partition, end, at_end=True))
        self.given += len(found)
        return found

    def poll(self, _):
        return None

    def get_watermark_offsets(self, partition, timeout):
        if self.records[partition.partition] is None:
            raise LookupError("it does not answer")
        return 0, self.records[partition.partition][1]

    def close(self):
        pass


@pytest.fixture
def broker(monkeypatch):
    """Begin with these records."""

    def begun(records):
        made = Broker(records)
        monkeypatch.setattr("steelyard.resident.kafka.client", made.client)
        return made

    return begun


def waiting(reader):
    return sum(map(len, reader._opened["waiting"].values()))


def live(count):
    """Offsets of records that come in transactions of nine: each tenth is a mark."""
    return [offset for offset in range(count) if offset % 10 != 9]


def read_to_end(reader, split, offset, rows, most=1000):
    values = []
    for _ in range(most):
        batch, offset, ended = reader.read(split, offset, rows)
        values += [int(value) for value in batch.column("value").to_pylist()] if batch is not None else []
        if ended:
            return values, offset
    raise AssertionError(f"no end after {most} reads, at offset {offset}")


@pytest.mark.parametrize("rows", [1, 4, 9, 10, 1000])
@pytest.mark.parametrize(("end", "left"), [(10, live(10)), (30, live(30)), (25, live(25))])
def test_a_read_ends_though_its_last_record_is_a_mark_and_others_come_behind_it(broker, rows, end, left):
    broker({0: (live(100_000), 100_000)})
    reader = KafkaTopic({}, {"t:0": 0}, {"t:0": end})
    assert read_to_end(reader, "t:0", 0, rows) == (left, end)


def test_a_read_ends_at_its_end_though_more_has_come_and_the_next_start_reads_that(broker):
    """Also where the client tells, with the records, that nothing is behind them."""
    broker({0: (range(15), 15)})
    first = KafkaTopic({}, {"t:0": 0}, {"t:0": 10})
    values, offset = read_to_end(first, "t:0", 0, 1000)
    later = KafkaTopic({}, {"t:0": 0}, {"t:0": 15})
    assert values + read_to_end(later, "t:0", offset, 1000)[0] == list(range(15))


def test_a_split_at_its_end_takes_no_more_records(broker):
    made = broker({0: (range(100_000), 100_000), 1: (range(20), 20)})
    reader = KafkaTopic({}, {"t:0": 0, "t:1": 0}, {"t:0": 10, "t:1": 20})
    assert read_to_end(reader, "t:0", 0, 5) == (list(range(10)), 10)
    assert read_to_end(reader, "t:1", 0, 5) == (list(range(20)), 20)
    assert made.at == {}
    assert waiting(reader) == 0


@pytest.mark.parametrize("idle", [1, 7, 63])
def test_records_of_a_busy_partition_do_not_pile_up_behind_idle_ones(broker, idle):
    rows, count = 100, 20_000
    broker({0: (range(count), count)} | dict.fromkeys(range(1, idle + 1), ((), 0)))
    reader = KafkaTopic({}, {f"t:{number}": 0 for number in range(idle + 1)})
    step = Source(reader, batch_rows=rows).start(InstanceContext(Instance("s", 0), 1, (), reader.schema))
    seen, most, batches = [], 0, 0
    while len(seen) < count:
        batch = step.read()
        seen += batch.column("offset").to_pylist()
        most, batches = max(most, waiting(step._reader)), batches + 1
    assert seen == list(range(count))
    assert most <= 2 * rows
    assert batches == count // rows  # none is smaller for that


def test_whoever_reads_one_split_alone_gets_its_records_though_others_wait(broker):
    """So a receiver reads a batch again that was made before: split by split."""
    broker({0: (range(5000), 5000), 1: (range(300), 300)})
    reader = KafkaTopic({}, {"t:0": 0, "t:1": 0})
    values, offset, other, at = [], 0, [], 0
    batch, at, _ = reader.read("t:0", 0, 10)
    other += batch.column("offset").to_pylist()
    for _ in range(1000):
        batch, offset, _ = reader.read("t:1", offset, 10)
        values += batch.column("offset").to_pylist() if batch is not None else []
        assert waiting(reader) <= 20
    assert values == list(range(300))
    while at < 5000:
        batch, at, _ = reader.read("t:0", at, 10)
        other += batch.column("offset").to_pylist() if batch is not None else []
    assert other == list(range(5000))


def test_no_record_is_left_out_where_the_client_tells_the_end_of_a_split_that_was_let_go(broker):
    broker({0: (range(50), 50), 1: (range(300), 300)})
    reader = KafkaTopic({}, {"t:0": 0, "t:1": 0}, {"t:0": 50, "t:1": 300})
    reader.read("t:0", 0, 1)
    assert read_to_end(reader, "t:1", 0, 7) == (list(range(300)), 300)
    assert read_to_end(reader, "t:0", 1, 7) == (list(range(1, 50)), 50)


def test_a_reader_tells_how_far_it_is_behind_and_nothing_while_the_broker_does_not_answer(broker):
    made = broker({0: (range(5, 40), 40), 1: (range(100, 130), 130)})
    source = Source(KafkaTopic({}, {"t:0": 5, "t:1": 100}), batch_rows=10)
    step = source.start(InstanceContext(Instance("in", 0), 1, (), source.output([])))
    assert step.behind() is None  # nobody is connected yet
    step.read()
    seen = step.behind()
    assert (seen.end, seen.lag, seen.arrived) == (170, 55, 0)
    made.records[1] = (range(100, 150), 150)
    assert step.behind()[:3] == (20, 190, 75)
    made.records[1] = None
    assert step.behind() is None
    step.close()
    assert step.behind() is None


def test_where_a_partition_has_an_end_that_is_where_it_ends(broker):
    broker({0: (range(40), 40)})
    reader = KafkaTopic({}, {"t:0": 3}, {"t:0": 20})
    assert (reader.begin("t:0"), reader.end("t:0")) == (3, 20)
