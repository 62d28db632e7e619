"""Running jobs get other numbers of instances in place, at drawn moments, and give what plain Python gives."""

import contextlib
import os
import signal
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core import OptionError
from steelyard.core.key_groups import KeyGroups
from steelyard.core.topology import Instance, Placement
from steelyard.resident import Flow, Generated, Memory, Parquet, Settings
from steelyard.resident.deployment import Deployment, Events
from steelyard.resident.jobs import Job, Results
from steelyard.resident.keys import key_ids
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.rescaling import not_in_place
from steelyard.resident.snapshot import packed
from steelyard.resident.sources import Read, Reader
from steelyard.resident.wire import Frame, Kind, WireError
from steelyard.workloads import Arrivals, Constant, Zipf
from tests.resident.test_dealing import Numbers, deal
from tests.resident.test_rescaling import (
    KINDS,
    NUMBERED,
    PATIENCE,
    TABLES,
    Script,
    as_text,
    crash,
    ended,
    flow_of,
    forward,
    of_numbers,
    right,
    timed,
    waited,
)

CASES, PROCESS_CASES = 100, 8
KEYED = pa.schema({"key": pa.int64()})
PROTOCOLS = ["", "stop_the_world", "coordinated", "unaligned", "uncoordinated", "communication_induced", "hybrid"]
SPLIT = ["windows, keys split", "sessions, keys split"]
"""A forward edge leads to their partials."""


def tables_of(seed, splits, rows):
    rng = np.random.default_rng(seed)
    keys = "abcdefghijklmnop"[: int(rng.integers(1, 17))]

    def row():
        return keys[rng.integers(len(keys))], int(rng.integers(-9, 10)), int(rng.integers(0, 3))

    return tuple(timed([row() for _ in range(rows)]) for _ in range(splits))


def under_way(job):
    """Whether workers have begun to go over."""
    driver = job._driver
    return driver is not None and driver._cuts > 0


drawn_acts = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.dictionaries(st.sampled_from(["kept", "made"]), st.integers(1, 5), min_size=1),
        st.sampled_from(["", "", "", "waits", "dies", "dies on the way", "again"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=CASES)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 1 << 30),
    st.integers(1, 3),
    st.integers(1, 40),
    drawn_acts,
    st.integers(1, 4),
    st.sampled_from(PROTOCOLS),
    st.booleans(),
)
def test_drawn_jobs_that_go_over_in_place_give_what_plain_python_gives(
    tmp_path_factory, kind, seed, splits, rows, acts, batch_rows, protocol, chained
):
    tables, script = tables_of(seed, splits, rows), Script()
    dataflow = flow_of(kind, tables, script, batch_rows=batch_rows, chained=chained)
    store = str(tmp_path_factory.mktemp("in_place"))
    how = Settings(heartbeat=0.05, restarts=20, store=store)
    if protocol:
        how = Settings(store=store, interval=0.01, heartbeat=0.05, restarts=20, protocol=protocol)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
    due = 0
    for more, drawn, then in acts:
        due += more
        wanted = {"made": drawn.get("made", 3)} if kind in SPLIT else drawn
        if chained and "made" in wanted:
            wanted = wanted | {"out": wanted["made"]}
        script.then(due, partial(go_over, job, wanted, then), partial(may_go_on, job, then))
        if then.startswith("dies"):
            script.then(due, crash)
    outcome = ended(job)
    assert right(kind, Results(dataflow, outcome).table("out"), tables)
    assert all(one.in_place for one in outcome.rescalings), [one.why for one in outcome.rescalings]
    assert not outcome.moves


def go_over(job, wanted, then):
    now = {one.name: one.parallelism for one in job._next[0].operators}
    wanted = {name: number if number != now[name] else number % 5 + 1 for name, number in wanted.items()}
    job.rescale(wanted, in_place=True)
    if then == "again":
        job.rescale({name: number % 5 + 1 for name, number in wanted.items()}, in_place=True)


def may_go_on(job, then):
    if then == "waits":
        return job._target is None
    # a wish for what was there before, told to workers that were about to die, leaves nothing to do for who follows
    return then != "dies on the way" or under_way(job) or job._target is None


