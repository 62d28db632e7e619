"""A simulated cluster as flows: in every step of time each instance gets, does and passes on a share of its work.

A step goes through the operators three times: what each would do if nothing held it back; from the last to the first,
how much each can take, which a full queue further on limits; from the first to the last, what happens. The second is
done in rounds: an operator that one queue holds back leaves its places in others to those who send there too.

An operator may keep what it gets for a while, in panes of time of which the oldest is forgotten when a new one begins.
What it keeps may make its work dearer, or come out as the results of a window whenever a pane ends: all at once, before
the tuples that wait.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import inlined, loop

Rows = Any
"""A structured array, or one row of it."""
Floats = np.ndarray[Any, np.dtype[np.float64]]

NONE = -1

FLUID = np.dtype(
    [
        ("operator", "i4"), ("machine", "i4"), ("source", "i4"), ("threads", "f8"), ("capacity", "f8"),
        ("service", "f8"), ("growth", "f8"), ("cpu", "f8"), ("result_seconds", "f8"), ("keys", "f8"),
        ("kept", "f8"), ("results", "f8"), ("queue", "f8"),
        ("seconds", "f8"), ("time", "f8"), ("inflow", "f8"), ("can", "f8"), ("can_give", "f8"), ("accept", "f8"),
        ("received", "f8"), ("processed", "f8"), ("sent", "f8"), ("busy", "f8"), ("worked", "f8"), ("blocked", "f8"),
        ("area", "f8"), ("peak", "f8"),
    ],
    align=True,
)  # fmt: skip
"""An instance. A tuple takes `service` seconds of a thread and `growth` more for each that is `kept`; for the share
`cpu` of them a core is used. Of `keys` different keys; `results` of windows wait, each of which takes `result_seconds`.
In this step a tuple takes `seconds`, of the `time` that the threads have together; `can` is what it can do, `can_give`
how many results it can make, `accept` what its queue can take. From `received` on, sums since they were last set to 0;
`worked` are seconds of cores."""
FLOW_OPERATOR = np.dtype(
    [
        ("first", "i4"), ("count", "i4"), ("first_edge", "i4"), ("edges", "i4"), ("panes", "i4"), ("newest", "i4"),
        ("gives", "i4"), ("threads", "f8"), ("outputs", "f8"), ("sends", "f8"), ("limit", "f8"), ("pane", "f8"),
        ("left", "f8"), ("new_keys", "f8"),
    ],
    align=True,
)  # fmt: skip
"""`sends` is how many tuples go over all edges together for one that comes out; `limit` how many tuples its receivers
let it process in this step, or results where it `gives` those of windows. What came in the last `panes` panes of `pane`
seconds is kept, 0 panes for nothing; the `newest` ends in `left` seconds. A tuple brings `new_keys` on average."""
FLOW_EDGE = np.dtype(
    [
        ("sender", "i4"), ("receiver", "i4"), ("first_share", "i4"), ("share", "f8"), ("demand", "f8"), ("part", "f8"),
    ],
    align=True,
)  # fmt: skip
"""`share` is how many of the tuples that come out go over it; `part` the share of the receiver's places that it may
take, by what its senders would send."""
FLOW_MACHINE = np.dtype([("cores", "f8"), ("share", "f8"), ("bounded", "f8"), ("open", "f8")], align=True)
"""`share` of its threads' time that every instance gets in this step; seconds of cores for those that want no more
than that, and those that the others would take in all of their time."""

ROUNDS = 4
"""In which what some instances leave of their share of a machine, or some edges of a queue, goes to the others."""


class Flow(NamedTuple):
    """All that a step reads and writes."""

    operators: Rows
    """Senders before their receivers."""
    instances: Rows
    edges: Rows
    """Sorted by sender."""
    shares: Floats
    """For each edge, how much of what is sent each of the receiver's instances gets."""
    machines: Rows
    panes: Floats
    """float64[instances, panes]: tuples of each pane that is kept."""


@inlined
def different(kept: float, keys: float, new_keys: float) -> float:
    """How many different keys tuples have, as if all keys of an instance were alike."""
    return keys * (1.0 - np.exp(-kept * new_keys / keys)) if keys < np.inf else kept * new_keys


@inlined
def end_panes(flow: Flow, step: float) -> None:
    """Where a pane ended, results of a window are to be made, and the oldest pane is forgotten."""
    for operator in flow.operators:
        if operator.panes > 0 and operator.left < step / 2:
            operator.left += operator.pane
            operator.newest = (operator.newest + 1) % operator.panes
            for number in range(operator.first, operator.first + operator.count):
                row = flow.instances[number]
                if operator.gives:
                    row.results += different(row.kept, row.keys, operator.new_keys)
                row.kept = max(row.kept - flow.panes[number, operator.newest], 0.0)
                flow.panes[number, operator.newest] = 0.0


