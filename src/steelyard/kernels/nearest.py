"""The K assignments, or integer matrices of thread counts, that are nearest to a matrix of real numbers.

Both are sums over rows: a row's entries are ranked by themselves, and the best sums are enumerated from the best one on
(`_best_sums`). No solution is missed: of all that deviate from the best in a row, the cheapest is one gap away, so only
the K - 1 rows with the smallest gaps can deviate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@njit()
def _best_sums(costs: Floats, lengths: Ints, most: int, ranks: Ints) -> int:
    """The `most` smallest sums of one entry per row: into ranks[solution, row]; how many there are.

    costs[row, rank] ascend. A node of the search is (cost, row p in order of gaps, rank k of it, the node that it goes
    on from): its deviations are those of that node, and rank k in row p. Every set of deviations is reached once.
    """
    rows = len(lengths)
    gaps = np.full(rows, np.inf)
    for row in range(rows):
        if lengths[row] > 1:
            gaps[row] = costs[row, 1] - costs[row, 0]
    order = np.argsort(gaps)
    able = 0
    while able < min(rows, max(most - 1, 0)) and gaps[order[able]] < np.inf:
        able += 1
    ranks[0, :] = 0
    room = 3 * most + 3
    cost, place, rank = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    origin, waiting = np.empty(room, np.int64), np.zeros(room, np.bool_)
    used, found = 0, 1
    if able:
        cost[0], place[0], rank[0], origin[0], waiting[0] = gaps[order[0]], 0, 1, -1, True
        used = 1
    while found < most:
        best = -1
        for node in range(used):
            if waiting[node] and (best < 0 or cost[node] < cost[best]):
                best = node
        if best < 0:
            break
        waiting[best] = False
        ranks[found, :] = 0
        node = best
        while node >= 0:
            ranks[found, order[place[node]]] = rank[node]
            node = origin[node]
        found += 1
        p, k, row = place[best], rank[best], order[place[best]]
        if k + 1 < lengths[row]:
            cost[used] = cost[best] + costs[row, k + 1] - costs[row, k]
            place[used], rank[used], origin[used], waiting[used] = p, k + 1, origin[best], True
            used += 1
        if p + 1 < able:
            gap = gaps[order[p + 1]]
            cost[used], place[used], rank[used], origin[used], waiting[used] = cost[best] + gap, p + 1, 1, best, True
            used += 1
            if k == 1:
                cost[used] = cost[best] - gaps[row] + gap
                place[used], rank[used], origin[used], waiting[used] = p + 1, 1, origin[best], True
                used += 1
    return found


@njit()
def nearest_assignments(proto: Floats, most: int) -> Ints:
    """int64[found, rows]: the assignments of each row to one column that are nearest to proto[rows, columns].

    The nearest first; fewer than `most` where there are no more. Distances are squared ones over the 0/1 matrices.
    """
    rows, columns = proto.shape
    wide = min(columns, most)
    costs, columns_of = np.empty((rows, wide)), np.empty((rows, wide), np.int64)
    for row in range(rows):
        for rank in range(wide):  # insertion: few ranks, and short rows
            costs[row, rank] = np.inf
        for column in range(columns):
            one = 1 - 2 * proto[row, column]
            at = wide
            while at > 0 and one < costs[row, at - 1]:
                at -= 1
            if at < wide:
                for moved in range(wide - 1, at, -1):
                    costs[row, moved], columns_of[row, moved] = costs[row, moved - 1], columns_of[row, moved - 1]
                costs[row, at], columns_of[row, at] = one, column
    ranks = np.empty((most, rows), np.int64)
    found = _best_sums(costs, np.full(rows, wide), most, ranks)
    for solution in range(found):
        for row in range(rows):
            ranks[solution, row] = columns_of[row, ranks[solution, row]]
    return ranks[:found]


@njit()
def nearest_assignments_of_each(protos: Floats, most: int) -> Ints:
    """int64[batch, most, rows]: `nearest_assignments` of each; the nearest again where there are no more."""
    found = np.empty((protos.shape[0], most, protos.shape[1]), np.int64)
    for one in range(len(protos)):
        near = nearest_assignments(protos[one], most)
        found[one, : len(near)] = near
        for rank in range(len(near), most):
            found[one, rank] = near[0]
    return found


@njit()
def _settle(  # noqa: PLR0912 - one loop
    wanted: Floats, row: Ints, low: Ints, high: Ints, least: int, most: int
) -> float:
    """Make a row within its box the nearest one whose sum is within bounds; its squared distance, inf if there is none.

    Steps of one up, down, or from one column to another, while one of them helps: that ends at the best row, since the
    distance is a sum of convex functions and the bounds are on a box and on the sum.
    """
    columns = len(row)
    total, lowest, highest = 0, 0, 0
    for column in range(columns):
        if low[column] > high[column]:
            return np.inf
        total += row[column]
        lowest += low[column]
        highest += high[column]
    if lowest > most or highest < least:
        return np.inf
    while True:
        up, up_at, down, down_at = np.inf, -1, np.inf, -1
        for column in range(columns):
            slope = 2 * (row[column] - wanted[column])
            if row[column] < high[column] and slope + 1 < up:
                up, up_at = slope + 1, column
            if row[column] > low[column] and 1 - slope < down:
                down, down_at = 1 - slope, column
        if total > most or (down < 0 and total > least and down <= up):
            row[down_at] -= 1
            total -= 1
        elif total < least or (up < 0 and total < most):
            row[up_at] += 1
            total += 1
        elif down < 0 and total > least:
            row[down_at] -= 1
            total -= 1
        elif up + down < 0:
            row[up_at] += 1
            row[down_at] -= 1
        else:
            break
    distance = 0.0
    for column in range(columns):
        distance += (row[column] - wanted[column]) ** 2
    return distance


@njit()
def _start(wanted: Floats, row: Ints, high: Ints, most: int) -> None:
    """A row near the best one: rounded, and where its sum is too large, all lowered by the same amount."""
    columns = len(row)
    below, above = 0.0, 0.0
    for column in range(columns):
        above = max(above, wanted[column])
    for _ in range(40):
        by = (below + above) / 2 if below else 0.0
        total = 0
        for column in range(columns):
            row[column] = min(max(round(wanted[column] - by), 0), high[column])
            total += row[column]
        if total > most:
            below = max(by, 1e-9)
        elif by == 0.0 or total == most:
            return
        else:
            above = by


@njit()
def nearest_rows(
    wanted: Floats, least: int, limit: int, most: int, within: float, rows: Ints, distances: Floats
) -> int:
    """Rows of whole numbers, 0 or more, sums from `least` to `limit`, nearest to wanted[columns]; how many there are.

    Only those that are at most `within` farther than the nearest. Lawler's way: the best row of a box, and then of the
    boxes that are left when it is taken out of it.
    """
    columns = len(wanted)
    room = 2 * columns * most + 1
    at, low = np.empty((room, columns), np.int64), np.empty((room, columns), np.int64)
    high = np.empty((room, columns), np.int64)
    cost = np.empty(room)
    low[0], high[0] = 0, limit
    _start(wanted, at[0], high[0], limit)
    cost[0] = _settle(wanted, at[0], low[0], high[0], least, limit)
    used, found = 1, 0
    while found < most:
        best = 0
        for node in range(1, used):
            if cost[node] < cost[best]:
                best = node
        if cost[best] == np.inf or (found and cost[best] - distances[0] > within):
            break
        rows[found], distances[found] = at[best], cost[best]
        cost[best] = np.inf
        found += 1
        if found == most:
            break
        for column in range(columns):
            here = at[best, column]
            for side in (-1, 1):
                low[used], high[used], at[used] = low[best], high[best], at[best]
                for before in range(column):
                    low[used, before], high[used, before] = at[best, before], at[best, before]
                if side < 0:
                    high[used, column] = here - 1
                else:
                    low[used, column] = here + 1
                if low[used, column] > high[used, column]:
                    continue
                at[used, column] = here + side
                cost[used] = _settle(wanted, at[used], low[used], high[used], least, limit)
                if cost[used] < np.inf:
                    used += 1
    return found


@njit()
def nearest_counts(proto: Floats, limits: Ints, exactly: bool, most: int) -> Ints:
    """int64[found, rows, columns]: whole numbers, 0 or more, nearest to proto[rows, columns], the nearest first.

    The sum of each row is from 1 to limits[row], or exactly the latter. Fewer than `most` where there are no more.
    """
    rows, columns = proto.shape
    kept, costs = np.empty((rows, most, columns), np.int64), np.full((rows, most), np.inf)
    least = limits if exactly else np.ones_like(limits)
    lengths, ranks = np.empty(rows, np.int64), np.empty((most, rows), np.int64)
    for row in range(rows):
        lengths[row] = nearest_rows(proto[row], least[row], limits[row], min(most, 2), np.inf, kept[row], costs[row])
    within = np.inf  # what the worst of the solutions deviates by, were there two entries per row
    if _best_sums(costs, lengths, most, ranks) == most:
        within = 1e-9
        for row in range(rows):
            within += costs[row, ranks[most - 1, row]] - costs[row, 0]
    for row in range(rows):
        if lengths[row] == 2 and costs[row, 1] - costs[row, 0] <= within:
            lengths[row] = nearest_rows(proto[row], least[row], limits[row], most, within, kept[row], costs[row])
    solutions = _best_sums(costs, lengths, most, ranks)
    found = np.empty((solutions, rows, columns), np.int64)
    for solution in range(solutions):
        for row in range(rows):
            found[solution, row] = kept[row, ranks[solution, row]]
    return found


@njit()
def nearest_counts_of_each(protos: Floats, limits: Ints, exactly: bool, most: int) -> Ints:
    """int64[batch, most, rows, columns]: `nearest_counts` of each; the nearest again where there are no more."""
    found = np.empty((protos.shape[0], most, protos.shape[1], protos.shape[2]), np.int64)
    for one in range(len(protos)):
        near = nearest_counts(protos[one], limits, exactly, most)
        found[one, : len(near)] = near
        for rank in range(len(near), most):
            found[one, rank] = near[0]
    return found
