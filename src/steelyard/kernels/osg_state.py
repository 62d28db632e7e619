"""The arrays of shuffle groupings' schedulers and instances: what they mean and how they begin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.mixing import mix

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

IN_TURN, SHUFFLED, KNOWN, LEARNT = 0, 1, 2, 3
"""Kinds: round robin, round robin over a permutation, exact costs, and OSG."""
ROUND_ROBIN, SEND_ALL, WAIT_ALL, RUN = 0, 1, 2, 3
"""States of a scheduler (Figure 3)."""
START, STABILIZING = 0, 1
"""States of an instance (Figure 2)."""
NOT_MARKED = -1
"""Epoch of a tuple that carries no request."""

ASKED = 256
"""Requests to an instance whose replies are waited for; of earlier ones speeds are not learnt."""
RECENT = 256.0
"""Tuples of an instance that its speed is learnt from: earlier ones fade."""
LEARNT_NOISE, UNLEARNT_NOISE = 0.1, 0.35
"""Variance of a tuple's time over what it was thought to take: with matrices of all instances, and without."""

PRIOR_TUPLES = 32.0
"""Tuples for which a scheduler believes that the others send as much as itself, before it hears how much they do."""
RECENT_REPLIES = 4.0
"""Replies of each instance from which it knows that: earlier ones fade."""

MODE, TURN, EPOCH, SINCE, REPLIES, ROUND = range(6)
"""Columns of `Schedulers.status`."""
STATE, EXECUTED, SENT_BEFORE, NUMBER = range(4)
"""Columns of `Learners.status`."""
MATRICES, REQUESTS, ANSWERS, EPOCHS = range(4)
"""What `Schedulers.traffic` counts: matrices and replies that came, requests that went, epochs begun."""


class Rule(NamedTuple):
    """The parameters of a grouping as its loops take them."""

    kind: int
    instances: int  # k
    turns: int  # tuples of a round: k, or of a cycle of weights
    schedulers: int  # s
    window: int  # N: tuples between two looks of an instance at its matrices
    tolerance: float  # mu
    masked: bool
    elapsed: bool  # clock of synchronisation
    resync: int  # tuples of a scheduler after which it synchronises again; 0 never
    apart: float  # continuous: seconds of work of an instance from one request to the next, and of a window, at least
    mean_unseen: bool  # an item without a count costs the instance's mean, otherwise nothing
    on_change: bool  # stable matrices are sent only if they differ from the stable ones before
    keep: float  # share of the matrices that stays after they were sent; 0 is the paper's reset
    conservative: bool
    idle_aware: bool  # KNOWN or continuous: no instance is thought to end before now
    continuous: bool  # each instance is synchronised on its own, from the first tuple on
    shared: bool  # each instance learns a share of the items for all
    reshuffle: bool  # SHUFFLED: a new permutation in every round
    seed: int
    columns: int  # of the matrices


class Schedulers(NamedTuple):
    """A bank of s schedulers for k instances, with matrices of r rows and c columns.

    Where schedulers of several edges are in one bank, k, r and c are the largest of any; a rule and its hashes say how
    much of them its schedulers use.
    """

    status: Ints  # int64[s, 6]
    loads: Floats  # float64[s, k]: C_hat
    known: Flags  # bool[s, k]: whose matrices came
    replied: Flags  # bool[s, k]: who replied in this epoch
    deltas: Floats  # float64[s, k]: replies of this epoch; with continuous synchronisation, all corrections so far
    totals: Floats  # float64[s, k, 2]: tuples and their time, as instances last reported them
    means: Floats  # float64[s, k]: mean time of a tuple, from the totals
    speeds: Floats  # float64[s, k]: time of a tuple on each instance over that on a usual one
    learnt_at: Floats  # float64[s, k]: the speed of each instance when its matrices came
    cells: Floats  # float64[s, k, r, c, 2]
    work: Floats  # float64[s, k, 2]: tuples sent of which something was thought, and what: time on a usual instance
    requests: Ints  # int64[s, k]: how many went to each instance
    asked: Floats  # float64[s, k, ASKED, 3]: the latest of them: its number, and `work` when it went
    last_reply: Floats  # float64[s, k, 4]: totals of the latest reply, and the `work` that it was about
    latest: Floats  # float64[s, k, 3]: tuples of the latest reply, what was thought of them, and what they took
    has_latest: Flags  # bool[s, k]: whose `latest` came since speeds were last learnt
    spent: Floats  # float64[s, k, 3]: recent ones, with what they took over what was usual then
    time_of: Floats  # float64[s, 2]: recent time of instances that went into its own tuples, and into all that they do
    unmarked: Ints  # int64[s, k]: tuples to each instance since the last that carried a request
    gaps: Ints  # int64[s, k]: tuples to each instance from one that carries a request to the next
    order: Ints  # int64[s, turns]: the instances of a round, a permutation where it is SHUFFLED
    traffic: Ints  # int64[s, 4]


