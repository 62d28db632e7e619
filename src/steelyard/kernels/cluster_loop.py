"""The event loop of a simulated cluster: tuple by tuple, exact, with queues that can be full.

`run_until` goes from event to event and comes back when the time is reached, or when it needs something that is
decided or made outside: rows of a log, routes of a policy, a step of a grouping by cost, more room. It goes on where it
was when called again.
"""

from __future__ import annotations

import numpy as np

from steelyard.kernels.cluster_markers import begin_snapshot, call_source, end_snapshot, pass_markers, send_markers
from steelyard.kernels.cluster_service import (
    begin_service,
    block,
    drop_work,
    end_service,
    has_place,
    hold,
    join_queue,
    leave_machine,
    leave_running,
    push_work,
    retime,
    settle,
    take_from_log,
    take_from_queue,
    take_place,
    travel,
    uniform,
)
from steelyard.kernels.cluster_state import (
    BINS,
    BINS_A_FACTOR_E,
    BROADCAST,
    BY_COST,
    DRAINED,
    EMITTING,
    EVENTS,
    EXHAUSTED,
    FORWARD,
    FREE_RECORD,
    FULL_MACHINE,
    HASH,
    IN_TURN,
    LETTER,
    LETTER_CAME,
    NEEDED,
    NEEDS_CHOICE,
    NEEDS_REPORT,
    NEEDS_ROOM,
    NEEDS_ROUTES,
    NEEDS_TRACE,
    NONE,
    POLICY,
    REACHED,
    READY,
    SAVED,
    SAVING,
    SHORTEST,
    SHORTEST_LATENCY,
    TRACED,
    WORK_COUNT,
    WORK_FIRST,
    Cluster,
    Rows,
)
from steelyard.kernels.cluster_windows import begin_results, end_window, keep_key
from steelyard.kernels.compiled import inlined, loop
from steelyard.kernels.event_heap import remove_first, schedule
from steelyard.kernels.mixing import home

__all__ = ["begin_service", "run_until"]

_STUCK = -2
"""From `send_outputs`: the server waits for a place."""


@inlined
def choose(cluster: Cluster, server: Rows, edge: Rows) -> int:
    """Which of the edge's instances gets the server's tuple; -1 where a policy has not decided yet."""
    grouping = edge.grouping
    number = edge.first_turn + server.instance - edge.first_from
    turn = cluster.turns[number]
    chosen = 0  # which is also where a broadcast begins
    if grouping == HASH:
        chosen = home(server.key, edge.count)
    elif grouping == IN_TURN:
        chosen = cluster.dealt[edge.first_dealt + turn.next]
        turn.next = turn.next + 1 if turn.next + 1 < edge.dealt else 0
    elif grouping == POLICY:
        chosen = NONE
        if turn.at < turn.filled:
            chosen = cluster.routes[number, turn.at]
            turn.at += 1
        else:
            cluster.counters[NEEDED] = number
    elif grouping == FORWARD:
        chosen = (server.instance - edge.first_from) % edge.count
    elif grouping == SHORTEST:
        chosen = shortest(cluster.instances, edge)
    elif grouping == BY_COST:
        chosen = NONE
    return chosen


@inlined
def shortest(instances: Rows, edge: Rows) -> int:
    """The instance with the fewest tuples that wait, travel to it or are served; the first of equals."""
    best = 0
    least = instances[edge.first].fill + instances[edge.first].serving
    for dest in range(1, edge.count):
        load = instances[edge.first + dest].fill + instances[edge.first + dest].serving
        if load < least:
            least, best = load, dest
    return best


@inlined
def send(cluster: Cluster, server: Rows, dest: int, edge: Rows) -> None:
    """Take a record for what the server puts out, and give it to the network, or straight to the queue."""
    record = cluster.counters[FREE_RECORD]
    tuple_ = cluster.pool[record]
    cluster.counters[FREE_RECORD] = tuple_.next
    tuple_.item, tuple_.key, tuple_.born, tuple_.dest = server.item, server.key, server.born, dest
    sender = cluster.instances[server.instance]
    sender.sent += 1
    tuple_.epoch = sender.epoch
    source, target = sender.machine, cluster.instances[dest].machine
    tuple_.remote = source != target
    tuple_.by = NONE
    if edge.reports:
        tuple_.by = edge.first_scheduler + server.instance - edge.first_from
        cluster.letters[record, 0], cluster.letters[record, 1] = server.ask, server.ask_load
    size = edge.bytes
    tuple_.bytes = size
    if size > 0.0:
        hold(cluster, target, size)
    if source != target:
        server.debt += cluster.machines[source].serialise
    if travel(cluster, record, leave_machine(cluster, source, target, size), source, target):
        join_queue(cluster, record)


