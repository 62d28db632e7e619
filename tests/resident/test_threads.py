"""Forward edges run in one thread, and small batches that wait are worked off together; neither changes an answer."""

from __future__ import annotations

import sys
import threading
import time

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core.topology import Instance, Placement
from steelyard.resident import Flow, JobError, Memory, Rows, Settings, Step, run
from steelyard.resident.channel import Mailbox
from steelyard.resident.runner import TOGETHER_ROWS, Runner
from steelyard.resident.switching import Links

ROWS = pa.table({"n": list(range(400)), "k": [n % 7 for n in range(400)]})
NUMBERS = pa.schema({"n": pa.int64(), "k": pa.int64()})


class Noting:
    """A map function that notes where it ran and with how many rows, and takes its time for the first ones, or all."""

    def __init__(self, seconds=0.0, always=False):
        self.threads, self.sizes, self.seconds, self.always = set(), [], seconds, always

    def __call__(self, batch):
        self.threads.add(threading.current_thread().name)
        self.sizes.append(batch.num_rows)
        time.sleep(self.seconds if self.always or len(self.sizes) == 1 else 0)
        return batch


def test_forward_edges_of_one_worker_run_in_the_thread_of_their_sender():
    first, second, behind = Noting(), Noting(), Noting()
    flow = Flow("threads")
    mapped = (
        flow.source(Rows(ROWS), batch_rows=50).map(first, NUMBERS, name="first").map(second, NUMBERS, name="second")
    )
    mapped.shuffle().map(behind, NUMBERS, name="behind").sink(Memory(), name="out")
    results = run(flow.dataflow(), workers=1)
    assert first.threads == second.threads
    assert len(first.threads | behind.threads) == 2
    assert results.table("out").sort_by("n") == ROWS


def test_the_instance_that_fails_is_named_though_another_one_drives_it():
    def wrong(batch):
        raise ValueError("no")

    flow = Flow("failing")
    flow.source(Rows(ROWS)).map(Noting(), NUMBERS, name="first").map(wrong, NUMBERS, name="second").sink(Memory())
    with pytest.raises(JobError, match=r"operator .second. .instance 0.*ValueError: no"):
        run(flow.dataflow(), workers=1, settings=Settings(restarts=0))


def test_time_is_counted_to_who_spends_it():
    flow = Flow("times")
    slow = Noting(0.3)
    flow.source(Rows(ROWS), name="in").map(slow, NUMBERS, name="slow").sink(Memory(), name="out")
    metrics = run(flow.dataflow(), workers=1).outcome.metrics
    assert metrics["slow#0"]["busy"] >= 0.3
    assert metrics["in#0"]["busy"] < 0.3
    assert metrics["out#0"]["idle"] >= 0.3
    assert metrics["slow#0"]["rows_in"] == metrics["out#0"]["rows_in"] == 400


def test_instances_on_other_workers_are_not_followed():
    flow = Flow("apart")
    flow.source(Rows(ROWS), name="in").map(Noting(), NUMBERS, name="first").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    apart = Placement({one: number % 2 for number, one in enumerate(dataflow.instances)}, 2)
    assert run(dataflow, workers=2, placement=apart).table("out").sort_by("n") == ROWS


def test_small_batches_that_wait_are_worked_off_together_and_in_order():
    noted = Noting(0.2)
    flow = Flow("together")
    flow.source(Rows(ROWS), batch_rows=1, name="in").shuffle().map(noted, NUMBERS, name="map").sink(
        Memory(), name="out"
    )
    results = run(flow.dataflow(), workers=1)
    assert results.table("out") == ROWS
    assert sum(noted.sizes) == 400
    assert 1 < max(noted.sizes) <= TOGETHER_ROWS


def test_rows_that_take_long_are_not_kept_for_those_behind_them():
    noted = Noting()

    def slowly(batch):
        time.sleep(0.02 * batch.num_rows)
        return noted(batch)

    flow = Flow("slow")
    some = ROWS.slice(0, 30)
    flow.source(Rows(some), batch_rows=1, name="in").shuffle().map(slowly, NUMBERS, name="map").sink(
        Memory(), name="out"
    )
    assert run(flow.dataflow(), workers=1).table("out") == some
    assert set(noted.sizes) == {1}


def test_counts_are_right_whatever_came_together():
    flow = Flow("counts", parallelism=2)
    flow.source(Rows(ROWS), batch_rows=3).key_by("k").aggregate(n=count(), emit="end").sink(Memory(), name="out")
    found = run(flow.dataflow(), workers=2).table("out")
    assert dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == {
        k: len(range(k, 400, 7)) for k in range(7)
    }


