"""Windows of a simulated cluster that put out a result for each key when they end.

A tuple belongs to the window in which its service ends. The keys of an instance's present window are records of the
pool, chained in the order in which they came; a table finds the record of a key. When the window ends, the first thread
that is free works on the results before any tuple that waits, and sends them one after the other.
"""

from __future__ import annotations

import numpy as np

from steelyard.kernels.cluster_service import hold, push_work, work_on
from steelyard.kernels.cluster_state import (
    FREE_RECORD,
    KEYS,
    NEEDS_KEYS,
    NEEDS_ROOM,
    NONE,
    REACHED,
    READY,
    STOPPED,
    Cluster,
    Rows,
    no_keys,
)
from steelyard.kernels.compiled import loop
from steelyard.kernels.event_heap import schedule
from steelyard.kernels.mixing import mix


@loop
def slot_of(keys: Rows, instance: int, key: int) -> int:
    """Where in the table a key of an instance is, or the free slot where it would be."""
    last = len(keys) - 1
    slot = np.int64(mix(key, instance) & np.uint64(last))
    while keys[slot].record != NONE and (keys[slot].key != key or keys[slot].instance != instance):
        slot = (slot + 1) & last
    return int(slot)


@loop
def keep_key(cluster: Cluster, number: int, key: int, item: int, born: float) -> int:
    """A tuple goes into an instance's window; the first one of a window sets the time at which it ends."""
    instance = cluster.instances[number]
    found = cluster.keys[slot_of(cluster.keys, number, key)]
    if found.record != NONE and found.window == instance.windows:
        result = cluster.pool[found.record]
        result.item, result.born = item, born
        return REACHED
    if cluster.counters[FREE_RECORD] == NONE:
        return NEEDS_ROOM
    if 2 * cluster.counters[KEYS] >= len(cluster.keys):
        return NEEDS_KEYS
    operator = cluster.operators[instance.operator]
    if found.record == NONE:
        cluster.counters[KEYS] += 1
    record = cluster.counters[FREE_RECORD]
    result = cluster.pool[record]
    cluster.counters[FREE_RECORD] = result.next
    found.key, found.window, found.instance, found.record = key, instance.windows, number, record
    result.next, result.item, result.key, result.born = NONE, item, key, born
    if instance.opened == NONE:
        instance.opened = record
        if not cluster.counters[STOPPED]:
            end = (np.floor(cluster.now[0] / operator.closes) + 1.0) * operator.closes
            schedule(cluster.heap, instance.timer, end)
    else:
        cluster.pool[instance.last_opened].next = record
    instance.last_opened = record
    instance.keys += 1
    hold(cluster, instance.machine, operator.key_bytes)
    return REACHED


@loop
def end_window(cluster: Cluster, number: int) -> None:
    """The instance's window ends: its results are to be made, behind those of earlier windows that still are."""
    instance = cluster.instances[number]
    if instance.closing == NONE:
        instance.closing = instance.opened
    else:
        cluster.pool[instance.last_closing].next = instance.opened
    instance.last_closing = instance.last_opened
    instance.closing_keys += instance.keys
    instance.opened = instance.last_opened = NONE
    instance.keys = 0
    instance.windows += 1
    free = instance.free
    if free != NONE:
        instance.free = cluster.servers[free].next
        cluster.servers[free].phase = READY
        push_work(cluster, free)


@loop
def begin_results(cluster: Cluster, number: int) -> None:
    """The server works on all results that are to be made."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    server.results = instance.closing
    demand = cluster.operators[instance.operator].per_result * instance.closing_keys * instance.slowdown + server.debt
    server.debt = 0.0
    instance.closing = instance.last_closing = NONE
    instance.closing_keys = 0
    work_on(cluster, number, demand)


def more_keys(cluster: Cluster) -> Cluster:
    """The same cluster with room for more keys, in a table without those of windows that have ended."""
    used = cluster.keys[cluster.keys["record"] != NONE]
    live = used[used["window"] == cluster.instances["windows"][used["instance"]]]
    slots = len(cluster.keys)
    while 4 * len(live) >= slots:
        slots *= 2
    keys = no_keys(slots)
    insert(keys, live)
    cluster.counters[KEYS] = len(live)
    return cluster._replace(keys=keys)


@loop
def insert(keys: Rows, live: Rows) -> None:
    """Put keys into a table that has none of them."""
    for spot in range(len(live)):
        row = live[spot]
        slot = slot_of(keys, row.instance, row.key)
        keys[slot].key, keys[slot].window = row.key, row.window
        keys[slot].instance, keys[slot].record = row.instance, row.record
