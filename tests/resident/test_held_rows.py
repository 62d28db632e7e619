"""Checkpoints while instances hold rows for a state that has not come: going back to one of them loses nothing."""

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Settings, Step
from steelyard.resident.coordinator import Coordinator
from steelyard.resident.deployment import Deployment
from steelyard.resident.gang import GenerationError
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.sources import Read, Reader

ROWS, PER_READ, DEADLINE = 8_000, 20, 60
NUMBERS, FOUND = pa.schema({"x": pa.int64()}), pa.schema({"n": pa.int64()})


@dataclass(frozen=True)
class Paced(Reader):
    """Two splits of numbers, some of them every other millisecond, so that rows come while states move."""

    schema: pa.Schema = field(default_factory=lambda: NUMBERS)

    def splits(self, parallelism):
        return ["0", "1"]

    def read(self, split, offset, rows):
        end = min(offset + PER_READ, ROWS)
        if end > offset:
            time.sleep(0.002)
        return Read(pa.record_batch([pa.array(np.arange(offset, end))], schema=NUMBERS), end, end == ROWS)


class Counted(Step):
    """Counts its rows, in a dictionary that it changes."""

    def __init__(self):
        self.seen = {"n": 0}

    def process(self, port, batch):
        self.seen["n"] += batch.num_rows
        return ()

    def finish(self):
        return [pa.record_batch([pa.array([self.seen["n"]])], schema=FOUND)]

    def snapshot(self, number):
        return {"seen": self.seen}

    def restore(self, state):
        if state:
            self.seen = state["seen"]


def added_up(states, share):
    return {"seen": {"n": sum(states[one]["seen"]["n"] for one in share.taken_over)}}


def counts(flow, numbers, in_place, tmp_path, protocol="coordinated"):
    """What each instance of `count` counted, where numbers become others while rows come."""
    dataflow = flow.dataflow()
    settings = Settings(store=str(tmp_path), interval=0.05, heartbeat=0.05, protocol=protocol, restarts=3)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), settings)
    runs = threading.Thread(target=job.run)
    runs.start()
    deadline = time.monotonic() + DEADLINE
    while not any(one["rows_out"] > 20 * PER_READ for one in job.metrics.values() if "rows_out" in one):
        assert time.monotonic() < deadline, "no rows came"
        time.sleep(0.01)
    job.rescale(numbers, in_place=in_place)
    runs.join(DEADLINE)
    assert not runs.is_alive()
    return job, [n for batch in job.outcome.results["out"] for n in batch["n"].to_pylist()]


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("protocol", ["coordinated", "unaligned", "uncoordinated", "communication_induced", "hybrid"])
def test_a_failure_right_behind_the_first_line_behind_a_cut_loses_no_held_row(protocol, chained, tmp_path, monkeypatch):
    give, commit, died = Deployment._give, Coordinator._commit, []

    def slowly(self, *given):
        time.sleep(0.2)
        return give(self, *given)

    def committed(self, line):
        commit(self, line)
        if self._cuts and not died:
            died.append(line)
            raise GenerationError("a worker dies right behind the first commit behind the cut")

    monkeypatch.setattr(Deployment, "_give", slowly)
    monkeypatch.setattr(Coordinator, "_commit", committed)
    flow = Flow("held", parallelism=2)
    rows = flow.source(Paced(), name="read").shuffle().map(lambda batch: batch, {"x": "int64"}, name="pass")
    rows = rows if chained else rows.key_by("x")
    made = rows.process(lambda context: Counted(), {"n": "int64"}, deal=added_up, name="count")
    made.shuffle().sink(Memory(), name="out", parallelism=1)
    numbers = {"pass": 3, "count": 3} if chained else {"count": 3}
    job, found = counts(flow, numbers, True, tmp_path, protocol)
    assert sum(found) == 2 * ROWS
    assert job.outcome.rescalings


@pytest.mark.parametrize("in_place", [True, False])
def test_a_state_that_is_dealt_out_to_several_belongs_to_each_of_them_alone(in_place, tmp_path):
    flow = Flow("shared", parallelism=1)
    rows = flow.source(Paced(), name="read").broadcast()
    made = rows.process(
        lambda context: Counted(), {"n": "int64"}, deal=lambda states, share: states[0], name="count", parallelism=2
    )
    made.shuffle().sink(Memory(), name="out", parallelism=1)
    _, found = counts(flow, {"count": 3}, in_place, tmp_path)
    assert found == [2 * ROWS] * 3


def test_numbers_that_are_there_already_change_nothing(tmp_path):
    flow = Flow("as before", parallelism=2)
    rows = flow.source(Paced(), name="read").shuffle()
    made = rows.process(lambda context: Counted(), {"n": "int64"}, deal=added_up, name="count")
    made.shuffle().sink(Memory(), name="out", parallelism=1)
    job, found = counts(flow, {"count": 2}, None, tmp_path)
    assert sum(found) == 2 * ROWS
    assert not job.outcome.rescalings
    assert job.outcome.moves == 0
