"""guided: few samples, none of them reckless, on clusters and for applications of any size."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from steelyard.core.errors import OptionError, StateError
from steelyard.learning import generator
from steelyard.placement.guided import Corrected, Guided, proposals
from steelyard.placement.proxy import Proxy
from steelyard.placement.representation import FEATURES, groups
from steelyard.placement.residual import Residual
from steelyard.placement.variations import allowed, varied
from steelyard.sim.placed.costs import Application, Deployed, Flow, Unit
from steelyard.sim.placed.fast import FastCluster
from tests.fuzz import first_seed
from tests.placement.test_learners import COSTS, QUERIES, cluster_of, placed

WORDS = Application(
    (
        Unit("lines", 2, 0.0001, source=True),
        Unit("split", 4, 0.0002),
        Unit("count", 4, 0.0003),
        Unit("store", 2, 0.0002),
    ),
    (Flow("lines", "split"), Flow("split", "count"), Flow("count", "store")),
    500.0,
)


class Watching(FastCluster):
    """A cluster that writes down what is deployed."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.deployments = []

    def deploy(self, assignment):
        self.deployments.append(np.array(assignment))
        return super().deploy(assignment)


@pytest.fixture(scope="module")
def guided():
    cluster = Watching(Deployed.of(QUERIES, COSTS, 4), seed=1)
    policy = Guided(samples=80, candidates=40, tried=8)
    policy.train(cluster, seed=3)
    return policy, cluster


def test_it_takes_as_many_samples_as_it_was_told_and_nothing_reckless(guided):
    policy, cluster = guided
    assert policy.trained.metrics["samples"] == 80
    assert len(policy.trained.arrays["rewards"]) == 80
    assert policy.trained.metrics["worst_over_present"] <= policy.bound
    for one in cluster.deployments:
        cluster.setup.checked(one)


def test_it_is_better_than_the_default_and_stays_where_it_is_good(guided):
    policy, cluster = guided
    wanted = placed(policy, cluster)
    both = cluster.times(np.stack([cluster.setup.round_robin(), wanted])).sum(axis=1)
    assert both[1] < 0.9 * both[0]
    cluster.deploy(wanted)
    cluster.run(600)
    again = policy.place(cluster.setup, cluster.measure())
    assert again.is_nothing, again.reason


def test_a_move_must_be_worth_its_price(guided):
    policy, cluster = guided
    dear = Guided(move_cost=100.0)
    dear.use(policy.trained)
    cluster.deploy(cluster.setup.round_robin())
    assert dear.place(cluster.setup, cluster.measure()).is_nothing


def test_a_bound_of_nothing_tries_only_what_is_expected_to_be_faster():
    policy = Guided(samples=20, candidates=20, tried=4, bound=0.0)
    policy.train(cluster_of(3), seed=1)
    assert policy.trained.metrics["worst_over_present"] <= 0.0


def test_a_right_model_is_followed_at_once():
    cluster = cluster_of(4)
    policy = Guided(samples=12, candidates=60, tried=4).by(cluster)
    policy.train(cluster, seed=2)
    best = min(float(cluster.times(one[None]).sum()) for one in proposals(cluster.setup, cluster.assignment))
    assert float(cluster.times(placed(policy, cluster)[None]).sum()) <= 1.02 * best


def test_what_was_learnt_on_four_machines_is_used_on_ten_and_for_another_application(guided, tmp_path):
    policy, _ = guided
    again = Guided(file=str(policy.save(tmp_path / "guided.npz")))
    cluster = FastCluster(Deployed.of(WORDS, COSTS, 10), seed=2)
    wanted = placed(again, cluster)
    both = cluster.times(np.stack([cluster.setup.round_robin(), wanted])).sum(axis=1)
    assert both[1] < both[0]


def test_errors_of_one_model_do_not_correct_another(guided, tmp_path):
    policy, cluster = guided
    seen = cluster.measure()
    again = Guided(file=str(policy.save(tmp_path / "guided.npz")), samples=8, candidates=8, tried=4).by(cluster)
    with pytest.raises(StateError, match="learnt over no model, and is used with Watching"):
        again.place(cluster.setup, seen)
    other = cluster_of(4)
    again.train(other, seed=1)
    assert again.trained.distribution["model"] == "Watching"
    again.place(other.setup, other.measure())
    with pytest.raises(StateError, match="learnt over Watching, and is used with FastCluster"):
        again.by(other).place(other.setup, other.measure())


def test_it_learns_on_several_clusters():
    policy = Guided(samples=24, candidates=20, tried=6)
    policy.train_on([cluster_of(3), FastCluster(Deployed.of(WORDS, COSTS, 4), seed=2)], seed=1)
    assert policy.trained.metrics["samples"] == 48


