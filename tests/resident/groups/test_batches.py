"""Batches on resident workers: answers equal a plain aggregation, however they are cut, scheduled and rescaled."""

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard import count, max, mean, min, sum
from steelyard.core import BLOCKS, BUCKETS, Action, OptionError
from steelyard.resident import JobError, ParquetFiles, Rows, SocketLines
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling, run_batches
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.sources import Read
from steelyard.workloads.rates import Constant

FAST = Scheduling(interval=0.02, group=3, ahead=1, slots=2)


def rows(n, keys=20, seed=0):
    drawn = np.random.default_rng(seed)
    key = np.minimum(drawn.zipf(1.3, n), keys)
    times = np.sort(drawn.integers(0, 60_000_000, n))
    return pa.table(
        {
            "key": pa.array([f"k{value}" for value in key]),
            "value": pa.array(drawn.integers(-50, 50, n), pa.int64()),
            "at": pa.array(times, pa.timestamp("us")),
        }
    )


class Redrawn:
    """An elasticity policy that draws both numbers anew after every batch."""

    def __init__(self, seed):
        self._draw = np.random.default_rng(seed)

    def decide(self, observation):
        return Action({name: int(self._draw.integers(1, 7)) for name in (BLOCKS, BUCKETS)}, "drawn")


def by_key(table):
    return {row["key"]: (row["n"], row["total"], row["low"], row["high"]) for row in table.to_pylist()}


def sum_of(found):
    return int(np.sum([np.sum(table["n"].to_numpy()) for table in found.results.values()]))


def rows_of(batch, ends, table, pieces):
    """The rows of a batch by where receivers say that it, and the one before, ended; split i is piece i of a table."""
    bounds = np.linspace(0, table.num_rows, pieces + 1).astype(int)
    parts = [table.slice(0, 0)]
    for receiver, end in enumerate(ends[batch]):
        before = ends[batch - 1][receiver].rows if batch else (0,) * len(end.rows)
        for split, start, stop in zip(end.splits, before, end.rows, strict=True):
            parts.append(table.slice(bounds[int(split)] + start, stop - start))
    return pa.concat_tables(parts)


AGGREGATES = {"n": count(), "total": sum("value"), "low": min("value"), "high": max("value")}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(0, 400),
    batch_rows=st.integers(20, 200),
    partitioner=st.sampled_from(["prompt", "hash", "shuffle", "pk2", "time", "dalton"]),
    allocator=st.sampled_from(["prompt", "hash"]),
    workers=st.integers(1, 3),
    boundary=st.booleans(),
    ahead=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_results_do_not_depend_on_how_batches_are_run(
    n, batch_rows, partitioner, allocator, workers, boundary, ahead, seed
):
    table = rows(n, seed=seed)
    program = BatchProgram(
        Rows(table), ("key",), AGGREGATES, batch_rows=batch_rows, partitioner=partitioner, allocator=allocator
    )
    how = Scheduling(interval=0.01, group=3, ahead=ahead, boundary=boundary, slots=2, blocks=3, buckets=2, adjust=1)
    contents, job = {}, None

    def commit(batch, results):
        contents[batch] = results, rows_of(batch, job.outcome.ends, table, workers)

    job = GroupJob(program, how, workers, ThreadLauncher(GroupWorker), Redrawn(seed), commit)
    job.run()
    assert np.sum([part.num_rows for _, part in contents.values()]) == n
    assert all(part.num_rows <= batch_rows for _, part in contents.values())
    for results, part in contents.values():
        grouped = part.group_by("key").aggregate(
            [([], "count_all"), ("value", "sum"), ("value", "min"), ("value", "max")]
        )
        expected = {
            r["key"]: (r["count_all"], r["value_sum"], r["value_min"], r["value_max"]) for r in grouped.to_pylist()
        }
        assert by_key(results) == expected
        assert results.num_rows == len(expected), "a key came twice"


