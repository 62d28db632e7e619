"""Failures of groups of batches: what ends them, what is made again, and that a stop or a size loses no rows."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core import BatchError
from steelyard.resident import JobError, Rows, count, sum
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling, run_batches
from steelyard.resident.groups.cutting import Closed, Cutter
from steelyard.resident.groups.dealing import Share
from steelyard.resident.groups.frames import one_batch, table_in_frames, together
from steelyard.resident.jobs import ThreadLauncher

ONE = Scheduling(interval=0.05, blocks=1, buckets=1, slots=1)


def times(n, step=1_000_000):
    return pa.array([number * step for number in range(n)], pa.timestamp("us"))


def failing(program, scheduling, at, workers=1, then=lambda job: None):
    """Run a job whose workers fail once, when batch `at` was handed on; the job, and what was."""
    got = {}

    def commit(batch, table):
        assert batch not in got, "a batch was handed on twice"
        got[batch] = table
        if batch == at and not job.outcome.restarts:
            job._central.abort("a worker died")
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