def test_measured_batches_come_together_too_and_every_request_is_answered():
    grouping = "tracking_osg?cost_of=k&resync=2&window=8&tolerance=10&apart=0"
    largest = 0
    for _ in range(20):  # whether batches wait for an instance depends on the machine: in one run of many they do
        noted = [Noting(0.0005, always=True), Noting(0.0005, always=True)]  # less than a sender keeps an instance busy

        def map_of(batch, noted=noted):
            return noted[batch.column("n")[0].as_py() % 2](batch)

        flow = Flow("measured")
        flow.source(Rows(ROWS), batch_rows=2, name="in").shuffle(grouping).map(
            map_of, NUMBERS, parallelism=2, name="map"
        ).sink(Memory(), name="out")
        results = run(flow.dataflow(), workers=1)
        assert results.table("out").sort_by("n") == ROWS
        mapped = [one for name, one in results.outcome.metrics.items() if name.startswith("map#")]
        assert len(mapped) == 2
        assert all(one["reports"] for one in mapped), mapped  # how many rounds there are depends on the machine
        largest = max(largest, *(max(one.sizes) for one in noted))
        if largest > 2:
            break
    assert largest > 2


class Passing(Step):
    """Passes rows on, and raises where it is told to."""

    def __init__(self, **raised):
        self._raised, self.closed = raised, False

    def _may_raise(self, what):
        if what in self._raised:
            raise self._raised[what]

    def process(self, port, batch):
        return [batch]

    def snapshot(self, number):
        self._may_raise("snapshot")
        return {}

    def committed(self, number):
        self._may_raise("committed")

    def close(self):
        self.closed = True
        self._may_raise("close")


@pytest.mark.parametrize("what", ["snapshot", "committed"])
@pytest.mark.parametrize("stored", [True, False])
def test_the_instance_is_named_that_could_not_do_what_it_was_told(tmp_path, what, stored):
    flow = Flow("blamed")
    read = flow.source(Rows(ROWS), name="in").map(Noting(), NUMBERS, name="first")
    read.process(lambda context: Passing(**{what: RuntimeError("disk full")}), name="mine").sink(Memory(), name="out")
    how = Settings(restarts=0, store=str(tmp_path) if stored else None)
    with pytest.raises(JobError) as raised:
        run(flow.dataflow(), workers=1, settings=how)
    assert "operator 'mine' (instance 0, worker 0): RuntimeError: disk full" in str(raised.value)
    assert "'in'" not in str(raised.value)


def test_each_step_is_closed_though_another_one_cannot_be():
    steps = {name: Passing(close=OSError("gone")) for name in ("one", "two", "three")}
    flow = Flow("closing")
    rows = flow.source(Rows(ROWS))
    for name, step in steps.items():
        rows = rows.process(lambda context, made=step: made, name=name)
    rows.sink(Memory(), name="out")
    assert run(flow.dataflow(), workers=1).table("out") == ROWS
    assert all(step.closed for step in steps.values())


def test_every_call_is_answered_or_cancelled_while_a_thread_ends(monkeypatch):
    died, closed, open_calls = [], 0, 0
    monkeypatch.setattr(threading, "excepthook", lambda raised: died.append(raised.exc_value))
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            step = Passing()
            runner = Runner(Instance("one", 0), step, Links(0, Mailbox([]), [], {}), lambda *_: None, lambda *_: None)
            answers = [runner.call(lambda: None) for _ in range(3)]
            runner._stopping = True  # it ends at once, and cancels what it finds
            runner.start()
            answers += [runner.call(lambda: None) for _ in range(30)]
            runner.join(5)
            closed += step.closed
            open_calls += sum(not answer.done() for answer in answers)
    finally:
        sys.setswitchinterval(often)
    assert (died, closed, open_calls) == ([], 300, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_chains_of_forward_edges_may_have_any_length(workers):
    noted = [Noting() for _ in range(150)]
    flow = Flow("chain", parallelism=workers)
    rows = flow.source(Rows(ROWS), batch_rows=50)
    for number, one in enumerate(noted):
        rows = rows.map(one, NUMBERS, name=f"map {number}")
    rows.sink(Memory(), name="out")
    assert run(flow.dataflow(), workers=workers).table("out").sort_by("n") == ROWS
    threads = set.union(*(one.threads for one in noted))
    assert len(threads) == 5 * workers  # 32 instances in each