class Learners(NamedTuple):
    """A bank of instances, of which each serves s schedulers."""

    status: Ints  # int64[k, 4]
    cells: Floats  # float64[k, r, c, 2]: F and W
    snapshot: Floats  # float64[k, r, c]: S
    stable: Floats  # float64[k, r, c]: S when matrices were last stable
    busy: Floats  # float64[k, s]: summed execution time of each scheduler's tuples
    worked: Floats  # float64[k]: time that the instance spent on anything, by the clock of one that is never idle
    answered: Floats  # float64[k, s, 2]: `busy` and `worked` at the last reply to each scheduler
    totals: Floats  # float64[k, 2]: tuples and their time; halved when matrices are sent
    window_time: Floats  # float64[k]: time of the tuples of the window so far


def new_schedulers(rule: Rule, schedulers: int, instances: int, rows: int, columns: int, first: int = 0) -> Schedulers:
    """Schedulers that have sent nothing; `first` is the number of the first one among all of a stream."""
    status = np.zeros((schedulers, 6), np.int64)
    status[:, TURN] = (np.arange(schedulers) + first) % instances
    order = np.tile(np.arange(instances, dtype=np.int64), (schedulers, 1))
    bank = Schedulers(
        status=status,
        loads=np.zeros((schedulers, instances)),
        known=np.zeros((schedulers, instances), np.bool_),
        replied=np.zeros((schedulers, instances), np.bool_),
        deltas=np.zeros((schedulers, instances)),
        totals=np.zeros((schedulers, instances, 2)),
        means=np.zeros((schedulers, instances)),
        speeds=np.ones((schedulers, instances)),
        learnt_at=np.ones((schedulers, instances)),
        cells=np.zeros((schedulers, instances, rows, columns, 2)),
        work=np.zeros((schedulers, instances, 2)),
        requests=np.zeros((schedulers, instances), np.int64),
        asked=np.zeros((schedulers, instances, ASKED if rule.continuous else 1, 3)),
        last_reply=np.zeros((schedulers, instances, 4)),
        latest=np.zeros((schedulers, instances, 3)),
        has_latest=np.zeros((schedulers, instances), np.bool_),
        spent=np.zeros((schedulers, instances, 3)),
        time_of=np.zeros((schedulers, 2)),
        unmarked=np.zeros((schedulers, instances), np.int64),
        gaps=np.ones((schedulers, instances), np.int64),
        order=order,
        traffic=np.zeros((schedulers, 4), np.int64),
    )
    if rule.kind == SHUFFLED:
        status[:, TURN] = 0
        for number in range(schedulers):
            status[number, ROUND] = (number + first) << 40
            permute(bank.order[number], rule.seed, status[number, ROUND])
    return bank


def new_learners(schedulers: int, instances: int, rows: int, columns: int, first: int = 0) -> Learners:
    """Instances that have executed nothing; `first` is the number of the first one among all of an operator."""
    status = np.zeros((instances, 4), np.int64)
    status[:, NUMBER] = np.arange(instances) + first
    return Learners(
        status=status,
        cells=np.zeros((instances, rows, columns, 2)),
        snapshot=np.zeros((instances, rows, columns)),
        stable=np.zeros((instances, rows, columns)),
        busy=np.zeros((instances, schedulers)),
        worked=np.zeros(instances),
        answered=np.zeros((instances, schedulers, 2)),
        totals=np.zeros((instances, 2)),
        window_time=np.zeros(instances),
    )


@njit()
def permute(order: Ints, seed: int, turn: int) -> None:
    """Fisher and Yates's shuffle, in place, the same for the same seed and turn."""
    for last in range(len(order) - 1, 0, -1):
        other = np.int64(mix(turn * 4096 + last, seed) % np.uint64(last + 1))
        order[last], order[other] = order[other], order[last]
