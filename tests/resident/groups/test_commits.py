"""Groups of batches as the third engine needs them: running aggregates, open ends, commits, guards and events."""

import itertools
import json
import shutil
import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, max, sum, variance
from steelyard.control import LargestStep
from steelyard.core import BLOCKS, Action, OptionError, Progress
from steelyard.core.progress import BATCH, DECISION, RECOVERED
from steelyard.resident import Rows
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Keeping, Scheduling
from steelyard.resident.launchers import ThreadLauncher
from tests.resident.groups.test_batches import FAST, Redrawn, rows, windows

AGGREGATES = {"n": count(), "total": sum("value"), "high": max("value"), "spread": variance("value")}


def run(program, how=FAST, workers=2, **options):
    job = GroupJob(program, how, workers, ThreadLauncher(GroupWorker), **options)
    job.run()
    return job


def by_key(table):
    found = table.group_by("key").aggregate(
        [([], "count_all"), ("value", "sum"), ("value", "max"), ("value", "variance", pc.VarianceOptions(ddof=1))]
    )
    return {r["key"]: (r["count_all"], r["value_sum"], r["value_max"], r["value_variance"]) for r in found.to_pylist()}


def newest(tables):
    return {r["key"]: (r["n"], r["total"], r["high"], r["spread"]) for table in tables for r in table.to_pylist()}


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, (*whole, spread) in theirs.items():
        assert ours[key][:3] == tuple(whole)
        assert ours[key][3] == (None if spread is None or np.isnan(spread) else pytest.approx(spread))


