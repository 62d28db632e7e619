"""One scheduler, or one instance, over a batch of tuples: what engines call, where a simulator has its own loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.osg import answer, choose, clock_of, execute
from steelyard.kernels.osg_sketch import COUNT, TIME, add, estimate
from steelyard.kernels.osg_state import KNOWN, MODE, NOT_MARKED, RUN, Learners, Rule, Schedulers

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int32]]
OUTLIER = 8.0
"""How many times longer than thought a slice may take, and all of it be learnt."""


@njit()
def choose_batch(
    rule: Rule,
    hashes: Ints,
    bank: Schedulers,
    items: Ints,
    costs: Floats,
    times: Floats,
    to: Numbers,
    position: Ints,
    epoch: Ints,
    load: Floats,
    until: float,
) -> tuple[int, int]:
    """Fill `to` for a bank of one scheduler; how many tuples it has chosen for, and how many of them carry requests.

    Requests are in the three arrays behind it. `costs` is float64[items, instances] for kind KNOWN, and has one row
    otherwise. Once every instance has replied, tuples are left over when no load is below `until`.
    """
    marked = 0
    for row in range(len(items)):
        if until < np.inf and bank.status[0, MODE] == RUN and bank.loads[0, : rule.instances].min() >= until:
            return row, marked
        where, number, carried = choose(
            rule, hashes, bank, 0, items[row], costs, row if rule.kind == KNOWN else 0, times[row]
        )
        to[row] = where
        if number != NOT_MARKED:
            position[marked], epoch[marked], load[marked] = row, number, carried
            marked += 1
    return len(items), marked


@njit()
def execute_batch(
    rule: Rule,
    hashes: Ints,
    bank: Learners,
    items: Ints,
    seconds: Floats,
    finished: Floats,
    by: int,
    position: Ints,
    replies: Floats,
    start: int,
    answered: int,
) -> tuple[int, int, bool]:
    """Learn from tuples that a bank of one instance executed, until matrices are to be sent or there are no more.

    `replies` is float64[requests, 5]: the carried loads, each replaced by its reply, the instance's totals, and times.
    Returns where to go on, how many requests are answered, and whether matrices are to be sent now.
    """
    for row in range(start, len(items)):
        send = execute(rule, hashes, bank, 0, items[row], seconds[row], by)
        if answered < len(position) and position[answered] == row:
            replies[answered, 0] = clock_of(rule, bank, 0, by, finished[row]) - replies[answered, 0]
            replies[answered, 1], replies[answered, 2] = bank.totals[0, 0], bank.totals[0, 1]
            replies[answered, 3], replies[answered, 4] = answer(bank, 0, by)
            answered += 1
        if send:
            return row + 1, answered, True
    return len(items), answered, False


@njit()
def split_times(
    hashes: Ints,
    cells: Floats,
    fit: Floats,
    items: Ints,
    sizes: Ints,
    seconds: Floats,
    keep: float,
    took: Floats,
) -> None:
    """Share the times of slices, of so many tuples that were executed together, out among them, one after the other.

    A tuple's share goes by what it is thought to take, and is learnt. `cells` is float64[1, 1, rows, columns, 2], and
    forgets all but a share of `keep` with every slice. Items whose cells are empty are thought to take the mean of all.
    `fit` is float64[2]: by how much slices were thought to differ from the mean, times by how much they did; and its
    square. Of a slice that took far longer than was thought of it, and than the mean, no more than OUTLIER times that
    is learnt: something else held it up, or the next ones will say so too.
    """
    start = 0
    for number in range(len(sizes)):
        end = start + sizes[number]
        count, time = 0.0, 0.0
        for at in range(cells.shape[3]):
            count += cells[0, 0, 0, at, COUNT]
            time += cells[0, 0, 0, at, TIME]
        mean = time / count if count > 0.0 else 0.0
        total = 0.0
        for row in range(start, end):
            took[row] = estimate(cells, 0, 0, hashes, cells.shape[3], items[row], mean)
            total += took[row]
        for row in range(start, end):
            took[row] = seconds[number] * (took[row] / total) if total > 0.0 else seconds[number] / sizes[number]
        usual = mean * sizes[number]
        believed = min(seconds[number], OUTLIER * max(total, usual)) if usual > 0.0 else seconds[number]
        if count > 0.0 and sizes[number]:
            thought = total - usual
            fit *= keep
            fit[0] += thought * (believed - usual) / sizes[number]
            fit[1] += thought * thought / sizes[number]
        cells *= keep
        share = believed / seconds[number] if seconds[number] > 0.0 else 1.0
        for row in range(start, end):
            add(cells[0], 0, hashes, cells.shape[3], items[row], share * took[row], False)
        start = end
