"""Local schedulers and schedules: what may run when, whatever the order in which things come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.resident.groups.local import LocalScheduler, Stage, Task
from steelyard.resident.groups.messages import Note, packed, unpacked
from steelyard.resident.groups.plan import ExecutionPlan, Schedule
from steelyard.resident.wire import WireError

BATCHES = 4


@st.composite
def worlds(draw):
    """Plans of some batches, and the order in which blocks, parts and groups come."""
    plans = [(draw(st.integers(1, 3)), draw(st.integers(1, 3))) for _ in range(BATCHES)]
    events = [("schedule", until) for until in range(1, BATCHES + 1)]
    for batch, (blocks, buckets) in enumerate(plans):
        events += [("block", batch, block) for block in range(blocks)]
        events += [("part", batch, bucket, blocks) for bucket in range(buckets) for _ in range(blocks)]
        events += [("reduced", batch, buckets) for _ in range(buckets)]
    return plans, draw(st.permutations(events))


@given(worlds())
def test_every_task_is_given_once_when_all_it_waits_for_is_there(world):
    plans, events = world
    local = LocalScheduler()
    given_out = []
    until, blocks, parts, reduced = 0, set(), {}, {}
    for event in events:
        match event:
            case ("schedule", reached):
                local.schedule(reached)
                until = max(until, reached)
            case ("block", batch, block):
                local.block(batch, block)
                blocks.add((batch, block))
            case ("part", batch, bucket, of):
                local.contribution(batch, bucket, of)
                parts[batch, bucket] = parts.get((batch, bucket), 0) + 1
            case ("reduced", batch, of):
                local.reduced(batch, of)
                reduced[batch] = reduced.get(batch, 0) + 1
        while (task := local.next()) is not None:
            if task.stage is Stage.MAP:
                assert task.batch < until
                assert (task.batch, task.number) in blocks
            elif task.stage is Stage.REDUCE:
                assert parts[task.batch, task.number] == plans[task.batch][0]
            else:
                assert reduced[task.batch] == plans[task.batch][1]
                assert task.batch == sum(one.stage is Stage.WINDOWS for one in given_out)
            given_out.append(task)
            local.finished(task)
    wanted = [Task(b, Stage.MAP, i) for b, (p, _) in enumerate(plans) for i in range(p)]
    wanted += [Task(b, Stage.REDUCE, j) for b, (_, r) in enumerate(plans) for j in range(r)]
    wanted += [Task(b, Stage.WINDOWS, 0) for b in range(BATCHES)]
    assert sorted(given_out) == sorted(wanted)


def test_the_oldest_batch_goes_first_and_its_last_stage_before_the_others():
    local = LocalScheduler()
    local.schedule(3)
    local.block(1, 0)
    local.block(0, 5)
    local.contribution(0, bucket=2, of=1)
    taken = []
    while (task := local.next()) is not None:
        taken.append(task)
        local.finished(task)
    assert taken == [Task(0, Stage.REDUCE, 2), Task(0, Stage.MAP, 5), Task(1, Stage.MAP, 0)]


def test_a_map_task_waits_for_what_all_receivers_add_to_its_block():
    local = LocalScheduler()
    local.schedule(1)
    local.block(0, 0, of=2)
    assert local.next() is None
    local.block(0, 0, of=2)
    assert local.next() == Task(0, Stage.MAP, 0)


def test_map_tasks_wait_for_those_of_earlier_batches_and_reduce_tasks_do_not():
    local = LocalScheduler()
    local.schedule(3)
    local.block(0, 0)
    running = local.next()
    local.block(1, 0)
    local.contribution(1, bucket=0, of=1)
    assert local.next() == Task(1, Stage.REDUCE, 0)
    assert local.next() is None
    local.finished(running)
    assert local.next() == Task(1, Stage.MAP, 0)


def test_windows_of_a_batch_wait_for_those_before():
    local = LocalScheduler()
    local.reduced(1, of=1)
    assert local.next() is None
    local.reduced(0, of=1)
    first = local.next()
    assert first == Task(0, Stage.WINDOWS, 0)
    assert local.next() is None, "the windows of batch 0 are not finished"
    local.finished(first)
    assert local.next() == Task(1, Stage.WINDOWS, 0)


@given(
    groups=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    updates=st.lists(st.tuples(st.integers(0, 25), st.integers(1, 9)), max_size=4),
)
def test_a_change_holds_from_its_batch_on_and_leaves_those_before(groups, updates):
    schedule, expected = Schedule(), []
    for size in groups:
        schedule.group(len(expected), size, ExecutionPlan(1, 1, 1))
        expected += [1] * size
    for first, blocks in updates:
        schedule.update(first, ExecutionPlan(blocks, 1, 1))
        expected[first:] = [blocks] * len(expected[first:])
    assert [schedule.plan_of(batch).blocks for batch in range(len(expected))] == expected
    assert schedule.plan_of(len(expected)) is None


def test_groups_follow_each_other():
    schedule = Schedule()
    schedule.group(0, 3, ExecutionPlan(1, 1, 1))
    with pytest.raises(ValueError, match="cannot follow batch 2"):
        schedule.group(4, 3, ExecutionPlan(1, 1, 1))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 8))
def test_every_task_has_one_worker(blocks, buckets, workers):
    plan = ExecutionPlan(blocks, buckets, workers)
    assert all(0 <= plan.map_worker(block) < workers for block in range(blocks))
    dealt = sorted(bucket for worker in range(workers) for bucket in plan.buckets_of(worker))
    assert dealt == list(range(buckets))
    assert all(bucket in plan.buckets_of(plan.reduce_worker(bucket)) for bucket in range(buckets))


@given(
    note=st.builds(
        Note,
        st.builds(ExecutionPlan, st.integers(1, 99), st.integers(1, 99), st.integers(1, 9)),
        st.integers(0, 99),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.booleans(),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4).map(lambda n: np.array(n, np.int64)),
        st.booleans(),
        st.integers(1, 9),
        st.booleans(),
    ),
    cut=st.integers(0, 80),
    more=st.binary(max_size=9),
)
def test_a_note_comes_back_as_it_was_and_another_length_is_refused(note, cut, more):
    data = packed(note)
    again = unpacked(data)
    assert again._replace(numbers=None) == note._replace(numbers=None)
    np.testing.assert_array_equal(again.numbers, note.numbers)
    wrong = data[:cut] + more
    if len(wrong) != len(data):
        with pytest.raises(WireError):
            unpacked(wrong)


def test_a_cut_note_is_refused():
    note = Note(ExecutionPlan(2, 3, 2), 1, 5, False, np.arange(4))
    with pytest.raises(WireError):
        unpacked(packed(note)[:-1])