def windows(table, size, slide):
    """Counts by window and key, computed row by row."""
    found = Counter()
    for row in table.to_pylist():
        at = (
            row["at"].timestamp() if row["at"].tzinfo else (row["at"] - row["at"].__class__(1970, 1, 1)).total_seconds()
        )
        start = at // slide * slide
        while start > at - size:
            found[row["key"], round(start)] += 1
            start -= slide
    return found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(1, 400),
    batch_rows=st.integers(20, 200),
    slide=st.sampled_from([None, 5]),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_windows_across_batches_equal_a_count_by_hand(n, batch_rows, slide, workers, seed):
    table = rows(n, seed=seed)
    program = BatchProgram(
        Rows(table),
        ("key",),
        {"n": count()},
        batch_rows=batch_rows,
        window="10 seconds",
        slide=f"{slide} seconds" if slide else None,
        time="at",
    )
    found = run_batches(program, FAST, workers=workers, elastic=Redrawn(seed))
    whole = pa.concat_tables(found.results.values())
    epoch = pc.cast(pc.cast(whole["window_start"], pa.int64()), pa.int64()).to_numpy() // 1_000_000
    keys = zip(whole["key"].to_pylist(), epoch.tolist(), strict=True)
    got = dict(zip(keys, whole["n"].to_pylist(), strict=True))
    assert len(got) == whole.num_rows, "a window came twice"
    assert got == windows(table, 10, slide or 10)


def test_rows_that_are_too_late_are_counted():
    at = [0, 30_000_000, 1_000_000, 31_000_000]  # the third belongs to a window that closed with the second
    table = pa.table({"key": ["a"] * 4, "at": pa.array(at, pa.timestamp("us"))})
    program = BatchProgram(Rows(table), ("key",), {"n": count()}, batch_rows=1, window="10 seconds", time="at")
    found = run_batches(program, FAST, workers=1)
    whole = pa.concat_tables(found.results.values())
    assert sorted(whole["n"].to_pylist()) == [1, 2]
    assert found.refused == 1


def test_late_rows_and_rows_without_a_time_are_counted_one_by_one():
    at = [0, 0, 30_000_000, 30_000_000, *[1_000_000] * 40, None, None]
    keys = [f"k{number % 7}" for number in range(len(at))]
    table = pa.table({"key": keys, "at": pa.array(at, pa.timestamp("us"))})
    source = Rows(table, pieces=1)  # in the order of the table
    program = BatchProgram(source, ("key",), {"n": count()}, batch_rows=4, window="10 seconds", time="at")
    found = run_batches(program, FAST, workers=3)
    assert sum_of(found) == 4
    assert found.refused == 42


def test_a_worker_without_any_windows_takes_part_in_snapshots():
    table = pa.table({"key": ["one"] * 300, "at": pa.array(np.arange(300) * 1_000_000, pa.timestamp("us"))})
    program = BatchProgram(Rows(table), ("key",), {"n": count()}, batch_rows=10, window="5 seconds", time="at")
    found = run_batches(program, Scheduling(interval=0.01, snapshot=3, restarts=0), workers=2)
    assert sum_of(found) == 300


def test_a_function_that_makes_one_key_of_two_gives_it_once():
    table = pa.table({"key": [f"{'Kk'[i % 2]}{i % 50}" for i in range(2000)]})

    def lower(batch):
        return pa.record_batch({"key": pc.utf8_lower(batch["key"])})

    program = BatchProgram(Rows(table), ("key",), {"n": count()}, function=lower)
    found = run_batches(program, Scheduling(interval=0.02, blocks=6, buckets=5), workers=2)
    for results in found.results.values():
        assert len(set(results["key"].to_pylist())) == results.num_rows
    assert sum_of(found) == 2000


def test_files_of_the_same_time_lose_no_rows(tmp_path):
    table = rows(200)
    paths = []
    for part in range(2):
        pq.write_table(table.take(np.arange(part, 200, 2)), tmp_path / f"{part}.parquet")
        paths.append(str(tmp_path / f"{part}.parquet"))
    program = BatchProgram(
        ParquetFiles(tuple(paths)), ("key",), {"n": count()}, batch_rows=20, window="5 seconds", time="at"
    )
    found = run_batches(program, FAST, workers=2)
    assert (sum_of(found), found.refused) == (200, 0)


@pytest.mark.parametrize("when", ["before", "coming", "failing"])
def test_a_stop_is_heard_whenever_it_is_said(when):
    job = None

    def function(batch):
        if when == "failing" and not failed.is_set():
            failed.set()
            job.stop()
            raise RuntimeError("once")
        return batch

    failed = threading.Event()
    table = rows(5000)
    program = BatchProgram(Rows(table), ("key",), {"n": count()}, batch_rows=10, function=function)
    job = GroupJob(program, Scheduling(interval=0.01), 2, ThreadLauncher(GroupWorker))
    if when == "before":
        job.stop()
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    if when == "coming":
        job.stop()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    assert len(job.outcome.results) < 500


def test_what_is_remembered_of_batches_is_bounded():
    program = BatchProgram(Rows(rows(600)), ("key",), {"n": count()}, batch_rows=10)
    found = run_batches(program, Scheduling(interval=0.005, history=8), workers=1)
    assert len(found.batches) == 8
    assert sum_of(found) == 600


