"""Markers that travel between the tuples of a simulated cluster, and the snapshots that instances take by them.

A tuple has the epoch of its sender, the number of snapshots that the sender had taken. One of a later epoch than its
receiver's is behind a marker, and is put aside until markers have come on all channels.
"""

from __future__ import annotations

from steelyard.kernels.cluster_service import (
    enough_free,
    join_queue,
    join_running,
    leave_machine,
    push_work,
    retime,
    settle,
    travel,
)
from steelyard.kernels.cluster_state import (
    AWAITED,
    COMPLETED,
    FORWARD,
    FREE_RECORD,
    MARKER,
    MARKERS,
    NEEDS_ROOM,
    NONE,
    PER_KEPT,
    REACHED,
    READY,
    SAVED,
    SAVING,
    SNAPSHOT,
    Cluster,
    Rows,
)
from steelyard.kernels.compiled import loop


@loop
def call_source(cluster: Cluster, number: int) -> None:
    """A source that is to put out a marker writes down where it is in its log."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    source = cluster.sources[instance.source]
    source.saved_chunk, source.saved_at = source.chunk, source.at
    instance.saved_kept, instance.saved_end = instance.kept, instance.window_end
    instance.called = 0
    server.phase = SAVED


@loop
def pass_markers(cluster: Cluster, instance: Rows) -> None:
    """Take markers from the head of the queue, and put tuples behind markers aside, up to one that can be served."""
    pool = cluster.pool
    while instance.head != NONE and pool[instance.head].epoch != instance.epoch:
        record = instance.head
        instance.head = pool[record].next
        if instance.head == NONE:
            instance.tail = NONE
        if pool[record].remote == MARKER:
            if instance.came == 0:
                instance.aligning = cluster.now[0]
            instance.came += 1
            pool[record].next = cluster.counters[FREE_RECORD]
            cluster.counters[FREE_RECORD] = record
        else:
            pool[record].next = NONE
            if instance.last_aside == NONE:
                instance.aside = record
            else:
                pool[instance.last_aside].next = record
            instance.last_aside = record


@loop
def begin_snapshot(cluster: Cluster, number: int) -> None:
    """All markers have come and no other thread works: the server takes the snapshot."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    now = cluster.now[0]
    instance.came = -1
    instance.aligned += now - instance.aligning
    operator = cluster.operators[instance.operator]
    if operator.window > 0.0 and now >= instance.window_end:
        cluster.machines[instance.machine].held -= instance.kept * operator.kept_bytes
        instance.kept = 0.0
    instance.saved_kept, instance.saved_end = instance.kept, instance.window_end
    server.demand = cluster.snapshot[SNAPSHOT] + cluster.snapshot[PER_KEPT] * instance.kept
    server.since = now
    if server.demand <= 0.0:
        server.phase = SAVED
        return
    server.phase = SAVING
    machine = cluster.machines[instance.machine]
    settle(machine, now)
    server.finish = machine.clock + server.demand
    join_running(cluster, machine, number)
    retime(cluster, instance.machine)


@loop
def end_snapshot(cluster: Cluster, number: int) -> None:
    """The snapshot is taken; markers are to be sent."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    instance.busy += cluster.now[0] - server.since
    instance.useful += server.demand / cluster.machines[instance.machine].speed
    server.phase = SAVED


@loop
def send_markers(cluster: Cluster, number: int) -> int:
    """Send markers on all channels and go on with what was put aside. Tells whether it was the last snapshot."""
    server = cluster.servers[number]
    operator = cluster.operators[cluster.instances[server.instance].operator]
    first, last = operator.first_edge, operator.first_edge + operator.edges
    channels = 0
    for which in range(first, last):
        channels += cluster.edges[which].count
    if not enough_free(cluster, channels):
        return NEEDS_ROOM
    instance = cluster.instances[server.instance]
    instance.epoch += 1
    instance.behind = 0
    instance.came = 0
    for which in range(first, last):
        edge = cluster.edges[which]
        if edge.grouping == FORWARD:
            send_marker(cluster, instance, edge.first + (server.instance - edge.first_from) % edge.count)
        else:
            for dest in range(edge.first, edge.first + edge.count):
                send_marker(cluster, instance, dest)
    go_on(cluster, instance)
    server.phase = READY
    if operator.edges == 0:
        cluster.counters[AWAITED] -= 1
        if cluster.counters[AWAITED] == 0:
            return COMPLETED
    return REACHED


@loop
def send_marker(cluster: Cluster, sender: Rows, dest: int) -> None:
    """Send a marker, which has no size, behind all that was sent."""
    record = cluster.counters[FREE_RECORD]
    marker = cluster.pool[record]
    cluster.counters[FREE_RECORD] = marker.next
    cluster.counters[MARKERS] += 1
    marker.dest, marker.remote, marker.epoch = dest, MARKER, sender.epoch
    source, target = sender.machine, cluster.instances[dest].machine
    if travel(cluster, record, leave_machine(cluster, source, target, 0.0), source, target):
        join_queue(cluster, record)


@loop
def go_on(cluster: Cluster, instance: Rows) -> None:
    """What was put aside is first in the queue again, and free servers look at it."""
    if instance.aside != NONE:
        cluster.pool[instance.last_aside].next = instance.head
        instance.head = instance.aside
        if instance.tail == NONE:
            instance.tail = instance.last_aside
        instance.aside = instance.last_aside = NONE
    waiting = instance.queued - 1
    while waiting > 0 and instance.free != NONE:
        number = instance.free
        instance.free = cluster.servers[number].next
        cluster.servers[number].phase = READY
        push_work(cluster, number)
        waiting -= 1
