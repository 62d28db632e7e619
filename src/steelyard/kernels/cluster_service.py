"""Servers of a simulated cluster at work: machines that share their cores, queues, and the start of a service."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.cluster_state import (
    BLOCKED,
    BUSY,
    EMITTING,
    EXACTLY,
    EXPONENTIAL,
    FREE,
    FREE_RECORD,
    FULL_MACHINE,
    GROWING,
    MARKER,
    NEEDS_LOG,
    NONE,
    PER_ITEM,
    REACHED,
    READY,
    WAITING,
    WORK_COUNT,
    WORK_FIRST,
    Cluster,
    Rows,
)
from steelyard.kernels.compiled import inlined, loop
from steelyard.kernels.event_heap import cancel, schedule
from steelyard.kernels.mixing import mix


@inlined
def hold(cluster: Cluster, number: int, size: float) -> None:
    """So many bytes more are in a machine's memory."""
    machine = cluster.machines[number]
    machine.held += size
    machine.most_held = max(machine.most_held, machine.held)
    if machine.held > machine.memory:
        cluster.counters[FULL_MACHINE] = number


@inlined
def uniform(server: Rows) -> float:
    """The server's next random number in [0, 1): each server has its own, whatever the others do."""
    server.random += np.uint64(0x9E3779B97F4A7C15)
    return float(np.float64(mix(server.random, 0) >> np.uint64(11)) * (1.0 / 9007199254740992.0))


@inlined
def service_time(cluster: Cluster, server: Rows, operator: Rows) -> float:
    """Seconds that the server's tuple needs on a core of speed 1, by the operator's law."""
    law = operator.law
    if law == EXACTLY:
        return float(operator.mean)
    if law == EXPONENTIAL:
        return float(-operator.mean * np.log(1.0 - uniform(server)))
    if law == GROWING:
        return growing_time(cluster, cluster.instances[server.instance], operator)
    if law == PER_ITEM:
        return float(cluster.tables[operator.table_first + server.item % operator.table_size])
    return float(cluster.tables[operator.table_first + np.int64(uniform(server) * operator.table_size)])


@inlined
def growing_time(cluster: Cluster, instance: Rows, operator: Rows) -> float:
    """A tuple is compared with those that the instance keeps, and kept; a new window begins with none."""
    if operator.window > 0.0 and cluster.now[0] >= instance.window_end:
        cluster.machines[instance.machine].held -= instance.kept * operator.kept_bytes
        instance.kept = 0.0
        instance.window_end = (np.floor(cluster.now[0] / operator.window) + 1.0) * operator.window
    seconds = operator.mean + operator.growth * instance.kept
    instance.kept += 1.0
    if operator.kept_bytes > 0.0:
        hold(cluster, instance.machine, operator.kept_bytes)
    return float(seconds)


@inlined
def push_work(cluster: Cluster, number: int) -> None:
    """The server can go on at this moment; it is served after those that could before it."""
    counters, ring = cluster.counters, cluster.work
    spot = counters[WORK_FIRST] + counters[WORK_COUNT]
    if spot >= len(ring):
        spot -= len(ring)
    ring[spot] = number
    counters[WORK_COUNT] += 1


@inlined
def drop_work(cluster: Cluster) -> None:
    """The first server of the ring is done for this moment."""
    counters = cluster.counters
    counters[WORK_FIRST] += 1
    if counters[WORK_FIRST] == len(cluster.work):
        counters[WORK_FIRST] = 0
    counters[WORK_COUNT] -= 1


@inlined
def settle(machine: Rows, now: float) -> None:
    """Bring the machine's clock of work up to date."""
    machine.clock += machine.rate * (now - machine.at)
    machine.at = now


@inlined
def retime(cluster: Cluster, number: int) -> None:
    """Plan the machine's next end of a service anew, since the number of those that share its cores changed."""
    machine = cluster.machines[number]
    if machine.active == 0:
        machine.rate = 0.0
        cancel(cluster.heap, number)
        return
    rate = machine.speed
    if machine.active > machine.cores:
        rate *= machine.cores / machine.active
    machine.rate = rate
    left = cluster.servers[cluster.running[machine.first]].finish - machine.clock
    schedule(cluster.heap, number, machine.at + max(left, 0.0) / rate)


@inlined
def join_running(cluster: Cluster, machine: Rows, number: int) -> None:
    """Put a server into the machine's heap of busy ones."""
    servers, running, first = cluster.servers, cluster.running, machine.first
    finish = servers[number].finish
    spot = machine.active
    machine.active += 1
    while spot > 0:
        above = (spot - 1) >> 1
        other = running[first + above]
        if servers[other].finish < finish or (servers[other].finish == finish and other < number):
            break
        running[first + spot] = other
        spot = above
    running[first + spot] = number