@inlined
def takes(server: Rows, edge: Rows) -> bool:
    """Whether the server's tuple goes over the edge. One draw decides between all branches of its operator."""
    if edge.low == 0.0 and edge.high == 1.0:
        return True
    if server.drawn < 0.0:
        server.drawn = uniform(server)
    return bool(edge.low <= server.drawn < edge.high)


@inlined
def send_outputs(cluster: Cluster, number: int) -> int:
    """Send all that comes out of the server's tuple, from where it was stuck before."""
    server = cluster.servers[number]
    operator = cluster.operators[cluster.instances[server.instance].operator]
    while server.copy < server.copies:
        while server.edge < operator.edges:
            edge = cluster.edges[operator.first_edge + server.edge]
            if cluster.counters[FREE_RECORD] == NONE:
                return NEEDS_ROOM
            if server.dest == NONE:
                if not takes(server, edge):
                    server.edge += 1
                    continue
                server.dest = choose(cluster, server, edge)
                if server.dest == NONE:
                    return NEEDS_CHOICE if edge.grouping == BY_COST else NEEDS_ROUTES
            dest = edge.first + server.dest
            if server.granted:
                server.granted = 0
            else:
                target = cluster.instances[dest]
                sender = cluster.instances[server.instance]
                if not has_place(sender, target):
                    block(cluster, number, target)
                    return _STUCK
                take_place(sender, target)
            send(cluster, server, dest, edge)
            if edge.grouping == BROADCAST and server.dest + 1 < edge.count:
                server.dest += 1
            else:
                server.dest = NONE
                server.edge += 1
        server.edge = 0
        server.drawn = -1.0
        server.copy += 1
    return REACHED


@inlined
def leave_cluster(cluster: Cluster, server: Rows, operator: int) -> int:
    """Count a tuple that comes out of an operator without edges, by its age."""
    counters = cluster.counters
    if len(cluster.trace):
        if counters[TRACED] == len(cluster.trace):
            return NEEDS_TRACE
        row = cluster.trace[counters[TRACED]]
        row.instance, row.item, row.born, row.done = server.instance, server.item, server.born, cluster.now[0]
        counters[TRACED] += 1
    age = cluster.now[0] - server.born
    spot = 0
    if age > SHORTEST_LATENCY:
        spot = min(int(np.log(age / SHORTEST_LATENCY) * BINS_A_FACTOR_E) + 1, BINS - 1)
    cluster.latencies[operator, spot] += 1
    cluster.latency_sums[operator, 0] += age
    cluster.latency_sums[operator, 1] = max(cluster.latency_sums[operator, 1], age)
    return REACHED


