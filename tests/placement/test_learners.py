"""Learners of placements: what they choose from, one step of training by itself, and what trained ones do."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from steelyard.core.errors import OptionError, StateError
from steelyard.core.placing import Component, Host, Setup, Stream
from steelyard.learning import Network, Replay, generator, libraries
from steelyard.placement.acting import Acting, ActorAndCritic, actor_loss, ascent, critic_loss, drawn_networks
from steelyard.placement.actions import Assignments, Counts
from steelyard.placement.actor_critic import ActorCritic
from steelyard.placement.dqn import Dqn, moved
from steelyard.placement.experience import Reward, samples, tried, weights_for
from steelyard.placement.extra import Extra
from steelyard.sim.placed.costs import Application, ClusterCosts, Deployed, Flow, Unit
from steelyard.sim.placed.fast import FastCluster

COSTS = ClusterCosts(
    local=0.0001, process=0.0002, remote=0.001, per_worker=0.00005, per_thread=0.0, serialise=0.00004,
    thread_cpu=0.0, crowding=0.1, cold=1.0, warm=60.0,
)  # fmt: skip
QUERIES = Application(
    (Unit("spout", 1, 0.00005, source=True), Unit("query", 3, 0.0005), Unit("file", 2, 0.0001)),
    (Flow("spout", "query"), Flow("query", "file")),
    800.0,
)
SMALL = {"samples": 300, "pretraining": 200, "epochs": 40}


def cluster_of(machines: int = 3, times: int = 1, seed: int = 1) -> FastCluster:
    return FastCluster(Deployed.of(QUERIES, COSTS, machines, times), seed=seed)


def placed(policy, cluster, machines: int | None = None) -> np.ndarray:
    cluster.deploy(cluster.setup.round_robin())
    seen = cluster.measure()
    return cluster.setup.assignment(policy.place(cluster.setup, seen), seen.assignment)


# ---- what they choose from


def test_wishes_far_from_anything_give_allowed_placements():
    setup = cluster_of(4, times=3).setup
    for actions in (Assignments(setup), Counts(setup), Counts(setup, fixed=True)):
        for value in (-1e300, -3.0, 0.0, 7.0, 1e300):
            found = actions.nearest(np.full((1, actions.size), value), 5)[0]
            assert len({one.tobytes() for one in found}) == 5
            for one in found:
                setup.checked(actions.assignment(one))
    with pytest.raises(OptionError, match="no number"):
        Assignments(setup).nearest(np.full((1, Assignments(setup).size), np.nan), 5)


def test_counts_that_are_fixed_stay_what_they_are():
    setup = cluster_of(4, times=2).setup
    found = Counts(setup, fixed=True).nearest(generator(1, "wish").random((6, 24)), 8)
    assert (found.sum(axis=-1) == setup.most).all()


def test_the_nearest_of_what_is_allowed_is_itself():
    setup = cluster_of(3).setup
    assignments = generator(2, "draw").integers(3, size=(5, setup.threads))
    for actions in (Assignments(setup), Counts(setup)):
        own = actions.of(assignments)
        assert np.array_equal(actions.nearest(actions.vectors(own), 1)[:, 0], own)
        traced = np.asarray(actions.vectors(libraries().numpy.asarray(own), libraries().numpy))
        np.testing.assert_allclose(traced, actions.vectors(own), rtol=1e-6)


def test_a_fixed_number_of_threads_is_what_assignments_are_for():
    with pytest.raises(OptionError, match="use 'extra'"):
        Assignments(Setup((Component("log", 1, most=3, source=True),), (), (Host(),)))


# ---- samples and rewards


def test_samples_are_the_same_for_the_same_seed_and_deploy_nothing():
    cluster = cluster_of()
    before = cluster.assignment
    one, same, other = (samples(cluster, seed, 40, loads=(1.0, 1.5)) for seed in (3, 3, 4))
    assert np.array_equal(one.times, same.times)
    assert np.array_equal(one.after, same.after)
    assert not np.array_equal(one.after, other.after)
    assert np.array_equal(one.before[1:], one.after[:-1])
    assert set(one.load.ravel()) == {1.0, 1.5}
    assert cluster.assignment is before


def test_samples_that_move_one_thread_move_one_at_most():
    lived = samples(cluster_of(), 5, 60, moves=True)
    assert (lived.before != lived.after).sum(axis=1).max() == 1
    measured = tried(cluster_of(), lived.after[:4], moves=True)
    assert len(measured) == 4
    assert (measured.before != measured.after).sum(axis=1).max() <= 1


def test_diversified_samples_differ_more_than_literal_ones():
    cluster = FastCluster(Deployed.of(QUERIES.with_threads(spout=6, query=30, file=24), COSTS, 10))
    literal, diversified = (samples(cluster, 1, 300, diversified=one, noise=0.0).times for one in (False, True))
    assert diversified.std() > 5 * literal.std()


def test_a_reward_takes_no_tuples_for_the_worst():
    reward = Reward(1.0, (1.0, 2.0))
    assert reward.of(np.array([[0.1, 0.2], [np.nan, 0.1], [5.0, 9.0]])).tolist() == pytest.approx([0.5, -1.0, -1.0])
    setup = cluster_of(times=2).setup
    assert weights_for(setup, ()) == (1.0, 1.0)
    for wrong in ((1.0,), (1.0, -1.0), (0.0, 0.0), (float("nan"), 1.0)):
        with pytest.raises(OptionError, match="weights are numbers"):
            weights_for(setup, wrong)


# ---- one step of training


@pytest.fixture(scope="module")
def batch():
    cluster = cluster_of()
    actions = Assignments(cluster.setup)
    lived = samples(cluster, 1, 64)
    both = ActorAndCritic(actions, 1, Acting(gamma=0.0, invert=False), seed=3)
    replay = Replay(64, both.fields)
    reward = Reward(float(lived.times.mean()), (1.0,)).of(lived.times)
    replay.add(before=lived.before, after=lived.after, load=lived.load, reward=reward)
    return actions, both, replay


def states_of(actions, kept):
    return np.concatenate([actions.vectors(kept["before"]), kept["load"]], axis=1).astype(np.float32)


def test_the_critics_loss_falls_on_a_batch(batch):
    actions, both, replay = batch
    kept = replay.all()
    jnp = libraries().numpy

    def loss():
        acted = actions.vectors(kept["after"])
        return float(critic_loss(jnp, both.networks.critic, states_of(actions, kept), acted, kept["reward"]))

    before = loss()
    both.study(replay, 400)
    assert loss() < 0.2 * before


def test_the_actors_gradient_is_that_of_finite_differences(batch):
    actions, _, replay = batch
    jax, jnp, _ = libraries()
    states = states_of(actions, replay.all())[:4].astype(np.float64)
    with jax.enable_x64(True):
        networks = jax.tree.map(lambda one: jnp.asarray(one, jnp.float64), drawn_networks(actions, 1, seed=9))
        actor, critic = networks.actor, networks.critic
        slopes = jax.grad(lambda one: actor_loss(jax, jnp, one, critic, states, False))(actor)

        def value(layers):
            wished = Network(tuple((np.asarray(w), np.asarray(b)) for w, b in layers))(states)
            whole = Network(tuple((np.asarray(w), np.asarray(b)) for w, b in critic))
            return -float(whole(np.concatenate([states, wished], axis=1)).mean())

        random = generator(1, "places")
        for layer, (weights, _) in enumerate(actor):
            for _ in range(5):
                place = tuple(int(random.integers(size)) for size in weights.shape)
                step = 1e-5
                ends = []
                for by in (step, -step):
                    changed = [list(map(np.array, one)) for one in actor]
                    changed[layer][0][place] += by
                    ends.append(value(changed))
                found = (ends[0] - ends[1]) / (2 * step)
                assert float(slopes[layer][0][place]) == pytest.approx(found, rel=1e-4, abs=1e-9)


def test_inverted_gradients_do_not_push_out_of_bounds(batch):
    actions, _, _ = batch
    jax, jnp, _ = libraries()
    critic = drawn_networks(actions, 1, seed=9).critic
    states = np.ones((1, actions.size + 1), np.float32)
    for bound, sign in ((1.0, 1), (0.0, -1)):
        wished = np.full((1, actions.size), bound, np.float32)
        plain, inverted = (np.asarray(ascent(jax, jnp, critic, states, wished, one)) for one in (False, True))
        assert (plain * sign > 0).any()
        assert not (inverted * sign > 0).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"nearest": 0}, "nearest"), ({"gamma": 1.0}, "gamma"), ({"explore": "prop"}, "did you mean 'prob'")],
)
def test_learning_says_what_it_cannot_do(options, words):
    with pytest.raises(OptionError, match=words):
        Acting(**options)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Dqn, {"minibatch": 0}, "minibatch is 1 or more, got 0"),
        (Dqn, {"replay": 0}, "replay is 1 or more"),
        (Dqn, {"copied_every": 0}, "copied_every is 1 or more"),
        (Dqn, {"pretraining": -1}, "pretraining is 0 or more"),
        (Dqn, {"epochs": -1}, "epochs is 0 or more, got -1"),
        (Dqn, {"gamma": 2.0}, "gamma=2.0"),
        (Dqn, {"rate": float("nan")}, "rate=nan"),
        (Dqn, {"samples": 0}, "samples"),
        (ActorCritic, {"gamma": 1.0}, "gamma is at least 0 and below 1"),
        (Extra, {"nearest": 0}, "nearest"),
        (Extra, {"episodes": 0}, "episodes"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_trained(kind, options, words):
    with pytest.raises(OptionError, match=words):
        kind(**options)


# ---- trained ones


@pytest.fixture(scope="module")
def trained():
    made = {}
    for kind, options in ((ActorCritic, SMALL), (Dqn, SMALL), (Extra, SMALL)):
        made[kind.name] = kind(**options)
        made[kind.name].train(cluster_of(times=2 if kind is Extra else 1), seed=5)
    return made


@pytest.mark.parametrize("name", ["actor_critic", "dqn", "extra"])
def test_a_trained_one_comes_back_from_its_file_and_needs_no_jax(trained, name, tmp_path, monkeypatch):
    policy = trained[name]
    path = policy.save(tmp_path / "policy.npz")
    monkeypatch.setitem(sys.modules, "jax", None)
    again = type(policy)(file=str(path))
    cluster = cluster_of(times=2 if name == "extra" else 1)
    wanted = placed(policy, cluster)
    assert np.array_equal(wanted, placed(again, cluster))
    cluster.setup.checked(wanted)
    assert len(again.curve) == SMALL["epochs"]
    assert np.isfinite(again.curve).all()


@pytest.mark.parametrize("name", ["actor_critic", "dqn", "extra"])
def test_another_topology_is_refused(trained, name):
    policy = trained[name]
    for cluster in (cluster_of(4), FastCluster(Deployed.of(QUERIES.with_threads(query=4), COSTS, 3))):
        with pytest.raises(StateError, match=f"this '{name}' was trained for"):
            policy.place(cluster.setup, cluster.measure())


@pytest.mark.parametrize("name", ["actor_critic", "dqn", "extra"])
def test_readings_that_say_nothing_are_no_error(trained, name):
    cluster = cluster_of(times=2 if name == "extra" else 1)
    seen = cluster.measure()
    for part in ("times", "throughput", "arrivals", "processed"):
        for value in (np.nan, np.inf, 0.0):
            bad = replace(seen, **{part: np.full_like(getattr(seen, part), value)})
            cluster.setup.assignment(trained[name].place(cluster.setup, bad), bad.assignment)


@pytest.mark.parametrize("kind", [ActorCritic, Dqn, Extra])
def test_an_untrained_one_says_so_and_moves_nothing(kind, tmp_path):
    cluster = cluster_of()
    action = kind().place(cluster.setup, cluster.measure())
    assert action.is_nothing
    assert "has not learnt yet" in action.reason
    with pytest.raises(OptionError, match="train it first"):
        kind().save(tmp_path / "policy.npz")
    with pytest.raises(StateError, match="no trained policy can be read"):
        kind(file=str(tmp_path / "absent.npz"))


def test_the_same_seed_learns_the_same():
    options = {"samples": 60, "pretraining": 20, "epochs": 10}
    curves = []
    for seed in (1, 1, 2):
        policy = ActorCritic(**options)
        policy.train(cluster_of(), seed)
        curves.append(policy.curve.tolist())
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]


def test_an_actor_and_a_critic_learn_to_be_better_than_the_default():
    policy = ActorCritic(samples=1500, pretraining=1200, epochs=150)
    cluster = cluster_of(4)
    policy.train(cluster, seed=2)
    wanted = placed(policy, cluster)
    both = cluster.times(np.stack([cluster.setup.round_robin(), wanted])).sum(axis=1)
    assert both[1] < 0.9 * both[0]


def test_extra_changes_numbers_of_threads_within_bounds_and_weighs_applications(trained):
    cluster = cluster_of(times=2)
    running = cluster.setup.parallelism_of(placed(trained["extra"], cluster))
    assert (running >= 1).all()
    assert (running <= cluster.setup.most).all()
    fixed = Extra(fixed=True, episodes=2, weights="1,3", **SMALL)
    fixed.train(cluster, seed=1)
    assert (cluster.setup.parallelism_of(placed(fixed, cluster)) == cluster.setup.most).all()
    assert len(fixed.curve) == 2 * SMALL["epochs"]
    with pytest.raises(OptionError, match="one for each of 2 applications"):
        Extra(weights="1,2,3", **SMALL).train(cluster, seed=1)
    with pytest.raises(OptionError, match="numbers with commas"):
        Extra(weights="a,b")


def test_a_q_network_moves_one_thread():
    setup = Setup((Component("log", 1, source=True), Component("map", 2)), (Stream("log", "map"),), 3 * (Host(),))
    assert moved(setup, np.array([0, 1, 2]), 2 * 3 + 0).tolist() == [0, 1, 0]