@inlined
def leave_running(cluster: Cluster, machine: Rows) -> int:
    """Take the server that ends first out of the machine's heap."""
    servers, running, first = cluster.servers, cluster.running, machine.first
    ended = running[first]
    machine.active -= 1
    last = machine.active
    moved = running[first + last]
    finish = servers[moved].finish
    spot = 0
    while True:
        below = 2 * spot + 1
        if below >= last:
            break
        other = running[first + below]
        if below + 1 < last:
            right = running[first + below + 1]
            if servers[right].finish < servers[other].finish or (
                servers[right].finish == servers[other].finish and right < other
            ):
                below += 1
                other = right
        if finish < servers[other].finish or (finish == servers[other].finish and moved < other):
            break
        running[first + spot] = other
        spot = below
    running[first + spot] = moved
    return int(ended)


@inlined
def begin_service(cluster: Cluster, number: int) -> None:
    """The server works on the tuple that it holds; one that costs nothing is ended at once."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    machine = cluster.machines[instance.machine]
    demand = service_time(cluster, server, cluster.operators[instance.operator]) * instance.slowdown
    demand += server.debt
    server.debt = 0.0
    if server.remote:
        demand += machine.serialise
    instance.taken += 1
    work_on(cluster, number, demand)


@inlined
def work_on(cluster: Cluster, number: int, demand: float) -> None:
    """The server works for so many seconds of a core of speed 1, on a core that it shares."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    machine = cluster.machines[instance.machine]
    instance.serving += 1
    server.demand = demand
    server.since = cluster.now[0]
    if demand <= 0.0:
        end_service(cluster, number)
        return
    server.phase = BUSY
    settle(machine, cluster.now[0])
    server.finish = machine.clock + demand
    join_running(cluster, machine, number)
    retime(cluster, instance.machine)


@inlined
def end_service(cluster: Cluster, number: int) -> None:
    """The tuple is processed; what comes out of it is to be sent."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    if server.results == NONE:
        instance.done += 1
    instance.busy += cluster.now[0] - server.since
    instance.worked += cluster.now[0] - server.since
    instance.useful += server.demand / cluster.machines[instance.machine].speed
    outputs = cluster.operators[instance.operator].outputs
    copies = np.int64(outputs)
    if outputs > copies and uniform(server) < outputs - copies:
        copies += 1
    server.copies = copies
    server.copy = 0
    server.edge = 0
    server.dest = NONE
    server.drawn = -1.0
    server.phase = EMITTING


@inlined
def take_from_log(cluster: Cluster, number: int) -> int:
    """A source reads its next row, or waits for it. Tells whether rows are wanting."""
    server = cluster.servers[number]
    which = cluster.instances[server.instance].source
    source = cluster.sources[which]
    if source.at >= source.end:
        if not source.ended:
            return NEEDS_LOG
        server.phase = FREE
        return REACHED
    time = cluster.log_times[which, source.at]
    if time > cluster.now[0]:
        server.phase = WAITING
        schedule(cluster.heap, len(cluster.machines) + which, time)
        return REACHED
    server.item = cluster.log_items[which, source.at]
    server.key = cluster.log_keys[which, source.at]
    server.born = time
    source.at += 1
    begin_service(cluster, number)
    return REACHED


@inlined
def take_from_queue(cluster: Cluster, number: int) -> None:
    """The server takes the first tuple that waits, and a blocked sender gets the place; or it is free."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    record = instance.head
    if record == NONE:
        server.phase = FREE
        server.next = instance.free
        instance.free = number
        return
    now = cluster.now[0]
    waiting = cluster.pool[record]
    instance.area += instance.queued * (now - instance.area_at)
    instance.area_at = now
    instance.queued -= 1
    instance.fill -= 1
    instance.head = waiting.next
    if instance.head == NONE:
        instance.tail = NONE
    instance.waited += now - waiting.due
    if waiting.bytes > 0.0:
        cluster.machines[instance.machine].held -= waiting.bytes
    server.item, server.key = waiting.item, waiting.key
    server.born, server.remote = waiting.born, waiting.remote
    server.by = waiting.by
    if server.by != NONE:
        server.request, server.load = np.int64(cluster.letters[record, 0]), cluster.letters[record, 1]
    waiting.next = cluster.counters[FREE_RECORD]
    cluster.counters[FREE_RECORD] = record
    if instance.first_blocked != NONE:
        first = cluster.instances[cluster.servers[instance.first_blocked].instance]
        if instance.behind > 0 or first.epoch != instance.epoch:
            unblock_around_markers(cluster, instance)
        elif instance.fill < instance.capacity:
            unblock_first(cluster, instance)
    begin_service(cluster, number)


