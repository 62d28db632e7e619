"""Training: the same transition in JAX, progress, and going on where it was stopped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core import OptionError, StateError
from steelyard.learning import libraries
from steelyard.partition.learned import transition
from steelyard.partition.learned.actions import LATER, level
from steelyard.partition.learned.features import observe
from steelyard.partition.learned.learner import as_jax, as_numpy, rollout
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.own_counts import read_counts
from steelyard.partition.learned.rewards import cost
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.teacher import advise
from steelyard.partition.learned.training import Trainer, curriculum, widened
from steelyard.partition.learned.transition import Batches

pytest.importorskip("jax")
TINY = Training(actions=3, keys=4, blocks=3, batches=32, hidden=8, imitated=6, minibatches=2)


@pytest.mark.parametrize(("number", "times"), [(2, 1), (3, 1), (2, 25_000), (3, 25_000)])
def test_jax_steps_and_sees_as_numpy_does_whatever_the_counts(number, times):
    jnp = libraries().numpy
    random, actions = np.random.default_rng(number), level(number)
    drawn = Samples(12, 5).draw(16, random)
    batches = Batches.of([times * one[: int(n)] for one, n in zip(drawn.rows, drawn.keys, strict=True)], drawn.blocks)
    state, traced = transition.begin(batches, 5), transition.begin(as_jax(batches), 5, jnp)
    for _ in range(30):
        allowed = transition.allowed(actions, batches, state)
        assert (np.asarray(transition.allowed(actions, as_jax(batches), traced, jnp)) == allowed).all()
        for one, other in zip(observe(batches, state), observe(as_jax(batches), traced, jnp), strict=True):
            np.testing.assert_allclose(one, np.asarray(other), atol=2e-5)
        flat = (random.random(allowed.shape) * allowed).reshape(16, -1).argmax(axis=1)
        block, kind = np.divmod(flat, actions.kinds)
        put = transition.amounts(actions, batches, state, block, kind)
        again = transition.amounts(actions, as_jax(batches), traced, jnp.asarray(block), jnp.asarray(kind), jnp)
        assert (np.asarray(again) == put).all()
        state = transition.advance(batches, state, put, actions.modes[kind] == LATER)
        traced = transition.advance(as_jax(batches), traced, again, jnp.asarray(actions.modes[kind] == LATER), jnp)
        for one, other in zip(state, traced, strict=True):
            np.testing.assert_allclose(np.asarray(other), one)
    assert state.done.all()


def test_a_hot_key_among_many_is_large_in_32_bits_too():
    jnp = libraries().numpy
    batches = Batches.of([np.r_[15_000_000, np.full(149, 100_000)]], 8)
    states = transition.begin(batches, 8), transition.begin(as_jax(batches), 8, jnp)
    assert 15_000_000 * 150 > 2**31
    for found, xp, of in ((states[0], np, batches), (states[1], jnp, as_jax(batches))):
        assert np.asarray(transition.allowed(level(3), of, found, xp))[0, 0, LATER].item()


def test_counts_beyond_32_bits_are_learnt_from_by_their_shape_and_never_wrap():
    own = np.r_[9_000_000_000, np.full(9, 1_000_000_000), 1]
    batches = Samples(11, 4, own=[own]).draw(3, np.random.default_rng(0))
    assert (batches.total <= transition.MOST_ROWS).all()
    assert (batches.rows[:, -1] == 1).all()
    np.testing.assert_allclose(batches.rows[0, :10] / batches.total[0], own[:10] / own.sum(), rtol=1e-6)
    with pytest.raises(OptionError, match="at most 268435456 rows, got 18000000001"):
        as_jax(Batches.of([own], 4))


@pytest.mark.parametrize("number", range(4))
def test_the_teacher_says_the_same_where_jax_traces_it(number):
    jax, jnp, _ = libraries()
    actions, batches = level(number), Samples(12, 5).draw(16, np.random.default_rng(1))
    state, traced = transition.begin(batches, 5), transition.begin(as_jax(batches), 5, jnp)
    allowed = transition.allowed(actions, batches, state)
    said = jax.jit(lambda *seen: advise(actions, *seen, jnp))(as_jax(batches), traced, jnp.asarray(allowed))
    for one, other in zip(advise(actions, batches, state, allowed), said, strict=True):
        assert np.asarray(other).tolist() == one.tolist()


def test_training_that_is_resumed_ends_with_the_same_weights(tmp_path):
    whole = Trainer(TINY)
    list(whole.run(10))
    first = Trainer(TINY)
    list(first.run(4))
    second = Trainer(TINY)
    second.resume(first.save(tmp_path / "half.npz"))
    steps = list(second.run(10))
    assert [step.update for step in steps] == [5, 6, 7, 8, 9, 10]
    assert second.costs == whole.costs
    for one, other in zip(as_numpy(whole.weights).actor, as_numpy(second.weights).actor, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert second.seconds > first.seconds > 0
    with pytest.raises(StateError, match="other options"):
        Trainer(replace(TINY, seed=5)).resume(tmp_path / "half.npz")
    assert len(whole.curve.values) == 10


def test_training_is_gone_on_with_on_the_counts_that_it_began_with(tmp_path):
    def trainer(*counts):
        return Trainer(TINY, Samples(TINY.keys, TINY.blocks, own=[np.array(one) for one in counts]))

    first = trainer([5, 3, 1], [4, 4])
    list(first.run(1))
    half = first.save(tmp_path / "half.npz")
    trainer([5, 3, 1], [4, 4]).resume(half)
    for other in (trainer([5, 3, 1], [4, 5]), trainer([5, 3], [1, 4, 4]), trainer([5, 3, 1]), Trainer(TINY)):
        with pytest.raises(StateError, match="other counts"):
            other.resume(half)


def test_the_curriculum_keeps_what_was_learnt_of_fewer_actions():
    options = replace(TINY, bootstrap="rewards")
    found = dict(curriculum(options, levels=(0, 1), most=2))
    assert list(found) == [0, 1]
    small = as_numpy(found[0].weights)
    wider = widened(small, replace(options, actions=1))
    np.testing.assert_array_equal(wider.actor[-1][0][:, :2], small.actor[-1][0])
    assert wider.actor[-1][0].shape[1] == level(1).kinds
    with pytest.raises(OptionError, match="levels 0 to 2"):
        next(curriculum(options, levels=(0, 3)))


@pytest.mark.parametrize(
    "wrong", [{"bootstrap": "imitate"}, {"actions": 7}, {"batches": 30}, {"method": "dqn"}, {"method": "sarsa"}]
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(OptionError):
        replace(TINY, **({"minibatches": 4} | wrong))


TOY = Training(
    actions=0, keys=5, blocks=2, batches=64, hidden=16, minibatches=2, bootstrap="none", rate=3e-3, epochs=4
)  # fmt: skip


@pytest.mark.parametrize("method", ["ppo", "policy_gradient", "dqn"])
def test_every_method_learns_a_toy(method):
    """What it then thinks best, on batches that it did not see."""
    samples, key = Samples(5, 2, rows=20, fewest_keys=3), libraries().jax.random.PRNGKey(0)
    unseen = samples.draw(200, np.random.default_rng(9))
    run = libraries().jax.jit(rollout(TOY, taught=False, sample=False))

    def judged(trainer):
        last, _ = run(trainer.weights, as_jax(unseen), key)
        assert np.asarray(last.done).all()
        return cost(unseen, np.asarray(last.load), np.asarray(last.card)).mean()

    trainer = Trainer(replace(TOY, method=method), samples)
    before = judged(trainer)
    list(trainer.run(40))
    assert judged(trainer) < 0.7 * before


def test_deep_q_learning_goes_on_where_it_was_stopped(tmp_path):
    options = replace(TOY, method="dqn", buffer=500)
    whole, first, second = (Trainer(options) for _ in range(3))
    list(whole.run(5))
    list(first.run(3))
    second.resume(first.save(tmp_path / "half.npz"))
    list(second.run(5))
    assert second.costs == whole.costs


def test_counts_of_a_file(tmp_path):
    table = pa.table({"batch": ["x", "x", "y"], "key": ["a", "b", "a"], "rows": [3, 0, 2]})
    pa.parquet.write_table(table, tmp_path / "counts.parquet")
    assert [one.tolist() for one in read_counts(tmp_path / "counts.parquet")] == [[3], [2]]
    (tmp_path / "counts.csv").write_text("key,rows\na,4\nb,1\n")
    assert [one.tolist() for one in read_counts(tmp_path / "counts.csv")] == [[4, 1]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("key,rows\na,nan\n", "nan in data row 1, which is no count"),
        ("key,rows\na,1\nb,-3\n", "-3.0 in data row 2, which is no count"),
        ("key,rows\na,1.5\n", "no count"),
        ("key,rows\na,b\n", "must be numbers"),
        ("key,count\na,1\n", "no column 'rows'"),
        ("key,rows\na,0\n", "nothing to learn from"),
        ("", "no key counts can be read"),
    ],
)
def test_a_file_with_wrong_counts_is_one_sentence(tmp_path, text, told):
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(OptionError, match=told):
        read_counts(tmp_path / "counts.csv")
    with pytest.raises(OptionError, match="no key counts can be read"):
        read_counts(tmp_path / "missing.csv")
    with pytest.raises(OptionError, match=r"\.parquet or \.csv"):
        read_counts(tmp_path / "counts.txt")
