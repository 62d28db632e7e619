"""Checkpoint protocols on real workers: whatever fails when, every answer stays as it is."""

import builtins
import errno
import re
import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.applications.reachability import paths, reachability, reached
from steelyard.checkpoint import FORCED, PROTOCOLS, Central
from steelyard.core import OptionError, StateError
from steelyard.resident import Flow, Generated, Memory, Parquet, Settings, Step, run
from steelyard.resident.channel import Mailbox, Outlet
from steelyard.resident.generations import JobError
from steelyard.resident.snapshot import SnapshotStore
from steelyard.workloads import Links
from tests.resident.test_recovery import SCHEMA, SECOND, Fails, Slow, Trouble, read

LIVE = sorted(set(PROTOCOLS.names()) - {"none", "stop_the_world"})
"""Protocols that take checkpoints while rows come."""
KINDS = ["windows", "split windows", "running", "join", "windowed join", "epochs"]
RESTLESS = "hybrid?begins=coordinated&patience=0.02&calm=1"
"""Operators change their region again and again: at intervals this short everybody waits too long now and then."""
OF_A_KIND = [*LIVE, "communication_induced?rule=bcs", RESTLESS]

rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3), st.integers(0, 20 * SECOND)),
    min_size=20,
    max_size=60,
)


def dataflow(kind, left, right, at=(), sink=None):
    flow, trouble = Flow(parallelism=2), Trouble(at)
    rows = read(flow, left, trouble, "left")
    if "join" in kind:
        window = "4 seconds" if kind == "windowed join" else None
        made = rows.join(read(flow, right, trouble, "right"), on="key", window=window)
    elif kind in ("running", "epochs"):
        emit = "end" if kind == "running" else "epochs"
        made = rows.key_by("key").aggregate(n=count(), total=sum("value"), emit=emit)
    else:
        keyed = rows.key_by("key", grouping="pk2" if kind == "split windows" else "hash")
        made = keyed.aggregate(n=count(), total=sum("value"), window="4 seconds", slide="2 seconds")
    made.sink(sink or Memory(), name="out")
    return flow.dataflow()


def answers(kind, table):
    found = [tuple(row.values()) for row in table.to_pylist()]
    if kind == "epochs":  # what counts is the newest of each key; n grows
        newest = {}
        for key, n, total in found:
            newest[key] = max(newest.get(key, (0, 0)), (n, total))
        return newest
    return Counter(found)


def kept(folder, **more):
    return Settings(store=str(folder), interval=0.01, heartbeat=0.05, **more)


@settings(max_examples=30)
@given(
    st.sampled_from(OF_A_KIND),
    st.sampled_from(KINDS),
    rows,
    rows,
    st.sets(st.integers(1, 40), min_size=1, max_size=3),
)
def test_failures_leave_every_answer_as_it_is(tmp_path_factory, protocol, kind, left, right, at):
    how = kept(tmp_path_factory.mktemp("store"), restarts=len(at), protocol=protocol)
    troubled = run(dataflow(kind, left, right, at), settings=how)
    calm = run(dataflow(kind, left, right))
    assert answers(kind, troubled.table("out")) == answers(kind, calm.table("out"))
    assert troubled.outcome.restarts <= len(at)


@pytest.mark.parametrize("protocol", LIVE)
def test_checkpoints_are_taken_while_rows_come_and_old_ones_are_removed(tmp_path, protocol):
    many = [("abc"[i % 3], i % 7, i * 1000) for i in range(600)]
    found = run(dataflow("windows", many, []), settings=kept(tmp_path, protocol=protocol))
    assert found.table("out").num_rows
    totals = found.outcome.checkpoints
    assert totals.taken, "some were taken before the end"
    assert totals.moments <= totals.chains < builtins.sum(totals.taken.values()), "chains are of several instances"
    assert (totals.moments < totals.chains) == (totals.taken.get(FORCED, 0) > 0)
    assert found.outcome.epochs > 2
    left = {f"checkpoints/{file.name}" for file in (tmp_path / "checkpoints").glob("*")}
    store = SnapshotStore(tmp_path)
    named = {file.name for epoch in store._committed() for file in store.manifest(epoch).described}
    assert left <= named


