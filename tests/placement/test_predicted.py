"""Placement by predicted times: the document's worked example, and what must always be true."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError, StateError
from steelyard.core.placing import Component, Host, Setup, Stream
from steelyard.placement import placement, regression
from steelyard.placement.clocks import EXCHANGE, clocks, corrected
from steelyard.placement.collecting import watched
from steelyard.placement.draws import drawn
from steelyard.placement.features import features, per_tuple, weights
from steelyard.placement.learnt import Learnt, training_rows
from steelyard.placement.model_based import one_pass
from steelyard.placement.paths import path_times, tuple_times
from steelyard.placement.predicting import kept_up
from steelyard.placement.prediction import History
from steelyard.placement.records import Collected, Collector, together
from steelyard.placement.regression import KERNELS, Parameters, accuracy, cross_validated, fitted
from steelyard.sim.placed import ExactCluster, deployed
from tests.placement.made import Formula, chain


def example():
    """Li 2018, Fig 2.3: two sources and six units, two threads each."""
    names = ("S1", "S2", *(f"PU{number}" for number in range(1, 7)))
    parts = tuple(Component(name, 2, source=name[0] == "S") for name in names)
    ways = ("S1 PU1", "PU1 PU4", "S2 PU2", "PU2 PU4", "PU2 PU5", "PU5 PU6", "S2 PU3", "PU3 PU6")
    return Setup(parts, tuple(Stream(*one.split()) for one in ways), 2 * (Host(),))


def test_the_example_has_the_four_paths_of_the_document_and_its_weights():
    setup = example()
    names = [tuple(setup.operators[at].name for at in path) for path in setup.paths()]
    expected = {("S1", "PU1", "PU4"), ("S2", "PU2", "PU4"), ("S2", "PU2", "PU5", "PU6"), ("S2", "PU3", "PU6")}
    assert set(names) == expected
    assert len(names) == 4
    history = History.even(setup, np.array([100.0]))
    assert history.instance.tolist() == [0.5] * 16
    assert all(one.tolist() == [[0.25, 0.25], [0.25, 0.25]] for one in history.pair)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_tuple_takes_as_long_as_its_slowest_path(seed):
    setup, rng = example(), np.random.default_rng(seed)
    processing = {at: rng.random(3) for at in range(8)}
    transfer = {at: rng.random(3) for at in range(8)}
    number = {tuple(pair): at for at, pair in enumerate(setup.links.tolist())}
    by_hand = []
    for path in setup.paths():
        by_hand.append(sum(processing[b] + transfer[number[a, b]] for a, b in pairwise(path)))
    assert np.allclose(tuple_times(setup, processing, transfer)[:, 0], np.max(by_hand, axis=0))
    assert np.allclose(path_times(setup, processing, transfer), by_hand)


class Table:
    """A latency that is a formula: by hand it is known, too."""

    def __init__(self, first=1.0):
        self.first = first

    def predict(self, rows):
        return self.first * rows[:, 2] + rows[:, 4]

    def pairs(self, senders, receivers):
        apart = senders[:, None, 2] + 10 * receivers[None, :, 2]
        return apart, apart / 2


def test_a_chain_with_unequal_weights_is_what_one_computes_by_hand():
    from steelyard.placement.prediction import Prediction

    setup = chain(machines=2, threads=(1, 2))
    load = np.array([4.0, 1.0, 3.0])
    history = History(load, np.array([1.0, 0.25, 0.75]), (np.array([[0.25, 0.75]]),), np.array([1.0]))
    made = Prediction(setup, {"query": Table()}, {"spout -> query": Table()}, history)
    # spout and query#0 on machine 0, query#1 on machine 1: two threads there, one here
    processing = 0.25 * (1.0 + 2) + 0.75 * (3.0 + 1)
    transfer = 0.25 * (4.0 + 10) / 2 + 0.75 * (4.0 + 30)
    assert made.times(np.array([[0, 0, 1]])) == pytest.approx(np.array([[processing + transfer]]))
    doubled = made.times(np.array([[0, 0, 1]]), np.array([2.0]))
    processing, transfer = 0.25 * (2.0 + 2) + 0.75 * (6.0 + 1), 2 * transfer
    assert doubled == pytest.approx(np.array([[processing + transfer]]))


def test_features_are_counted_and_weights_add_up_to_one():
    cluster = Formula(chain(machines=3, threads=(2, 3, 2)), rate=60.0)
    seen = watched(cluster, np.array([0, 1, 0, 1, 2, 0, 0]), 60.0, 1.0)
    found, weight = features(seen.records), weights(seen.records)
    for table, of in ((weight.instance, "component"), (weight.pair, "edge")):
        assert np.allclose(table.groupby(of)["weight"].sum(), 1.0)
    own = found.processing
    assert sorted(own["window"].unique()) == [0, 1]
    assert set(own["colocated_threads"]) == {4.0, 2.0, 1.0}
    tuples = per_tuple(seen.records)
    inside = tuples[tuples["t_end"] < 60.0]
    assert own["tuples"].sum() == len(inside)
    machine = own[(own["machine"] == 2)]
    assert (machine["machine_workload"] == machine["thread_workload"]).all(), "one thread is all of its machine's load"
    assert set(found.transfer["colocation"]) == {0.0, 1.0}


def test_fragments_in_any_order_become_one_row_per_tuple_and_none_is_lost():
    cluster = Formula(chain(machines=3, threads=(2, 3, 2)), rate=60.0)
    records = watched(cluster, cluster.setup.round_robin(), 30.0, 1.0).records
    rng = np.random.default_rng(1)
    mixed = {
        name: table.take(
            pa.array(rng.permutation(np.r_[np.arange(table.num_rows), rng.integers(0, table.num_rows, 9)]))
        )
        for name, table in records.tables()
        if name in ("transfer", "process")
    }
    again = Collected(**(dict(records.tables()) | mixed))
    keys = ["app_id", "tuple_id"]
    before, after = (per_tuple(one).sort_values(keys).reset_index(drop=True) for one in (records, again))
    assert len(after) == records.transfer.num_rows == after["tuple_id"].nunique()
    pd.testing.assert_frame_equal(before, after)
    assert after[["transfer_seconds", "processing_seconds"]].notna().all(axis=None)


@given(st.floats(-5, 5), st.floats(-1e-4, 1e-4), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_clocks_are_set_right_to_a_microsecond_where_both_ways_take_equally_long(offset, drift, seed):
    rng = np.random.default_rng(seed)

    def shown(t):
        return t + offset + drift * t

    t1 = np.sort(rng.random(8)) * 60
    delay = 0.0003 * (1 + 0.02 * rng.random(8))
    t3 = t1 + delay + 1e-4
    rows = {"machine": np.ones(8, int), "t1": t1, "t2": shown(t1 + delay), "t3": shown(t3), "t4": t3 + delay}
    known = clocks(pa.table(rows).cast(EXCHANGE))
    times = rng.random(50) * 60
    right = known[1].master(shown(times))
    assert np.abs(right - times).max() < 1e-6


def test_transfer_times_are_right_though_clocks_are_milliseconds_off():
    cluster = Formula(chain(machines=4, threads=(2, 4, 4)), rate=200.0, noise=0.0)
    seen = watched(cluster, cluster.setup.round_robin(), 30.0, 1.0)
    tuples = per_tuple(seen.records)
    expected = np.where(tuples["src_machine"] == tuples["dst_machine"], 0.0002, 0.0008)
    assert np.abs(tuples["transfer_seconds"] - expected).max() < 1e-6
    unset = per_tuple(corrected(seen.records, {}))
    assert np.allclose(unset["transfer_seconds"], tuples["transfer_seconds"]), "without clocks nothing changes"


@pytest.mark.parametrize("kernel", KERNELS)
def test_regressions_predict_in_numpy_what_scikit_learn_predicts(kernel):
    from sklearn.svm import SVR

    rng = np.random.default_rng(0)
    rows = np.column_stack([np.full(90, 4.0), np.full(90, 4.0), rng.random((90, 6)), rng.integers(0, 2, 90)])
    seconds = np.exp(rows[:, 2] + rows[:, -1]) * 1e-3
    found = fitted(rows, seconds, Parameters(kernel))
    theirs = SVR(kernel=kernel, C=10, epsilon=0.1, gamma=1 / 9)
    ready, target = (rows - found.mean) / found.scale, np.log(seconds)
    theirs.fit(ready, (target - target.mean()) / target.std())
    assert np.allclose(np.exp(theirs.predict(ready) * target.std() + target.mean()), found.predict(rows))
    apart, beside = found.pairs(rows[:5, :4], rows[5:12, 4:8])
    for flag, made in ((0.0, apart), (1.0, beside)):
        expected = [[found.predict(np.r_[u, d, flag][None])[0] for d in rows[5:12, 4:8]] for u in rows[:5, :4]]
        assert np.allclose(made, expected)


def test_a_schedule_is_never_learnt_from_and_judged_by():
    rows, seconds = np.arange(8.0)[:, None], np.repeat([1.0, 9.0], 4)
    assert np.isnan(cross_validated(rows, seconds, [1] * 8, Parameters()))
    assert cross_validated(rows, seconds, np.repeat([1, 2], 4), Parameters()) < 0.2, "the other half is unknown to it"
    assert accuracy(np.array([2.0]), np.array([1.0])) == 0.0


def trained(name="model_based?schedules=14", rate=150.0, seed=0):
    cluster = Formula(chain(), rate=rate, seed=seed)
    policy = placement(name)
    policy.train(cluster, seed)
    return cluster, policy


@pytest.mark.parametrize("name", ["model_based?schedules=14", "local_search?schedules=14&draws=40"])
def test_predictions_are_near_the_truth_and_the_placement_is_better_than_round_robin(name):
    cluster, policy = trained(name)
    setup = cluster.setup
    cluster.deploy(setup.round_robin())
    seen = cluster.measure(30.0)
    some = drawn(setup, 20, seed=99)
    assert accuracy(policy.prediction(setup, seen).times(some), cluster.times(some)) > 0.9
    action = policy.place(setup, seen)
    chosen = setup.assignment(action, seen.assignment)
    assert cluster.times(chosen[None]) < cluster.times(setup.round_robin()[None])
    assert policy.place(setup, seen) == action


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_one_pass_never_gives_a_higher_time_than_it_began_with(seed):
    rng = np.random.default_rng(seed)
    setup = chain(machines=int(rng.integers(1, 5)), threads=tuple(rng.integers(1, 5, 3).tolist()))
    table = rng.random((setup.threads, setup.machines))
    beside = rng.random((setup.threads, setup.threads))

    def times(assignments):
        same = assignments[:, :, None] == assignments[:, None, :]
        return table[np.arange(setup.threads), assignments].sum(axis=1) + (same * beside).sum(axis=(1, 2))

    start = setup.round_robin()
    end = one_pass(setup, times, start)
    assert times(end[None]) <= times(start[None])
    plain = start.copy()  # the document's own loops
    for thread in range(setup.threads):
        for machine in range(setup.machines):
            other = plain.copy()
            other[thread] = machine
            if machine != plain[thread] and times(other[None]) < times(plain[None]):
                plain = other
    assert np.array_equal(end, plain)


def test_a_trained_policy_goes_on_from_its_state_and_refuses_another_setup():
    cluster, policy = trained()
    again = placement("model_based")
    again.restore({name: np.array(value) for name, value in policy.state().items()})
    seen = cluster.measure(30.0)
    assert again.place(cluster.setup, seen) == policy.place(cluster.setup, seen)
    other = Formula(chain(machines=3))
    action = again.place(other.setup, other.measure(30.0))
    assert action.is_nothing
    assert action.reason.startswith("model_based cannot predict this: it knows '0:spout:2")
    with pytest.raises(OptionError, match="cannot predict this: it knows '0:spout:2"):
        again.prediction(other.setup, other.measure(30.0))
    assert placement("model_based").prediction(cluster.setup, seen) is None
    del again.learnt.models["transfer"]["query -> file"]
    assert again.place(cluster.setup, seen).reason.endswith("no tuple of 'query -> file' was recorded")
    with pytest.raises(StateError, match="lacks"):
        Learnt.of({"load": np.zeros(1)})


def test_more_records_are_learnt_beside_those_before():
    cluster, policy = trained()
    before = len(policy.learnt.rows.processing)
    collector = Collector(every=60.0)
    more = watched(cluster, cluster.setup.round_robin(), 60.0, 1.0)
    collector.add(more.records)
    assert collector.handed_out(now=30.0) is None
    assert collector.handed_out(now=60.0).process.num_rows == more.records.process.num_rows
    policy.learn(cluster.setup, more)
    assert len(policy.learnt.rows.processing) > before


def test_a_policy_in_charge_learns_every_so_often_and_may_begin_with_nothing():
    cluster, policy = Formula(chain(), rate=100.0), placement("model_based?schedules=12")
    readings = kept_up(policy, cluster, 100.0, every=200.0)
    assert len(readings) == 2
    assert not policy.learnt.is_trained
    assert np.array_equal(cluster.assignment, cluster.setup.round_robin())
    policy.train(cluster, 1)
    cluster.deploy(cluster.setup.round_robin())
    before = len(policy.learnt.rows.processing)
    readings = kept_up(policy, cluster, 480.0, every=120.0)
    assert len(policy.learnt.rows.processing) > before
    assert readings[-1].times < readings[0].times


def test_a_policy_in_charge_of_a_tuple_exact_cluster_looks_from_window_to_window():
    cluster = ExactCluster(deployed("cq-small"), seed=1)
    readings = kept_up(placement("model_based?schedules=2&tuples=20"), cluster, 60.0, every=600.0, look=30.0)
    assert [one.time for one in readings] == [30.0, 60.0], "nothing is lost between looks"


def test_windows_of_two_times_of_one_schedule_are_all_there():
    cluster = Formula(chain(machines=2, threads=(1, 2)), rate=40.0)
    first = watched(cluster, cluster.setup.round_robin(), 60.0, 1.0)
    cluster.run(45.0)
    second = watched(cluster, cluster.setup.round_robin(), 60.0, 1.0)
    assert first.deployed.number == second.deployed.number
    apart = [features(one.records).processing["window"].nunique() for one in (first, second)]
    both = features(together([first.records, second.records])).processing
    assert both["window"].nunique() == sum(apart) == 4


def test_pooled_regressions_are_one_for_all():
    _, policy = trained("model_based?schedules=14&pooled=true")
    made = policy.learnt.models
    assert len({id(one) for one in made["processing"].values()}) == 1
    rows, _, _ = training_rows(policy.learnt.rows.processing, "processing")
    assert rows.shape[1] == 5


def test_what_cannot_be_is_said(tmp_path, monkeypatch):
    with pytest.raises(OptionError, match="has no records"):
        Collected.read(tmp_path)
    with pytest.raises(OptionError, match="unknown kernel 'rfb': did you mean 'rbf'"):
        placement("model_based?kernel=rfb")
    with pytest.raises(OptionError, match="schedules must be 2"):
        placement("model_based?schedules=1")
    with pytest.raises(OptionError, match="has none: train it on the tuple-exact level"):
        placement("model_based").train(object(), 1)
    with pytest.raises(OptionError, match="cannot be joined"):
        together([Collected(), Collected(share=0.5)])
    monkeypatch.setitem(__import__("sys").modules, "sklearn.svm", None)
    with pytest.raises(OptionError, match=r"steelyard\[predict\]"):
        regression.fitted(np.ones((2, 1)), np.ones(2), Parameters())


def test_records_come_back_from_a_folder(tmp_path):
    cluster = Formula(chain(machines=2, threads=(1, 2)), rate=40.0)
    each = [watched(cluster, one, 30.0, 0.5).records for one in drawn(cluster.setup, 2, seed=1)]
    for number, one in enumerate(each):
        one.write(tmp_path, number)
    found, expected = Collected.read(tmp_path), together(each)
    assert found.share == 0.5
    assert all(getattr(found, name).num_rows == table.num_rows for name, table in expected.tables())
    assert found.process.equals(expected.process)
    (tmp_path / "process" / "batch=1" / "part.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(StateError, match="leave this batch out"):
        Collected.read(tmp_path)