@loop
def put_out_results(cluster: Cluster, number: int) -> int:
    """Send or count the results of a window one after the other, from where the server was stuck before."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    operator = cluster.operators[instance.operator]
    while server.results != NONE:
        record = server.results
        result = cluster.pool[record]
        server.item, server.key, server.born = result.item, result.key, result.born
        server.copies = 1
        if operator.edges == 0:
            outcome = leave_cluster(cluster, server, instance.operator)
        else:
            outcome = send_outputs(cluster, number)
        if outcome != REACHED:
            return int(outcome)
        server.copy = 0
        server.results = result.next
        cluster.machines[instance.machine].held -= operator.key_bytes
        result.next = cluster.counters[FREE_RECORD]
        cluster.counters[FREE_RECORD] = record
    return REACHED


@inlined
def finish_tuple(cluster: Cluster, number: int) -> int:
    """Send or count what the server has processed, so that it can take the next tuple."""
    server = cluster.servers[number]
    instance = cluster.instances[server.instance]
    if server.by != NONE:
        return NEEDS_REPORT
    if cluster.operators[instance.operator].closes > 0.0:
        if server.results != NONE:
            outcome = put_out_results(cluster, number)
        else:
            outcome = keep_key(cluster, server.instance, server.key, server.item, server.born)
    elif cluster.operators[instance.operator].edges == 0:
        outcome = leave_cluster(cluster, server, instance.operator)
    else:
        outcome = send_outputs(cluster, number)
    if outcome == REACHED:
        instance.serving -= 1
        server.phase = READY
    return outcome


@inlined
def take_next(cluster: Cluster, number: int) -> int:
    """The server begins with what is next: a row, a tuple, or a snapshot. Tells whether rows are wanting."""
    instance = cluster.instances[cluster.servers[number].instance]
    if instance.source != NONE:
        if instance.called:
            call_source(cluster, number)
            return REACHED
        outcome = take_from_log(cluster, number)
        if outcome != REACHED:
            cluster.counters[NEEDED] = instance.source
        return outcome
    if instance.closing != NONE:
        begin_results(cluster, number)
        return REACHED
    if instance.head != NONE and cluster.pool[instance.head].epoch != instance.epoch:
        pass_markers(cluster, instance)
    if instance.head == NONE and instance.came > 0 and instance.came == instance.senders and instance.serving == 0:
        begin_snapshot(cluster, number)
    else:
        take_from_queue(cluster, number)
    return REACHED


@inlined
def drain_work(cluster: Cluster) -> int:
    """Let every server go on that can at this moment; comes back early where something is needed."""
    counters = cluster.counters
    while counters[WORK_COUNT] > 0:
        if counters[FULL_MACHINE] != NONE:
            return EXHAUSTED
        number = cluster.work[counters[WORK_FIRST]]
        server = cluster.servers[number]
        if server.phase == EMITTING:
            outcome = finish_tuple(cluster, number)
            if outcome == _STUCK:
                drop_work(cluster)
                continue
            if outcome != REACHED:
                return outcome
        elif server.phase == SAVED:
            outcome = send_markers(cluster, number)
            if outcome != REACHED:
                return outcome
        if server.phase == READY:
            outcome = take_next(cluster, number)
            if outcome != REACHED:
                return outcome
        if server.phase < EMITTING:
            drop_work(cluster)
    return REACHED


@inlined
def happen(cluster: Cluster, slot: int, now: float) -> int:
    """The event of a slot: a service ends, a row comes, a tuple arrives, a window ends. Tells of a letter."""
    machines, sources = len(cluster.machines), len(cluster.sources)
    if slot < machines:
        machine = cluster.machines[slot]
        settle(machine, now)
        number = leave_running(cluster, machine)
        machine.clock = max(machine.clock, cluster.servers[number].finish)
        retime(cluster, slot)
        if cluster.servers[number].phase == SAVING:
            end_snapshot(cluster, number)
        else:
            end_service(cluster, number)
        push_work(cluster, number)
    elif slot < machines + sources:
        remove_first(cluster.heap)
        number = cluster.instances[cluster.sources[slot - machines].instance].first_server
        cluster.servers[number].phase = READY
        push_work(cluster, number)
    elif slot >= machines + sources + len(cluster.links):
        remove_first(cluster.heap)
        end_window(cluster, cluster.timed[slot - machines - sources - len(cluster.links)])
    else:
        link = cluster.links[slot - machines - sources]
        record = link.head
        link.head = cluster.pool[record].next
        if link.head == NONE:
            link.tail = NONE
            remove_first(cluster.heap)
        else:
            schedule(cluster.heap, slot, cluster.pool[link.head].due)
        if cluster.pool[record].remote == LETTER:
            cluster.counters[NEEDED] = record
            return LETTER_CAME
        join_queue(cluster, record)
    return REACHED


@loop
def run_until(cluster: Cluster, until: float) -> int:
    """Go on to the moment `until`, events at that moment included. Tells why it came back."""
    heap, counters = cluster.heap, cluster.counters
    while True:
        outcome = drain_work(cluster)
        if outcome != REACHED:
            return outcome
        if counters[FULL_MACHINE] != NONE:
            return EXHAUSTED
        if heap.size[0] == 0:
            return DRAINED
        slot = heap.heap[0]
        time = heap.at[slot]
        if time > until:
            cluster.now[0] = until
            return REACHED
        cluster.now[0] = time
        counters[EVENTS] += 1
        outcome = happen(cluster, slot, time)
        if outcome != REACHED:
            return outcome
