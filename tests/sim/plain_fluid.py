"""The plain twin of a step of flows: the same rules over whole arrays, operator by operator."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.fluid import NONE, ROUNDS, Floats, Flow, Rows


def step_plain(flow: Flow, arrivals: Floats, step: float) -> None:
    """One step, with `arrivals` float64[sources]; changes the flow's queues, inflows and sums."""
    rows, operators = flow.instances, flow.operators
    for number in range(len(operators)):
        _end_pane(flow, number, step)
    _share_cores(flow, step)
    operators["limit"] = np.inf
    for _ in range(ROUNDS):
        _weigh_edges(flow)
        for number in reversed(range(len(operators))):
            own = _own(flow, number)
            operators["limit"][number] = _limit(flow, number)
            limit = np.inf if operators["gives"][number] else float(operators["limit"][number])
            rows["accept"][own] = _accepted(rows[own], limit)
            _share_places(flow, number)
    from_logs = rows["source"] != NONE
    rows["inflow"] = 0.0
    rows["inflow"][from_logs] = arrivals[rows["source"][from_logs]]
    for number in range(len(operators)):
        _process(flow, number, step)
    operators["left"] -= step


def _end_pane(flow: Flow, number: int, step: float) -> None:
    """Results of a window that ended wait; what the oldest pane had is kept no longer."""
    operator, own = flow.operators[number], _own(flow, number)
    if not operator["panes"] or operator["left"] >= step / 2:
        return
    operator["left"] += operator["pane"]
    operator["newest"] = (operator["newest"] + 1) % operator["panes"]
    kept, keys = flow.instances["kept"][own], flow.instances["keys"][own]
    if operator["gives"]:
        new = kept * operator["new_keys"]
        bounded = np.where(np.isfinite(keys), keys, 1.0)
        flow.instances["results"][own] += np.where(np.isfinite(keys), bounded * (1 - np.exp(-new / bounded)), new)
    flow.instances["kept"][own] = np.maximum(kept - flow.panes[own, operator["newest"]], 0.0)
    flow.panes[own, operator["newest"]] = 0.0


def _share_cores(flow: Flow, step: float) -> None:
    rows, budget = flow.instances, flow.machines["cores"] * step
    rows["seconds"] = rows["service"] + rows["growth"] * rows["kept"]
    full, share = rows["threads"] * step, np.zeros(len(flow.machines))
    work = (rows["queue"] + rows["inflow"]) * rows["seconds"] + rows["results"] * rows["result_seconds"]
    for _ in range(ROUNDS):
        bounded = work <= full * share[rows["machine"]]
        taken = np.bincount(rows["machine"], np.where(bounded, work * rows["cpu"], 0.0), len(share))
        wish = np.bincount(rows["machine"], np.where(~bounded, full * rows["cpu"], 0.0), len(share))
        some = wish > 0
        share[some] = np.minimum(1.0, (budget - taken)[some] / wish[some])
        share[~some & (taken == 0)] = 1.0
    rows["time"] = full * share[rows["machine"]]
    first = np.minimum(rows["results"] * rows["result_seconds"], rows["time"])
    for_one = np.where(rows["result_seconds"] > 0, rows["result_seconds"], 1.0)
    rows["can_give"] = np.where(rows["result_seconds"] > 0, first / for_one, rows["results"])
    dear = rows["seconds"] > 0
    rows["can"] = np.where(dear, (rows["time"] - first) / np.where(dear, rows["seconds"], 1.0), np.inf)


def _accepted(own: Rows, limit: float) -> Floats:
    """What queues can take: their free places, and those that work will free; work without bound frees all it may."""
    together = own["can"].sum()
    if not np.isfinite(together):
        freed: Floats = np.full(len(own), limit / len(own))
    else:
        freed = own["can"] * (min(1.0, limit / together) if together > 0 else 0.0)
    accepted: Floats = np.maximum(own["capacity"] - own["queue"] + freed, 0.0)
    return accepted


def _own(flow: Flow, operator: int) -> slice:
    first = int(flow.operators["first"][operator])
    return slice(first, first + int(flow.operators["count"][operator]))


def _shares(flow: Flow, edge: int) -> Floats:
    first = int(flow.edges["first_share"][edge])
    shares: Floats = flow.shares[first : first + int(flow.operators["count"][flow.edges["receiver"][edge]])]
    return shares


