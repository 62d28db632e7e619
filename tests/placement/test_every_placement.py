"""What must hold for every placement policy that is registered."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from steelyard.core.control import Action
from steelyard.core.measured import PlacementPolicy, Reading, placed_by
from steelyard.core.placing import Component, Host, Setup, Stream, together
from steelyard.core.policies import Learning
from steelyard.placement.draws import drawn
from steelyard.placement.registry import PLACEMENTS
from steelyard.policies import spelled_out
from steelyard.sim.placed import FastCluster, deployed
from tests.placement.made import Formula

CASES = [spelled_out(entry).replace("...", "1") for entry in PLACEMENTS.entries.values()]
LOOKS = 5


def chain(*threads: int, machines: int) -> Setup:
    parts = [Component(f"c{at}", count, source=not at) for at, count in enumerate(threads)]
    edges = [Stream(f"c{at}", f"c{at + 1}") for at in range(len(threads) - 1)]
    return Setup(tuple(parts), tuple(edges), machines * (Host(),))


SETUPS = {
    "queries": deployed("cq-small").setup,
    "logs, with branches": deployed("lsp-33").setup,
    "two sources": deployed("wc-2-sources").setup,
    "three applications": deployed("3x-cq-small").setup,
    "one machine": chain(2, 3, 2, machines=1),
    "one thread": chain(1, machines=3),
    "more machines than threads": chain(1, 2, machines=9),
    "few slots": together([(name, chain(1, 2, machines=2).on(2 * (Host(slots=1),))) for name in "ab"]),
}


def start(setup: Setup, seed: int):
    """An assignment that there may be, whatever the slots."""
    if min(host.slots for host in setup.hosts) >= len(setup.applications):
        return drawn(setup, 1, seed)[0]
    return setup.application_of[setup.component_of] % setup.machines


def reading(setup: Setup, seed: int, number: int = 0) -> Reading:
    """What a cluster might measure: nothing, little, much."""
    rng = np.random.default_rng([seed, number])
    applications = len(setup.applications)
    return Reading(
        10.0 * (number + 1),
        10.0,
        start(setup, seed),
        rng.uniform(1e-3, 1e-2, applications),
        rng.uniform(1, 1e4, applications),
        rng.uniform(1, 1e4, applications),
        np.floor(rng.uniform(0, 1e5, setup.threads)),
    )


@pytest.fixture(params=CASES, name="fresh", scope="module")
def _fresh(request):
    """Makes the policy anew: some remember what they saw."""
    return lambda: PLACEMENTS.named(request.param)


def same(one: Action, other: Action) -> bool:
    return one.parallelism == other.parallelism and one.placement == other.placement and one.reason == other.reason


@pytest.mark.parametrize("name", SETUPS)
def test_what_it_wants_can_be_deployed_and_has_its_reason_in_words(fresh, name):
    setup, policy = SETUPS[name], fresh()
    for number in range(LOOKS):
        seen = reading(setup, number, number)
        try:
            action = policy.place(setup, seen)
        except Exception as error:
            if name == "few slots" and "slots" in str(error):
                pytest.skip("it knows nothing of slots and says so")
            raise
        after = setup.assignment(action, seen.assignment)
        assert len(action.reason.split()) > 2
        assert len(action.placement) <= setup.threads
        assert not action.moves
        assert not action.cuts
        assert action.placement.items() <= setup.where(after).items()


@pytest.mark.parametrize("name", ["queries", "three applications"])
def test_only_threads_that_differ_are_named(fresh, name):
    setup, policy = SETUPS[name], fresh()
    seen = reading(setup, 3)
    action = policy.place(setup, seen)
    now = setup.where(seen.assignment)
    assert all(now.get(thread) != machine for thread, machine in action.placement.items())
    assert all(
        count != setup.parallelism_of(seen.assignment)[[one.name for one in setup.operators].index(component)]
        for component, count in action.parallelism.items()
    )


def test_the_same_looks_bring_the_same_decisions_and_are_left_as_they_are(fresh):
    setup = SETUPS["queries"]
    looks = [reading(setup, 1, number) for number in range(LOOKS)]
    before = pickle.dumps(looks)
    one, other = fresh(), fresh()
    first = [one.place(setup, look) for look in looks]
    second = [other.place(setup, look) for look in pickle.loads(before)]
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    assert pickle.dumps(looks) == before


def test_what_it_remembers_can_be_kept_and_it_goes_on_as_if_nothing_had_happened(fresh):
    setup = SETUPS["queries"]
    looks = [reading(setup, 2, number) for number in range(LOOKS)]
    policy, other = fresh(), fresh()
    for look in looks[:2]:
        policy.place(setup, look)
    if isinstance(policy, Learning):
        other.restore({part: np.copy(array) for part, array in policy.state().items()})
    pickled = pickle.loads(pickle.dumps(policy))
    for look in looks[2:]:
        wanted = policy.place(setup, look)
        assert same(wanted, other.place(setup, look))
        assert same(wanted, pickled.place(setup, look))


@pytest.mark.parametrize(
    "name",
    [
        "guided?samples=2&candidates=4&tried=2",
        "local_search?schedules=2&settle=0&draws=4&starts=1",
        "model_based?schedules=2&settle=0",
    ],
)
def test_what_was_learnt_on_a_cluster_can_be_kept_and_decides_the_same(name, tmp_path):
    """Of those that are trained in no time; `test_learners` has the others."""
    policy, cluster = PLACEMENTS.named(name), Formula(SETUPS["one machine"].on(2 * (Host(),)), rate=40.0)
    policy.train(cluster, 1)
    if isinstance(policy, Learning):
        other = PLACEMENTS.named(name)
        other.restore({part: np.copy(array) for part, array in policy.state().items()})
    else:
        other = PLACEMENTS.named(f"{name}&file={policy.save(tmp_path / 'learnt.npz')}")
    pickled = pickle.loads(pickle.dumps(policy))
    for number in range(LOOKS):
        seen = reading(cluster.setup, number, number)
        wanted = policy.place(cluster.setup, seen)
        assert " ms " in wanted.reason, "it has learnt"
        assert same(wanted, other.place(cluster.setup, seen))
        assert same(wanted, pickled.place(cluster.setup, seen))


@pytest.mark.parametrize("spoilt", ["times", "throughput", "arrivals", "processed"])
def test_readings_that_say_nothing_are_no_error(fresh, spoilt):
    setup, policy = SETUPS["queries"], fresh()
    seen = reading(setup, 4)
    for value in (np.nan, 0.0):
        bad = replace(seen, **{spoilt: np.full_like(getattr(seen, spoilt), value)})
        setup.assignment(policy.place(setup, bad), bad.assignment)


def test_in_charge_of_a_cluster_it_keeps_every_component_running(fresh):
    cluster = FastCluster(deployed("cq-small"), seed=3)
    found = placed_by(fresh(), cluster, looks=LOOKS)
    assert (cluster.setup.parallelism_of(cluster.assignment) >= 1).all()
    assert np.isfinite([one.times for one in found.readings]).all()


def test_its_name_makes_it_and_its_repr_says_what_it_is(fresh):
    policy = fresh()
    assert isinstance(policy, PlacementPolicy)
    assert PLACEMENTS.entries[policy.name].kind is type(policy)
    assert type(policy).__name__ in repr(policy)
    assert repr(pickle.loads(pickle.dumps(policy))) == repr(policy)
