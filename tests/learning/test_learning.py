"""What learnt policies share: the same forward pass twice, replay, targets, seeds, and training's first steps."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.learning import (
    Curve,
    LearningError,
    Network,
    Periodic,
    Replay,
    Soft,
    adam,
    forward,
    generator,
    libraries,
)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_network_gives_the_same_in_numpy_and_in_jax(activation):
    jnp = libraries().numpy
    network = Network.drawn((7, 64, 32, 3), generator(1, "net"), activation)
    inputs = generator(1, "inputs").normal(size=(5, 4, 7)).astype(np.float32)
    traced = libraries().jax.jit(lambda layers, x: forward(layers, x, activation, jnp))(network.layers, inputs)
    np.testing.assert_allclose(network(inputs), np.asarray(traced), rtol=2e-5, atol=2e-5)


def test_a_network_comes_back_from_its_arrays():
    network = Network.drawn((3, 5, 2), generator(1, "net"), last_gain=0.01)
    again = Network.from_arrays("actor", network.arrays("actor"))
    inputs = np.ones((2, 3), np.float32)
    assert again.sizes == (3, 5, 2)
    assert np.array_equal(network(inputs), again(inputs))
    assert np.abs(network.layers[-1][0]).max() < 0.02


@pytest.mark.parametrize("sizes", [(3,), (3, 0, 2), ()])
def test_a_network_without_layers_is_refused(sizes):
    with pytest.raises(OptionError, match="widths"):
        Network.drawn(sizes, generator(1, "net"))


@settings(deadline=None, max_examples=60)
@given(capacity=st.integers(1, 9), batches=st.lists(st.integers(0, 12), max_size=6))
def test_a_replay_keeps_the_newest_in_their_order(capacity, batches):
    replay, lived = Replay(capacity, {"state": ((2,), np.float32), "reward": ((), np.float64)}), []
    for count in batches:
        new = len(lived) + np.arange(count, dtype=float)
        lived += list(new)
        replay.add(state=np.stack([new, -new], axis=1), reward=new)
    kept = replay.all()
    assert kept["reward"].tolist() == lived[-capacity:]
    assert kept["state"][:, 1].tolist() == [-one for one in lived[-capacity:]]
    assert len(replay) == min(capacity, len(lived))


def test_a_replay_of_1000_forgets_the_first_when_the_1001st_comes():
    replay = Replay(1000, {"reward": ((), np.float32)})
    replay.add(reward=np.arange(1000))
    replay.add(reward=[1000.0])
    assert replay.all()["reward"].tolist() == list(range(1, 1001))


def test_a_replay_is_drawn_from_uniformly():
    replay = Replay(10, {"number": ((), np.int64)})
    replay.add(number=np.arange(25))
    drawn = replay.draw(generator(3, "replay"), 20_000)["number"]
    counts = np.bincount(drawn - 15, minlength=10)
    assert set(drawn) == set(range(15, 25))
    assert abs(counts - 2000).max() < 200


def test_a_replay_says_what_is_wrong():
    replay = Replay(3, {"a": ((2,), np.float32), "b": ((), np.float32)})
    with pytest.raises(OptionError, match="empty"):
        replay.draw(generator(0, "x"), 1)
    with pytest.raises(OptionError, match="a transition has"):
        replay.add(a=[[1, 2]])
    with pytest.raises(OptionError, match="different lengths"):
        replay.add(a=[[1, 2]], b=[1, 2])
    with pytest.raises(OptionError, match=r"a of a transition is \(2,\)"):
        replay.add(a=[[1, 2, 3]], b=[1])


def test_a_soft_target_is_the_mix_exactly():
    network = Network.drawn((3, 4, 2), generator(1, "net")).layers
    target = Network.drawn((3, 4, 2), generator(2, "net")).layers
    followed = Soft(0.01).followed(network, target, step=1)
    for new, now, old in zip(followed, network, target, strict=True):
        for got, one, other in zip(new, now, old, strict=True):
            assert np.array_equal(got, 0.01 * one + 0.99 * other)


def test_a_periodic_target_is_held_fixed_in_between():
    network, target = (((1.0, 1.0),), ((0.0, 0.0),))
    copied = [Periodic(3).followed(network, target, step) == network for step in range(1, 7)]
    assert copied == [False, False, True, False, False, True]


def test_gradients_are_clipped_before_adam_sees_them():
    jax = libraries()
    rule = jax.optax.chain(jax.optax.clip_by_global_norm(1.0))
    cut, _ = rule.update({"w": jax.numpy.full(4, 50.0)}, rule.init({"w": jax.numpy.zeros(4)}))
    assert float(jax.numpy.linalg.norm(cut["w"])) == pytest.approx(1.0, rel=1e-5)
    for clip in (None, 1.0):
        step = adam(0.1, clip)
        moved, _ = step.update({"w": jax.numpy.ones(4)}, step.init({"w": jax.numpy.zeros(4)}))
        assert np.allclose(np.asarray(moved["w"]), -0.1, atol=1e-3)


@pytest.mark.parametrize(("rate", "clip"), [(0, None), (float("nan"), None), (0.1, 0)])
def test_learning_rates_and_clips_are_above_zero(rate, clip):
    with pytest.raises(OptionError, match="above 0"):
        adam(rate, clip)


def test_where_jax_is_missing_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(LearningError, match=r"pip install 'steelyard\[learn\]'"):
        libraries()


def test_training_reaches_what_it_is_given():
    jax, jnp, _ = libraries()
    network = Network.drawn((2, 16, 1), generator(5, "net"))
    inputs = generator(5, "inputs").normal(size=(64, 2)).astype(np.float32)
    wanted = inputs.sum(axis=1, keepdims=True)
    rule = adam(0.02, clip=10.0)

    def loss(layers):
        return jnp.mean((forward(layers, inputs, "tanh", jnp) - wanted) ** 2)

    @jax.jit
    def step(layers, state):
        change, state = rule.update(jax.grad(loss)(layers), state)
        return jax.tree.map(jnp.add, layers, change), state

    layers, state = network.layers, rule.init(network.layers)
    before = float(loss(layers))
    for _ in range(200):
        layers, state = step(layers, state)
    assert float(loss(layers)) < 0.05 * before
    assert np.allclose(Network.of(layers)(inputs), wanted, atol=1.0)


def test_a_curve_of_equal_values_is_normalised_to_nothing():
    assert Curve("flat", np.ones(4)).normalised().values.tolist() == [0, 0, 0, 0]
    assert Curve("short", np.array([1.0, 3.0])).last(200) == 2.0
    with pytest.raises(OptionError, match="empty or not finite"):
        Curve("broken", np.array([1.0, np.nan]))
