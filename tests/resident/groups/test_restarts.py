"""Failures of groups of batches: what ends them, what is made again, and that a stop or a size loses no rows."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from steelyard import count, sum
from steelyard.core import BatchError
from steelyard.resident import JobError, Rows, control
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling, run_batches
from steelyard.resident.groups.cutting import Closed, Cutter
from steelyard.resident.groups.dealing import Share
from steelyard.resident.groups.frames import one_batch, table_in_frames, together
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.sources import Read, Reader
from steelyard.resident.transformed import Transformed
from steelyard.workloads.rates import Constant

ONE = Scheduling(interval=0.02, blocks=1, buckets=1, slots=1)


def times(n, step=1_000_000):
    return pa.array([number * step for number in range(n)], pa.timestamp("us"))


def failing(program, scheduling, at, workers=1, then=lambda job: None):
    """Run a job whose workers fail once, when batch `at` was handed on; the job, and what was."""
    got = {}

    def commit(batch, table):
        assert batch not in got, "a batch was handed on twice"
        got[batch] = table
        if batch == at and not job.outcome.restarts:
            job._driver.abort("a worker died")
            then(job)

    job = GroupJob(program, scheduling, workers, ThreadLauncher(GroupWorker), None, commit)
    job.run()
    assert job.outcome.restarts == 1
    return job, got


# -- a stop


def test_a_stop_around_a_failure_gives_the_open_windows():
    table = pa.table({"k": ["a"] * 400, "t": times(400)})
    program = BatchProgram(Rows(table), ("k",), {"n": count()}, batch_rows=4, window="1000 seconds", time="t")
    how = Scheduling(interval=0.3, blocks=2, buckets=2, slots=1)
    job, got = failing(program, how, at=1, workers=2, then=lambda job: job.stop())
    read = np.sum([run.rows for run in job.outcome.batches.values()])
    assert read >= 8
    assert np.sum([np.sum(one["n"].to_numpy()) for one in got.values()]) == read


def running(job, until, seconds=20):
    """A job in a thread, when it has come so far."""
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while not until() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert until()
    return thread


@pytest.mark.parametrize("rate", [None, Constant(20)])
def test_a_stop_closes_the_open_batch_of_all_receivers_at_once(rate):
    program = BatchProgram(Rows(pa.table({"k": range(1000)})), ("k",), {"n": count()}, batch_rows=10, rate=rate)
    job = GroupJob(program, Scheduling(interval=600, blocks=2, slots=1), 2, ThreadLauncher(GroupWorker))
    thread = running(job, lambda: job.outcome.groups)
    job.stop()
    thread.join(20)
    assert not thread.is_alive(), "it waits for the end of the interval"
    assert list(job.outcome.results) == [0]


def test_a_clock_that_is_set_back_does_not_hold_batches_up(monkeypatch):
    real, back = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() - back[0])
    program = BatchProgram(Rows(pa.table({"k": range(100)})), ("k",), {"n": count()}, batch_rows=20)
    got = []

    def commit(batch, table):
        got.append(table.num_rows)
        back[0] = 3600.0

    job = GroupJob(program, ONE, 1, ThreadLauncher(GroupWorker), None, commit)
    running(job, lambda: np.sum(got) == 100).join(20)
    assert all(-1 < run.ready < 20 for run in job.outcome.batches.values())


# -- what is made again


@dataclass(frozen=True)
class Topic(Reader):
    """Offsets begin at 1000 and move before there are rows, and over marks that are none, as those of Kafka do."""

    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})

    def splits(self, parallelism):
        return ["topic:0"]

    def read(self, split, offset, rows):
        if offset < 1000 or offset % 10 == 9:
            return Read(None, 1000 if offset < 1000 else offset + 1, False)
        end = int(np.min([offset + rows, offset // 10 * 10 + 9]))
        numbers = pa.array(range(offset, end), pa.int64())
        return Read(pa.record_batch([numbers, numbers.cast(pa.timestamp("us"))], schema=self.schema), end, end >= 1099)


def test_offsets_that_move_without_rows_can_be_read_again():
    program = BatchProgram(Topic(), ("k",), {"n": count()}, batch_rows=4, window="1 second", time="t")
    _, got = failing(program, ONE, at=7)
    whole = pa.concat_tables(got.values())
    assert sorted(whole["k"].to_pylist()) == [offset for offset in range(1000, 1099) if offset % 10 != 9]


def test_rows_that_are_not_what_they_were_are_named():
    @dataclass(frozen=True)
    class Compacted(Topic):
        """Rows of the first read are gone when a job goes on."""

        def read(self, split, offset, rows):
            return super().read(split, 1005 if offset == 1000 and job.outcome.restarts else offset, rows)

    program = BatchProgram(Compacted(), ("k",), {"n": count()}, batch_rows=4, window="1 second", time="t")
    job = GroupJob(program, Scheduling(interval=0.02, restarts=1), 1, ThreadLauncher(GroupWorker))
    job._commit = lambda batch, table: job._driver.abort("a worker died") if batch == 1 else None
    with pytest.raises(JobError, match=r"split 'topic:0' came to offset 1004 before, and to 1009 now"):
        job.run()


def doubled(batch):
    return pa.concat_batches([batch, batch]), 0


def few(batch):
    return batch.filter(pc.equal(pc.bit_wise_and(batch["k"], 1023), 1023)), 0


@pytest.mark.parametrize(("function", "batch_rows"), [(doubled, 100), (few, 700)])
def test_batches_are_made_again_though_a_function_gives_more_or_fewer_rows_than_were_read(function, batch_rows):
    table = pa.table({"k": range(20 * batch_rows)})
    source = Transformed(Rows(table, pieces=1), function, table.schema)
    program = BatchProgram(source, ("k",), {"n": count()}, batch_rows=batch_rows, running=True)
    _, got = failing(program, replace(ONE, snapshot=50, silence=2.0), at=3)
    given = {row["k"]: row["n"] for part in got.values() for row in part.to_pylist()}
    assert given == Counter(function(table.to_batches()[0])[0]["k"].to_pylist())


@dataclass(frozen=True)
class LongNames(Rows):
    def splits(self, parallelism):
        return [f"/{'events/' * 20}{split}\udce4" for split in super().splits(parallelism)]

    def read(self, split, offset, rows):
        return super().read(split.rpartition("/")[2][:-1], offset, rows)


def test_splits_may_be_more_than_a_message_holds(monkeypatch):
    monkeypatch.setattr(control, "MAX_CONTROL", 10_000)
    table = pa.table({"k": range(300), "t": times(300)})
    program = BatchProgram(
        LongNames(table, pieces=300), ("k",), {"n": count()}, batch_rows=20, window="1 day", time="t"
    )
    how = Scheduling(interval=0.02, blocks=2, buckets=2, slots=1, snapshot=6)
    _, got = failing(program, how, at=13, workers=2)
    assert sorted(pa.concat_tables(got.values())["k"].to_pylist()) == list(range(300))


# -- a function that changes event times


def of_hours(function, delay=None):
    table = pa.table({"k": [1] * 20, "t": times(20, 3_600_000_000)})
    program = BatchProgram(
        Rows(table, pieces=1), ("k",), {"n": count()}, batch_rows=2, window="1 hour", time="t", function=function,
        delay=delay,
    )  # fmt: skip
    found = run_batches(program, Scheduling(interval=0.01, blocks=1, buckets=1), workers=1)
    return found.refused, pa.concat_tables(found.results.values())["n"].to_pylist()


def shifted(batch):
    return batch.set_column(1, "t", pc.subtract(batch["t"], pa.scalar(7_200_000_000, pa.duration("us"))))


def test_a_function_that_makes_rows_late_is_refused_and_with_a_delay_it_is_not():
    with pytest.raises(JobError, match=r"moves event times of column 't' back by 7200 s, .*: give a delay="):
        of_hours(shifted)
    assert of_hours(shifted, "2 hours") == (0, [1] * 20)


def test_a_function_may_change_times_within_their_windows():
    def floored(batch):
        return batch.set_column(1, "t", pc.floor_temporal(batch["t"], 1, "hour"))

    assert of_hours(floored) == (0, [1] * 20)


# -- failures


def test_a_function_that_exits_ends_the_run_and_is_named():
    def leave(batch):
        raise SystemExit(3)

    program = BatchProgram(Rows(pa.table({"k": [1, 2, 3]})), ("k",), {"n": count()}, function=leave)
    job = GroupJob(program, Scheduling(interval=0.02, blocks=1, restarts=0), 1, ThreadLauncher(GroupWorker))
    found = []

    def run():
        try:
            job.run()
        except JobError as error:
            found.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert found, "it hangs"
    assert "map task 0 of batch 0 in worker 0: SystemExit: 3" in found[0]
    assert job.outcome.restarts == 0, "the failure that ends a job is followed by no restart"


def test_a_failure_that_would_come_again_is_not_tried_again():
    calls = []

    def bad(batch):
        calls.append(1)
        raise BatchError("it is as it is")

    program = BatchProgram(Rows(pa.table({"k": [1]})), ("k",), {"n": count()}, function=bad)
    with pytest.raises(JobError, match=r"BatchError: it is as it is$"):
        run_batches(program, ONE, workers=1)
    assert len(calls) == 1


def test_no_task_of_a_failed_generation_runs_beside_the_next():
    running_now, most, first = [0], [0], threading.Event()
    lock = threading.Lock()

    def slow(batch):
        with lock:
            running_now[0] += 1
            most[0] = np.max([most[0], running_now[0]])
        if not first.is_set():
            first.set()
            time.sleep(1)  # what it computes when its generation is given up
        with lock:
            running_now[0] -= 1
        return batch

    program = BatchProgram(Rows(pa.table({"k": [1, 2]})), ("k",), {"n": count()}, function=slow)
    job = GroupJob(program, ONE, 1, ThreadLauncher(GroupWorker))
    thread = running(job, first.is_set)
    job._driver.abort("a worker died")
    thread.join(20)
    assert job.outcome.restarts == 1
    assert (most[0], running_now[0]) == (1, 0)


# -- sums of windows


def test_sums_of_windows_are_of_the_type_that_results_have():
    big = 1 << 62
    table = pa.table({"k": [*"abcabc"], "v": pa.array([big, big, big, 5, 7, 9], pa.uint64()), "t": times(6)})
    program = BatchProgram(Rows(table, pieces=1), ("k",), {"s": sum("v")}, batch_rows=3, window="1 day", time="t")
    found = run_batches(program, ONE, workers=1)
    whole = pa.concat_tables(found.results.values())
    assert whole.schema.field("s").type == pa.uint64()
    assert dict(zip(whole["k"].to_pylist(), whole["s"].to_pylist(), strict=True)) == {
        "a": big + 5,
        "b": big + 7,
        "c": big + 9,
    }


# -- more than a batch of Arrow holds


def large():
    """One row of 1.2 GB; zeros that nobody touches take no memory."""
    size = 1_200_000_000
    bounds = pa.py_buffer(np.array([0, size], np.int32))
    text = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(np.zeros(size, np.uint8))])
    return pa.RecordBatch.from_arrays([text, pa.array([1])], ["s", "k"])


def test_more_text_than_a_block_holds_is_refused_with_a_remedy_and_not_cut_short():
    row = large()
    program = BatchProgram(Rows(pa.Table.from_batches([row])), ("k",), {"n": count()}, partitioner="hash")
    closed = Closed([row, row], None, None, 2, 0)
    for held in (
        lambda: together([row, row]),
        lambda: one_batch(pa.Table.from_batches([row, row])),
        lambda: Cutter(program, False, 1).cut(closed, Share((0,), (), True)),
    ):
        with pytest.raises(BatchError, match="more than 2 GB of one column: give a smaller batch_rows="):
            held()


def test_windows_with_more_text_than_a_batch_holds_are_saved_in_several():
    assert [part.num_rows for part in table_in_frames(pa.Table.from_batches([large(), large()]))] == [1, 1]


class Large:
    """A table that stays in pieces of 3 rows when its chunks are combined, as one with much text does."""

    def __init__(self, table):
        self._table, self.num_rows, self.schema = table, table.num_rows, table.schema

    def slice(self, *where):
        return Large(self._table.slice(*where))

    def combine_chunks(self):
        return self

    def to_batches(self):
        return self._table.to_batches(max_chunksize=3)


def test_a_table_that_does_not_fit_into_one_batch_is_read_to_its_end():
    reader, offset, ended, found = Rows(Large(pa.table({"k": range(10)})), pieces=1), 0, False, []
    reader.splits(1)
    while not ended:
        part, offset, ended = reader.read("0", offset, 8)
        found += part["k"].to_pylist()
    assert found == list(range(10))