def test_a_group_costs_one_message_a_worker():
    program = BatchProgram(Rows(rows(400)), ("key",), {"n": count()}, batch_rows=20)
    found = run_batches(program, Scheduling(interval=0.01, group=10, ahead=2), workers=3)
    assert len(found.results) in (20, 21)
    assert found.groups in (3, 4)
    # to begin, a group each, and to the first receiver that a batch is done
    assert found.messages == 3 + 3 * found.groups + len(found.results)


def test_a_function_of_rows_is_applied_in_map_tasks():
    table = pa.table({"text": ["a b", "b", "b c"]})

    def words(batch):
        return pa.record_batch({"key": [word for text in batch["text"].to_pylist() for word in text.split()]})

    program = BatchProgram(
        Rows(table), ("key",), {"n": count()}, function=words, schema=pa.schema({"key": pa.string()})
    )
    found = run_batches(program, FAST, workers=2)
    assert {row["key"]: row["n"] for row in found.results[0].to_pylist()} == {"a": 1, "b": 3, "c": 1}


def test_rows_come_at_their_rate():
    program = BatchProgram(Rows(rows(200)), ("key",), {"n": count(), "m": mean("value")}, rate=Constant(1000))
    found = run_batches(program, Scheduling(interval=0.05, slots=1), workers=1)
    assert pc.sum(pa.concat_tables(found.results.values())["n"]).as_py() == 200
    sizes = [run.rows for run in found.batches.values()]
    assert len(sizes) in (4, 5)
    assert all(run.last == (number == len(sizes) - 1) for number, run in found.batches.items())


def test_no_more_batches_than_were_asked_for():
    program = BatchProgram(Rows(rows(1000)), ("key",), {"n": count()}, batch_rows=10)
    found = run_batches(program, Scheduling(interval=0.01, batches=5), workers=1)
    assert sorted(found.results) == list(range(5))


def test_a_stop_ends_behind_the_batches_that_were_made():
    program = BatchProgram(Rows(rows(100_000)), ("key",), {"n": count()}, batch_rows=10)
    job = GroupJob(program, replace(FAST, backlog=8), 2, ThreadLauncher(GroupWorker))
    seen = []
    job._commit = lambda batch, table: (seen.append(table["n"].to_pylist()), job.stop() if batch == 4 else None)
    job.run()
    assert 5 <= len(seen) < 60
    assert all(np.sum(counts) == 10 for counts in seen)


@pytest.mark.parametrize("boundary", [False, True])
def test_a_change_holds_for_all_batches_from_one_on_and_at_a_boundary_from_a_group(boundary):
    class Once:
        def decide(self, seen):
            return Action({BLOCKS: 5, BUCKETS: 2}, "more") if seen.batch.number == 2 else Action()

    program = BatchProgram(Rows(rows(600)), ("key",), {"n": count()}, batch_rows=20)
    how = Scheduling(interval=0.05, group=10, ahead=2, adjust=2, boundary=boundary, blocks=2, buckets=2)
    found = run_batches(program, how, workers=1, elastic=Once())
    (change,) = found.changes
    plans = [found.batches[batch].blocks for batch in range(30)]
    assert plans == [2] * change.first + [5] * (30 - change.first)
    assert (change.decided_on, change.reason) == (2, "more")
    assert change.first % 10 == 0 if boundary else change.first >= 4


def test_a_change_far_ahead_is_kept_until_its_batch():
    class Once:
        def decide(self, seen):
            return Action({BLOCKS: 5, BUCKETS: 2}, "more") if seen.batch.number == 0 else Action()

    program = BatchProgram(Rows(rows(600)), ("key",), {"n": count()}, batch_rows=20)
    how = Scheduling(interval=0.02, group=5, ahead=1, adjust=13, blocks=2, buckets=2)
    found = run_batches(program, how, workers=1, elastic=Once())
    assert found.changes[0].first >= 13
    assert [found.batches[batch].blocks for batch in range(13)] == [2] * 13


