"""Changes of plan that wait for a group: the newest wish counts, and what is cut is what holds."""

from steelyard.core import BLOCKS, BUCKETS, Action
from steelyard.resident.groups import Scheduling
from steelyard.resident.groups.adjusting import Adjuster
from steelyard.resident.groups.outcome import BatchRun, GroupOutcome
from steelyard.resident.groups.plan import ExecutionPlan


class Wishes:
    """An elasticity policy that wants these numbers of tasks, one after the other."""

    def __init__(self, *wanted):
        self._wanted = iter(wanted)

    def decide(self, seen):
        tasks = next(self._wanted)
        return tasks if isinstance(tasks, Action) else Action({BLOCKS: tasks, BUCKETS: tasks}, f"{tasks} wanted")


def plan(tasks):
    return ExecutionPlan(tasks, tasks, 2)


def adjuster(*wanted):
    outcome = GroupOutcome()
    return Adjuster(Wishes(*wanted), Scheduling(boundary=True), 2, outcome), outcome


def ran(batch, tasks=4):
    return BatchRun(batch, plan(tasks), 10, 1, done=1.0)


def test_a_policy_that_has_nothing_to_add_does_not_take_its_wish_back():
    changing, _ = adjuster(8, 4)  # zones says the numbers of the batch that it sees until its change holds
    changing.show(ran(0), 0.5, 0.5, 0, 10)
    changing.show(ran(1), 0.5, 1.5, 1, 10)
    assert changing.pending.plan == plan(8)


def test_a_plan_that_was_sent_before_the_next_wish_holds_when_it_is_cut_by():
    changing, outcome = adjuster(8, 2)
    changing.show(ran(5), 0.5, 5.5, 7, 10)
    changing.show(ran(8), 0.5, 8.5, 8, 20)  # the group from 10 on was sent with 8
    changing.notice(10, plan(8))
    assert changing.plan == plan(8)
    assert changing.pending.plan == plan(2), "the newest wish waits for the next group"
    changing.notice(20, plan(2))
    assert (changing.plan, changing.pending) == (plan(2), None)
    assert [(one.decided_on, one.first, one.reason) for one in outcome.changes] == [
        (5, 10, "8 wanted"),
        (8, 20, "2 wanted"),
    ]


def test_a_number_of_what_batches_have_not_is_refused_and_not_said_to_be_done():
    changing, _ = adjuster(Action({"map": 8, BLOCKS: 2}))
    changing.show(ran(0), 0.5, 0.5, 0, 10)
    assert changing.pending is None
    (decision,) = changing._controller.decisions
    assert decision.refused == "a job of groups of batches has numbers of blocks and buckets, got {'map': 8}"


def test_policies_see_how_long_each_reduce_task_took():
    changing, _ = adjuster(8)
    run = ran(0)
    run.reduce_tasks.update({2: 0.5, 0: 0.25})  # as they ended
    changing.show(run, 0.5, 0.5, 0, 10)
    assert [(task.bucket, task.seconds) for task in changing.observe().batch.reduce_tasks] == [(0, 0.25), (2, 0.5)]