@inlined
def share_cores(flow: Flow, step: float) -> None:
    """What each instance can do in this step: in all of its time, or an equal share of it where cores are too few."""
    for machine in flow.machines:
        machine.share = 0.0
    for row in flow.instances:
        row.seconds = row.service + row.growth * row.kept
    for _ in range(ROUNDS):
        for machine in flow.machines:
            machine.bounded = 0.0
            machine.open = 0.0
        for row in flow.instances:
            wanted = (row.queue + row.inflow) * row.seconds + row.results * row.result_seconds
            if wanted > 0.0:
                machine = flow.machines[row.machine]
                if wanted <= row.threads * step * machine.share:
                    machine.bounded += wanted * row.cpu
                else:
                    machine.open += row.threads * step * row.cpu
        for machine in flow.machines:
            left = machine.cores * step - machine.bounded
            if machine.open > 0.0:
                machine.share = min(1.0, left / machine.open)
            elif machine.bounded == 0.0:
                machine.share = 1.0
    for row in flow.instances:
        row.time = row.threads * step * flow.machines[row.machine].share
        for_results = min(row.results * row.result_seconds, row.time)
        row.can_give = for_results / row.result_seconds if row.result_seconds > 0.0 else row.results
        row.can = (row.time - for_results) / row.seconds if row.seconds > 0.0 else np.inf


@inlined
def weigh_edges(flow: Flow) -> None:
    """What each edge would carry in this step, as far as is known how much its sender may process."""
    for edge in flow.edges:
        operator = flow.operators[edge.sender]
        wanted = 0.0
        for number in range(operator.first, operator.first + operator.count):
            row = flow.instances[number]
            wanted += row.can_give if operator.gives else min(row.queue + row.inflow, row.can)
        edge.demand = min(wanted, operator.limit) * operator.outputs * edge.share


@inlined
def share_places(flow: Flow, receiver: int) -> None:
    """Edges that meet at a receiver get its places: what they would fill, or one in turn for each sender's thread.

    `level` is how many a thread gets in this step; what edges with fewer tuples leave of theirs goes to the others.
    """
    operator = flow.operators[receiver]
    places = 0.0
    for number in range(operator.first, operator.first + operator.count):
        places += flow.instances[number].accept
    level = 0.0
    for _ in range(ROUNDS):
        taken, waiting = 0.0, 0.0
        for edge in flow.edges:
            if edge.receiver == receiver:
                threads = flow.operators[edge.sender].threads
                taken += min(edge.demand, level * threads)
                if edge.demand > level * threads:
                    waiting += threads
        if waiting > 0.0 and places < np.inf:
            level += (places - taken) / waiting
        elif waiting > 0.0:
            level = np.inf
    together, edges = 0.0, 0
    for edge in flow.edges:
        if edge.receiver == receiver:
            together += min(edge.demand, level * flow.operators[edge.sender].threads)
            edges += 1
    for edge in flow.edges:
        if edge.receiver == receiver:
            part = min(edge.demand, level * flow.operators[edge.sender].threads)
            edge.part = part / together if together > 0.0 else 1.0 / edges


@inlined
def limit_operator(flow: Flow, operator: Rows) -> None:
    """How much the operator may process: as much as the fullest of its receivers' queues lets it."""
    limit = np.inf
    for number in range(operator.first_edge, operator.first_edge + operator.edges):
        edge = flow.edges[number]
        receiver = flow.operators[edge.receiver]
        for spot in range(receiver.count):
            share = flow.shares[edge.first_share + spot] * operator.outputs
            if share > 0.0:
                accept = flow.instances[receiver.first + spot].accept
                if accept < np.inf:  # infinity times a part of 0 is no number
                    limit = min(limit, accept * edge.part / share)
    operator.limit = limit


@inlined
def accept_up_to(flow: Flow, operator: Rows) -> None:
    """What each instance's queue can take in this step: its free places, and those that its work will free."""
    together = 0.0
    for number in range(operator.first, operator.first + operator.count):
        together += flow.instances[number].can
    held_back = min(1.0, operator.limit / together) if 0.0 < together < np.inf else 0.0
    for number in range(operator.first, operator.first + operator.count):
        row = flow.instances[number]
        # work without bound frees as many places as the receivers let it
        freed = row.can * held_back if together < np.inf else operator.limit / operator.count
        if operator.gives:  # what comes in stays, whoever holds the results back
            freed = row.can
        row.accept = max(0.0, row.capacity - row.queue + freed)


