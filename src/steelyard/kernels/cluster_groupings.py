"""Groupings by cost in a simulated cluster: schedulers that choose, instances that learn, and letters between them.

What instances write travels over the same links as tuples, from the receiver's machine to the sender's. The event loop
comes back for each of these steps and goes on after it: were they a part of it, every simulation would be compiled with
them, which takes longer than all the rest.
"""

from __future__ import annotations

from typing import NamedTuple, get_type_hints

import numpy as np

from steelyard.kernels.cluster_loop import run_until
from steelyard.kernels.cluster_service import enough_free, leave_machine, travel
from steelyard.kernels.cluster_state import (
    EXACTLY,
    FREE_RECORD,
    LETTER,
    LETTER_CAME,
    NEEDED,
    NEEDS_CHOICE,
    NEEDS_REPORT,
    NEEDS_ROOM,
    NEEDS_SLOTS,
    NONE,
    REACHED,
    WORK_FIRST,
    Cluster,
    Rows,
)
from steelyard.kernels.compiled import inlined, loop
from steelyard.kernels.osg import answer, choose, clock_of, execute, forget, take_matrices, take_reply
from steelyard.kernels.osg_sketch import copy_cells
from steelyard.kernels.osg_state import KNOWN, NOT_MARKED, Floats, Ints, Learners, Rule, Schedulers

NUMBER_BYTES = 8
REPLY_NUMBERS, MATRICES_NUMBERS = 8, 3
"""Numbers in a reply, and beside the cells in a message with matrices."""


RULE = np.dtype([(name, "f8" if kind is float else "i8") for name, kind in get_type_hints(Rule).items()])


class Groupings(NamedTuple):
    """Schedulers and instances of all edges whose grouping goes by cost, and matrices under way between them."""

    rules: Rows
    """One for each such edge, with the fields of `Rule`, and"""
    hashes: Ints
    """int64[edges, rows, 2]: its hash functions, as many as"""
    depths: Ints
    """int64[edges] says."""
    schedulers: Schedulers
    """One for each such edge and instance that sends on it."""
    learners: Learners
    """One for each such edge and instance that receives."""
    edge_of: Ints
    """int64[schedulers]: the edge in `Cluster.edges`."""
    costs: Floats
    """float64[1, instances]: what a tuple takes on each, for a grouping that must be told."""
    matrices: Floats
    """float64[slots, rows, columns, 2]: matrices under way, and"""
    readers: Ints
    """int64[slots]: how many letters with them are; 0 is a free slot."""


def more_slots(groupings: Groupings) -> Groupings:
    """The same with room for twice as many matrices under way."""
    matrices = np.concatenate([groupings.matrices, np.zeros_like(groupings.matrices)])
    readers = np.concatenate([groupings.readers, np.zeros_like(groupings.readers)])
    return groupings._replace(matrices=matrices, readers=readers)


@inlined
def rule_of(groupings: Groupings, number: int) -> Rule:
    """The rule of an edge as the loops of groupings take it."""
    row = groupings.rules[number]
    return Rule(
        row.kind,
        row.instances,
        row.turns,
        row.schedulers,
        row.window,
        row.tolerance,
        row.masked != 0,
        row.elapsed != 0,
        row.resync,
        row.apart,
        row.mean_unseen != 0,
        row.on_change != 0,
        row.keep,
        row.conservative != 0,
        row.idle_aware != 0,
        row.continuous != 0,
        row.shared != 0,
        row.reshuffle != 0,
        row.seed,
        row.columns,
    )


@inlined
def choose_by_cost(cluster: Cluster, groupings: Groupings, server: Rows) -> None:
    """Choose which of the edge's instances gets the server's tuple, and what the tuple asks of it."""
    operator = cluster.operators[cluster.instances[server.instance].operator]
    edge = cluster.edges[operator.first_edge + server.edge]
    rule, hashes = rule_of(groupings, edge.rule), groupings.hashes[edge.rule, : groupings.depths[edge.rule]]
    if rule.kind == KNOWN:
        tell_costs(cluster, groupings.costs, server, edge)
    by = edge.first_scheduler + server.instance - edge.first_from
    server.dest, server.ask, server.ask_load = choose(
        rule, hashes, groupings.schedulers, by, server.item, groupings.costs, 0, cluster.now[0]
    )


@inlined
def tell_costs(cluster: Cluster, costs: Floats, server: Rows, edge: Rows) -> None:
    """What the server's tuple takes on each instance, if it has a core for itself."""
    operator = cluster.operators[cluster.instances[edge.first].operator]
    seconds = operator.mean
    if operator.law != EXACTLY:
        seconds = cluster.tables[operator.table_first + server.item % operator.table_size]
    for to in range(edge.count):
        instance = cluster.instances[edge.first + to]
        costs[0, to] = seconds * instance.slowdown / cluster.machines[instance.machine].speed