def test_a_worker_that_is_killed_loses_and_doubles_nothing():
    table = rows(3000)
    program = BatchProgram(
        Rows(table), ("key",), {"n": count()}, batch_rows=50, window="5 seconds", time="at", partitioner="prompt"
    )
    launcher = ProcessLauncher(GroupWorker)
    got, killed = [], []

    def commit(batch, results):
        got.append((batch, results))
        if batch in (7, 23, 41) and batch not in killed:
            killed.append(batch)
            os.kill(job.pids[len(killed) % 2], signal.SIGKILL)

    # with so short a backlog no worker is done with its work when it is killed
    how = Scheduling(interval=0.02, group=5, ahead=2, snapshot=4, restarts=3, backlog=2)
    job = GroupJob(program, how, 2, launcher, Redrawn(3), commit)
    outcome = job.run()
    assert outcome.restarts == 3
    assert [batch for batch, _ in got] == list(range(len(got))), "a batch came twice, or not at all"
    whole = pa.concat_tables([results for _, results in got])
    assert pc.sum(whole["n"]).as_py() == 3000
    assert whole.num_rows == len(windows(table, 5, 5))


def test_a_function_that_raises_ends_the_run_and_is_named():
    def bad(batch):
        raise RuntimeError("no such row")

    program = BatchProgram(Rows(rows(10)), ("key",), {"n": count()}, function=bad)
    with pytest.raises(JobError, match=r"map task \d of batch 0 in worker 0: RuntimeError: no such row"):
        run_batches(program, Scheduling(interval=0.01, restarts=0), workers=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keys": ()}, "give keys="),
        ({"keys": ("kye",)}, "kye"),
        ({"aggregates": {"n": sum("valu")}}, "valu"),
        ({"partitioner": "promt"}, "did you mean 'prompt'"),
        ({"allocator": "worst"}, "unknown allocator"),
        ({"window": "1 second"}, "give time="),
        ({"slide": "1 second"}, "needs a window"),
        ({"window": "1 second", "time": "when"}, "unknown time column 'when'"),
        ({"window": "1 second", "time": "key"}, "time column 'key' must be a timestamp"),
        ({"batch_rows": 0}, "batch_rows must be 1 or more"),
        ({"source": SocketLines("127.0.0.1", 1, pa.schema({"key": pa.string()}))}, "cannot be read again"),
    ],
)
def test_what_cannot_run_is_said_before_it_does(options, says):
    given_ = {"source": Rows(rows(1)), "keys": ("key",), "aggregates": {"n": count()}} | options
    with pytest.raises(OptionError, match=says):
        BatchProgram(**given_)


@pytest.mark.parametrize("option", ["interval", "group", "blocks", "buckets", "slots", "adjust"])
def test_a_schedule_of_nothing_is_refused(option):
    with pytest.raises(OptionError, match=f"{option} must be"):
        Scheduling(**{option: 0})


def test_the_backlog_holds_the_source_back():
    gate = threading.Event()

    def slow(batch):
        gate.wait(10)
        return batch

    table = rows(1000)
    program = BatchProgram(Rows(table), ("key",), {"n": count()}, batch_rows=10, function=slow, schema=table.schema)
    how = Scheduling(interval=0.002, backlog=3, slots=1, blocks=1, buckets=1, batches=20)
    job = GroupJob(program, how, 1, ThreadLauncher(GroupWorker))
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while len(job.outcome.ends) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(job.outcome.ends) == 3
    gate.set()
    thread.join(20)
    assert sorted(job.outcome.results) == list(range(20))


class SideBySide(Rows):
    """Splits that grow together; one of them has nothing new every other time."""

    together = True

    def read(self, split, offset, rows):
        self._cache["calls"] = self._cache.get("calls", 0) + 1
        if split == "1" and self._cache["calls"] % 2:
            return Read(None, offset, False)
        found = super().read(split, offset // 10, rows if rows < 7 else 7)
        return found._replace(offset=10 * found.offset)  # an offset need not count rows


@pytest.mark.parametrize("kill", [False, True])
def test_splits_that_grow_side_by_side_are_read_in_turn_and_again_after_a_failure(kill):
    table = rows(900)
    program = BatchProgram(
        SideBySide(table, pieces=3),
        ("key",),
        {"n": count()},
        batch_rows=60,
        window="5 seconds",
        time="at",
        delay="60 seconds",
    )
    launcher = ProcessLauncher(GroupWorker)
    got = []

    def commit(batch, results):
        got.append(results)
        if kill and len(got) == 9:
            os.kill(job.pids[0], signal.SIGKILL)

    how = Scheduling(interval=0.02, snapshot=4, backlog=2)
    job = GroupJob(program, how, 2, launcher, None, commit)
    outcome = job.run()
    assert outcome.restarts == kill
    whole = pa.concat_tables(got)
    assert whole.num_rows == len(windows(table, 5, 5))
    assert pc.sum(whole["n"]).as_py() == 900
