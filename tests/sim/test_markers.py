"""Checkpoints whose markers travel between the tuples: what they save, how long they take, what a failure repeats."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.sim import (
    Checkpoints,
    Edge,
    Exactly,
    Exponential,
    Failure,
    Growing,
    Machine,
    Network,
    Operator,
    Scenario,
    Simulation,
    Source,
    simulate,
)
from steelyard.sim.build import build
from steelyard.sim.grouped import Grouped
from steelyard.sim.layout import layout_of
from steelyard.sim.logs import Log
from tests.sim.plain_cluster import PlainCluster
from tests.sim.test_event_loop import SECONDS, growing, laws, scenarios, times

snapshots = st.one_of(st.just(0.0), times)


def plain_cluster(scenario, seed):
    source = scenario.operators[0]
    log = Log(source, int(np.random.SeedSequence(seed).generate_state(1)[0]), chunk=256)
    chunks = [log.next_rows(partition) for partition in range(source.parallelism)]
    rows = [list(zip(*(part.tolist() for part in chunk), strict=True)) for chunk in chunks]
    cluster, layout = build(layout_of(scenario), seed, trace=False), layout_of(scenario)
    return PlainCluster(cluster, rows, Grouped(layout, cluster.edges).state())


def untied(scenario):
    """The same, without several threads that begin at one moment, after a snapshot, and add up like times differently.

    Which of them ends first would depend on the last digit. So it would where threads of one length serialise: one that
    begins when a sender beside it has serialised ends with one that did so too. And which of two threads takes the next
    tuple would, where both wait for room and receivers end their snapshots at one moment: such receivers are one.
    """
    alike = Exactly if not scenario.network.serialise else ()
    tied = [one.threads > 1 and not isinstance(one.service, alike) for one in scenario.operators[1:]]
    operators = [
        replace(one, service=Exponential(one.service.mean)) if may_tie else one
        for one, may_tie in zip(scenario.operators[1:], tied, strict=True)
    ]
    threads = {one.name: one.threads for one in operators}
    waited_for = {edge.receiver for edge in scenario.edges if threads.get(edge.sender, 1) > 1}
    operators = [
        replace(one, parallelism=1, slowdown=one.slowdown[:1], machines=one.machines[:1])
        if one.capacity and one.name in waited_for
        else one
        for one in operators
    ]
    return replace(scenario, operators=(scenario.operators[0], *operators))


@settings(max_examples=80)
@given(
    scenario=scenarios(st.one_of(laws, growing)).map(untied),
    first=st.floats(0.05, 1.5),
    gap=st.floats(0.05, 1.0),
    snapshot=snapshots,
    per_kept=st.sampled_from([0.0, 0.00713]),
    seed=st.integers(0, 5),
)
def test_tuples_and_checkpoints_are_those_of_the_plain_twin(scenario, first, gap, snapshot, per_kept, seed):
    simulation, plain = Simulation(scenario, seed, trace=True), plain_cluster(scenario, seed)
    now = 0.0
    while (now := now + (gap if now else first)) < SECONDS:
        simulation.advance(now - simulation.now)
        plain.run_until(simulation.now)
        assert simulation.under_way == bool(plain.awaited)
        if not simulation.under_way:
            simulation.send_markers(snapshot, per_kept)
            plain.send_markers(snapshot, per_kept)
    simulation.advance(SECONDS - simulation.now)
    plain.run_until(SECONDS)
    trace = simulation.trace()
    firsts = layout_of(scenario).first_instance
    where = [
        firsts[name] + n for name, n in zip(*(trace[c].to_pylist() for c in ("operator", "instance")), strict=True)
    ]
    found = sorted(zip(where, trace["item"].to_pylist(), trace["done"].to_pylist(), strict=True))
    expected = sorted((left.instance, left.item, left.done) for left in plain.left)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], abs=1e-7)
    completed = simulation.result().checkpoints["completed"].to_pylist()
    assert completed == pytest.approx(plain.completed, abs=1e-7)


@st.composite
def countable_scenarios(draw):
    """Every row is an item of its own, and comes out of `c` a known number of times."""
    scenario = draw(scenarios())
    log, *others = scenario.operators
    source = Source(
        "log", log.rate, draw(st.integers(1, 3)), rows=draw(st.integers(1, 60)), service=log.service, arrivals="even"
    )
    operators = [replace(one, outputs=max(1.0, one.outputs)) for one in others]
    edges = [
        replace(one, grouping="shuffle" if one.grouping == "broadcast" else one.grouping) for one in scenario.edges
    ]
    return replace(scenario, operators=(source, *operators), edges=tuple(edges))


def copies_of_a_row(scenario):
    return int(scenario.operator("a").outputs + scenario.operator("b").outputs)


def is_before_markers(simulation):
    """Tells of an item whether its source had read it when it put out the marker of the last complete checkpoint."""
    offsets = simulation._snapshot.sources["saved_at"].tolist()
    return lambda item: item // len(offsets) < offsets[item % len(offsets)]


def run_to_completion(simulation):
    for _ in range(2000):
        if not simulation.under_way:
            return
        simulation._advance_to(simulation.now + 1.0, or_complete=True)
    raise AssertionError("the checkpoint is never complete")


def drain(simulation):
    for _ in range(2000):
        simulation.advance(5.0)
        if simulation.drained:
            simulation.sample()
            return
    raise AssertionError("tuples are stuck")


@settings(max_examples=60)
@given(scenario=countable_scenarios(), first=st.floats(0.0, 2.0), snapshot=snapshots, seed=st.integers(0, 3))
def test_the_last_snapshot_comes_after_all_rows_before_the_markers_and_before_all_others(
    scenario, first, snapshot, seed
):
    scenario = scenario.rescaled({"c": 1})
    simulation = Simulation(scenario, seed, trace=True)
    simulation.advance(first)
    simulation.send_markers(snapshot)
    run_to_completion(simulation)
    before = is_before_markers(simulation)
    expected = {item: copies_of_a_row(scenario) for item in range(scenario.operators[0].rows) if before(item)}
    assert Counter(simulation.trace()["item"].to_pylist()) == expected
    assert simulation.result().checkpoints["read"].to_pylist() == [len(expected)]
    # and nothing is lost or done twice later
    drain(simulation)
    assert Counter(simulation.trace()["item"].to_pylist()) == {
        item: copies_of_a_row(scenario) for item in range(scenario.operators[0].rows)
    }


@settings(max_examples=60)
@given(
    scenario=countable_scenarios(),
    every=st.floats(0.05, 1.0),
    lost=st.floats(0.0, 3.0),
    snapshot=snapshots,
    seed=st.integers(0, 3),
)
def test_after_a_failure_exactly_the_rows_behind_the_last_complete_markers_come_again(
    scenario, every, lost, snapshot, seed
):
    simulation = Simulation(scenario, seed, trace=True)
    while simulation.now + every < lost:
        simulation.advance(every)
        if not simulation.under_way:
            simulation.send_markers(snapshot)
    simulation.advance(lost - simulation.now)
    rows, copies = range(scenario.operators[0].rows), copies_of_a_row(scenario)
    complete = simulation.result().checkpoints.num_rows
    before = is_before_markers(simulation) if complete else lambda item: False
    out = Counter(simulation.trace()["item"].to_pylist())
    assert all(out[item] == copies for item in rows if before(item))
    simulation.fail(downtime=0.3)
    assert not simulation.under_way
    drain(simulation)
    found = Counter(simulation.trace()["item"].to_pylist())
    assert found == out + Counter({item: copies for item in rows if not before(item)})
    result = simulation.result()
    assert result.sources["lag"].to_numpy()[-scenario.operators[0].parallelism :].sum() == 0
    assert result.total("c").processed == sum(found.values())


@settings(max_examples=40)
@given(scenario=scenarios(), capacity=st.integers(1, 3), snapshot=snapshots, seed=st.integers(0, 3))
def test_queues_hold_at_most_twice_their_bound_and_the_times_of_a_thread_add_up(scenario, capacity, snapshot, seed):
    bounded = [replace(one, capacity=capacity) for one in scenario.operators[1:]]
    scenario = replace(scenario, operators=(scenario.operators[0], *bounded))
    result = simulate(
        scenario, 3.0, seed=seed, every=0.37, checkpoints=Checkpoints(every=0.2, snapshot=snapshot, markers=True)
    )
    table = result.instances
    assert table["queue_peak"].to_numpy().max() <= 2 * capacity
    parts = sum(table[f"{name}_seconds"].to_numpy() for name in ("busy", "idle", "backpressured"))
    assert parts == pytest.approx(table["threads"].to_numpy() * table["seconds"].to_numpy(), abs=1e-9)
    assert max(result.machines["cpu"].to_pylist()) <= 1 + 1e-9


@settings(max_examples=30)
@given(first=laws, second=laws, capacity=st.integers(0, 3), every=st.floats(0.05, 0.5), seed=st.integers(0, 3))
def test_free_snapshots_of_instances_with_one_sender_change_no_tuple(first, second, capacity, every, seed):
    scenario = Scenario(
        (
            Source("log", 23.9, parallelism=2, arrivals="poisson"),
            Operator("a", first, parallelism=2, capacity=capacity),
            Operator("b", second, parallelism=2, capacity=capacity),
        ),
        (Edge("log", "a", "forward", 17.0), Edge("a", "b", "forward", 17.0)),
        (Machine(2), Machine(2)),
        Network(latency=0.0313, local_latency=0.0017, bytes_per_second=1013.0, serialise=0.0071),
    )
    without = simulate(scenario, 5.0, seed=seed, trace=True)
    marked = simulate(scenario, 5.0, seed=seed, trace=True, checkpoints=Checkpoints(every=every, markers=True))
    assert marked.checkpoints.num_rows > 0
    assert marked.trace.drop_columns("done") == without.trace.drop_columns("done")
    assert marked.trace["done"].to_numpy() == pytest.approx(without.trace["done"].to_numpy(), abs=1e-9)


def test_a_channel_keeps_its_order():
    scenario = Scenario(
        (
            Source("log", 100, parallelism=2, rows=400),
            Operator("a", Exponential(0.015), parallelism=2, capacity=4),
            Operator("b", Exponential(0.02), parallelism=3, capacity=2),
        ),
        (Edge("log", "a", "forward"), Edge("a", "b", "hash")),
    )
    result = simulate(scenario, 30, seed=2, trace=True, checkpoints=Checkpoints(every=0.1, snapshot=0.03, markers=True))
    assert result.checkpoints.num_rows > 10
    assert sorted(result.trace["item"].to_pylist()) == list(range(400))
    for instance in range(3):
        came = result.trace.filter(pc.equal(result.trace["instance"], instance))["item"].to_numpy()
        for sender in range(2):
            assert (np.diff(came[came % 2 == sender]) > 0).all()


def test_a_checkpoint_of_an_idle_chain_takes_its_journeys_and_snapshots():
    scenario = Scenario.chain(
        Source("log", 1),
        Operator("a", Exactly(0.01)),
        Operator("b", Exactly(0.01)),
        machines=(Machine(), Machine(speed=2.0), Machine()),
        network=Network(latency=0.02),
    )
    simulation = Simulation(scenario)
    simulation.advance(0.5)
    simulation.send_markers(snapshot=0.1)
    simulation.advance(0.4)
    row = simulation.result().checkpoints.to_pylist()[0]
    # two journeys; the machine of `a` has twice the speed
    assert row["seconds"] == pytest.approx(0.02 + 0.05 + 0.02 + 0.1)
    assert (row["markers"], row["read"], row["aligned_seconds"]) == (2, 1, 0.0)


def test_a_checkpoint_of_a_loaded_chain_waits_for_the_queue():
    scenario = Scenario.chain(Source("log", 100, rows=20), Operator("a", Exactly(0.1)), Operator("b", Exactly(0.05)))
    simulation = Simulation(scenario, trace=True)
    simulation.advance(1.0)
    simulation.send_markers(snapshot=0.03)
    simulation.advance(9.0)
    # all 20 rows are read: `a` ends them after 2 s, `b` the last while `a` takes its snapshot, 0.02 s longer than that
    assert simulation.result().checkpoints["completed"].to_pylist() == pytest.approx([2.0 + 0.05 + 0.03])
    assert simulation.trace()["done"].to_pylist()[-1] == pytest.approx(2.05)


def test_a_growing_state_makes_snapshots_longer():
    scenario = Scenario.chain(Source("log", 10), Operator("join", Growing(0.001, per_kept=0.0)))
    simulation = Simulation(scenario)
    simulation.advance(4.95)
    simulation.send_markers(snapshot=0.01, per_kept=0.0005)
    simulation.advance(1.0)
    assert simulation.result().checkpoints["seconds"].to_pylist() == pytest.approx([0.01 + 50 * 0.0005])
    simulation.fail()
    assert simulation.saved_kept == 50
    assert simulation.kept == 50


def two_senders(slow=1.0, capacity=0, rows=0):
    return Scenario(
        (
            Source("left", 10, rows=rows),
            Source("right", 10, rows=rows),
            Operator("fast", Exactly(0.001)),
            Operator("slow", Exactly(slow)),
            Operator("join", Exactly(0.002), capacity=capacity),
        ),
        (Edge("left", "fast"), Edge("right", "slow"), Edge("fast", "join"), Edge("slow", "join")),
    )


def test_the_fast_sender_is_blocked_for_as_long_as_the_slow_marker_takes():
    simulation = Simulation(two_senders(slow=0.5), trace=True)
    simulation.advance(0.95)
    simulation.send_markers()
    simulation.advance(7.0)
    row = simulation.result().checkpoints.to_pylist()[0]
    # `slow` has 10 rows, each takes 0.5 s; `fast` has none
    assert row["completed"] == pytest.approx(5.0 + 0.002)
    assert row["aligned_seconds"] == pytest.approx(5.002 - 0.95)
    done = simulation.trace()["done"].to_numpy()
    # in between only the slow sender's tuples come out; then the 41 of the fast one that waited, one after the other
    blocked = done[(done > 0.95) & (done < 5.003)]
    assert blocked == pytest.approx(np.arange(2, 11) * 0.5 + 0.002)
    waited = done[(done > 5.003) & (done < 5.003 + 41 * 0.002)]
    assert waited == pytest.approx(5.002 + 0.002 * np.arange(1, 42))


def test_tuples_behind_a_marker_press_back_on_their_sender_and_not_on_the_slow_one():
    simulation = Simulation(two_senders(slow=0.5, capacity=5), trace=True)
    simulation.advance(0.95)
    simulation.send_markers()
    simulation.advance(3.0)
    simulation.sample()
    result = simulation.result()
    assert simulation.under_way
    own = result.instances.filter(pc.equal(result.instances["operator"], "join"))
    assert own["queue"].to_pylist() == [5]
    # rows of 1.0 to 1.4 s have places; that of 1.5 s waits from 1.501 s on
    assert result.total("fast").backpressured * 3.95 == pytest.approx(3.95 - 1.501)
    assert result.total("slow").backpressured == 0
    simulation.advance(3.0)
    assert not simulation.under_way


def test_a_straggler_makes_checkpoints_longer_and_the_others_go_on():
    def run(slowdown):
        scenario = Scenario(
            (
                Source("log", 200),
                Operator("a", Exactly(0.008), parallelism=2, slowdown=(1.0, slowdown)),
                Operator("b", Exactly(0.001), parallelism=2),
            ),
            (Edge("log", "a", "shuffle"), Edge("a", "b", "forward")),
        )
        return simulate(scenario, 20, checkpoints=Checkpoints(every=1.0, snapshot=0.01, markers=True))

    even, straggling = run(1.0), run(1.5)
    assert straggling.checkpoints["seconds"].to_numpy().mean() > 10 * even.checkpoints["seconds"].to_numpy().mean()

    def processed(result, instance):
        table = result.instances
        chosen = pc.and_(pc.equal(table["operator"], "b"), pc.equal(table["instance"], instance))
        return table.filter(chosen)["processed"].to_numpy().sum()

    assert processed(straggling, 0) == pytest.approx(processed(even, 0), rel=0.01)
    assert processed(straggling, 1) == pytest.approx(processed(even, 1) * 0.1 / 0.12, rel=0.03)


def test_a_marker_waits_until_all_threads_are_idle():
    scenario = Scenario.chain(Source("log", 10, rows=2), Operator("map", Exactly(1.0), threads=3))
    simulation = Simulation(scenario)
    simulation.advance(0.05)
    simulation.send_markers(snapshot=0.2)
    simulation.advance(5.0)
    # the first row is in service until 1.0 s; the second came behind the marker
    assert simulation.result().checkpoints["completed"].to_pylist() == pytest.approx([1.2])
    simulation.sample()
    assert simulation.result().total("map").processed == 2


def test_instances_that_nobody_sends_to_take_no_part():
    scenario = Scenario(
        (Source("log", 10), Operator("a", Exactly(0.01), parallelism=3), Operator("b", Exactly(0.01), parallelism=2)),
        (Edge("log", "a", "forward"), Edge("a", "b", "hash")),
    )
    result = simulate(scenario, 5, checkpoints=Checkpoints(every=1.0, snapshot=0.1, markers=True))
    # one marker to the first `a`, and one from it to each `b`
    assert result.checkpoints["markers"].to_pylist() == [3] * result.checkpoints.num_rows
    assert result.checkpoints.num_rows >= 4


def test_the_next_checkpoint_begins_after_the_one_before_and_a_failure_goes_back_to_it():
    scenario = Scenario.chain(Source("log", 10, rows=100), Operator("map", Exactly(0.05)))
    result = simulate(
        scenario,
        20,
        trace=True,
        checkpoints=Checkpoints(every=1.0, snapshot=0.13, restore=0.5, markers=True),
        failures=[Failure(3.45, detection=0.25)],
    )
    table = result.checkpoints
    starts, ends = table["started"].to_numpy(), table["completed"].to_numpy()
    assert starts[0] == 1.0
    assert starts[1] == pytest.approx(ends[0] + 1.0)
    # a marker of 1.00 s is behind the row of that moment, in service until 1.05 s; the second begins at 2.18 s
    assert ends[:2] == pytest.approx([1.18, 2.31])
    assert table["read"].to_pylist()[:2] == [11, 22]
    # the third began at 3.31 s and was complete at 3.48 s at best
    out = np.sort(result.trace["item"].to_numpy())
    again = [item for item, times_out in Counter(out.tolist()).items() if times_out == 2]
    assert again == list(range(22, 22 + len(again)))
    assert set(out.tolist()) == set(range(100))
    assert "checkpoints: " in str(result)


def test_rows_of_chance_and_of_many_chunks_are_read_again_as_they_were():
    scenario = Scenario.chain(
        Source("log", 40_000, parallelism=2, arrivals="poisson", rows=200_000), Operator("map", Exactly(0.00002))
    )
    simulation = Simulation(scenario, seed=3, trace=True)
    simulation.advance(2.0)  # both partitions are in their second chunk
    simulation.send_markers()
    simulation.advance(1.0)
    saved = simulation._snapshot.sources
    assert (saved["saved_chunk"] >= 1).all()
    simulation.advance(0.5)
    out = simulation.trace()
    simulation.fail()
    simulation.advance(6.0)
    assert simulation.drained
    trace = simulation.trace()
    again = trace.slice(out.num_rows)
    read = simulation.result().checkpoints["read"][0].as_py()
    assert again.num_rows == 200_000 - read
    born = dict(zip(out["item"].to_pylist(), out["born"].to_pylist(), strict=True))
    both = [
        (born[row], at)
        for row, at in zip(*(again[c].to_pylist() for c in ("item", "born")), strict=True)
        if row in born
    ]
    assert len(both) == out.num_rows - read > 10_000
    assert all(first == second for first, second in both)


def test_a_policy_routes_the_tuples_that_it_was_asked_for_while_markers_put_some_aside():
    scenario = Scenario(
        (
            Source("log", 100, parallelism=2, rows=600, keys=range(40)),
            Operator("a", Exponential(0.01), parallelism=2, capacity=9),
            Operator("b", Exponential(0.02), parallelism=8, capacity=5),
        ),
        (Edge("log", "a", "shuffle"), Edge("a", "b", "pk2?window=0")),
    )
    result = simulate(scenario, 60, trace=True, checkpoints=Checkpoints(every=0.2, snapshot=0.02, markers=True))
    assert Counter(result.trace["item"].to_pylist()) == dict.fromkeys(range(40), 15)
    assert result.checkpoints["aligned_seconds"].to_numpy().sum() > 0
    where = set(zip(*(result.trace[c].to_pylist() for c in ("item", "instance")), strict=True))
    # a key has two instances
    assert max(Counter(item for item, _ in where).values()) == 2


def test_a_restart_lets_a_checkpoint_under_way_complete_first():
    scenario = Scenario.chain(Source("log", 30, rows=60), Operator("map", Exactly(0.05)))
    simulation = Simulation(scenario, trace=True)
    simulation.advance(0.5)
    simulation.send_markers(snapshot=0.1)
    simulation.restart(scenario.rescaled({"map": 3}))
    assert not simulation.under_way
    simulation.send_markers(snapshot=0.1)
    simulation.advance(1.0)
    simulation.fail()
    drain(simulation)
    found = Counter(simulation.trace()["item"].to_pylist())
    assert set(found) == set(range(60))
    assert simulation.result().checkpoints.num_rows == 2


def test_a_pause_makes_a_checkpoint_longer_by_itself():
    simulation = Simulation(Scenario.chain(Source("log", 1), Operator("map", Exactly(0.01))))
    simulation.advance(0.5)
    simulation.send_markers(snapshot=0.1)
    simulation.advance(0.05)
    simulation.pause(2.0)
    simulation.advance(1.0)
    assert simulation.result().checkpoints["seconds"].to_pylist() == pytest.approx([2.1])


def test_one_checkpoint_at_a_time():
    simulation = Simulation(two_senders())
    simulation.advance(1.0)
    simulation.send_markers()
    simulation.advance(0.1)
    for begin in (simulation.send_markers, simulation.checkpoint):
        with pytest.raises(OptionError, match="under way since 1 s"):
            begin()
    with pytest.raises(OptionError, match="snapshot must be 0 or more"):
        simulation.send_markers(snapshot=-1)