@inlined
def report(cluster: Cluster, groupings: Groupings, server: Rows) -> int:
    """The instance learns what the server's tuple took, answers its request, and sends its matrices when they are due.

    Where room is needed it comes back, and goes on from there when called again.
    """
    learners = groupings.learners
    edge = cluster.edges[groupings.edge_of[server.by]]
    rule = rule_of(groupings, edge.rule)
    at = edge.first_learner + server.instance - edge.first
    if not server.stable:
        if server.request != NOT_MARKED and cluster.counters[FREE_RECORD] == NONE:
            return NEEDS_ROOM
        own, now = server.by - edge.first_scheduler, cluster.now[0]
        hashes = groupings.hashes[edge.rule, : groupings.depths[edge.rule]]
        server.stable = execute(rule, hashes, learners, at, server.item, now - server.since, own)
        instance = cluster.instances[server.instance]
        learners.worked[at] = instance.worked / instance.servers
        if server.request != NOT_MARKED:
            record = new_letter(cluster, server, server.by, NONE)
            cluster.letters[record, 0] = clock_of(rule, learners, at, own, now) - server.load
            cluster.letters[record, 3], cluster.letters[record, 4] = answer(learners, at, own)
            cluster.letters[record, 1], cluster.letters[record, 2] = learners.totals[at, 0], learners.totals[at, 1]
            if sent_back(cluster, record, edge, NUMBER_BYTES * REPLY_NUMBERS):
                deliver(cluster, groupings, record)
    if server.stable:
        slot = free_slot(groupings.readers)
        if slot == NONE:
            return NEEDS_SLOTS
        if not enough_free(cluster, rule.schedulers):
            return NEEDS_ROOM
        copy_cells(learners.cells[at], groupings.matrices[slot])
        groupings.readers[slot] = rule.schedulers
        size = NUMBER_BYTES * (2 * groupings.depths[edge.rule] * rule.columns + MATRICES_NUMBERS)
        for by in range(edge.first_scheduler, edge.first_scheduler + rule.schedulers):
            record = new_letter(cluster, server, by, slot)
            cluster.letters[record, 1], cluster.letters[record, 2] = learners.totals[at, 0], learners.totals[at, 1]
            if sent_back(cluster, record, edge, size):
                deliver(cluster, groupings, record)
        forget(rule, learners, at)
        server.stable = 0
    server.by = NONE
    return REACHED


@inlined
def free_slot(readers: Ints) -> int:
    """A slot for matrices that no letter has."""
    for slot in range(len(readers)):
        if readers[slot] == 0:
            return slot
    return NONE


@inlined
def new_letter(cluster: Cluster, server: Rows, by: int, slot: int) -> int:
    """The record of a letter from the server's instance to a scheduler."""
    record = cluster.counters[FREE_RECORD]
    letter = cluster.pool[record]
    cluster.counters[FREE_RECORD] = letter.next
    letter.dest, letter.remote, letter.by, letter.item, letter.key = server.instance, LETTER, by, slot, server.request
    return int(record)


@inlined
def sent_back(cluster: Cluster, record: int, edge: Rows, size: int) -> bool:
    """Send a letter over the lines of its instance's machine; tells whether it is there at once."""
    letter = cluster.pool[record]
    source = cluster.instances[letter.dest].machine
    target = cluster.instances[edge.first_from + letter.by - edge.first_scheduler].machine
    return bool(travel(cluster, record, leave_machine(cluster, source, target, size), source, target))


@inlined
def deliver(cluster: Cluster, groupings: Groupings, record: int) -> None:
    """A letter has come to its scheduler."""
    letter, letters = cluster.pool[record], cluster.letters
    by, slot = letter.by, letter.item
    edge = cluster.edges[groupings.edge_of[by]]
    rule, sender = rule_of(groupings, edge.rule), letter.dest - edge.first
    delta, count, time = letters[record, 0], letters[record, 1], letters[record, 2]
    if slot == NONE:
        own, everything = letters[record, 3], letters[record, 4]
        take_reply(rule, groupings.schedulers, by, sender, letter.key, delta, count, time, own, everything)
    else:
        take_matrices(rule, groupings.schedulers, by, sender, groupings.matrices[slot], count, time)
        groupings.readers[slot] -= 1
    letter.next = cluster.counters[FREE_RECORD]
    cluster.counters[FREE_RECORD] = record


@loop
def run_by_cost(cluster: Cluster, groupings: Groupings, until: float) -> int:
    """As `run_until`, where the grouping of an edge goes by cost."""
    while True:
        outcome = run_until(cluster, until)
        if outcome == NEEDS_CHOICE:
            choose_by_cost(cluster, groupings, cluster.servers[cluster.work[cluster.counters[WORK_FIRST]]])
        elif outcome == NEEDS_REPORT:
            outcome = report(cluster, groupings, cluster.servers[cluster.work[cluster.counters[WORK_FIRST]]])
            if outcome != REACHED:
                return int(outcome)
        elif outcome == LETTER_CAME:
            deliver(cluster, groupings, cluster.counters[NEEDED])
        else:
            return int(outcome)
