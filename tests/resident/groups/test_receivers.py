"""Several receivers: who cuts what, what they settle, and that answers do not depend on how many there are."""

import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core import OptionError
from steelyard.resident import JobError, Rows
from steelyard.resident.channel import StoppedError
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling, frames, run_batches
from steelyard.resident.groups.agreement import OPEN, Agreement, Counted
from steelyard.resident.groups.cutting import Cutter
from steelyard.resident.groups.dealing import Share, shares
from steelyard.resident.groups.frames import in_frames, together
from steelyard.resident.groups.messages import AGREED
from steelyard.resident.groups.plan import ExecutionPlan, Schedule
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.operator import MIN_WATERMARK
from steelyard.resident.sources import Read
from steelyard.workloads.rates import Constant
from tests.resident.groups.test_batches import Redrawn, rows, windows

FAST = Scheduling(interval=0.01, group=3, ahead=1, blocks=3, buckets=2, restarts=0)


@dataclass(frozen=True)
class Uneven(Rows):
    """A table in splits of given sizes."""

    sizes: tuple[int, ...] = ()

    def splits(self, parallelism):
        return [str(number) for number in range(len(self.sizes))]

    def read(self, split, offset, rows):
        start, size = int(np.sum(self.sizes[: int(split)])), self.sizes[int(split)]
        part = self.table.slice(start + offset, min(rows, size - offset)).combine_chunks().to_batches()
        after = offset + (part[0].num_rows if part else 0)
        return Read(part[0] if part else None, after, after >= size)


# -- who cuts what


