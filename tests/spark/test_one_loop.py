"""One loop for every engine: the same policy under the same guards decides the same for the same observations."""

import threading

import pytest

from steelyard.control import Bounds, Budget, Controller, Cooldown, Guard, LargestStep
from steelyard.core import BLOCKS, Action
from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.sim import FluidSimulation, Simulation
from tests.resident.test_control import counts, flow_of
from tests.sim.test_control import fork
from tests.spark.test_elastic import described, engine, rows_of
from tests.spark.test_similarity_join import SECOND, Fed, brute_force, same, self_join, vectors

pytestmark = pytest.mark.spark


class Restless:
    """Wants another number, or another place, at every look: one that what it sees decides alone."""

    def decide(self, observation):
        if observation.join is not None:
            workers = len(observation.join.loads)
            worksets = sorted(observation.join.worksets, key=lambda one: (-one.load, one.id))
            return Action(moves={one.id: (one.worker + 1) % workers for one in worksets}, reason="all go round")
        wanted = {name: count + 2 for name, count in observation.parallelism.items() if name in (BLOCKS, "left")}
        if wanted:
            return Action(wanted, "two more")
        return Action(placement={name: 1 - at for name, at in observation.placement.items()}, reason="all change")


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


GUARDS = [Notes(), Cooldown(0.2), LargestStep(up=1, moves=3), Bounds(most=5), Budget(2.0, each=0.9), Notes()]


class Seen:
    """An engine of which only the observations are left."""

    what, shows = "observations", frozenset()

    def __init__(self, notes):
        self.observations, self.disturbed = iter(notes.seen), iter(notes.disturbed)

    def observe(self):
        return next(self.observations)

    def apply(self, action):
        return next(self.disturbed)


def in_batches(spark, folder):
    rows = rows_of(spark)
    run = engine(spark, described(rows, "fixed").elastic(Restless(), guards=GUARDS), folder)
    for batch in range(5):
        run.process(rows, batch)
    return run._controller


def as_a_join(spark, folder):
    rows = vectors(60, seed=5)
    join = self_join(spark, rows, window="1 hour").balance(Restless(), guards=GUARDS)
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
    controller = Controller(job, Restless(), GUARDS)
    controller.run(60.0, every=0.1)
    runs.join(60)
    assert counts(job.outcome.results) == dict.fromkeys(range(5), 120)
    return controller


def simulated(simulation):
    controller = Controller(simulation, Restless(), GUARDS)
    controller.run(3.0, every=0.15)
    return controller


ENGINES = {
    "micro-batches": in_batches,
    "similarity join": as_a_join,
    "resident threads": on_resident_threads,
    "tuples": lambda spark, folder: simulated(Simulation(fork(), seed=1, downtime=0.1)),
    "flows": lambda spark, folder: simulated(FluidSimulation(fork(), downtime=0.1)),
}


@pytest.mark.parametrize("name", ENGINES)
def test_decisions_come_from_what_was_seen_whatever_the_engine(spark, tmp_path, name):
    ran = ENGINES[name](spark, tmp_path)
    first, last = ran.guards[0], ran.guards[-1]
    again = Controller(Seen(first), Restless(), GUARDS)
    for _ in first.seen:
        again.look()
    assert again.guards[-1].left == last.left
    assert again.guards[-1].disturbed == last.disturbed
    assert 1 <= len(last.disturbed) <= 2  # the budget has no more
    done = [action for _, action in last.left if not action.is_nothing]
    assert any(" at once" in action.reason for action in done)
    assert any("are spent" in action.reason for _, action in last.left)
