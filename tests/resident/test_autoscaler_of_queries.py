"""Who is in charge of a query on workers that stay, over a job without Spark: numbers and memory outlive a restart."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from steelyard.core import Action, ActionRefusedError
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL
from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.snapshot import SnapshotStore
from steelyard.scaling import HpaCpu
from steelyard.spark.memory import KeptPolicy
from steelyard.spark.resident_elastic import LEARNT, Autoscaler, as_it_was
from tests.resident.test_control import counts, flow_of

WAVES = ({"map": 3}, {"map": 1, "count": 2}, {"count": 1, "map": 4})


@dataclass
class Waves:
    """Other numbers at each look, and how many looks there were, which it remembers."""

    looks: int = 0

    def __post_init__(self):
        self.times = []

    def decide(self, observation):
        self.times.append(observation.time)
        self.looks += 1
        return Action(WAVES[self.looks % len(WAVES)], "another wave")

    def state(self):
        return {"looks": np.array([self.looks])}

    def restore(self, state):
        self.looks = int(state["looks"][0])


def test_numbers_and_what_was_learnt_go_on_after_a_restart_wherever_the_driver_ended(tmp_path):
    store, events, policy, found, times = SnapshotStore(tmp_path / "store"), [], Waves(), {}, []
    stopped_with = {}
    for run in range(3):
        dataflow = as_it_was(flow_of(0.03), store)
        assert not run or {one.name: one.parallelism for one in dataflow.operators} == stopped_with
        how = Settings(store=str(store.path), interval=0.05, heartbeat=0.05)
        job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
        autoscaler = Autoscaler(job, policy, [], 0.1, tmp_path / LEARNT, events.append)
        thread = threading.Thread(target=job.run)
        thread.start()
        while not job.ended and (run == 2 or len(job.outcome.rescalings) < 2):
            job.advance(autoscaler.every)
            autoscaler.look()
            newest = store.newest()
            # whoever is killed now goes on from there, with rows under way
            assert newest is None or newest.is_at_rest or newest.fits(as_it_was(flow_of(), store))
        job.stop()
        thread.join()
        stopped_with = {one.name: one.parallelism for one in job.dataflow.operators}
        own = autoscaler._controller.policy
        assert own is not policy
        assert not times or own.times == [] or own.times[0] > times[-1]
        times += own.times
        found |= counts(job.outcome.results) if job.outcome.results else {}
    assert found == dict.fromkeys(range(5), 120)
    assert len(times) > 3
    assert policy.looks == 0, "a query has a policy of its own"
    assert {"decision", "brought"} <= {one.kind for one in events}
    again = Waves()
    KeptPolicy(tmp_path / LEARNT, again).recall()
    assert again.looks == len(times)


@dataclass
class Names:
    """One operator of several that forward edges join, or some of them."""

    waves: tuple

    def decide(self, observation):
        wave = self.waves[0]
        if observation.parallelism["count"] == max(wave.values()):
            self.waves = (*self.waves[1:], wave)
        return Action(self.waves[0], "another wave")


@pytest.mark.parametrize("waves", [({"count": 3}, {"count": 1}), ({"out": 2, "count": 1}, {"out": 1})])
def test_who_names_an_operator_names_all_that_forward_edges_join_with_it(tmp_path, waves):
    dataflow = flow_of(0.03)
    how = Settings(store=str(tmp_path / "store"), interval=0.05, heartbeat=0.05)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
    events = []
    autoscaler = Autoscaler(job, Names(waves), [], 0.1, tmp_path / LEARNT, events.append)
    thread = threading.Thread(target=job.run)
    thread.start()
    autoscaler.run()
    thread.join()
    assert counts(job.outcome.results) == dict.fromkeys(range(5), 120)
    grown = [one.now["count"] - one.before["count"] for one in job.outcome.rescalings]
    assert any(more > 0 for more in grown)
    assert any(more < 0 for more in grown)
    assert all(one.now.keys() == {"count", "out"} for one in job.outcome.rescalings)
    assert all(len(set(one.now.values())) == 1 for one in job.outcome.rescalings)
    refused = [one.decision for one in events if one.kind == "decision" and not one.done]
    assert not [why for why in refused if "forward" in why]


def test_an_interval_that_the_user_set_is_neither_shown_nor_changed(tmp_path):
    dataflow = flow_of()
    for own in (False, True):
        how = Settings(store=str(tmp_path / f"store{own}"), interval=3.0)
        job = Job(dataflow, Placement.spread(dataflow, 1), ThreadLauncher(), how)
        autoscaler = Autoscaler(job, Waves(), [], 0.1, tmp_path / LEARNT, [].append, own_interval=own)
        assert ("checkpoints" in autoscaler.shows) == (not own)
        wish = Action(settings={CHECKPOINT_INTERVAL: "7"})
        if own:
            with pytest.raises(ActionRefusedError, match=r"trigger\(processing_time=...\) says how far apart"):
                autoscaler.apply(wish)
        else:
            autoscaler.apply(wish)
        assert job._settings.interval == (3.0 if own else 7.0)
        job.run()
        assert autoscaler.observe().checkpoints is None or not own


def test_what_was_learnt_and_cannot_be_written_is_told_and_no_failure(tmp_path, caplog):
    (tmp_path / LEARNT).mkdir()  # in the way
    with caplog.at_level(logging.WARNING):
        KeptPolicy(tmp_path / LEARNT, Waves()).keep(1.0)
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("damage", ["other policy", "damaged"])
def test_a_policy_begins_anew_where_another_one_learnt_or_the_file_is_damaged(tmp_path, caplog, damage):
    learnt = Waves(7)
    KeptPolicy(tmp_path / LEARNT, learnt).keep(30.0)
    if damage == "damaged":
        (tmp_path / LEARNT).write_bytes((tmp_path / LEARNT).read_bytes()[:-3])
    now = HpaCpu() if damage == "other policy" else Waves()
    before = now.state()
    with caplog.at_level(logging.WARNING):
        KeptPolicy(tmp_path / LEARNT, now).recall()
    assert "begins anew" in caplog.text
    assert all(np.array_equal(part, before[name]) for name, part in now.state().items())
