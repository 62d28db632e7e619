"""One policy for rate, uneven workers and failures: it does one thing at a time, out of one budget."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from steelyard.control import Budget, Controller, Cooldown
from steelyard.core import Action, ActionRefusedError, InstanceObservation, Observation, OperatorObservation
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL, CheckpointObservation
from steelyard.core.control import WorkerObservation
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Generated, Settings
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.scaling import Together
from steelyard.sim import Exactly, FluidSimulation, Operator, Scenario, Source
from steelyard.workloads import Constant, Steps, Zipf

LOOK = 15.0
EVEN = (WorkerObservation(0, 0.5, 1.0), WorkerObservation(1, 0.5, 1.0))
OFTEN = CheckpointObservation(interval=5.0, costs=0.5, failures_per_hour=4.0, failed_at=(1.0, 2.0))
"""They should come every 30 seconds."""
UNEVEN = (WorkerObservation(0, 1.0, 1.0), WorkerObservation(1, 0.1, 1.0))


def seen(number=1, workers=EVEN, arrived=1000.0, lag=0.0, busy=0.5, checkpoints=None):
    log = InstanceObservation(
        "log#0", processed_per_second=1000.0, sent_per_second=1000.0, busy=0.1, idle=0.9, cpu=0.1, queue=0.0,
        arrived_per_second=arrived, lag=lag, lag_per_second=0.0, lag_seconds=lag / 1000.0,
    )  # fmt: skip
    each = [
        InstanceObservation(
            f"map#{n}", processed_per_second=500.0, busy=busy, idle=1 - busy, cpu=0.45, queue=0.0, sent_per_second=500.0
        )
        for n in (0, 1)
    ]
    operators = (OperatorObservation.of("log", [log], {}), OperatorObservation.of("map", each, {"log": 1000.0}))
    places = {"log#0": 1, "map#0": 0, "map#1": 0}
    return Observation(LOOK * number, LOOK, operators, None, places, None, workers, None, checkpoints)


def test_where_a_worker_is_full_an_instance_moves_and_numbers_stay():
    action = Together(budget=1000).decide(seen(workers=UNEVEN, arrived=3000.0, lag=60_000.0, busy=0.98))
    assert dict(action.placement) == {"map#0": 1}
    assert not action.parallelism
    assert "worker 0 is full to 100%" in action.reason


def test_where_workers_are_even_a_job_that_is_behind_gets_more():
    action = Together().decide(seen(arrived=3000.0, lag=60_000.0, busy=0.98))
    assert action.parallelism["map"] > 2
    assert not action.placement


def test_one_thing_at_a_time():
    for workers in (EVEN, UNEVEN):
        for lag in (0.0, 60_000.0):
            action = Together().decide(seen(workers=workers, arrived=1000.0 + lag / 20, lag=lag, busy=0.9))
            assert not (action.parallelism and action.placement)


def test_the_budget_is_one_and_says_when_it_is_spent():
    policy = Together(budget=12.0, move=5.0)
    done = [policy.decide(seen(number, UNEVEN)) for number in range(1, 5)]
    assert [bool(one.placement) for one in done] == [True, True, False, False]
    assert "10 of 12 s are spent" in done[-1].reason
    assert Together(budget=0.0).decide(seen(arrived=3000.0, lag=60_000.0, busy=0.98)).parallelism, (
        "who is behind may grow"
    )


def test_what_came_to_nothing_costs_nothing():
    policy = Together(budget=6.0, move=5.0)
    for number in range(1, 5):
        assert policy.decide(seen(number, UNEVEN)).placement
        policy.refused()


def test_checkpoints_go_with_failures_and_what_they_cost():
    """Half a second each, and a failure in 900 s: the root of 2 * 0.5 * 900 is 30."""
    action = Together().decide(seen(checkpoints=OFTEN))
    assert action.settings == {CHECKPOINT_INTERVAL: "30"}
    assert "a failure comes every 900 s" in action.reason
    assert not Together().decide(seen(checkpoints=replace(OFTEN, interval=25.0))).settings
    assert not Together().decide(seen(checkpoints=replace(OFTEN, failures_per_hour=0.0, failed_at=()))).settings


def test_one_failure_says_nothing_of_how_often_they_come():
    soon = CheckpointObservation(interval=60.0, costs=0.5, failures_per_hour=720.0, failed_at=(5.0,))
    assert not Together().decide(seen(checkpoints=soon)).settings
    assert Together().decide(seen(checkpoints=replace(soon, failed_at=(5.0, 10.0)))).settings


class Resident:
    """A job that is behind, whose checkpoints come too often; time goes on by a look."""

    what, shows = "a job", frozenset({*Together.needs, "checkpoints"})

    def __init__(self, refuses):
        self.refuses, self.number, self.done, self.shown = refuses, 0, [], OFTEN

    def observe(self):
        self.number += 1
        return seen(self.number, arrived=3000.0, lag=60_000.0, busy=0.98, checkpoints=self.shown)

    def apply(self, action):
        if self.refuses and action.settings:
            raise ActionRefusedError("it keeps its interval")
        self.done.append(action)
        if action.settings:
            self.shown = replace(OFTEN, interval=float(action.settings[CHECKPOINT_INTERVAL]))
        return 0.0


def test_an_interval_that_is_refused_holds_nothing_else_up_and_is_wanted_again_later():
    job = Resident(refuses=True)
    controller = Controller(job, Together(budget=1e9))
    for _ in range(100):
        controller.look()
    assert job.done[0].parallelism["map"] > 2
    refused = [one.time for one in controller.decisions if one.refused]
    assert refused == [15.0, 615.0, 1215.0]


def test_another_interval_stops_nothing_so_that_guards_neither_count_nor_forbid_it():
    for guards in ([Cooldown(300.0)], [Budget(seconds=20.0, each=20.0)]):
        job = Resident(refuses=False)
        controller = Controller(job, Together(budget=1e9), guards)
        controller.look()
        controller.look()
        assert [bool(one.settings) for one in job.done] == [True, False]
        assert job.done[1].parallelism["map"] > 2
    job.shown = OFTEN  # now the budget is spent
    assert controller.look().done.settings == {CHECKPOINT_INTERVAL: "30"}


def test_another_protocol_and_a_first_interval_count_as_any_change():
    shown = seen(checkpoints=OFTEN)
    assert Action(settings={CHECKPOINT_INTERVAL: "30"}).stops_nothing(shown)
    assert not Action(settings={CHECKPOINT_INTERVAL: "30"}).stops_nothing(seen())
    assert not Action(settings={CHECKPOINT_INTERVAL: "30", CHECKPOINT_PROTOCOL: "uncoordinated"}).stops_nothing(shown)
    assert not Action({"map": 3}, settings={CHECKPOINT_INTERVAL: "30"}).stops_nothing(shown)


def test_checkpoints_are_set_where_nothing_else_can_be_decided():
    silent = replace(seen(checkpoints=OFTEN), operators=())
    assert Together().decide(silent).settings == {CHECKPOINT_INTERVAL: "30"}
    assert Together().decide(replace(silent, checkpoints=None)).is_nothing


def test_checkpoints_never_come_faster_than_one_is_durable():
    shown = replace(OFTEN, costs=0.001, failures_per_hour=3600.0, seconds=2.0)
    assert Together().decide(seen(checkpoints=shown)).settings == {CHECKPOINT_INTERVAL: "2"}


def test_engines_that_have_no_such_setting_refuse():
    simulation = FluidSimulation(Scenario.chain(Source("log", rate=10), Operator("map", Exactly(0.01))))
    with pytest.raises(ActionRefusedError, match="keeps its settings"):
        simulation.apply(Action(settings={CHECKPOINT_INTERVAL: "30"}))


def test_on_a_simulated_day_it_scales_as_foresight_does_within_its_budget():
    scenario = Scenario.chain(
        Source("log", Steps(900.0, (1000.0, 6000.0, 6000.0, 1000.0)), service=Exactly(1e-5)),
        Operator("map", Exactly(0.001), parallelism=2, capacity=100),
    )
    controller = Controller(FluidSimulation(scenario, 1.0, 30.0), Together(), history=None)
    controller.run(3600.0, LOOK)
    assert sum(one.disturbed for one in controller.decisions) <= 240.0 + 60.0
    assert controller.seen.operators[0].lag < 1000.0


class Shown:
    """A job, whose workers are shown as uneven as long as both instances are on worker 0."""

    def __init__(self, job):
        self.job = job

    def __getattr__(self, name):
        return getattr(self.job, name)

    def observe(self):
        found = self.job.observe()
        there = [worker for name, worker in found.placement.items() if name.startswith("map")]
        loads = UNEVEN if there == [0, 0] else EVEN
        each = [
            replace(
                one,
                instances=tuple(
                    replace(each, cpu=0.45, busy=0.5, idle=0.5, backpressured=0.0) for each in one.instances
                ),
            )
            for one in found.operators
        ]
        return replace(found, workers=loads, operators=tuple(each))


def test_a_resident_job_has_its_instance_moved_and_gives_all_rows(tmp_path):
    rows, got = 3000, []
    flow = Flow("moved")
    read = flow.source(Generated(Zipf(keys=9), rows=rows, pace=Constant(1000.0)), batch_rows=50, name="log")
    mapped = read.shuffle().map(lambda batch: batch, name="map", parallelism=2)
    mapped.shuffle().sink(Callback(got.append), name="out")
    dataflow = flow.dataflow()
    packed = {one: 0 if one.operator == "map" else 1 for one in dataflow.instances}
    job = Job(dataflow, Placement(packed, 2), ThreadLauncher(), Settings(str(tmp_path), heartbeat=0.05))
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    controller = Controller(Shown(job), Together(budget=5.0, move=5.0))
    deadline = time.monotonic() + 60.0
    while not job.ended and time.monotonic() < deadline:
        job.advance(0.2)
        if not job.ended:
            controller.look()
    thread.join(60.0)
    assert [one.done.placement for one in controller.decisions if one.done.placement] == [{"map#0": 1}]
    assert pa.Table.from_batches(got).num_rows == rows