@given(held=st.lists(st.integers(0, 200), min_size=1, max_size=5), blocks=st.integers(1, 9), more=st.integers(0, 3))
def test_blocks_are_equal_whatever_receivers_have_and_every_row_has_its_block(held, blocks, more):
    plan = ExecutionPlan(blocks, 1, len(held) + more)
    found, parts = shares(held, plan)
    total = int(np.sum(held))
    room = [total * (block + 1) // blocks - total * block // blocks for block in range(blocks)]
    filled, adding = np.zeros(blocks, int), np.zeros(blocks, int)
    for size, share in zip(held, found, strict=True):
        taken = {**{block: room[block] for block in share.whole}, **dict(share.rest)}
        assert int(np.sum(list(taken.values()))) == size
        for block, part in taken.items():
            filled[block] += part
            adding[block] += 1
    assert filled.tolist() == room
    assert adding.tolist() == parts, "a block is told of as many parts as there are"


@given(receivers=st.integers(1, 5), each=st.integers(1, 4), size=st.integers(1, 40))
def test_where_receivers_have_as_much_as_each_other_no_row_leaves_its_worker(receivers, each, size):
    plan = ExecutionPlan(receivers * each, 1, receivers)
    found, parts = shares([size * each] * receivers, plan)
    for receiver, share in enumerate(found):
        assert {plan.map_worker(block) for block in share.whole} == {receiver}
        assert not share.rest
    assert set(parts) == {1}


def test_one_receiver_that_has_all_rows_cuts_all_blocks_as_if_it_were_alone():
    (first, second), _ = shares([90, 0], ExecutionPlan(3, 1, 2))
    assert first == Share((0, 1, 2), (), alone=True)
    assert (second.whole, second.rest) == ((), ())


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 300),
    whole=st.integers(0, 4),
    rest=st.lists(st.integers(1, 40), max_size=2),
    partitioner=st.sampled_from(["prompt", "hash", "shuffle", "pk2"]),
    expected=st.integers(1, 3),
    counting=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_cut_keeps_every_row_once_and_names_the_keys_that_it_split(
    n, whole, rest, partitioner, expected, counting, seed
):
    table = rows(n, seed=seed).append_column("row", pa.array(range(n)))
    added, room = [], n
    for block, size in enumerate(rest):
        if size <= room:
            added.append((10 + block, size))
            room -= size
    if room and not whole:
        whole = 1
    cutter = Cutter(BatchProgram(Rows(table), ("key",), {"n": count()}, partitioner=partitioner), counting, expected)
    cutter.open(0.0, 1.0)
    for batch in table.to_batches(max_chunksize=70):
        cutter.add(batch, 0.5)
    cut = cutter.cut(cutter.close(), Share(tuple(range(whole)), tuple(added), alone=True))
    assert sorted(cut.blocks) == [*range(whole), *(block for block, _ in added)]
    assert sorted(row for part in cut.blocks.values() for row in part["row"].to_pylist()) == list(range(n))
    assert all(cut.blocks[block].num_rows == size for block, size in added)
    if counting:
        assert cut.keys == len(set(table["key"].to_pylist()))
    if partitioner == "prompt" and whole:
        sizes = [cut.blocks[block].num_rows for block in range(whole)]
        assert np.max(sizes) <= -(-room // whole), "Prompt's blocks are equal"
    if cut.split is not None:
        seen = Counter(key for part in cut.blocks.values() for key in set(part["key"].to_pylist()))
        assert split_among(seen) <= len(cut.split)
    else:
        assert added


def split_among(seen):
    return len([key for key, blocks in seen.items() if blocks > 1])


# -- what they settle


def lead_of(receivers, schedule, sent, backlog=2):
    how = replace(FAST, backlog=backlog)
    changed = threading.Condition()
    return Agreement(0, receivers, 2, how, schedule, changed, lambda *what: sent.append(what), delay=5, first=0)


def settled(agreement, batch, counted):
    """What a thread that settles a batch has got when it ends."""
    found = []
    thread = threading.Thread(
        target=lambda: found.append(agreement.settle(batch, counted, lambda ended: ended)), daemon=True
    )
    thread.start()
    return thread, found


def test_a_batch_is_settled_when_it_is_scheduled_and_all_have_counted_and_the_backlog_allows_it():
    schedule, sent = Schedule(), []
    lead = lead_of(2, schedule, sent)
    other = Agreement(1, 2, 2, FAST, Schedule(), threading.Condition(), lambda *what: lead.hear(*what[1:]))
    lead.progress(0)
    threads = [settled(lead, 2, Counted(7, 17, False, 100)), settled(other, 2, Counted(5, 5, True, MIN_WATERMARK))]
    schedule.group(0, 4, ExecutionPlan(3, 2, 2))
    lead.progress(0)
    assert not threads[0][1], "two batches wait"
    lead.progress(1)
    threads[0][0].join(20)
    (agreed,) = threads[0][1]
    assert (agreed.rows, agreed.totals, agreed.last) == ((7, 5), (OPEN, 5), False)
    assert agreed.watermark == 95, "of the receiver that has more, without the delay"
    ((receiver, channel, batch, note),) = sent
    assert (receiver, channel, batch) == (1, AGREED, 2)
    other.hear(AGREED, 2, note)
    threads[1][0].join(20)
    assert threads[1][1] == [agreed], "all receivers cut by the same"


def test_the_last_batch_is_the_one_at_which_all_receivers_have_ended():
    schedule, sent = Schedule(), []
    schedule.group(0, 4, ExecutionPlan(1, 1, 2))
    lead = lead_of(2, schedule, sent)
    other = Agreement(1, 2, 2, FAST, Schedule(), threading.Condition(), lambda *what: lead.hear(*what[1:]))
    settled(other, 0, Counted(5, 5, True, 300))
    thread, found = settled(lead, 0, Counted(0, 0, True, MIN_WATERMARK))
    thread.join(20)
    assert found[0].last
    assert found[0].watermark == 295, "time comes to where the furthest was"


def test_a_receiver_that_waits_for_others_hears_a_stop():
    lead = lead_of(2, Schedule(), [])
    failed = []

    def wait():
        try:
            lead.settle(0, Counted(1, 1, False, 0), lambda ended: ended)
        except StoppedError as error:
            failed.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    lead.stop()
    thread.join(20)
    assert failed


# -- answers


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=5),
    workers=st.integers(1, 4),
    receivers=st.one_of(st.none(), st.integers(1, 4)),
    partitioner=st.sampled_from(["prompt", "hash"]),
    batch_rows=st.integers(1, 120),
    windowed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_answers_do_not_depend_on_receivers_or_on_how_uneven_their_splits_are(
    sizes, workers, receivers, partitioner, batch_rows, windowed, seed
):
    table = rows(int(np.sum(sizes)), seed=seed)
    batch_rows = int(np.max([batch_rows, table.num_rows // 15]))  # not too many batches
    over = {"window": "10 seconds", "time": "at"} if windowed else {}
    source = Uneven(table, sizes=tuple(sizes))
    program = BatchProgram(
        source, ("key",), {"n": count(), "total": sum("value")}, batch_rows=batch_rows, partitioner=partitioner, **over
    )
    found = run_batches(program, replace(FAST, receivers=receivers), workers=workers, elastic=Redrawn(seed))
    assert all(run.rows <= batch_rows for run in found.batches.values())
    assert int(np.sum([run.rows for run in found.batches.values()])) == table.num_rows
    assert found.refused == 0
    whole = pa.concat_tables(found.results.values())
    for results in found.results.values():
        keys = results.select([name for name in results.column_names if name not in ("n", "total")])
        assert keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows, "a key came twice"
    if windowed:
        epoch = pc.cast(whole["window_start"], pa.int64()).to_numpy() // 1_000_000
        keys = zip(whole["key"].to_pylist(), epoch.tolist(), strict=True)
        assert dict(zip(keys, whole["n"].to_pylist(), strict=True)) == windows(table, 10, 10)
    else:
        again = whole.group_by("key").aggregate([("n", "sum"), ("total", "sum")]).to_pylist()
        plain = table.group_by("key").aggregate([([], "count_all"), ("value", "sum")]).to_pylist()
        assert {r["key"]: (r["n_sum"], r["total_sum"]) for r in again} == {
            r["key"]: (r["count_all"], r["value_sum"]) for r in plain
        }


def test_blocks_are_equal_where_one_receiver_reads_all():
    program = BatchProgram(Rows(rows(900), pieces=1), ("key",), {"n": count()}, batch_rows=300)
    found = run_batches(program, replace(FAST, blocks=6), workers=3)
    assert all(run.largest_over_mean == 1 for run in found.batches.values() if run.rows)


def test_receivers_that_have_more_read_what_those_at_their_ends_do_not():
    table = rows(1000)
    program = BatchProgram(Uneven(table, sizes=(980, 10, 10)), ("key",), {"n": count()}, batch_rows=100)
    found = run_batches(program, FAST, workers=3)
    sizes = [run.rows for run in found.batches.values()]
    assert int(np.sum(sizes)) == 1000
    assert len(sizes) <= 15, f"one receiver reads its own share only: {sizes}"


def test_the_rate_is_that_of_all_receivers_together():
    program = BatchProgram(Uneven(rows(300), sizes=(290, 10)), ("key",), {"n": count()}, rate=Constant(1000))
    found = run_batches(program, Scheduling(interval=0.05, slots=1), workers=2)
    assert int(np.sum([run.rows for run in found.batches.values()])) == 300
    assert found.batches[max_of(found.batches)].done < 5
    assert 6 <= len(found.batches) <= 9


def max_of(numbers):
    return int(np.max(list(numbers)))


@pytest.mark.parametrize("killed", [0, 2])
def test_a_receiver_that_is_killed_loses_and_doubles_nothing(killed):
    table = rows(1500)
    source = Uneven(table, sizes=(700, 0, 100, 500, 200))
    program = BatchProgram(
        source, ("key",), {"n": count()}, batch_rows=50, window="5 seconds", time="at", delay="60 seconds"
    )
    launcher = ProcessLauncher(GroupWorker)
    got = []

    def commit(batch, results):
        got.append((batch, results))
        if batch == 8:
            os.kill(job.pids[killed], signal.SIGKILL)

    # with so short a backlog no worker is done with its work when it is killed
    how = Scheduling(interval=0.02, group=5, ahead=2, snapshot=4, restarts=1, backlog=2)
    job = GroupJob(program, how, 3, launcher, Redrawn(3), commit)
    outcome = job.run()
    assert outcome.restarts == 1
    assert [batch for batch, _ in got] == list(range(len(got))), "a batch came twice, or not at all"
    whole = pa.concat_tables([results for _, results in got])
    assert whole.num_rows == len(windows(table, 5, 5))
    assert pc.sum(whole["n"]).as_py() == 1500


def test_no_receivers_are_refused():
    with pytest.raises(OptionError, match="receivers must be 1 or more"):
        Scheduling(receivers=0)


# -- above the frame limit


@given(n=st.integers(0, 60), limit=st.integers(500, 4000), seed=st.integers(0, 9))
def test_rows_above_the_limit_go_in_parts_that_are_not_and_come_back_as_they_were(n, limit, seed):
    (batch,) = rows(n, seed=seed).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows(1).schema)]
    before, frames.LARGEST = frames.LARGEST, limit
    try:
        parts = list(in_frames(batch))
    finally:
        frames.LARGEST = before
    assert parts
    assert all(len(part.serialize()) <= limit or part.num_rows == 1 for part in parts)
    assert together(parts).equals(batch)


def test_blocks_partials_panes_and_results_above_the_frame_limit_go_in_parts(monkeypatch):
    monkeypatch.setattr(frames, "LARGEST", 2000)
    table = rows(2000, keys=400)
    seen = []

    class Fails:
        def __init__(self):
            self.left = 1

        def __call__(self, batch):
            if len(seen) >= 10 and self.left:
                self.left = 0
                raise RuntimeError("once")
            return batch

    program = BatchProgram(
        Rows(table, pieces=1),
        ("key",),
        {"n": count()},
        batch_rows=150,
        window="20 seconds",
        time="at",
        function=Fails(),
        schema=table.schema,
    )
    how = Scheduling(interval=0.01, snapshot=3, restarts=1, blocks=2, buckets=2, backlog=2)
    job = GroupJob(program, how, 2, ThreadLauncher(GroupWorker), None, lambda batch, part: seen.append(part))
    outcome = job.run()
    assert outcome.restarts == 1, "windows were sent to the driver and back"
    whole = pa.concat_tables(seen)
    assert whole.num_rows == len(windows(table, 20, 20))
    assert pc.sum(whole["n"]).as_py() == 2000


def test_one_row_above_the_frame_limit_is_named(monkeypatch):
    from steelyard.resident import wire

    monkeypatch.setattr(wire, "MAX_PAYLOAD", 5000)
    monkeypatch.setattr(frames, "LARGEST", 5000)
    table = pa.table({"key": ["x" * 20_000, "y" * 20_000]})
    program = BatchProgram(Rows(table, pieces=1), ("key",), {"n": count()})
    with pytest.raises(JobError, match="a frame has at most 5000 bytes"):
        run_batches(program, replace(FAST, restarts=0, blocks=2), workers=2)