@inlined
def spend(row: Rows, step: float, want: float, done: float, wanted_results: float, given: float) -> None:
    """How an instance spent its time on tuples and results, of which it wanted to do so many, and did so many."""
    if row.time > 0.0 and (row.seconds > 0.0 or row.result_seconds > 0.0):
        at_work = done * row.seconds + given * row.result_seconds
        held = (want - done) * row.seconds + (wanted_results - given) * row.result_seconds
        row.busy += row.threads * step * at_work / row.time
        row.blocked += row.threads * step * held / row.time
        row.worked += at_work * row.cpu
    elif want > done:
        row.blocked += row.threads * step * (want - done) / want


@inlined
def give_results(flow: Flow, operator: Rows, step: float) -> float:
    """Instances take all tuples that they can, and make results. Gives how many, as far as receivers have places."""
    wanted = 0.0
    for number in range(operator.first, operator.first + operator.count):
        wanted += flow.instances[number].can_give
    held_back = min(1.0, operator.limit / wanted) if wanted > 0.0 else 0.0
    together = 0.0
    for number in range(operator.first, operator.first + operator.count):
        row = flow.instances[number]
        done = min(row.queue + row.inflow, row.can)
        given = row.can_give * held_back
        spend(row, step, done, done, row.can_give, given)
        row.results = max(row.results - given, 0.0)
        row.sent += given * operator.outputs * operator.sends
        take(flow, operator, number, done, step)
        together += given
    return together


@inlined
def take(flow: Flow, operator: Rows, number: int, done: float, step: float) -> None:
    """So much of what came to an instance leaves its queue, and is kept where the operator keeps anything."""
    row = flow.instances[number]
    row.received += row.inflow
    row.queue = max(row.queue + row.inflow - done, 0.0)
    row.processed += done
    row.area += row.queue * step
    row.peak = max(row.peak, row.queue)
    if operator.panes > 0:
        row.kept += done
        flow.panes[number, operator.newest] += done


@inlined
def process(flow: Flow, operator: Rows, step: float) -> float:
    """The operator's instances work. Gives how many tuples they processed together.

    Where receivers hold them back, all do the same share of what they want beyond what has no place in their queues:
    that had to come, since it was reckoned with their work.
    """
    wanted, needed = 0.0, 0.0
    for number in range(operator.first, operator.first + operator.count):
        row = flow.instances[number]
        want = min(row.queue + row.inflow, row.can)
        wanted += want
        needed += min(want, max(0.0, row.queue + row.inflow - row.capacity))
    held_back = min(1.0, max(0.0, operator.limit - needed) / (wanted - needed)) if wanted > needed else 0.0
    done_together = 0.0
    for number in range(operator.first, operator.first + operator.count):
        row = flow.instances[number]
        want = min(row.queue + row.inflow, row.can)
        need = min(want, max(0.0, row.queue + row.inflow - row.capacity))
        done = need + (want - need) * held_back
        spend(row, step, want, done, 0.0, 0.0)
        row.sent += done * operator.outputs * operator.sends
        take(flow, operator, number, done, step)
        done_together += done
    return done_together


@inlined
def pass_on(flow: Flow, operator: Rows, outputs: float) -> None:
    """Receivers get their shares of what came out."""
    for number in range(operator.first_edge, operator.first_edge + operator.edges):
        edge = flow.edges[number]
        receiver = flow.operators[edge.receiver]
        for spot in range(receiver.count):
            flow.instances[receiver.first + spot].inflow += outputs * flow.shares[edge.first_share + spot]


@loop
def run_steps(flow: Flow, arrivals: Floats, step: float, running: bool) -> None:
    """One step for each row of `arrivals`, float64[steps, sources]; while not `running`, logs grow and nobody works."""
    for number in range(len(arrivals)):
        if not running:
            for row in flow.instances:
                if row.source != NONE:
                    row.queue += arrivals[number, row.source]
                    row.received += arrivals[number, row.source]
                row.area += row.queue * step
            continue
        end_panes(flow, step)
        share_cores(flow, step)
        for operator in flow.operators:
            operator.limit = np.inf
        for _ in range(ROUNDS):
            weigh_edges(flow)
            for spot in range(len(flow.operators) - 1, -1, -1):
                limit_operator(flow, flow.operators[spot])
                accept_up_to(flow, flow.operators[spot])
                share_places(flow, spot)
        for row in flow.instances:
            row.inflow = arrivals[number, row.source] if row.source != NONE else 0.0
        for operator in flow.operators:
            done = give_results(flow, operator, step) if operator.gives else process(flow, operator, step)
            pass_on(flow, operator, done * operator.outputs)
            operator.left -= step
