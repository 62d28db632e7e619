"""A store that a failure left with rows under way goes on under another protocol, and with another placement."""

import random
import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.core.topology import Placement
from steelyard.resident import Flow, Parquet, Rows, Settings, Step, run
from steelyard.resident.generations import JobError
from steelyard.resident.snapshot import SnapshotStore
from tests.resident.test_protocols import OF_A_KIND

VALUES = pa.schema({"value": pa.int64()})
ROWS = 1000
ANY = [*OF_A_KIND, "stop_the_world"]


@dataclass
class Life:
    """One start of the job, which ends by force as soon as that may be, or never."""

    store: SnapshotStore
    ready: object = None
    """Whether it may, by the newest commit; None where it comes to its end."""
    since: int = 0

    def look(self):
        newest = self.store.newest() if self.ready is not None else None
        if newest is not None and newest.epoch > self.since and self.ready(newest):
            raise RuntimeError("killed")


class Slow(Step):
    """Passes rows on, so slowly that some are always under way, and ends by force where its life does."""

    def __init__(self, life):
        self._life = life

    def process(self, port, batch):
        time.sleep(0.002)
        self._life.look()
        yield batch


def dataflow(folder, life, edge="shuffle"):
    flow = Flow(parallelism=2)
    read = flow.source(Rows(pa.table({"value": range(ROWS)}), pieces=2), batch_rows=2, name="read")
    passed = getattr(read, edge)().process(lambda context: Slow(life), VALUES, name="slow")
    passed.forward().map(lambda batch: batch, name="pass").sink(Parquet(str(folder / "out")), name="out")
    return flow.dataflow()


APART = {"read": 0, "slow": 1, "pass": 0, "out": 1}
"""By operator: a worker for each, so that all edges go from one to the other."""
TOGETHER = dict.fromkeys(APART, 0)


def lived(folder, protocol, ready=None, where=TOGETHER, edge="shuffle"):
    """Start the job; it comes to its end, or is as if its driver had been killed when `ready` says so."""
    store = SnapshotStore(folder / "store")
    made = dataflow(folder, Life(store, ready, store.latest() or 0), edge)
    placement = Placement({one: where[one.operator] for one in made.instances}, 2)
    how = Settings(store=str(store.path), interval=0.01, heartbeat=0.05, restarts=0, protocol=protocol)
    if ready is None:
        run(made, placement=placement, settings=how)
        return
    with pytest.raises(JobError, match="killed"):
        run(made, placement=placement, settings=how)


def into(operator, dataflow):
    """Asks the same of the channels to one operator."""
    numbers = [str(one.number) for one in dataflow.channels() if one.receiver.operator == operator]
    return lambda made: any(made.received.get(one, 0) < made.sent.get(one, 0) for one in numbers)


def require_all(folder):
    """AssertionError where a row is not there exactly once."""
    assert Counter(pq.read_table(folder / "out").column("value").to_pylist()) == Counter(range(ROWS))


@pytest.mark.parametrize("protocol", ["unaligned", "uncoordinated"])
def test_rows_under_way_between_two_workers_are_there_when_one_has_both(tmp_path, protocol):
    """Who has a thread of his own in one placement runs in that of another in the next."""
    ready = into("slow", dataflow(tmp_path, None, "forward"))
    lived(tmp_path, protocol, ready, APART, "forward")
    lived(tmp_path, protocol, where=TOGETHER, edge="forward")
    require_all(tmp_path)


def test_rows_in_a_state_and_rows_in_a_log_are_put_together(tmp_path):
    """Receivers never take a checkpoint of their own, so that senders' logs begin behind what they captured before."""
    ready = into("slow", dataflow(tmp_path, None))
    lived(tmp_path, "unaligned", ready)
    lived(tmp_path, "uncoordinated?intervals=slow:1000", lambda made: made.logs and ready(made))
    lived(tmp_path, "unaligned")
    require_all(tmp_path)


def test_rows_in_a_state_stay_there_until_they_are_worked_off(tmp_path):
    """Senders take no checkpoint of their own, and receivers do while rows wait that no log has."""
    ready = into("slow", dataflow(tmp_path, None))
    lived(tmp_path, "unaligned", ready)
    lived(tmp_path, "uncoordinated?intervals=read:1000", ready)
    lived(tmp_path, "uncoordinated")
    require_all(tmp_path)


def test_rows_that_were_given_up_do_not_keep_a_protocol_with_logs_from_going_on(tmp_path):
    """What was under way is lost with the first protocol; the second one's logs begin behind it."""
    ready = into("slow", dataflow(tmp_path, None))
    lived(tmp_path, "uncoordinated?logged=false", ready)
    lived(tmp_path, "uncoordinated?intervals=slow:1000", lambda made: made.logs and ready(made))
    lived(tmp_path, "uncoordinated")
    found = Counter(pq.read_table(tmp_path / "out").column("value").to_pylist())
    assert set(found.values()) == {1}
    assert ROWS - 200 < len(found) < ROWS


@pytest.mark.parametrize("second", ["hybrid", "hybrid?regions=slow:uncoordinated", "hybrid?regions=slow:coordinated"])
def test_rows_in_a_state_stay_there_in_every_region(tmp_path, second):
    """Rounds of regions capture nothing by themselves."""
    ready = into("slow", dataflow(tmp_path, None))
    lived(tmp_path, "unaligned", ready)
    lived(tmp_path, second, ready)
    lived(tmp_path, "uncoordinated", lambda made: True)
    lived(tmp_path, second)
    require_all(tmp_path)


RULES = [f"communication_induced?rule={rule}" for rule in ("hmnr", "bcs")]


@pytest.mark.parametrize(("first", "second"), [RULES, RULES[::-1], RULES[:1] * 2], ids=str)
def test_rows_under_way_carry_nothing_that_another_rule_could_not_read(tmp_path, first, second):
    """Notes are as long as there are chains, of which the first placement has more."""
    lived(tmp_path, first, into("slow", dataflow(tmp_path, None)), APART)
    lived(tmp_path, second)
    require_all(tmp_path)


def test_any_protocol_and_any_placement_goes_on_from_any_other(tmp_path):
    """A start of one store with each, in all of which everything was killed with rows under way, and the last one."""
    draw = random.Random(11)
    for protocol in draw.sample(ANY, len(ANY)):
        where = draw.choice([APART, TOGETHER, {**APART, "pass": 1}])
        lived(tmp_path, protocol, lambda found: True, where)
    lived(tmp_path, "unaligned")
    require_all(tmp_path)
