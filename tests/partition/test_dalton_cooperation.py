"""Partitioners that learn together: the rounds, the merge, and how often they take place."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import Cooperative, OptionError, Router, TuplePolicy
from steelyard.partition.cooperation import CooperativeDalton, CooperativeRouter, Phase
from steelyard.partition.dalton import Dalton, QTable
from steelyard.partition.qtable_reducer import Feedback, QTableReducer, SyncMessage
from tests.partition.streaming_metrics import RoutedWindows

BLOCKS = 4
POLICY = CooperativeDalton(window=400, slide=100, epsilon=0.3)


def message(number: int, keys: Any, values: Any, each: Any, blocks: int = 2, **other: Any) -> SyncMessage:
    """A message of a partitioner whose table has these keys, with so many rows of each."""
    ids, counts = np.array(keys, np.int64), np.array(each, np.int64)
    table = QTable(ids, np.array(values, float).reshape(len(ids), blocks), np.full(len(ids), 199, np.int64))
    given_too: dict[str, Any] = {
        "round": 0,
        "now": 100,
        "top_keys": ids,
        "top_rows": counts,
        "rows": int(counts.sum()),
        "split": ids,
        "sync_every": 100,
        "proposal": 100,
    } | other
    return SyncMessage(partitioner=number, table=table, table_rows=counts, **given_too)


def merged(*messages: SyncMessage, blocks: int = 2, **parameters: Any) -> Feedback:
    reducer = QTableReducer(blocks, len(messages), **({"sync_every": 100} | parameters))
    for one in messages:
        assert not reducer.ready
        reducer.receive(one)
    return reducer.merge()


def skewed(rows: int, seed: int) -> np.ndarray:
    draws = np.random.default_rng(seed)
    return np.where(draws.random(rows) < 0.5, 7, draws.integers(0, 40, rows)).astype(np.int64)


def rounds_of(partitioners: list[CooperativeRouter], reducer: QTableReducer) -> list[Feedback]:
    """Carry all messages there and all answers back."""
    answers = []
    for partitioner in partitioners:
        for sent in partitioner.take_messages():
            reducer.receive(sent)
    while reducer.ready:
        answers.append(reducer.merge())
        for partitioner in partitioners:
            partitioner.receive(answers[-1])
    return answers


# The merge


@given(
    table=st.dictionaries(st.integers(-9, 9), st.lists(st.floats(-2, 1), min_size=3, max_size=3), max_size=5),
    rows=st.lists(st.integers(0, 50), min_size=5, max_size=5),
    partitioners=st.integers(1, 4),
)
def test_equal_tables_are_merged_into_themselves(table, rows, partitioners):
    keys = sorted(table)
    values = np.array([table[key] for key in keys]).reshape(len(keys), 3)
    messages = [message(number, keys, values, rows[: len(keys)], blocks=3) for number in range(partitioners)]
    feedback = merged(*messages, blocks=3)
    assert feedback.table.keys.tolist() == keys
    assert np.allclose(feedback.table.values, values)
    assert np.all(feedback.table.expiry >= 199)
    assert feedback.load == partitioners * sum(rows[: len(keys)])


def test_values_weigh_as_many_rows_as_their_partitioner_saw():
    first, second = message(0, [5], [[-1.0, 0.0]], [30]), message(1, [5], [[0.0, -1.0]], [10])
    assert merged(first, second).table.values.tolist() == [[-0.75, -0.25]]
    # as printed: (1/P) sum (f_j / GL) Q_j, half of it with two partitioners
    assert merged(first, second, merge="paper").table.values.tolist() == [[-0.375, -0.125]]


def test_a_key_that_is_hot_only_for_all_together_gets_an_untried_row():
    rows = {"top_keys": np.array([1, 2]), "top_rows": np.array([30, 70]), "rows": 100}
    other = {"top_keys": np.array([1, 3]), "top_rows": np.array([30, 70]), "rows": 100}
    feedback = merged(message(0, [], [], [], 4, **rows), message(1, [], [], [], 4, **other), blocks=4)
    assert feedback.table.keys.tolist() == [1, 2, 3]
    assert feedback.table.values.tolist() == [[-2.0] * 4] * 3
    assert feedback.table.expiry.tolist() == [199] * 3
    few = merged(message(0, [], [], [], 3, **rows), message(1, [], [], [], 3, **other), blocks=3)
    assert few.table.keys.tolist() == [2, 3], "60 rows of 200 are below a third"


def test_expired_rows_are_left_out_and_the_latest_expiry_counts():
    old = message(0, [1], [[-1.0, -1.0]], [1], rows=100)
    old = dataclasses.replace(old, table=old.table._replace(expiry=np.array([99])))
    assert merged(old, message(1, [], [], [])).table.keys.tolist() == []
    assert merged(old, message(1, [1], [[-1.0, -1.0]], [1])).table.expiry.tolist() == [199]


def test_the_reducer_waits_for_all_and_takes_a_message_once():
    reducer = QTableReducer(2, 2, sync_every=100)
    reducer.receive(message(0, [], [], []))
    with pytest.raises(ValueError, match="look at `ready`"):
        reducer.merge()
    with pytest.raises(ValueError, match="twice"):
        reducer.receive(message(0, [], [], []))
    reducer.receive(message(0, [], [], [], round=1))
    assert not reducer.ready
    reducer.receive(message(1, [], [], []))
    assert reducer.merge().round == 0


def test_messages_and_feedback_travel_as_arrays():
    sent = message(3, [5, 6], [[-1.0, 0.0], [1.0, 2.0]], [30, 1], proposal=200)
    again = SyncMessage.of_arrays(pickle.loads(pickle.dumps(sent.arrays())))
    assert {name: part.tolist() for name, part in again.arrays().items()} == {
        name: part.tolist() for name, part in sent.arrays().items()
    }
    feedback = merged(sent)
    assert Feedback.of_arrays(feedback.arrays()).arrays().keys() == feedback.arrays().keys()
    assert Feedback.of_arrays(feedback.arrays()).table.values.tolist() == feedback.table.values.tolist()


# The rounds


def learnt(values: dict[int, list[float]], log: list[tuple[int, int, float]]) -> None:
    """Eq 5 for each reward, in their order."""
    for key, block, reward in log:
        line = values.setdefault(key, [POLICY.initial] * BLOCKS)
        line[block] += POLICY.step * (reward - line[block])


@pytest.mark.parametrize("awaiting", ["hold", "learn"])
def test_rewards_wait_for_the_answer_and_are_learnt_on_top_of_it(awaiting):
    policy = dataclasses.replace(POLICY, awaiting=awaiting)
    partitioner = policy.router(BLOCKS)
    reducer = policy.reducer(BLOCKS, 1)
    partitioner.route(skewed(250, 1), np.arange(250))  # the first round is due at 100, the second at 200
    for sent in partitioner.take_messages()[:1]:
        reducer.receive(sent)
    assert partitioner.phase is Phase.AWAIT
    assert partitioner.learner.held_rewards == 0, "nothing is hot before the first answer"
    partitioner = policy.router(BLOCKS)
    partitioner.route(skewed(150, 1), np.arange(150))
    rounds_of([partitioner], reducer := policy.reducer(BLOCKS, 1))
    assert partitioner.phase is Phase.PREPARE
    partitioner.route(skewed(40, 2), np.arange(150, 190))
    partitioner.advance(200)
    before = partitioner.learner.q_table()
    partitioner.route(skewed(50, 3), np.arange(200, 250))
    held = partitioner.learner.held_rewards
    assert held > 10
    state = partitioner.state()
    log = list(zip(state["log_key"].tolist(), state["log_block"].tolist(), state["log_reward"].tolist(), strict=True))
    meanwhile = dict(zip(before.keys.tolist(), before.values.tolist(), strict=True))
    if awaiting == "learn":
        learnt(meanwhile, log)
    table = partitioner.learner.q_table()
    assert dict(zip(table.keys.tolist(), table.values.tolist(), strict=True)) == meanwhile
    partitioner.learner.check()
    (answer,) = rounds_of([partitioner], reducer)
    values = dict(zip(answer.table.keys.tolist(), answer.table.values.tolist(), strict=True))
    learnt(values, log)  # Algorithm 2: Q <- Q_bar, then Eq 5 for each reward
    table = partitioner.learner.q_table()
    assert dict(zip(table.keys.tolist(), table.values.tolist(), strict=True)) == values
    assert (partitioner.phase, partitioner.learner.held_rewards) == (Phase.PREPARE, 0)
    partitioner.learner.check()


def test_no_reward_is_lost_while_two_rounds_are_unanswered():
    partitioner, reducer = POLICY.router(BLOCKS), POLICY.reducer(BLOCKS, 1)
    partitioner.route(skewed(150, 1), np.arange(150))
    rounds_of([partitioner], reducer)
    partitioner.route(skewed(200, 2), np.arange(150, 350))
    second, third = partitioner.take_messages()
    assert (second.proposal, third.proposal) == (100, 200)
    held = partitioner.learner.held_rewards
    reducer.receive(second)
    partitioner.receive(reducer.merge())
    assert (partitioner.phase, partitioner.learner.held_rewards) == (Phase.AWAIT, held)
    reducer.receive(third)
    answer = reducer.merge()
    partitioner.receive(answer)
    assert (partitioner.phase, partitioner.learner.held_rewards) == (Phase.PREPARE, 0)
    assert partitioner.sync_every == answer.sync_every == 200
    with pytest.raises(ValueError, match="awaits no answer"):
        partitioner.receive(answer)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    late=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    awaiting=st.sampled_from(["hold", "learn"]),
    restored=st.booleans(),
)
def test_each_reward_is_learnt_once_however_late_answers_come(seed, late, awaiting, restored):
    """One partitioner, whose answers are its own tables: it must know what it would know without any rounds."""
    # all keys are hot: with late answers a key that is chosen by its share may turn cold, and start anew
    policy = dataclasses.replace(POLICY, awaiting=awaiting, sync="fixed", seed=seed, hybrid_keys=False)
    partitioner, reducer = policy.router(BLOCKS), policy.reducer(BLOCKS, 1)
    partitioner.route(np.full(150, 7), np.arange(150))
    rounds_of([partitioner], reducer)
    partitioner.route(np.full(40, 7), np.arange(150, 190))
    partitioner.advance(200)  # from here on every reward is kept until all is answered
    values = {7: partitioner.learner.q_table().values[0].tolist()}
    start, known, under_way = 200, 0, []
    for waiting in [*late, 0]:  # so many messages stay under way
        partitioner.route(np.full(90, 7), np.arange(start, start + 90))
        state = partitioner.state()
        log = zip(state["log_key"].tolist(), state["log_block"].tolist(), state["log_reward"].tolist(), strict=True)
        learnt(values, list(log)[known:])
        start += 100
        partitioner.advance(start)
        under_way += partitioner.take_messages()
        while len(under_way) > waiting:
            reducer.receive(under_way.pop(0))
            partitioner.receive(reducer.merge())
        known = partitioner.learner.held_rewards
        if partitioner.phase is Phase.PREPARE:
            break
        if restored:
            again = policy.router(BLOCKS)
            again.restore(pickle.loads(pickle.dumps(partitioner.state())))
            partitioner = again
    assert partitioner.phase is Phase.PREPARE
    assert partitioner.learner.held_rewards == 0
    assert partitioner.learner.q_table().values[0] == pytest.approx(values[7], abs=1e-12)
    partitioner.learner.check()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000), answered=st.lists(st.booleans(), min_size=12, max_size=12), cap=st.sampled_from("26n")
)
def test_loads_and_fragmentation_stay_exact_while_tables_are_adopted(seed, answered, cap):
    draws = np.random.default_rng(seed)
    policy = dataclasses.replace(POLICY, window=120, slide=30, split_cap=cap, seed=seed)
    partitioners, reducer = [policy.router(BLOCKS, number) for number in range(2)], policy.reducer(BLOCKS, 2)
    sent: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[], []]
    for step, answer in enumerate(answered):
        times = step * 25 + np.sort(draws.integers(0, 25, 60))
        for number, partitioner in enumerate(partitioners):
            hot = draws.integers(0, 3)
            keys = np.where(draws.random(60) < 0.5, hot, draws.integers(0, 20, 60)).astype(np.int64)
            sent[number].append((keys, partitioner.route(keys, times).block, times))
            partitioner.learner.check()
            windows = RoutedWindows(*map(np.concatenate, zip(*sent[number], strict=True)), BLOCKS, 120, 30)
            assert partitioner.learner.loads.tolist() == windows.loads[-1].tolist()
            held = partitioner.learner.fragmentation(np.arange(20))
            assert held.tolist() == [windows.fragmentation(key)[-1] for key in range(20)]
        if answer:
            rounds_of(partitioners, reducer)


def test_partitioners_go_on_with_the_same_hot_keys():
    partitioners = [POLICY.router(BLOCKS, number) for number in range(3)]
    reducer = POLICY.reducer(BLOCKS, 3)
    for start in range(0, 1000, 100):
        for number, partitioner in enumerate(partitioners):
            partitioner.route(skewed(100, start + number), np.arange(start, start + 100))
            partitioner.advance(start + 100)
        (answer,) = rounds_of(partitioners, reducer)
        assert answer.load == 300
        assert (answer.covers, answer.reaches) == (start + 100, start + 100)
        tables = [partitioner.learner.q_table() for partitioner in partitioners]
        assert all(table.keys.tolist() == answer.table.keys.tolist() for table in tables)
        assert all(np.array_equal(table.values, answer.table.values) for table in tables)
    assert 7 in answer.table.keys


@settings(deadline=None, max_examples=40)
@given(cut=st.integers(0, 400), seed=st.integers(0, 99), answered=st.booleans())
def test_a_restored_partitioner_goes_on_as_the_first_would(cut, seed, answered):
    keys, times = skewed(400, seed), np.arange(400)
    first, second = POLICY.router(BLOCKS), POLICY.router(BLOCKS)
    reducer = POLICY.reducer(BLOCKS, 1)
    first.route(keys[:120], times[:120])
    if answered:
        rounds_of([first], reducer)
    first.route(keys[120 : max(cut, 120)], times[120 : max(cut, 120)])
    second.restore(pickle.loads(pickle.dumps(first.state())))
    rest = slice(max(cut, 120), None)
    assert np.array_equal(first.route(keys[rest], times[rest]).block, second.route(keys[rest], times[rest]).block)
    assert first.phase is second.phase
    messages, others = first.take_messages(), second.take_messages()
    assert len(messages) == len(others)
    for one, other in zip(messages, others, strict=True):
        assert {k: v.tolist() for k, v in one.arrays().items()} == {k: v.tolist() for k, v in other.arrays().items()}


@pytest.mark.parametrize("size", [1, 37, 100])
def test_calls_may_be_cut_anywhere(size):
    keys, times = skewed(600, 5), np.arange(600) // 2
    whole, pieces = POLICY.router(BLOCKS), POLICY.router(BLOCKS)
    expected = whole.route(keys, times).block
    parts = [pieces.route(keys[i : i + size], times[i : i + size]).block for i in range(0, 600, size)]
    assert np.array_equal(np.concatenate(parts), expected)
    assert len(whole.take_messages()) == len(pieces.take_messages()) == 2


def test_partitioners_that_never_synchronise_are_daltons_of_their_own():
    keys, times = skewed(1000, 5), np.arange(1000)
    alone = dataclasses.replace(POLICY, sync="never").router(BLOCKS, 1)
    expected = Dalton(window=400, slide=100, epsilon=0.3).router(BLOCKS, 1).route(keys, times)
    assert np.array_equal(alone.route(keys, times).block, expected.block)
    assert alone.take_messages() == []


# How often


def trajectory(policy: CooperativeDalton, work: list[float], until: list[int], partitioners: int = 2) -> list[int]:
    """The time between rounds while merging takes `work[i]`, up to the time `until[i]`; distinct values in turn."""
    routers = [policy.router(2, number) for number in range(partitioners)]
    reducer = policy.reducer(2, partitioners)
    on_the_way: list[tuple[float, Feedback]] = []
    busy = 0.0
    seen = [policy.first_interval]
    for now in range(until[-1]):
        processing = next(takes for takes, end in zip(work, until, strict=True) if now < end)
        while on_the_way and on_the_way[0][0] <= now:
            feedback = on_the_way.pop(0)[1]
            for router in routers:
                router.receive(feedback)
            if feedback.sync_every != seen[-1]:
                seen.append(feedback.sync_every)
        for router in routers:
            router.advance(now)
            for sent in router.take_messages():
                reducer.receive(sent, at=max(busy, now))
        if reducer.ready and busy <= now:
            busy = now + processing
            on_the_way.append((busy, reducer.merge(processing=processing)))
    return seen


def test_the_time_between_rounds_follows_the_reducers_speed():
    # 20 falls to 10; merging twice as slow brings 20, four times 40; fast again, 10 (as in the paper's figure 14b)
    policy = CooperativeDalton(window=60, slide=20, sync_every=20)
    assert trajectory(policy, [6, 12, 24, 6], [1000, 2000, 3000, 4000]) == [20, 10, 20, 40, 20, 10]


def test_the_time_stays_where_it_is_fixed():
    policy = CooperativeDalton(window=60, slide=20, sync_every=20, sync="fixed")
    assert trajectory(policy, [6, 50], [500, 1000]) == [20]


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 50), (2.0, 100)])
def test_how_idle_the_reducer_must_be_is_a_parameter(factor, expected):
    reducer = QTableReducer(2, 1, sync_every=100, idle_factor=factor)
    reducer.receive(message(0, [], [], []), at=60.0)
    assert reducer.merge(processing=40.0).sync_every == expected  # idle for 60


def test_without_a_measure_of_its_work_the_reducer_never_speeds_up():
    assert merged(message(0, [], [], [])).sync_every == 100
    assert merged(message(0, [], [], [], proposal=200)).sync_every == 200
    assert merged(message(0, [], [], [], proposal=200), adaptive=False).sync_every == 100


# In an engine


def test_an_engine_synchronises_states_between_batches():
    policy = CooperativeDalton.of_batches(window=5)
    assert isinstance(policy, CooperativeDalton)
    assert isinstance(policy, Cooperative)
    assert isinstance(policy, TuplePolicy)
    states: dict[int, Any] = {}
    for batch in range(6):
        for number in range(3):
            router = policy.router(BLOCKS, number)
            assert isinstance(router, Router)
            if number in states:
                router.restore(states[number])
            router.route(skewed(200, 10 * batch + number), np.full(200, batch))
            states[number] = router.state()
        states = dict(policy.synchronise(states, BLOCKS))
    tables = []
    for number, state in states.items():
        router = policy.router(BLOCKS, number)
        router.restore(state)
        assert router.phase is Phase.PREPARE
        tables.append(router.learner.q_table())
    assert all(np.array_equal(table.values, tables[0].values) for table in tables)
    assert 7 in tables[0].keys


@pytest.mark.parametrize("parameters", [{"sync": "never"}, {"sync_every": 10}])
def test_states_stay_as_they_are_between_rounds(parameters):
    policy = CooperativeDalton.of_batches(window=5, **parameters)
    router = policy.router(BLOCKS)
    router.route(skewed(200, 1), np.zeros(200, np.int64))
    states = {0: router.state()}
    assert policy.synchronise(states, BLOCKS) is states
    assert policy.synchronise({}, BLOCKS) == {}


@pytest.mark.parametrize(("merge", "fragments"), [("normalised", 2 * 6 + 1), ("paper", 16)])
def test_two_partitioners_balance_what_hashing_cannot_and_the_printed_merge_spreads_keys(merge, fragments):
    policy = CooperativeDalton(window=6_000, slide=1_000, merge=merge)
    partitioners, reducer = [policy.router(16, number) for number in range(2)], policy.reducer(16, 2)
    keys, blocks = [], []
    for start in range(0, 30_000, 1_000):
        for number, partitioner in enumerate(partitioners):
            keys.append(skewed(1_000, start + number))
            blocks.append(partitioner.route(keys[-1], np.arange(start, start + 1_000)).block)
            partitioner.advance(start + 1_000)
        rounds_of(partitioners, reducer)
    times = np.repeat(np.arange(0, 30_000, 1_000), 2_000)
    windows = RoutedWindows(np.concatenate(keys), np.concatenate(blocks), times, 16, 6_000, 1_000)
    assert windows.largest_share[10:].mean() < 0.2  # by hash one block would have half of all rows
    # weights that do not add up to 1 make untried blocks look as good as tried ones, whatever the cap
    assert windows.fragmentation(7)[10:].max() <= fragments
    assert (windows.fragmentation(7)[10:].min() == 16) == (merge == "paper")


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"sync": "always"}, "sync of cooperative_dalton"),
        ({"merge": "mean"}, "merge of cooperative_dalton"),
        ({"sync_every": -1}, "sync_every of cooperative_dalton"),
        ({"idle_factor": -1.0}, "idle_factor of cooperative_dalton"),
        ({"awaiting": "forget"}, "awaiting of cooperative_dalton"),
        ({"epsilon": 2.0}, "epsilon of cooperative_dalton"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, wrong):
    with pytest.raises(OptionError, match=wrong):
        CooperativeDalton(**parameters)