@settings(max_examples=10, deadline=None)
@given(n=st.integers(0, 300), batch_rows=st.integers(20, 150), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_running_aggregates_of_all_kinds_are_those_of_all_rows_so_far(n, batch_rows, workers, seed):
    table = rows(n, seed=seed)
    program = BatchProgram(Rows(table), ("key",), AGGREGATES, batch_rows=batch_rows, running=True)
    given_ = run(program, workers=workers, elastic=Redrawn(seed)).outcome.results
    for one in given_.values():
        assert len(set(one["key"].to_pylist())) == one.num_rows, "a key came twice in a batch"
    close(newest(given_.values()), by_key(table))


class Handed:
    """Takes what is handed on, by batch; the same batch again must be the same. It may fail once."""

    def __init__(self, fails_at=None):
        self.got, self._fails_at = {}, fails_at

    def __call__(self, batch, table):
        if self._fails_at is not None and len(self.got) == self._fails_at:
            self._fails_at = None
            raise OptionError("the sink is full: make room")
        assert self.got.setdefault(batch, table) == table


@pytest.mark.parametrize("windowed", [True, False])
def test_a_job_goes_on_from_its_commits_whatever_ended_it(tmp_path, windowed):
    table = rows(900)
    shape = {"window": "10 seconds", "time": "at", "open_end": True} if windowed else {"running": True}
    aggregates = {"n": count()} if windowed else AGGREGATES
    handed = Handed(fails_at=4)
    how = Scheduling(interval=0.01, group=3, ahead=1, snapshot=3, blocks=3, buckets=2)

    def started(upto, **options):
        program = BatchProgram(Rows(table.slice(0, upto), pieces=1), ("key",), aggregates, batch_rows=25, **shape)
        return GroupJob(program, how, 2, ThreadLauncher(GroupWorker), keeping=Keeping(str(tmp_path), handed), **options)

    with pytest.raises(OptionError, match="the sink is full"):
        started(900).run()
    done = len(handed.got)
    assert done == 4
    stopping = started(900, tell=lambda event: stopping.stop() if event.kind == BATCH else None)
    stopping.run()
    committed = stopping.committed
    assert list(handed.got)[:done] == sorted(handed.got)[:done]
    last = started(900)
    last.run()
    assert last.committed > committed
    assert list(handed.got) == sorted(handed.got)
    if windowed:
        ends = table["at"].to_numpy().astype("int64").max()
        closed = {at: n for at, n in windows(table, 10, 10).items() if (at[1] + 10) * 1_000_000 <= ends}
        whole = pa.concat_tables(handed.got.values())
        starts = whole["window_start"].cast(pa.int64()).to_numpy() // 1_000_000
        assert len(closed) == whole.num_rows, "a window came twice, or not at all"
        keys = zip(whole["key"].to_pylist(), starts.tolist(), strict=True)
        assert dict(zip(keys, whole["n"].to_pylist(), strict=True)) == closed
    else:
        close(newest(handed.got.values()), by_key(table))


@pytest.mark.parametrize("snapshot", [1, 3, 50])
def test_a_slow_sink_gets_every_window_once_and_a_driver_that_ends_doubles_none(tmp_path, snapshot):
    """Commits are left out while it is behind; none may have results of batches that are made again after it."""
    table = rows(900)
    shape = {"window": "10 seconds", "time": "at", "open_end": True, "batch_rows": 25}
    program = BatchProgram(Rows(table, pieces=1), ("key",), {"n": count()}, **shape)
    how = Scheduling(interval=0.01, group=3, ahead=1, snapshot=snapshot, blocks=3, buckets=2)
    ended = threading.Event()

    def started(name, deliver, tell=lambda event: None):
        keeping = Keeping(str(tmp_path / name), deliver)
        return GroupJob(program, how, 2, ThreadLauncher(GroupWorker), keeping=keeping, tell=tell)

    def slow(batch, part):
        assert ended.wait(20)
        handed(batch, part)

    def after_each(event):
        if event.batch == 20:  # as it would be found if the driver were killed now
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        if event.batch == 30:
            ended.set()

    handed = Handed()
    outcome = started("run", slow, after_each).run()
    assert outcome.saved == outcome.delivered
    whole = pa.concat_tables(handed.got.values()).sort_by([("key", "ascending"), ("window_start", "ascending")])
    assert whole.num_rows == len(set(zip(whole["key"].to_pylist(), whole["window_start"].to_pylist(), strict=True)))
    again = Handed()
    started("killed", again).run()
    assert pa.concat_tables(again.got.values()).sort_by([("key", "ascending"), ("window_start", "ascending")]) == whole


def test_commits_of_windows_that_the_end_closes_are_refused(tmp_path):
    program = BatchProgram(Rows(rows(10)), ("key",), {"n": count()}, window="1 second", time="at")
    with pytest.raises(OptionError, match=r"at the end of the source cannot: give BatchProgram\(open_end=True\)"):
        run(program, keeping=Keeping(str(tmp_path), Handed()))


def test_commits_of_other_receivers_are_refused(tmp_path):
    program = BatchProgram(Rows(rows(10)), ("key",), {"n": count()}, running=True)
    run(program, keeping=Keeping(str(tmp_path), Handed()))
    with pytest.raises(OptionError, match="is of 2 workers that read, and there are 1 now"):
        run(program, workers=1, keeping=Keeping(str(tmp_path), Handed()))


def test_batches_decisions_and_failures_are_events_and_guards_bound_what_is_decided():
    class Twenty:
        def decide(self, seen):
            return Action({BLOCKS: 20}, "twenty are better")

    told: list[Progress] = []

    def tell(event):
        told.append(event)
        if event.kind == BATCH and event.batch == 5 and not job.outcome.restarts:
            job._driver.abort("a worker died")

    program = BatchProgram(Rows(rows(400)), ("key",), {"n": count()}, batch_rows=20)
    job = GroupJob(
        program,
        Scheduling(interval=0.01, blocks=2, buckets=2),
        2,
        ThreadLauncher(GroupWorker),
        Twenty(),
        guards=[LargestStep(up=1)],
        tell=tell,
    )
    job.run()
    batches = [event for event in told if event.kind == BATCH]
    assert [event.batch for event in batches] == list(range(len(batches))), "each once, in order"
    assert np.sum([event.rows for event in batches]) == 400
    assert np.sum([event.results for event in batches]) == np.sum([t.num_rows for t in job.outcome.results.values()])
    assert job.outcome.batches[0].blocks == 2
    (recovered,) = (event for event in told if event.kind == RECOVERED)
    assert "a worker died" in recovered.decision
    decisions = [event for event in told if event.kind == DECISION]
    assert decisions
    steps = [batches[0].blocks, *(change.plan.blocks for change in job.outcome.changes)]
    assert all(0 <= after - before <= 1 for before, after in itertools.pairwise(steps))
    assert json.loads(batches[0].to_json())["load"] >= 0


def test_a_wish_for_both_a_window_and_none_is_refused():
    with pytest.raises(OptionError, match="running=True is for aggregates without a window"):
        BatchProgram(Rows(rows(1)), ("key",), {"n": count()}, running=True, window="1 second", time="at")
