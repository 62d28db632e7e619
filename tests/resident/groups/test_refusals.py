"""What groups of batches refuse: options that cannot work, and peers that contradict each other."""

import warnings

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core import NoEffectWarning, OptionError
from steelyard.core.arrow import has_hash
from steelyard.kernels.xxhash import spark_hash
from steelyard.resident import Rows
from steelyard.resident.gang import Said
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling
from steelyard.resident.groups.adjusting import Adjuster
from steelyard.resident.groups.central import CentralScheduler
from steelyard.resident.groups.messages import BLOCK, Note, packed
from steelyard.resident.groups.outcome import GroupOutcome
from steelyard.resident.groups.plan import MAX_TASKS, ExecutionPlan
from steelyard.resident.groups.program import Batches
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.security import Credentials
from steelyard.resident.sources import Read, Reader
from steelyard.resident.wire import Frame, Kind, WireError, batch_bytes

TABLE = pa.table({"k": [1, 2], "v": [1, 2]})


def program(**options):
    return BatchProgram(**{"source": Rows(TABLE), "keys": ("k",), "aggregates": {"n": count()}} | options)


def same(batch):
    return batch


# -- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delay": "1 hour"}, "delay='1 hour' needs a window"),
        ({"time": "nonsense"}, "time='nonsense' needs a window"),
        ({"schema": TABLE.schema}, "give function= too"),
        ({"schema": 7, "function": same}, "a schema is a pyarrow.Schema or a dictionary"),
        ({"aggregates": {"__rows": count()}}, "an aggregate cannot be named '__rows'"),
        (
            {"source": Rows(TABLE.cast(pa.schema({"k": pa.uint64(), "v": pa.int64()})))},
            "key 'k' is of Arrow type uint64",
        ),
        ({"schema": {"k": pa.time64("us")}, "function": same}, r"key 'k' is of Arrow type time64\[us\]"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_runs(options, says):
    with pytest.raises(OptionError, match=says):
        program(**options)


def test_a_delay_that_is_none_is_refused_before_anything_runs():
    table = pa.table({"k": [1], "t": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(OptionError, match="delay"):
        program(source=Rows(table), window="1 second", time="t", delay="soon")


def test_the_columns_of_a_function_may_be_a_dictionary():
    assert program(function=same, schema={"k": "int64", "v": "int64"}).row_schema == TABLE.schema


@pytest.mark.parametrize("option", ["blocks", "buckets"])
def test_more_tasks_than_can_be_told_of_are_refused(option):
    assert Scheduling(**{option: MAX_TASKS})
    with pytest.raises(OptionError, match=f"{option} must be 1 to {MAX_TASKS}, got 70000"):
        Scheduling(**{option: 70_000})


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.null(), pa.bool_(), pa.int8(), pa.int64(), pa.uint32(), pa.uint64(), pa.float16(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("ns"), pa.duration("s")),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(4), pa.decimal128(20, 2)),
        *(pa.list_(pa.int64()), pa.month_day_nano_interval(), pa.struct({"a": pa.string()})),
        pa.struct({"a": pa.uint64()}),
    ],
    ids=str,
)
def test_types_of_keys_that_are_taken_are_those_that_can_be_hashed(kind):
    try:
        spark_hash(pa.array([], kind))
        hashed = True
    except TypeError:
        hashed = False
    assert has_hash(kind) == hashed


def told(blocks, receivers=None, **options):
    """What is told of a job with three workers."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NoEffectWarning)
        how = Scheduling(blocks=blocks, receivers=receivers)
        GroupJob(program(**options), how, 3, ThreadLauncher(GroupWorker))
    return [str(one.message) for one in found]


def test_a_partitioner_that_has_nothing_to_cut_is_told():
    (why,) = told(3, partitioner="hash")
    assert "partitioner 'hash' has no effect: each of 3 receivers has at most one of 3 blocks to itself" in why
    assert not told(4, partitioner="hash")
    assert not told(3, receivers=1, partitioner="hash")
    assert not told(3, partitioner="hash", source=Rows(TABLE, pieces=1)), "one receiver cuts all blocks"
    assert not told(3), "nobody chose it"


# -- readers of one's own


def test_a_reader_that_is_no_dataclass_is_opened_by_each_receiver_for_itself():
    class Own(Reader):
        schema = TABLE.schema
        opened = None

        def splits(self, parallelism):
            return ["0"]

        def read(self, split, offset, rows):
            self.opened = True
            return Read(None, offset, True)

    described = Own()
    described.fresh().read("0", 0, 1)
    assert described.opened is None


# -- peers


def worker():
    found = GroupWorker(1, Batches(program(), Scheduling()), Credentials.new())
    found._workers = found._receivers = 2
    return found


def block(note):
    return Frame(Kind.DATA, BLOCK, 0, bytes(batch_bytes(TABLE.to_batches()[0])), packed(note))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"plan": ExecutionPlan(6, 4, 2)}, "batch 0 was to go by"),
        ({"watermark": 6}, "batch 0 was to go by"),
        ({"last": True}, "batch 0 was to go by"),
        ({"number": 1, "parts": 1}, "block 1 of batch 0 was to have {1, 2} parts"),
    ],
)
def test_workers_that_contradict_each_other_are_not_believed(change, says):
    first = Note(ExecutionPlan(4, 4, 2), 1, 5, False, pa.array([], pa.int64()).to_numpy(), True, 2)
    asked = worker()
    asked._receive(0, block(first))
    with pytest.raises(WireError, match=says):
        asked._take(BLOCK, 0, first._replace(**({"number": 3} | change)), TABLE.to_batches()[0])
    asked._peers.close()


def released(plan):
    return {
        "batch": 0,
        "rows": 2,
        "keys": 0,
        "plan": plan,
        "end": [[], [], [], [], []],
        "last": False,
        "partition_seconds": 0.0,
        "wait_seconds": 0.0,
        "refused": 0,
        "sizes": [1, 1],
    }


@pytest.fixture
def central():
    how = Scheduling(receivers=1)
    made = CentralScheduler(Batches(program(), how), 2, Adjuster(None, how, 2, GroupOutcome()), Credentials.new())
    made._plans.add(ExecutionPlan(2, 1, 2))
    made._group_end = 10
    yield made
    made.close()


def test_a_task_that_is_told_of_twice_or_by_another_worker_does_not_end_its_batch(central):
    def task(sender, stage, number):
        what = {"batch": 0, "stage": stage, "number": number, "seconds": 0.1, "refused": 0}
        central._on(Said(sender, "task", what, 0.0))

    central._on(Said(0, "released", released({"blocks": 2, "buckets": 1, "workers": 2}), 0.0))
    task(0, "map", 0)
    for sender, stage, number in [(0, "map", 0), (0, "map", 1), (1, "map", 3), (0, "reduce", 1), (0, "windows", 0)]:
        with pytest.raises(WireError, match="is none of its own, or was told before"):
            task(sender, stage, number)
    task(1, "map", 1)
    assert 0 in central._open, "its reduce task is missing"


@pytest.mark.parametrize("blocks", [0, -1, 70_000])
def test_a_plan_that_cannot_be_is_not_understood(central, blocks):
    with pytest.raises(WireError, match=f"blocks of an execution plan must be 1 to {MAX_TASKS}, got {blocks}"):
        central._on(Said(0, "released", released({"blocks": blocks, "buckets": 1, "workers": 2}), 0.0))