def test_numbers_of_threads_change_only_where_that_is_wanted(guided):
    policy, cluster = guided
    assert (cluster.setup.parallelism_of(placed(policy, cluster)) == cluster.setup.most).all()
    free = Guided(samples=30, candidates=40, tried=6, numbers=True)
    free.train(cluster_of(4), seed=1)
    cluster.setup.checked(placed(free, cluster))


def test_readings_that_say_nothing_are_no_error(guided):
    policy, cluster = guided
    seen = cluster.measure()
    for name in ("times", "throughput", "arrivals", "processed"):
        for value in (np.nan, 0.0):
            bad = replace(seen, **{name: np.full_like(getattr(seen, name), value)})
            cluster.setup.assignment(policy.place(cluster.setup, bad), bad.assignment)


def test_machines_without_room_are_left_alone():
    setup = cluster_of(3, times=2).setup
    narrow = setup.on([replace(host, slots=1) for host in setup.hosts])
    apart = setup.application_of[setup.component_of]
    found = allowed(narrow, np.stack([apart, setup.round_robin(), 2 - apart]))
    assert found.tolist() == [apart.tolist(), (2 - apart).tolist()]
    assert len(allowed(setup, np.stack([apart, setup.round_robin()]))) == 2


def test_what_cannot_be_used_says_so(tmp_path):
    cluster = cluster_of()
    seen = cluster.measure()
    assert "has not learnt yet" in Guided().place(cluster.setup, seen).reason
    with pytest.raises(OptionError, match=r"times\(assignments\)"):
        Guided().by(3)
    untrained = SimpleNamespace(prediction=lambda setup, seen: None)
    with pytest.raises(OptionError, match="is not trained: train it"):
        Guided().by(untrained).modelled(cluster.setup, seen)
    with pytest.raises(OptionError, match="bound and move_cost"):
        Guided(bound=float("nan"))
    with pytest.raises(OptionError, match="train it first"):
        Guided().save(tmp_path / "guided.npz")
    with pytest.raises(StateError, match="no trained policy"):
        Guided(file=str(tmp_path / "absent.npz"))


@pytest.mark.drawn
def test_variations_are_allowed_and_differ():
    for seed in range(first_seed(), first_seed() + 30):
        random = generator(seed, "case")
        setup = cluster_of(int(random.integers(1, 5)), times=int(random.integers(1, 3))).setup
        found = varied(setup, setup.round_robin(), 40, random, numbers=True)
        assert len({one.tobytes() for one in found}) == len(found)
        for one in found:
            setup.checked(one)
            assert (one != setup.round_robin()).any()


def test_groups_do_not_know_which_machine_is_which_nor_how_many_are_empty():
    cluster = cluster_of(3)
    seen = cluster.measure()
    assignments = generator(1, "draw").integers(3, size=(4, cluster.setup.threads))
    wide = cluster_of(6)
    residual = Residual(1)
    residual.whole = residual.whole.drawn(residual.whole.sizes, generator(2, "whole"))
    predicted = Proxy(cluster.setup).times(assignments)
    plain = residual.factors(groups(cluster.setup, assignments, seen, predicted))
    renamed = residual.factors(groups(cluster.setup, (assignments + 1) % 3, seen, predicted))
    wider = residual.factors(groups(wide.setup, assignments, seen, predicted))
    np.testing.assert_allclose(plain, renamed, rtol=1e-5)
    np.testing.assert_allclose(plain, wider, rtol=1e-5)
    assert plain.std() > 0
    assert groups(cluster.setup, assignments, seen, predicted).features.shape == (4, 9, len(FEATURES))


def test_a_residual_learns_what_a_model_leaves_out():
    cluster = cluster_of(4)
    seen = cluster.measure()
    model = Proxy(cluster.setup)
    assignments = generator(1, "draw").integers(4, size=(300, cluster.setup.threads))
    predicted, true = model.times(assignments), cluster.times(assignments)
    kept = true[:, 0] < 0.01
    part = groups(cluster.setup, assignments[kept], seen, predicted[kept])
    residual = Residual(1)
    before = Corrected(cluster.setup, seen, model, residual).times(assignments[kept])
    residual.learn([(part, np.log(true[kept] / predicted[kept]))], steps=600)
    after = Corrected(cluster.setup, seen, model, residual).times(assignments[kept])
    off = [np.abs(np.log(one / true[kept])).mean() for one in (before, after)]
    assert off[1] < 0.3 * off[0]