def _weigh_edges(flow: Flow) -> None:
    edges, rows = flow.edges, flow.instances
    want = np.minimum(rows["queue"] + rows["inflow"], rows["can"])
    for number, edge in enumerate(edges):
        sender, own = flow.operators[edge["sender"]], _own(flow, edge["sender"])
        wanted = min((rows["can_give"] if sender["gives"] else want)[own].sum(), sender["limit"])
        edges["demand"][number] = wanted * sender["outputs"] * edge["share"]


def _share_places(flow: Flow, receiver: int) -> None:
    """Each sender's thread gets as many places as every other, or as many as it would fill."""
    meet = np.flatnonzero(flow.edges["receiver"] == receiver)
    if not len(meet):
        return
    demand, threads = flow.edges["demand"][meet], flow.operators["threads"][flow.edges["sender"][meet]]
    places, level = flow.instances["accept"][_own(flow, receiver)].sum(), 0.0
    for _ in range(ROUNDS):
        waiting = demand > level * threads
        if waiting.any():
            left = places - np.minimum(demand, level * threads).sum()
            level = level + left / threads[waiting].sum() if np.isfinite(places) else np.inf
    taken = np.minimum(demand, level * threads)
    flow.edges["part"][meet] = taken / taken.sum() if taken.sum() > 0 else 1 / len(meet)


def _limit(flow: Flow, operator: int) -> float:
    limit = np.inf
    for number, edge in enumerate(flow.edges):
        if edge["sender"] == operator:
            share = _shares(flow, number) * flow.operators["outputs"][operator]
            accept = flow.instances["accept"][_own(flow, edge["receiver"])]
            room = np.array([one * edge["part"] if np.isfinite(one) else np.inf for one in accept])
            limit = min(limit, np.min(room[share > 0] / share[share > 0], initial=np.inf))
    return float(limit)


def _process(flow: Flow, operator: int, step: float) -> None:
    rows, own, row = flow.instances[_own(flow, operator)], _own(flow, operator), flow.operators[operator]
    want = np.minimum(rows["queue"] + rows["inflow"], rows["can"])
    need = np.minimum(want, np.maximum(0.0, rows["queue"] + rows["inflow"] - rows["capacity"]))
    rest = float((want - need).sum())
    held_back = min(1.0, max(0.0, row["limit"] - need.sum()) / rest) if rest > 0 else 0.0
    done = need + (want - need) * held_back
    given = np.zeros(len(rows))
    if row["gives"]:
        wished = rows["can_give"].sum()
        done, given = want, rows["can_give"] * (min(1.0, row["limit"] / wished) if wished > 0 else 0.0)
    out = given if row["gives"] else done
    rows["received"] += rows["inflow"]
    rows["queue"] = np.maximum(rows["queue"] + rows["inflow"] - done, 0.0)
    rows["processed"] += done
    rows["sent"] += out * row["outputs"] * row["sends"]
    timed = (rows["time"] > 0) & ((rows["seconds"] > 0) | (rows["result_seconds"] > 0))
    time = np.where(timed, rows["time"], 1.0)
    worked = np.where(timed, done * rows["seconds"] + given * rows["result_seconds"], 0.0)
    results_held = (rows["can_give"] - given if row["gives"] else 0.0) * rows["result_seconds"]
    held = np.where(timed, (want - done) * rows["seconds"] + results_held, 0.0) / time
    rows["busy"] += rows["threads"] * step * worked / time
    rows["blocked"] += rows["threads"] * step * np.where(timed, held, (want - done) / np.where(want > 0, want, 1.0))
    rows["worked"] += worked * rows["cpu"]
    rows["results"] = np.maximum(rows["results"] - given, 0.0)
    if row["panes"]:
        rows["kept"] += done
        flow.panes[own, row["newest"]] += done
    rows["area"] += rows["queue"] * step
    rows["peak"] = np.maximum(rows["peak"], rows["queue"])
    flow.instances[own] = rows
    for number, edge in enumerate(flow.edges):
        if edge["sender"] == operator:
            outputs = out.sum() * row["outputs"] * _shares(flow, number)
            flow.instances["inflow"][_own(flow, edge["receiver"])] += outputs
