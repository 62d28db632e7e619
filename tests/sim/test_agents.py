"""Several agents: what each of them sees and is judged by, who is trained, and how trained ones are used."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from steelyard.core import BatchObservation, KeyCounts, OptionError, StateError
from steelyard.learning import Network, Trained
from steelyard.partition.agent import PartitionerAgent
from steelyard.partition.learned.cutting import FEATURES, HEURISTIC, UNCUT, WAYS
from steelyard.partition.prompt import Prompt
from steelyard.scaling import Zones
from steelyard.scaling.learned.looks import STAY, STEPS, WINDOW, Looks, allowed, features
from steelyard.scaling.scheduler import Scheduler
from steelyard.sim import MicroBatches, Source
from steelyard.sim.agents import ONE_AT_A_TIME, Learner, Receivers, Training, orchestration, plans, repair, train
from steelyard.sim.agents.keeping import keep
from steelyard.sim.agents.learner import drawn
from steelyard.sim.agents.orchestration import unevenness
from steelyard.sim.microbatch import simulate_batches

TINY = Training(queries=16, episodes=2, batches=20, hidden=16, minibatch=64)
INPUTS, MANY = 6, 9


@pytest.fixture(scope="module", autouse=True)
def _made_up_plans(module_monkeypatch):
    """Blocks by each way as they usually are: hash is uneven, Prompt is even. Real plans take a while to measure."""
    random = np.random.default_rng(1)
    shape = INPUTS, len(plans.BLOCKS)
    rows = np.ones((*shape, len(WAYS)))
    rows[..., UNCUT] = 1.8
    keys, fragments = rows.copy(), np.ones_like(rows)
    fragments[..., HEURISTIC] = 1.01
    fragments[..., -1] = 1.2
    made = plans.Plans(random.random((*shape, FEATURES - 2)).astype(np.float32), rows, keys, fragments)
    module_monkeypatch.setattr(orchestration.plans, "measured", lambda seed: made)


@pytest.fixture(scope="module")
def module_monkeypatch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def world(queries=MANY, seed=3) -> Receivers:
    return Receivers(plans.measured(0), queries, 3, 40, np.random.default_rng(seed))


def look(**changed) -> Looks:
    flat = np.full(WINDOW, 100.0)
    usual = Looks(0.85, 0.85, 0.5, 1.0, flat, flat, 4.0, 2.0, 32.0, 32.0, 0.0)
    return usual._replace(**changed)


def stuck(way: int) -> Network:
    """Answers with one way, whatever it sees."""
    scores = np.zeros(len(WAYS), np.float32)
    scores[way] = 1.0
    return Network(((np.zeros((FEATURES, len(WAYS)), np.float32), scores),))


# -- what agents see and may do


@pytest.mark.parametrize(
    "changed",
    [{}, {"load": 0.0}, {"load": 1e9}, {"rows": np.zeros(WINDOW)}, {"blocks": 1.0, "buckets": 1.0}, {"waiting": 1e6}],
)
def test_what_the_scheduler_sees_is_finite_and_staying_is_always_allowed(changed):
    seen = look(**changed)
    assert np.isfinite(features(seen)).all()
    assert allowed(seen)[STAY]


def test_nothing_leaves_the_bounds_and_idle_and_overloaded_queries_are_not_made_worse():
    def steps(**changed):
        return STEPS[allowed(look(**changed))]

    assert steps(blocks=1.0, buckets=1.0).min() == 0
    assert steps(blocks=32.0, buckets=32.0).max() == 0
    assert steps(load=0.3).max() == 0
    assert steps(load=1.2).min() == 0
    assert len(steps()) == len(STEPS)


def test_one_query_is_seen_as_it_is_among_many():
    seen = look()
    together = Looks(*(np.stack([np.asarray(part, np.float64)] * 3) for part in seen))
    assert np.allclose(features(together), features(seen)[None])
    assert np.array_equal(allowed(together)[1], allowed(seen))


@pytest.mark.parametrize("partitioner", [0, 1, 2])
def test_a_partitioner_is_judged_by_its_own_blocks_alone(partitioner):
    """What it does changes its own reward, and what it sees next, and nothing that another one is given or sees."""
    one, two = world(), world()
    ways = np.full((MANY, 3), HEURISTIC)
    other = ways.copy()
    other[:, partitioner] = UNCUT
    still = np.full(MANY, STAY)
    rewards, worse = one.step(still, ways), two.step(still, other)
    others = [place for place in range(3) if place != partitioner]
    assert np.all(worse[:, 1 + partitioner] < rewards[:, 1 + partitioner])
    assert np.array_equal(rewards[:, 1:][:, others], worse[:, 1:][:, others])
    assert np.array_equal(one.seen().partitioners[:, others], two.seen().partitioners[:, others])
    assert np.all(two.load >= one.load)


def test_batches_that_are_late_and_tasks_that_are_idle_cost_the_scheduler():
    late, idle = world(), world()
    ways = np.full((MANY, 3), HEURISTIC)
    down, up = 0, len(STEPS) - 1
    for _ in range(30):
        least, most = late.step(np.full(MANY, down), ways), idle.step(np.full(MANY, up), ways)
    assert late.late.all()
    assert not idle.late.any()
    assert np.all(least[:, 0] < -1)
    assert np.mean(most[:, 0]) < -0.5
    assert np.all((late.tasks == 2) & (idle.tasks > 30))


def test_worlds_of_one_seed_are_the_same():
    one, two = world(), world()
    for _ in range(5):
        again = [each.step(np.full(MANY, 8), np.full((MANY, 3), 1)) for each in (one, two)]
        assert np.array_equal(*again)


# -- who is trained


def test_a_fault_of_the_second_partitioner_changes_the_second_partitioner_and_nobody_else():
    team = drawn(TINY)
    for place in range(3):
        team = team.with_partitioner(place, stuck(UNCUT if place == 1 else HEURISTIC))
    before = unevenness(team, TINY)
    assert before[1] > 0.5 > max(before[0], before[2])
    found = repair(team, replace(TINY, episodes=8, batches=40, actor_rate=5e-3, critic_rate=1e-2))
    assert found.trained == (False, False, True, False)
    assert [one is other for one, other in zip(found.team.actors, team.actors, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    assert unevenness(found.team, TINY)[1] < before[1] / 4


def test_nobody_is_trained_where_all_blocks_are_even():
    team = drawn(TINY)
    for place in range(3):
        team = team.with_partitioner(place, stuck(HEURISTIC))
    found = repair(team, TINY)
    assert (found.team, found.trained, found.curves) == (team, (False,) * 4, ())


def test_one_at_a_time_trains_one_and_hands_its_policy_on_only_if_it_is_no_worse_than_prompts():
    options = replace(TINY, orchestration=ONE_AT_A_TIME)
    begun = drawn(options)
    found = train(options)
    assert found.trained == (True, True, False, False)
    first, second, third = found.team.partitioners
    if found.deployed:
        assert first is second is third
    else:
        assert all(
            np.array_equal(one, other)
            for mine, theirs in zip(found.team.partitioners[1:], begun.partitioners[1:], strict=True)
            for layer, old in zip(mine.layers, theirs.layers, strict=True)
            for one, other in zip(layer, old, strict=True)
        )


def test_training_with_one_seed_leads_to_the_same_networks():
    one, two = (train(replace(TINY, episodes=1)).team for _ in range(2))
    for mine, theirs in zip(one.actors, two.actors, strict=True):
        assert all(
            np.array_equal(a, b)
            for x, y in zip(mine.layers, theirs.layers, strict=True)
            for a, b in zip(x, y, strict=True)
        )


def test_exploring_takes_only_what_is_allowed():
    learner, seen = Learner(TINY), world(64).seen()
    for share in (0.0, 1.0):
        chosen = learner.explore(seen, share)[:, 0]
        assert seen.allowed[np.arange(64), chosen].all()


def test_wrong_options_are_refused():
    with pytest.raises(OptionError, match=r"unknown orchestration 'al_at_once'.*did you mean 'all_at_once'"):
        Training(orchestration="al_at_once")
    with pytest.raises(OptionError, match="partitioners of training must be 1 or more, got 0"):
        Training(partitioners=0)


# -- how trained ones are used


def test_trained_agents_are_kept_and_used_by_their_names(tmp_path):
    scheduler, agent = keep(train(replace(TINY, episodes=1)), TINY, tmp_path)
    query = MicroBatches(
        Source("log", rate=2000, keys=np.arange(50)),
        blocks=4,
        buckets=2,
        partitioner=PartitionerAgent(str(agent)),
        elasticity=Scheduler(str(scheduler)),
    )
    ran = simulate_batches(query, 6)
    assert ran.column("rows").to_pylist() == [2000] * 6
    assert min(ran.column("blocks").to_pylist()) >= 1


def test_those_that_ship_run_a_simulated_query_and_add_tasks_when_they_are_needed():
    query = MicroBatches(
        Source("log", rate=4000, keys=np.arange(50)), blocks=2, buckets=2, cores=16, partitioner="agent",
        elasticity=Scheduler(), costs=replace(MicroBatches(Source("log", rate=1)).costs, map_row=8e-4),
    )  # fmt: skip
    ran = simulate_batches(query, 12)
    loads, blocks = ran.column("load").to_pylist(), ran.column("blocks").to_pylist()
    assert loads[0] > 1 > loads[-1]
    assert blocks[-1] > blocks[0]
    assert (query.elasticity.fallbacks, PartitionerAgent().fallbacks) == (0, 0)


@pytest.mark.parametrize("what", ["absent", "of another policy", "of another version", "damaged"])
def test_without_a_network_zones_and_prompt_decide_and_that_is_said_and_counted(what, tmp_path, caplog):
    path = tmp_path / "weights.npz"
    if what == "damaged":
        path.write_bytes(b"nothing")
    elif what != "absent":
        policy = "dqn" if what == "of another policy" else None
        for name in ("scheduler", "agent"):
            Trained(policy or name, {"a": np.ones(2)}, {"features": 999}).save(tmp_path / f"{name}.npz")
    of = {name: tmp_path / f"{name}.npz" if what.startswith("of") else path for name in ("scheduler", "agent")}
    with caplog.at_level(logging.WARNING):
        scheduler, agent = Scheduler(str(of["scheduler"])), PartitionerAgent(str(of["agent"]))
    assert len(caplog.records) == 2
    seen = BatchObservation(0, 1000, 50, 4, 2, 0.95, 1.0, slots=8).at()
    assert scheduler.decide(seen) == Zones(patience=1).decide(seen)
    counts = KeyCounts.of({"a": 50, "b": 20, "c": 20, "d": 3})
    assert agent.plan(counts, 3).block.tolist() == Prompt().plan(counts, 3).block.tolist()
    assert (scheduler.fallbacks, agent.fallbacks) == (1, 1)


def test_what_an_agent_knows_of_its_blocks_comes_back_and_damage_is_refused():
    agent, other = PartitionerAgent(), PartitionerAgent()
    other.restore(agent.state())
    assert other.state().keys() == agent.state().keys()
    with pytest.raises(StateError, match="of another form"):
        other.restore({"prices": agent.state()["prices"], "blocks": np.array([np.nan, 0.0])})