@inlined
def unblock_first(cluster: Cluster, instance: Rows) -> None:
    """The sender that has waited longest for a place in the instance's queue gets it, and goes on."""
    number = instance.first_blocked
    server = cluster.servers[number]
    instance.first_blocked = server.next
    if instance.first_blocked == NONE:
        instance.last_blocked = NONE
    instance.fill += 1
    server.granted = 1
    server.phase = EMITTING
    sender = cluster.instances[server.instance]
    sender.blocked += cluster.now[0] - server.since
    push_work(cluster, number)


@inlined
def has_place(sender: Rows, instance: Rows) -> bool:
    """Whether a tuple of this sender may come to the instance's queue.

    Tuples behind a marker leave the queue only when all markers have come. So they keep no place from a sender whose
    marker has not: otherwise neither would ever go on.
    """
    if sender.epoch == instance.epoch:
        return bool(instance.fill - instance.behind < instance.capacity)
    return bool(instance.fill < instance.capacity)


@inlined
def take_place(sender: Rows, instance: Rows) -> None:
    """A tuple of this sender counts as one of the instance's queue from now on."""
    instance.fill += 1
    if sender.epoch != instance.epoch:
        instance.behind += 1


@loop
def unblock_around_markers(cluster: Cluster, instance: Rows) -> None:
    """Senders that wait for a place get it in their order, except that some may not have it yet."""
    before, number = NONE, instance.first_blocked
    while number != NONE:
        server = cluster.servers[number]
        after = server.next
        sender = cluster.instances[server.instance]
        if has_place(sender, instance):
            take_place(sender, instance)
            if before == NONE:
                instance.first_blocked = after
            else:
                cluster.servers[before].next = after
            if after == NONE:
                instance.last_blocked = before
            server.granted = 1
            server.phase = EMITTING
            sender.blocked += cluster.now[0] - server.since
            push_work(cluster, number)
        else:
            before = number
        number = after


@inlined
def block(cluster: Cluster, number: int, instance: Rows) -> None:
    """The server has something for a queue that is full: it waits for its turn, and does nothing else."""
    server = cluster.servers[number]
    server.phase = BLOCKED
    server.since = cluster.now[0]
    server.next = NONE
    if instance.last_blocked == NONE:
        instance.first_blocked = number
    else:
        cluster.servers[instance.last_blocked].next = number
    instance.last_blocked = number


@inlined
def join_queue(cluster: Cluster, record: int) -> None:
    """A tuple has come to the instance that it was sent to; a free server takes it."""
    arrived = cluster.pool[record]
    instance = cluster.instances[arrived.dest]
    now = cluster.now[0]
    arrived.due = now
    arrived.next = NONE
    if instance.tail == NONE:
        instance.head = record
    else:
        cluster.pool[instance.tail].next = record
    instance.tail = record
    if arrived.remote != MARKER:
        instance.area += instance.queued * (now - instance.area_at)
        instance.area_at = now
        instance.queued += 1
        instance.peak = max(instance.peak, instance.queued)
    number = instance.free
    if number != NONE:
        server = cluster.servers[number]
        instance.free = server.next
        server.phase = READY
        push_work(cluster, number)


@inlined
def enough_free(cluster: Cluster, wanted: int) -> bool:
    """Whether there are so many free records."""
    record = cluster.counters[FREE_RECORD]
    while wanted > 0 and record != NONE:
        record = cluster.pool[record].next
        wanted -= 1
    return wanted == 0


@inlined
def leave_machine(cluster: Cluster, source: int, target: int, size: float) -> float:
    """When so many bytes have left over the line to other machines, or over the one inside, behind all before them."""
    machine = cluster.machines[source]
    now = cluster.now[0]
    if source != target:
        machine.line_free = max(machine.line_free, now) + size * machine.seconds_a_byte
        machine.sent_bytes += size
        return float(machine.line_free)
    machine.local_free = max(machine.local_free, now) + size * machine.local_seconds_a_byte
    return float(machine.local_free)


@inlined
def travel(cluster: Cluster, record: int, due: float, source: int, target: int) -> bool:
    """Something is on its way from one machine to another, behind all that is; tells whether it is there at once."""
    # where no journey takes any time, one link stands for all
    number = source * len(cluster.machines) + target if len(cluster.links) > 1 else 0
    link = cluster.links[number]
    due += link.latency
    if due <= cluster.now[0] and link.head == NONE:
        return True
    cluster.pool[record].due = due
    cluster.pool[record].next = NONE
    if link.tail == NONE:
        link.head = record
        schedule(cluster.heap, len(cluster.machines) + len(cluster.sources) + number, due)
    else:
        cluster.pool[link.tail].next = record
    link.tail = record
    return False