def flowing(tmp_path, rate, rows, zipf):
    """A user's numbers of keys, and windows of them, in files."""
    flow = Flow("killed", parallelism=2)
    read = flow.source(Generated(zipf, rows=rows, pace=Constant(rate), pieces=3), name="read", batch_rows=100)
    keys = read.shuffle().map(as_text, {"key": "string"}, name="keys")
    made = keys.key_by("key").process(lambda context: Numbers(), NUMBERED, deal=deal, name="made")
    made.shuffle().sink(Parquet(str(tmp_path / "out")), name="sink")
    counted = keys.key_by("key").aggregate(n=count(), emit="end", name="counted")
    counted.shuffle().sink(Parquet(str(tmp_path / "counts")), name="kept")
    return flow.dataflow()


@pytest.mark.parametrize("protocol", ["unaligned", "uncoordinated", "stop_the_world"])
def test_processes_that_are_killed_on_the_way_write_every_row_once(tmp_path, protocol):
    rows, zipf = 6000, Zipf(keys=40)
    dataflow = flowing(tmp_path, 3000, rows, zipf)
    how = Settings(store=str(tmp_path / "store"), heartbeat=0.05, interval=0.1, restarts=20, protocol=protocol)
    job = Job(dataflow, Placement.spread(dataflow, 2), ProcessLauncher(), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    for times, wanted in enumerate([{"made": 3, "counted": 4}, {"made": 1, "keys": 3}, {"counted": 2, "made": 4}]):
        assert waited(lambda: any(one["rows_in"] for one in job.metrics.values()) or job.ended)
        victims = [one.pid for one in job.workers.values()][times % 2 :][:1]
        job.rescale(wanted, in_place=True)
        for pid in victims if times < 2 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert waited(lambda: job._target is None or job.ended)
    thread.join(PATIENCE)
    assert job.ended
    assert job.outcome.rescales >= 1
    assert not job.outcome.moves
    assert job.outcome.restarts >= 1
    keys = [str(key) for key in zipf.rows(0, rows, Arrivals().times(0, rows)).column("key").to_pylist()]
    assert Counter(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist()) == of_numbers(
        [(key,) for key in keys]
    )
    assert {row["key"]: row["n"] for row in pq.read_table(tmp_path / "counts").to_pylist()} == Counter(keys)


@settings(max_examples=PROCESS_CASES)
@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["keys", "made", "counted"]), st.integers(1, 4), min_size=1),
            st.sampled_from(["", "", "dies", "again"]),
            st.floats(0.0, 0.2),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(PROTOCOLS[1:]),
    st.sampled_from([0.02, 0.1]),
)
def test_drawn_processes_that_go_over_in_place_write_every_row_once(
    tmp_path_factory, hundreds, keys, acts, protocol, interval
):
    """Snapshots are under way nearly all the time, and workers are killed while they go over."""
    tmp_path, rows, zipf = tmp_path_factory.mktemp("processes"), 100 * hundreds * (len(acts) + 1), Zipf(keys=keys)
    dataflow = flowing(tmp_path, 800, rows, zipf)
    how = Settings(store=str(tmp_path / "store"), heartbeat=0.05, interval=interval, restarts=20, protocol=protocol)
    job = Job(dataflow, Placement.spread(dataflow, 2), ProcessLauncher(), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    for drawn, then, after in acts:
        assert waited(lambda: any(one["rows_in"] for one in job.metrics.values()) or job.ended)
        job.advance(after)
        try:
            go_over(job, drawn, then)
        except OptionError:  # it came to its end meanwhile
            assert waited(lambda: job.ended)
        for victim in list(job.workers.values())[:1] if then == "dies" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
        assert waited(lambda: job._target is None or job.ended)
    thread.join(PATIENCE)
    assert job.ended
    assert all(one.in_place for one in job.outcome.rescalings)
    came = [str(key) for key in zipf.rows(0, rows, Arrivals().times(0, rows)).column("key").to_pylist()]
    assert Counter(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist()) == of_numbers(
        [(key,) for key in came]
    )
    assert {row["key"]: row["n"] for row in pq.read_table(tmp_path / "counts").to_pylist()} == Counter(came)


@pytest.mark.parametrize(("few", "many"), [(2, 3), (4, 2)])
def test_the_bytes_that_go_are_those_of_the_groups_that_get_another_owner(few, many):
    keys = pa.table({"key": list(range(1000))})
    script = Script()
    flow = Flow("bytes", parallelism=2)
    read = flow.source(Numbered(script), batch_rows=50, name="read")
    read.key_by("key").aggregate(n=count(), name="made", parallelism=few).shuffle().sink(Memory(), name="out")
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher())  # in place takes no store
    script.then(1050, partial(job.rescale, {"made": many}), lambda: job._target is None)
    outcome = ended(job)
    (how,) = outcome.rescalings
    before, now = KeyGroups(128, few), KeyGroups(128, many)
    ids = key_ids(keys.to_batches()[0], ["key"])
    assert how.bytes == 16 * int((before.owners(ids) != now.owners(ids)).sum())
    assert how.groups == int((before.owner != now.owner).sum())
    assert how.in_place
    assert "in place" in str(how)
    table = Results(dataflow, outcome).table("out").group_by("key").aggregate([("n", "max")])
    assert dict(zip(*(table[name].to_pylist() for name in ("key", "n_max")), strict=True)) == dict.fromkeys(
        range(1000), 2
    )


