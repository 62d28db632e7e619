"""Episodes of partitioning: what must hold whatever an agent does, and the same told by a plain twin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import KeyCounts, OptionError
from steelyard.learning import Network
from steelyard.partition import Prompt
from steelyard.partition.learned import inference, rewards
from steelyard.partition.learned.actions import level, parts
from steelyard.partition.learned.environment import Environment
from steelyard.partition.learned.features import BLOCK, VALUE, WHOLE
from steelyard.partition.learned.networks import logits, scores
from steelyard.partition.learned.teacher import advise
from steelyard.partition.learned.weights import Weights
from tests.partition.learned.twin import Twin

ROWS = st.lists(st.integers(1, 500), min_size=1, max_size=14)
BATCHES = st.lists(st.tuples(ROWS, st.integers(1, 7)), min_size=1, max_size=4)


def environment(batches, **options):
    counts = [KeyCounts(pa.array(range(len(rows))), np.array(rows)) for rows, _ in batches]
    return Environment(counts, [blocks for _, blocks in batches], **options)


def play(played, random):
    """Random actions; gives them, and the rewards of each step."""
    actions, gained = [], []
    while not played.done.all():
        allowed = played.allowed()
        flat = (random.random(allowed.shape) * allowed).reshape(len(allowed), -1).argmax(axis=1)
        actions.append((flat // allowed.shape[2], flat % allowed.shape[2]))
        gained.append(played.step(*actions[-1]))
    return actions, gained


@settings(deadline=None, max_examples=60)
@given(batches=BATCHES, number=st.integers(0, 3), seed=st.integers(0, 99))
def test_rows_are_conserved_fractions_add_up_to_one_and_plans_are_the_twins(batches, number, seed):
    played = environment(batches, actions=number, reward="partial")
    twins = [Twin(rows, blocks, number) for rows, blocks in batches]
    actions, gained = play(played, np.random.default_rng(seed))
    for block, kind in actions:
        for at, twin in enumerate(twins):
            twin.step(block[at], kind[at])
    for at, ((rows, blocks), twin) in enumerate(zip(batches, twins, strict=True)):
        assert twin.done
        assert played.fractions[at, : len(rows)].sum(axis=1) == pytest.approx(np.ones(len(rows)))
        assert played.placed[at, : len(rows), :blocks].tolist() == twin.placed
        plan = played.plans("drawn")[at]
        plan.check()
        assert plan.sizes.tolist() == twin.loads()
        assert played.state.load[at, :blocks].tolist() == plan.sizes.tolist()
        assert played.state.card[at, :blocks].tolist() == plan.cardinalities.tolist()
    assert all(np.isfinite(one).all() and one.max() <= 1 for one in gained)


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.integers(1, 500), min_size=1, max_size=30), blocks=st.integers(1, 9))
def test_whoever_answers_what_prompt_would_gets_prompts_cost(rows, blocks):
    played = environment([(rows, blocks)])
    plan = Prompt().plan(played.counts[0], blocks)
    answers = np.zeros((len(rows), blocks), np.int64)
    answers[plan.key, plan.block] = plan.rows
    while not played.done.all():
        gained = played.place(answers[played.orders[0][played.state.index]])
    (own,) = played.plans("prompt")
    assert (own.key.tolist(), own.block.tolist(), own.rows.tolist()) == (
        plan.key.tolist(),
        plan.block.tolist(),
        plan.rows.tolist(),
    )
    found = rewards.cost(played.batches, played.state.load, played.state.card)
    assert found[0] == pytest.approx(plan.mpi_normalised(), rel=1e-5, abs=1e-6)
    assert gained[0] == pytest.approx(-np.log1p(plan.mpi_normalised() * len(rows) / blocks), rel=1e-4, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(batches=BATCHES, number=st.integers(0, 3))
def test_the_teacher_only_says_what_is_allowed_and_comes_to_an_end(batches, number):
    played = environment(batches, actions=number)
    for _ in range(3 * max(len(rows) for rows, _ in batches) + 20):
        if played.done.all():
            break
        played.step(*advise(played.level, played.batches, played.state, played.allowed()))
    assert played.done.all()


@settings(deadline=None, max_examples=40)
@given(batches=BATCHES, seed=st.integers(0, 99))
def test_the_compiled_loop_decides_as_the_environment_with_the_same_weights(batches, seed):
    random = np.random.default_rng(seed)
    actor = Network.drawn((BLOCK + WHOLE, 8, 3), random, "relu")
    weights = Weights(actor.layers, Network.drawn((WHOLE + VALUE, 8, 1), random).layers)
    played = environment(batches)
    while not played.done.all():
        block, whole, _ = played.observation()
        found = logits(played.level, scores(weights.actor, block, whole), played.allowed(), played.batches.blocks)
        best = found.reshape(len(found), -1).argmax(axis=1)
        played.step(best // 3, best % 3)
    for counts, blocks, plan in zip(played.counts, played.batches.blocks, played.plans("x"), strict=True):
        own = inference.plan(weights, counts, int(blocks), "sequential", "x")
        own.check()
        # numbers of 32 bits that are added in another order may decide a draw otherwise, in very few cases
        if (own.key.tolist(), own.block.tolist()) != (plan.key.tolist(), plan.block.tolist()):
            assert _closest(weights, played, counts, int(blocks)) < 1e-4
        inference.plan(weights, counts, int(blocks), "one_shot", "x").check()


def _closest(weights, played, counts, blocks):
    """How near the best two actions of an episode come to each other."""
    again, least = Environment([counts], blocks), np.inf
    while not again.done.all():
        block, whole, _ = again.observation()
        found = logits(again.level, scores(weights.actor, block, whole), again.allowed(), again.batches.blocks).ravel()
        two = np.sort(found)[-2:]
        least = min(least, float(np.diff(two)[0])) if len(two) > 1 else least
        again.step([int(found.argmax()) // 3], [int(found.argmax()) % 3])
    return least


def test_shares_are_rounded_so_that_no_row_is_lost():
    weights = level(2).weights
    rows = np.arange(200)[:, None].repeat(len(weights), axis=1)
    assert (parts(rows, np.broadcast_to(weights, (200, *weights.shape))).sum(axis=-1) == rows).all()


def test_observations_have_the_same_size_for_any_batch():
    small, large = environment([([3, 2], 2)]), environment([(list(range(1, 60)), 40)])
    for one in small, large:
        block, whole, value = one.observation()
        assert (block.shape[2], whole.shape[1], value.shape[1]) == (BLOCK, WHOLE, VALUE)
        assert max(abs(part).max() for part in (block, whole, value)) <= 2
    assert environment([([3, 2], 2)], obs="full").observation().shape == (1, 2 * (2 + 2))


def test_partial_rewards_are_prompts_constraints():
    played = environment([([6, 4, 2], 2)], actions=0, reward="partial")
    both = played.step([0], [0])[0]  # 6 rows of at most 6, and 1 key of at most 2
    half = played.step([0], [0])[0]  # 10 rows, but 2 keys
    assert (both, half) == pytest.approx((1 / 3, 1 / 6))


@pytest.mark.parametrize("action", [([0], [5]), ([0], [2]), ([3], [0])])
def test_what_cannot_be_done_is_refused(action):
    with pytest.raises((OptionError, IndexError)):
        environment([([3, 3], 2)]).step(*action)


def test_options_that_are_mistyped_are_answered():
    for options in ({"obs": "fulll"}, {"reward": "x"}, {"cost": "mpl"}, {"actions": 4}):
        with pytest.raises(OptionError):
            environment([([1], 1)], **options)


def test_times_that_are_no_numbers_are_refused():
    with pytest.raises(OptionError, match="must be a number"):
        rewards.RunTimeCost(0, 1).of([1.0, np.nan], [1.0])