def test_snapshots_for_which_all_stop_are_counted_but_the_last(tmp_path):
    many = [("abc"[i % 3], i % 7, i * 1000) for i in range(600)]
    made = dataflow("windows", many, [])
    outcome = run(made, settings=kept(tmp_path, protocol="stop_the_world")).outcome
    totals, instances = outcome.checkpoints, len(made.instances)
    assert totals.taken == {"stopped": instances * (outcome.epochs - 1)}
    assert len(totals.rounds) == outcome.epochs - 1 > 1
    chains = totals.chains // len(totals.rounds)
    assert 0 < chains < instances
    assert totals.moments == totals.chains == chains * len(totals.rounds)
    assert 0 < totals.seconds < chains * builtins.sum(totals.rounds)
    assert totals.stood == pytest.approx(chains * builtins.sum(totals.rounds))
    assert totals.bytes > 0
    assert (totals.useless, totals.log_bytes) == (0, 0)


@pytest.mark.parametrize("protocol", LIVE)
def test_parquet_has_every_row_once(tmp_path, protocol):
    many = [("abc"[i % 3], i % 7, i * 1000) for i in range(300)]
    how = kept(tmp_path / "store", restarts=3, protocol=protocol)
    run(dataflow("windows", many, [], at=(20, 45, 80), sink=Parquet(str(tmp_path / "out"))), settings=how)
    calm = run(dataflow("windows", many, []))
    assert answers("windows", pq.read_table(tmp_path / "out")) == answers("windows", calm.table("out"))


def lose_logs(patch):
    patch.setattr(Outlet, "taken_log", lambda self: [])


def lose_what_markers_overtake(patch):
    ahead_of = Mailbox.ahead_of
    patch.setattr(Mailbox, "ahead_of", lambda self, number, marker: ahead_of(self, number, marker) and [])


def go_on_from_the_newest(patch):
    patch.setattr(Central, "line", lambda self: self.history.newest())


@pytest.mark.parametrize(
    ("protocol", "wrong", "said"),
    [
        ("uncoordinated", lose_logs, "somebody has all that was under way"),
        ("unaligned", lose_what_markers_overtake, "somebody has all that was under way"),
        ("uncoordinated", go_on_from_the_newest, "nobody has worked off what nobody has sent"),
    ],
)
def test_every_line_that_is_chosen_is_looked_at_by_its_numbers(tmp_path, monkeypatch, protocol, wrong, said):
    """So that each test that runs a protocol shows that its lines have no orphan, and drop nothing."""
    wrong(monkeypatch)
    flow = Flow(parallelism=2)
    table = pa.table({"key": ["a"] * 900, "value": list(range(900)), "at": [0] * 900}).cast(SCHEMA)
    source = flow.source(Slow(table, pieces=2), batch_rows=2, name="read")
    source.shuffle().process(lambda context: Counting(Trouble(())), COUNTS, name="count").sink(Memory(), name="out")
    with pytest.raises(AssertionError, match=said):
        run(flow.dataflow(), settings=kept(tmp_path, protocol=protocol))


@pytest.mark.parametrize(("keys", "regions"), [("abcdefgh", {"coordinated"}), ("a", set())])
def test_operators_become_coordinated_where_rows_are_even_and_one_with_a_single_key_does_not(tmp_path, keys, regions):
    many = [(keys[i % len(keys)], i % 7, i * 1000) for i in range(1_500)]
    found = run(
        dataflow("windows", many, []), settings=kept(tmp_path, protocol="hybrid?patience=100&even=1.9&hot=1.95")
    )
    assert answers("windows", found.table("out")) == answers("windows", run(dataflow("windows", many, [])).table("out"))
    changed = {one.region for one in found.outcome.checkpoints.changes if one.operator == "windowed aggregate"}
    assert changed == regions


class Counting(Step):
    """How often each value came; slow, so that much is under way."""

    def __init__(self, trouble):
        self._trouble, self._seen = trouble, Counter()

    def process(self, port, batch):
        time.sleep(0.003)
        self._trouble.another()
        self._seen.update(batch.column("value").to_pylist())
        return ()

    def finish(self):
        pairs = sorted(self._seen.items())
        yield pa.record_batch([[n for n, _ in pairs], [many for _, many in pairs]], schema=COUNTS)

    def snapshot(self, number):
        return {"seen": list(self._seen.items())}

    def restore(self, state):
        self._seen = Counter(dict(state.get("seen", ())))


COUNTS = pa.schema({"value": pa.int64(), "many": pa.int64()})


def counted(folder, protocol, at=(40, 90)):
    """How often each of 600 values was counted, in a job that failed twice."""
    flow, trouble = Flow(parallelism=2), Trouble(at)
    table = pa.table({"key": ["a"] * 600, "value": list(range(600)), "at": [0] * 600}).cast(SCHEMA)
    source = flow.source(Slow(table, pieces=2), batch_rows=3, name="read")
    source.shuffle().process(lambda context: Counting(trouble), COUNTS, name="count").sink(Memory(), name="out")
    found = run(flow.dataflow(), settings=kept(folder, restarts=2, protocol=protocol))
    assert found.outcome.restarts == 2
    rows = found.table("out").to_pylist()
    return Counter(
        dict.fromkeys(range(600), 0) | dict(Counter(row["value"] for row in rows for _ in range(row["many"])))
    )


