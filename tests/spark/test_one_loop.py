"""One loop for every engine: one policy under the same guards decides by what was seen alone, whoever showed it."""

import itertools
import threading

import pytest

from steelyard import count
from steelyard.control import Bounds, Budget, Controller, Cooldown, Guard, LargestStep
from steelyard.core import Action
from steelyard.core.topology import Placement
from steelyard.resident import Rows, Settings
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.sim import FluidSimulation, Simulation
from tests.resident.test_control import ROWS, counts, flow_of
from tests.sim.test_control import fork
from tests.spark.test_elastic import described, engine, rows_of
from tests.spark.test_similarity_join import SECOND, Fed, brute_force, same, self_join, vectors

pytestmark = pytest.mark.spark


class Restless:
    """Wants two more of everything and every workset elsewhere, at every look, whatever the engine."""

    def decide(self, observation):
        worksets = observation.join.worksets if observation.join else ()
        heaviest = sorted(worksets, key=lambda one: (-one.load, one.id))
        return Action(
            {name: number + 2 for name, number in observation.parallelism.items()},
            "two more, and all go round",
            moves={one.id: (one.worker + 1) % len(observation.join.loads) for one in heaviest},
        )


class Notes(Guard):
    """Allows everything, and notes it."""

    def __init__(self):
        self.seen, self.left, self.disturbed = [], [], []

    def waits(self, seen):
        self.seen.append(seen)
        return False

    def allowed(self, action, seen):
        self.left.append((seen.time, action))
        return action

    def acted(self, time, disturbed):
        self.disturbed.append(disturbed)


POLICY = Restless()
SOURCES = {"log": (1, 1), "in": (1, 1)}
"""Of the dataflows, where there are any: simulated ones keep their numbers."""
GUARDS = [
    Notes(),
    Cooldown(0.2),
    LargestStep(up=1, moves=3),
    Bounds(most=5, own=SOURCES),
    Budget(2.0, each=0.9),
    Notes(),
]


def in_batches(spark, folder):
    rows = rows_of(spark)
    run = engine(spark, described(rows, "fixed").elastic(POLICY, guards=GUARDS), folder)
    for batch in range(5):
        run.process(rows, batch)
    return run._controller


def in_groups(spark, folder):
    program = BatchProgram(Rows(ROWS), ("k",), {"n": count()}, batch_rows=30, running=True)
    how = Scheduling(interval=0.05, blocks=2, buckets=2, slots=1, group=2, ahead=1)
    job = GroupJob(program, how, 2, ThreadLauncher(GroupWorker), POLICY, guards=GUARDS)
    found = {}
    for _, results in sorted(job.run().results.items()):
        found |= {row["k"]: row["n"] for row in results.to_pylist()}
    assert found == dict.fromkeys(range(5), 120)
    return job._adjuster._controller


def as_a_join(spark, folder):
    rows = vectors(60, seed=5)
    join = self_join(spark, rows, window="1 hour").balance(POLICY, guards=GUARDS)
    fed = Fed(spark, join, folder)
    for n in range(4):
        fed.give(join.rows.where(f"at >= {n * 15 * SECOND} and at < {(n + 1) * 15 * SECOND}"))
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 3600), ordered=False)
    return fed.engine._controller


def on_resident_threads(spark, folder):
    dataflow = flow_of(0.02)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(store=str(folder), heartbeat=0.05))
    runs = threading.Thread(target=job.run)
    runs.start()
    controller = Controller(job, POLICY, GUARDS)
    controller.run(60.0, every=0.1)
    runs.join(60)
    assert counts(job.outcome.results) == dict.fromkeys(range(5), 120)
    return controller


def simulated(simulation):
    controller = Controller(simulation, POLICY, GUARDS)
    controller.run(3.0, every=0.15)
    return controller


ENGINES = {
    "micro-batches": in_batches,
    "groups": in_groups,
    "similarity join": as_a_join,
    "resident threads": on_resident_threads,
    "tuples": lambda spark, folder: simulated(Simulation(fork(), seed=1, downtime=0.1)),
    "flows": lambda spark, folder: simulated(FluidSimulation(fork(), downtime=0.1)),
}


class Showing:
    """An engine that shows what another one saw, and does what that one did."""

    def __init__(self, engine, ran):
        self.what, self.shows = engine.what, engine.shows
        first, last = ran.guards[0], ran.guards[-1]
        self._seen, self._disturbed = iter(first.seen), iter(last.disturbed)

    def observe(self):
        return next(self._seen)

    def apply(self, action):
        return next(self._disturbed)


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    """The controller of each engine, after its run."""
    return {name: run(spark, tmp_path_factory.mktemp("ran")) for name, run in ENGINES.items()}


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_guards_asked_and_done_what_they_leave(ran, name):
    last = ran[name].guards[-1]
    assert 1 <= len(last.disturbed) <= 2  # the budget has no more
    done = [action for _, action in last.left if not action.is_nothing]
    assert any(" at once" in action.reason for action in done)
    assert any("are spent" in action.reason for _, action in last.left)


@pytest.mark.parametrize(("engine", "showed"), list(itertools.product(ENGINES, ENGINES)))
def test_the_same_observations_are_decided_in_the_same_way_on_every_engine(ran, engine, showed):
    first, last = ran[showed].guards[0], ran[showed].guards[-1]
    again = Controller(Showing(ran[engine].engine, ran[showed]), POLICY, GUARDS)
    for _ in first.seen:
        again.look()
    assert again.guards[-1].left == last.left
    assert again.guards[-1].disturbed == last.disturbed