@dataclass(frozen=True)
class Numbered(Reader):
    """Every key once, and once more."""

    script: Script
    schema: pa.Schema = KEYED

    def splits(self, parallelism):
        return ["all"]

    def read(self, split, offset, rows):
        rows = min(rows, 2000 - offset)
        if not self.script.may_read(rows):
            return Read(None, offset, False)
        keys = pa.array([one % 1000 for one in range(offset, offset + rows)], pa.int64())
        return Read(pa.record_batch([keys], schema=KEYED), offset + rows, offset + rows == 2000)


WHYS = {
    "'read' is a source": {"read": 3},
}


@pytest.mark.parametrize("why", WHYS)
def test_what_cannot_be_done_in_place_says_why_and_is_done_by_a_snapshot(tmp_path, why):
    script = Script()
    dataflow = flow_of("windows", TABLES, script)
    job = Job(
        dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(str(tmp_path / "store"), heartbeat=0.05)
    )

    def act():
        with pytest.raises(OptionError, match=f"these numbers cannot be had in place: {why}"):
            job.rescale(WHYS[why], in_place=True)
        job.rescale(WHYS[why])

    script.then(9, act, lambda: bool(job.outcome.rescalings))
    outcome = ended(job)
    (how,) = outcome.rescalings
    assert how.why.startswith(why)
    assert outcome.moves == 1
    assert right("windows", Results(dataflow, outcome).table("out"), TABLES)


@pytest.mark.parametrize(
    ("dataflow", "numbers", "why"),
    [
        (forward(Script()), {"made": 3, "out": 3}, ""),
        (flow_of("windows", TABLES, Script()), {"made": 3}, "made#0 goes to another worker"),
    ],
)
def test_instances_that_go_to_another_worker_do_not_go_over_and_those_on_forward_edges_do(dataflow, numbers, why):
    then, there = dataflow.rescaled(numbers), Placement.spread(dataflow, 2)
    where = {**Placement.spread(then, 2).worker_of, Instance("made", 0): int("another" in why)}
    assert not_in_place(dataflow, then, there, Placement(where, 2)) == why


def test_pieces_of_states_that_nobody_awaits_are_refused():
    flow = Flow("pieces", parallelism=2)
    read = flow.source(Numbered(Script()), name="read", parallelism=1)
    read.key_by("key").aggregate(n=count(), name="made", parallelism=2).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    quiet = Events(lambda *_: None, lambda *_: None, lambda *_: None)
    deployment = Deployment(dataflow, Placement.spread(dataflow, 2), 0, lambda *_: None, quiet)
    then = dataflow.rescaled({"made": 1, "out": 1})
    deployment.prepare(1, then, Placement.spread(then, 2))
    made = [one.name for one in dataflow.operators].index("made")
    state = packed({"own": {"watermark": 0, "done": False}})

    def piece(worker=1, operator=made, cut=1, whom=(1, 0, 0, 2), payload=state):
        deployment.receive(worker, Frame(Kind.STATE, operator, cut, payload, struct.pack("!IIII", *whom)))

    for wrong, why in (
        ({"cut": 2}, "this is cut 1"),
        ({"worker": 0}, "nobody awaits"),
        ({"operator": 0}, "nobody awaits"),
        ({"whom": (0, 1, 0, 1)}, "nobody awaits"),
        ({"whom": (1, 0, 0, 0)}, "nobody awaits"),
        ({"whom": (1, 0, 1, 2)}, "piece 1 of a state behind 0 of 2"),
        ({"whom": (1, 0, 0, 1), "payload": b"nothing"}, "a state that is none"),
    ):
        with pytest.raises(WireError, match=why):
            piece(**wrong)
    deployment.stop(1.0)
