"""Checkpoint protocols on simulated workers: nothing is lost, and latencies are what queues make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.checkpoint import (
    FORCED,
    LOCAL,
    PROTOCOLS,
    ROUND,
    CommunicationInduced,
    Coordinated,
    Hybrid,
    NoCheckpoints,
    StopTheWorld,
    Unaligned,
    Uncoordinated,
    orphans,
)
from steelyard.core import OptionError
from steelyard.sim.checkpoints import Failure, Feed, Hop, Job, NoteCosts, ProtocolCosts, Simulation, Stage, sustainable
from steelyard.sim.checkpoints.epochs import Epochs
from steelyard.sim.checkpoints.running import Instance

COSTS = ProtocolCosts(
    make_message=0.0002,
    read_message=0.0002,
    notes={"Hmnr": NoteCosts(5e-5, 1e-7, 5e-5, 1e-7), "Bcs": NoteCosts(1e-5, 0, 1e-5, 0)},
    log_message=0.00002,
    snapshot=0.001,
    snapshot_byte=1e-8,
    write=0.02,
    write_byte=1e-8,
    load=0.01,
    replay_message=0.00005,
)
EXACT = [
    StopTheWorld(interval=0.7),
    Coordinated(interval=0.7),
    Unaligned(interval=0.7),
    Uncoordinated(interval=0.7),
    Uncoordinated(interval=0.7, together=True),
    CommunicationInduced(interval=0.7),
    CommunicationInduced(interval=0.7, rule="bcs"),
    Hybrid(interval=0.7),
    Hybrid(interval=0.7, begins="coordinated", patience=0.01, calm=1),
    NoCheckpoints(),
]
JOINED = Job(
    "joined",
    (Feed("left", 0.25, 1e-5), Feed("right", 0.75, 1e-5, hot=0.2)),
    (Stage("filter"), Stage("join"), Stage("sink")),
    (
        Hop("left", "filter", keyed=True, gives=0.5),
        Hop("filter", "join", kept_bytes=200),
        Hop("right", "join", keyed=True, gives=0.7, kept_bytes=500),
        Hop("join", "sink"),
    ),
    workers=3,
)
CYCLE = Job(
    "cycle",
    (Feed("links", broadcast=0.2),),
    (Stage("join"), Stage("project"), Stage("sink")),
    (
        Hop("links", "join", keyed=True, gives=0.5),
        Hop("join", "project"),
        Hop("project", "join", keyed=True, gives=0.4, feedback=True),
        Hop("project", "sink"),
    ),
    workers=2,
)
JOBS = {"joined": JOINED, "cycle": CYCLE}


def counted(run):
    """What every instance but sources has processed: how many rows, and which."""
    return {name: (one.rows, one.digest) for name, one in run.graph.instances.items()}


def settled(job, protocol, failures=(), rate=400.0, seconds=4.0, **options):
    run = Simulation(job, protocol, rate, costs=COSTS, failures=failures, **options).run(seconds)
    assert run.settle(), "all comes to rest"
    return run


TRIED = [
    (protocol, graph) for protocol in EXACT for graph in JOBS if graph != "cycle" or type(protocol) is not Coordinated
]


@pytest.mark.parametrize(("protocol", "graph"), TRIED, ids=str)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.9), st.integers(0, 1)), min_size=1, max_size=3),
    st.floats(0.0, 0.3),
    st.integers(0, 3),
)
@settings(max_examples=12, deadline=None)
@example([(2.0, 0), (2.05, 1)], 0.1, 0)
def test_after_failures_at_any_moment_every_row_has_counted_once(protocol, graph, moments, detection, seed):
    failures = [Failure(at, worker) for at, worker in moments]
    undisturbed = settled(JOBS[graph], NoCheckpoints(), seed=seed)
    run = settled(JOBS[graph], protocol, failures, detection=detection, seed=seed)
    assert run.tally.restarts
    assert counted(run) == counted(undisturbed)


def test_a_protocol_in_the_registry_is_among_those_tried():
    assert {type(one) for one in EXACT} == {entry.kind for entry in PROTOCOLS.entries.values()}


def test_without_a_log_rows_are_lost():
    right = settled(JOINED, NoCheckpoints())
    run = settled(JOINED, Uncoordinated(interval=0.7, logged=False), [Failure(3.0)])
    rows = [sum(one.rows for one in each.graph.instances.values() if not one.is_source) for each in (run, right)]
    assert rows[0] < rows[1]


@pytest.mark.parametrize("protocol", EXACT, ids=str)
def test_at_any_moment_the_line_has_no_orphans(protocol):
    run = Simulation(JOINED, protocol, 400.0, costs=COSTS)
    for second in np.arange(0.25, 4.0, 0.25):
        run.run(float(second))
        assert not list(orphans(run.central.history, run.central.line()))


@pytest.mark.parametrize("protocol", EXACT, ids=str)
def test_the_same_seed_is_the_same_run_and_another_is_not(protocol):
    def figures(seed):
        return Simulation(JOINED, protocol, 400.0, costs=COSTS, seed=seed, failures=[Failure(2.0)]).run(4.0).outcome()

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_no_checkpoints_add_nothing():
    found = Simulation(JOINED, "none", 400.0, costs=COSTS).run(3.0).outcome()
    assert found.overhead == 1.0
    assert not found.taken
    dear = replace(COSTS, snapshot=1.0, write=1.0, log_message=1.0, load=1.0)
    assert Simulation(JOINED, "none", 400.0, costs=dear).run(3.0).outcome() == found


@pytest.mark.parametrize("kind", [Coordinated, Unaligned, StopTheWorld])
@given(st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_a_round_has_one_checkpoint_of_each_instance(kind, workers, rounds):
    job = replace(JOINED, workers=workers)
    run = Simulation(job, kind(interval=1.0), 100.0 * workers, costs=COSTS).run(rounds + 0.9)
    assert run.tally.taken[ROUND] == workers * len(job.operators) * rounds
    assert run.outcome().rounds == rounds


def test_checkpoints_of_own_clocks_are_counted_by_kind():
    found = Simulation(JOINED, CommunicationInduced(interval=1.0), 400.0, costs=COSTS).run(6.0).outcome()
    assert set(found.taken) == {LOCAL, FORCED}
    assert found.note_bytes > 0
    own = Simulation(JOINED, Uncoordinated(interval=1.0), 400.0, costs=COSTS).run(6.0).outcome()
    assert set(own.taken) == {LOCAL}
    assert own.note_bytes == 0


class Asked(Instance):
    """Asks its half for every message, and lets it learn from every one."""

    def note(self, wire):
        self.notes.clear()
        return bytes(bytearray(super().note(wire)))  # another object: the engine takes it for a new note


@pytest.mark.parametrize("rule", ["hmnr", "bcs"])
@pytest.mark.parametrize("graph", JOBS)
def test_notes_that_are_known_decide_nothing(rule, graph, monkeypatch):
    def figures():
        protocol = CommunicationInduced(interval=0.5, rule=rule)
        run = Simulation(JOBS[graph], protocol, 400.0, costs=COSTS, failures=[Failure(2.5)]).run(4.0)
        return run.outcome(), counted(run)

    known = figures()
    monkeypatch.setattr("steelyard.sim.checkpoints.graph.Instance", Asked)
    assert figures() == known


def test_coordinated_is_refused_on_a_cycle_and_would_wait_there_for_ever():
    with pytest.raises(OptionError, match="waits on a cycle"):
        Simulation(CYCLE, "coordinated", 100.0, costs=COSTS)
    run = Simulation(CYCLE, Coordinated(interval=1.0), 100.0, costs=COSTS, unchecked=True).run(20.0)
    assert run.outcome().rounds == 0
    joins = [one for name, one in run.graph.instances.items() if name.startswith("join")]
    assert all(one.blocked and one.held for one in joins)
    assert run.outcome(after=5.0).rows < 0.1 * Simulation(CYCLE, "none", 100.0, costs=COSTS).run(20.0).outcome(5.0).rows


def test_one_queue_has_the_latency_of_its_twin():
    job = Job("one", (Feed("in"),), (Stage("sink"),), (Hop("in", "sink", row_seconds=0.004),))
    free = ProtocolCosts()
    tick = 0.1
    run = Simulation(job, "none", 237.0, costs=free, tick=tick, seed=3).run(20.0)
    epochs, idle, ages = Epochs(job, 237.0, tick, 3), 0.0, []
    for epoch in range(400):
        came = epochs.time(0, epoch)
        rows = epochs.rows(job.feeds[0], 0, epoch)
        idle = max(idle, came) + rows * 0.004
        if rows and idle < 20.0:
            ages += [idle - came] * rows
    found = run.outcome()
    assert found.rows == len(ages)
    assert found.latency_p50 == pytest.approx(float(np.percentile(ages, 50, method="inverted_cdf")))
    assert found.latency_p99 == pytest.approx(float(np.percentile(ages, 99, method="inverted_cdf")))


def test_the_highest_rate_is_where_the_core_is_never_idle():
    job = Job("one", (Feed("in"),), (Stage("sink"),), (Hop("in", "sink", row_seconds=0.002),), workers=2)
    assert sustainable(job, "none", ProtocolCosts()) == pytest.approx(1_000, rel=0.03)
    logged = ProtocolCosts(log_message=0.0005)
    assert sustainable(job, "uncoordinated", logged) == pytest.approx(800, rel=0.03)


def test_alignment_waits_for_the_hot_worker_and_overtaking_does_not():
    job = Job(
        "hot",
        (Feed("in", hot=0.4),),
        (Stage("count"),),
        (Hop("in", "count", keyed=True, row_seconds=0.004),),
        workers=5,
    )
    costs = ProtocolCosts()
    slow, fast = (
        Simulation(job, named, 700.0, costs=costs).run(20.0).outcome() for named in ("coordinated", "unaligned")
    )
    own = Simulation(job, "uncoordinated", 700.0, costs=costs).run(20.0).outcome()
    assert slow.round_seconds > 10 * fast.round_seconds
    assert slow.latency_p50 > 3 * own.latency_p50


def test_an_epoch_that_is_read_again_has_the_same_rows():
    one, other = (Epochs(JOINED, 400.0, 0.1, 5) for _ in range(2))
    feed = JOINED.feeds[1]
    first = [one.by_receiver(feed, 1, epoch, 3) for epoch in range(20)]
    assert [other.by_receiver(feed, 1, epoch, 3) for epoch in reversed(range(20))] == first[::-1]
    assert [sum(rows) for rows in first] == [one.rows(feed, 1, epoch) for epoch in range(20)]


@given(st.integers(1, 40), st.floats(0, 0.5), st.integers(0, 500))
def test_hot_keys_take_their_share(workers, hot, epoch):
    job = replace(JOINED, workers=workers)
    feed = replace(JOINED.feeds[1], hot=hot)
    chances = Epochs(job, 1_000.0, 0.1, 0).chances(feed, epoch, workers)
    assert chances.sum() == pytest.approx(1)
    assert chances.max() <= hot + (1 - hot) / workers + 1e-9
    assert chances.min() >= (1 - hot) / workers - 1e-9


def test_with_ten_workers_the_hot_key_never_moves():
    job = replace(JOINED, workers=10)
    chances = [Epochs(job, 20_000.0, 0.1, 0).chances(JOINED.feeds[1], epoch, 10) for epoch in range(50)]
    assert all(one.argmax() == 0 and one[0] == pytest.approx(0.2 + 0.08) for one in chances)
