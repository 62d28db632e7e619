"""Who is in charge of a query on workers that stay, over a job without Spark: numbers and memory outlive a restart."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from steelyard.core import Action
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
