"""Tuples through schedulers and instances with FIFO queues, one by one, with every control message in its time.

Queues are FIFO and nothing is preempted, so the end of a tuple is known when it is sent: `max(arrival, free) + time`.
What an instance learns from it, and the messages that follow, come to pass at that end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.osg import answer, choose, clock_of, execute, forget, take_matrices, take_reply
from steelyard.kernels.osg_state import MODE, NOT_MARKED, Learners, Rule, Schedulers

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int32]]

NONE = -1
MATRICES_CAME, MODE_CHANGED = 0, 1
"""What `Flow.log` tells of."""


class Flow(NamedTuple):
    """The tuples of a stream, what happens to them, and messages under way; m tuples, k instances."""

    items: Ints  # int64[m]
    arrivals: Floats  # float64[m], rising
    sources: Numbers  # int32[m]: the scheduler that sends each tuple
    times: Floats  # float64[m]: execution time on an instance of speed 1
    factors: Floats  # float64[phases, k]: what times are multiplied by
    phases: Numbers  # int32[m]: phase of each tuple
    to: Numbers  # int32[m], filled: the instance
    finish: Floats  # float64[m], filled
    link: Ints  # int64[m]: next tuple in the same queue
    epoch: Ints  # int64[m]: of the request that a tuple carries
    carried: Floats  # float64[m]: load in the request; then the reply
    totals: Floats  # float64[m, 4]: tuples and their time in the messages sent at the end of a tuple; times of a reply
    slot: Numbers  # int32[m]: where matrices wait that were sent at the end of a tuple
    mail: Ints  # int64[m]: tuples at whose end messages were sent, in their order
    waiting: Floats  # float64[slots, r, c, 2]: matrices under way
    log: Ints  # int64[entries, 3]: tuple, what, detail; for scheduler 0
    logged: Ints  # int64[1]


@njit()
def simulate(rule: Rule, hashes: Ints, schedulers: Schedulers, learners: Learners, flow: Flow, latency: float) -> int:
    """Run all tuples to their ends; the number of events: arrivals, ends and messages.

    A message arrives `latency` after the end of the tuple that it follows, and before a tuple that comes at the same
    time is sent.
    """
    instances = learners.cells.shape[0]
    head = np.full(instances, NONE, np.int64)
    tail = np.full(instances, NONE, np.int64)
    free = np.zeros(instances)
    costs = np.zeros((1, instances))
    post = np.zeros(3, np.int64)  # first and last message, and the next slot for matrices
    events = 0
    for row in range(len(flow.items)):
        now = flow.arrivals[row]
        events += _until(rule, hashes, schedulers, learners, flow, latency, head, post, now, row)
        phase, by = flow.phases[row], flow.sources[row]
        for at in range(instances):
            costs[0, at] = flow.times[row] * flow.factors[phase, at]
        before = schedulers.status[0, MODE]
        to, epoch, carried = choose(rule, hashes, schedulers, by, flow.items[row], costs, 0, now)
        if schedulers.status[0, MODE] != before:
            _note(flow, row, MODE_CHANGED, schedulers.status[0, MODE])
        flow.to[row], flow.epoch[row], flow.carried[row] = to, epoch, carried
        free[to] = max(now, free[to]) + costs[0, to]
        flow.finish[row] = free[to]
        flow.link[row] = NONE
        if head[to] == NONE:
            head[to] = row
        else:
            flow.link[tail[to]] = row
        tail[to] = row
        events += 1
    return events + _until(rule, hashes, schedulers, learners, flow, latency, head, post, np.inf, len(flow.items))


@njit(inline="always")
def _until(
    rule: Rule,
    hashes: Ints,
    schedulers: Schedulers,
    learners: Learners,
    flow: Flow,
    latency: float,
    head: Ints,
    post: Ints,
    now: float,
    row: int,
) -> int:
    """All ends and messages up to `now`, in the order of their times."""
    events = 0
    while True:
        soonest, at = np.inf, NONE
        for number in range(len(head)):
            if head[number] != NONE and flow.finish[head[number]] < soonest:
                soonest, at = flow.finish[head[number]], number
        if post[0] < post[1]:
            due = flow.finish[flow.mail[post[0]]] + latency
            if due <= min(now, soonest):
                _deliver(rule, schedulers, flow, flow.mail[post[0]], row)
                post[0] += 1
                events += 1
                continue
        if at == NONE or soonest > now:
            return events
        _finish(rule, hashes, learners, flow, at, head[at], post)
        head[at] = flow.link[head[at]]
        events += 1


@njit(inline="always")
def _finish(rule: Rule, hashes: Ints, learners: Learners, flow: Flow, at: int, row: int, post: Ints) -> None:
    """The end of a tuple: the instance learns, answers a request, and sends its matrices when they are due."""
    by = flow.sources[row]
    time = flow.times[row] * flow.factors[flow.phases[row], at]
    send = execute(rule, hashes, learners, at, flow.items[row], time, by)
    if flow.epoch[row] != NOT_MARKED:
        flow.carried[row] = clock_of(rule, learners, at, by, flow.finish[row]) - flow.carried[row]
        flow.totals[row, 2], flow.totals[row, 3] = answer(learners, at, by)
    flow.totals[row, 0], flow.totals[row, 1] = learners.totals[at, 0], learners.totals[at, 1]
    flow.slot[row] = NONE
    if send:
        flow.waiting[post[2]] = learners.cells[at]
        flow.slot[row] = post[2]
        post[2] = (post[2] + 1) % len(flow.waiting)
        forget(rule, learners, at)
    if send or flow.epoch[row] != NOT_MARKED:
        flow.mail[post[1]] = row
        post[1] += 1


@njit()
def _deliver(rule: Rule, schedulers: Schedulers, flow: Flow, row: int, now_row: int) -> None:
    """Messages that were sent at the end of a tuple: a reply to its scheduler, matrices to all of them."""
    before, at = schedulers.status[0, MODE], flow.to[row]
    count, time = flow.totals[row, 0], flow.totals[row, 1]
    if flow.epoch[row] != NOT_MARKED:
        by, own, everything = flow.sources[row], flow.totals[row, 2], flow.totals[row, 3]
        take_reply(rule, schedulers, by, at, flow.epoch[row], flow.carried[row], count, time, own, everything)
    if flow.slot[row] != NONE:
        for number in range(schedulers.status.shape[0]):
            take_matrices(rule, schedulers, number, at, flow.waiting[flow.slot[row]], count, time)
        _note(flow, now_row, MATRICES_CAME, at)
    if schedulers.status[0, MODE] != before:
        _note(flow, now_row, MODE_CHANGED, schedulers.status[0, MODE])


@njit()
def _note(flow: Flow, row: int, what: int, detail: int) -> None:
    if flow.logged[0] < len(flow.log):
        flow.log[flow.logged[0], 0] = row
        flow.log[flow.logged[0], 1] = what
        flow.log[flow.logged[0], 2] = detail
        flow.logged[0] += 1