def test_without_logs_rows_are_lost_and_without_numbers_they_come_twice(tmp_path):
    at_most = counted(tmp_path / "a", "uncoordinated?logged=false")
    at_least = counted(tmp_path / "b", "uncoordinated?deduplicates=false")
    once = counted(tmp_path / "c", "uncoordinated")
    assert set(once.values()) == {1}
    assert set(at_most.values()) == {0, 1}
    assert min(at_least.values()) == 1
    assert max(at_least.values()) > 1


def cyclic(rows, trouble):
    workload = Links(nodes=8, seed=3)
    flow = Flow("reachability")
    source = flow.source(SlowLinks(workload, rows=rows, block_rows=5), batch_rows=3, name="changes")
    passed = source.shuffle().process(lambda context: Fails(trouble), name="pass", parallelism=2)
    reachability(passed, parallelism=2).sink(Memory(), name="out")
    return flow.dataflow()


@dataclass(frozen=True)
class SlowLinks(Generated):
    def read(self, split, offset, rows):
        time.sleep(0.004)
        return super().read(split, offset, rows)


@pytest.mark.parametrize("protocol", [one for one in OF_A_KIND if one != "coordinated"])
def test_rows_that_go_round_a_cycle_are_there_after_a_failure(tmp_path, protocol):
    how = kept(tmp_path, restarts=2, protocol=protocol)
    troubled = run(cyclic(45, Trouble((9, 25))), settings=how)
    calm = run(cyclic(45, Trouble(())))
    assert troubled.outcome.restarts == 2
    assert reached(troubled.table("out")) == reached(calm.table("out"))
    assert paths(troubled.table("out")) == paths(calm.table("out"))


def test_aligned_markers_are_refused_on_a_cycle(tmp_path):
    with pytest.raises(OptionError, match="unaligned"):
        run(cyclic(5, Trouble(())), settings=kept(tmp_path, protocol="coordinated"))


def interrupted(folder, protocol):
    """A store with a line in which messages were under way."""
    many = [("abc"[i % 3], i % 7, i * 1000) for i in range(400)]
    for attempt in range(20):
        store = folder / str(attempt)
        with pytest.raises(JobError):
            run(dataflow("windows", many, [], at=(60 + attempt,)), settings=kept(store, restarts=0, protocol=protocol))
        found = SnapshotStore(store).newest()
        if found is not None and (found.logs or found.sent != found.received):
            return store, many
    raise AssertionError("nothing was under way in 20 runs")


@pytest.mark.parametrize("protocol", ["unaligned", "uncoordinated", "hybrid"])
def test_a_damaged_file_of_a_line_is_refused_and_a_whole_one_goes_on(tmp_path, protocol):
    store, many = interrupted(tmp_path, protocol)
    flow = dataflow("windows", many, [])
    newest = SnapshotStore(store).newest()
    assert protocol == "unaligned" or newest.logs
    for file in newest.described:
        where = store / file.name
        whole = where.read_bytes()
        for damage in (whole[:-1], whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :], None):
            where.unlink() if damage is None else where.write_bytes(damage)
            with pytest.raises(StateError, match=re.escape(str(where))):
                run(flow, settings=kept(store, protocol=protocol))
            where.write_bytes(whole)
    first = run(flow, settings=kept(store, protocol="coordinated"))  # any protocol goes on from any line
    calm = run(dataflow("windows", many, []))
    got, wanted = answers("windows", first.table("out")), answers("windows", calm.table("out"))
    assert not got - wanted, "what was given before the interruption is not given again"


def test_a_disk_that_is_full_ends_the_job_in_the_words_of_the_system(tmp_path, monkeypatch):
    many = [("abc"[i % 3], i % 7, i * 1000) for i in range(400)]

    def full(self, *what):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SnapshotStore, "keep", full)
    with pytest.raises(JobError, match="No space left on device"):
        run(dataflow("windows", many, []), settings=kept(tmp_path, restarts=1, protocol="uncoordinated"))


def test_an_unknown_protocol_is_told_at_once():
    with pytest.raises(OptionError, match="coordinated"):
        Settings(protocol="cordinated")
    with pytest.raises(OptionError, match="its interval is that of the job"):
        Settings(store="here", interval=1.0, protocol="uncoordinated?interval=2")
