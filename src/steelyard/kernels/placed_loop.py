"""The event loop of a placed cluster: threads, processes and machines, tuple by tuple, each source tuple acknowledged.

Threads take one tuple after the other; those of a machine that are at work share its cores alike. What comes out of a
tuple is sent over every edge of its component, and is under way for as long as the hop takes. A source tuple is done
when all that it became is, and its source has heard of that.
"""

from __future__ import annotations

import numpy as np

from steelyard.kernels.compiled import inlined, loop
from steelyard.kernels.event_heap import cancel, remove_first, schedule
from steelyard.kernels.mixing import mix
from steelyard.kernels.placed_running import (
    ACKS,
    BEGUN,
    EVENTS,
    FREE_ROOT,
    FREE_TUPLE,
    IN_FLIGHT,
    NEEDS_RECORDS,
    NEEDS_ROOM,
    NEXT_ROOT,
    NEXT_TUPLE,
    NONE,
    PROCESSES_DONE,
    REACHED,
    ROOTS_LEFT,
    SCHEDULE,
    TRANSFERS,
    TUPLES_LEFT,
    Rows,
    Running,
)
from steelyard.kernels.placed_state import (
    ALL,
    COLD,
    DIRECT,
    FIELDS,
    GLOBAL,
    LOCAL,
    PER_THREAD,
    PER_WORKER,
    PROCESS,
    REMOTE,
    SERIALISE,
    WARM,
)

_AGES = 12.0
"""Times `warm` after which a thread is as warm as it will be."""


@inlined
def uniform(thread: Rows) -> float:
    """The thread's next random number in [0, 1): each has its own, whatever the others do."""
    thread.random += np.uint64(0x9E3779B97F4A7C15)
    return float(np.float64(mix(thread.random, 0) >> np.uint64(11)) * (1.0 / 9007199254740992.0))


@inlined
def fly(state: Running, record: int, due: float) -> None:
    """A tuple is under way until `due`."""
    spot = state.counters[IN_FLIGHT]
    state.counters[IN_FLIGHT] += 1
    while spot > 0:
        above = (spot - 1) >> 1
        if state.due[above] <= due:
            break
        state.due[spot], state.flying[spot] = state.due[above], state.flying[above]
        spot = above
    state.due[spot], state.flying[spot] = due, record


@inlined
def land(state: Running) -> int:
    """Take the tuple out that comes first."""
    record = state.flying[0]
    state.counters[IN_FLIGHT] -= 1
    last = state.counters[IN_FLIGHT]
    due, moved, spot = state.due[last], state.flying[last], 0
    while True:
        below = 2 * spot + 1
        if below >= last:
            break
        if below + 1 < last and state.due[below + 1] < state.due[below]:
            below += 1
        if due <= state.due[below]:
            break
        state.due[spot], state.flying[spot] = state.due[below], state.flying[below]
        spot = below
    state.due[spot], state.flying[spot] = due, moved
    return int(record)


@inlined
def coldness(state: Running, thread: Rows) -> float:
    """How many times as long things take at a thread that was put there a while ago."""
    costs = state.placing.costs
    age = (state.now[0] - thread.since) / costs[WARM]
    if age > _AGES or costs[COLD] == 0.0:
        return 1.0
    return float(1.0 + costs[COLD] * np.exp(-age))


@inlined
def settle(state: Running, number: int) -> None:
    """Bring a machine's clock of work up to date."""
    machine = state.machines[number]
    passed = state.now[0] - machine.at
    machine.clock += machine.rate * passed
    machine.used += machine.rate * machine.active * passed
    machine.at = state.now[0]


@inlined
def next_end(state: Running, number: int) -> int:
    """The place in the machine's list of the thread that will end first."""
    machine = state.machines[number]
    best = 0
    for at in range(1, machine.active):
        if state.threads[state.running[number, at]].finish < state.threads[state.running[number, best]].finish:
            best = at
    return best


@inlined
def retime(state: Running, number: int) -> None:
    """Plan the machine's next end anew, since the number of those that share its cores changed."""
    machine = state.machines[number]
    if machine.active == 0:
        machine.rate = 0.0
        cancel(state.heap, number)
        return
    machine.rate = min(1.0, machine.cores / machine.active)
    left = state.threads[state.running[number, next_end(state, number)]].finish - machine.clock
    schedule(state.heap, number, machine.at + max(left, 0.0) / machine.rate)


@inlined
def take(state: Running, number: int) -> None:
    """The thread begins with the first tuple of its queue."""
    thread = state.threads[number]
    record = thread.head
    tuple_ = state.pool[record]
    thread.head = tuple_.next
    if thread.head == NONE:
        thread.tail = NONE
    thread.queued -= 1
    placing = state.placing
    spread = placing.spread[thread.component]
    seconds = placing.service[thread.component]
    if spread > 0.0:
        seconds *= 1.0 - spread - spread * np.log(1.0 - uniform(thread))
    seconds += thread.debt
    thread.debt = 0.0
    if tuple_.remote == 1:
        seconds += placing.costs[SERIALISE]
    thread.serving = record
    thread.began = state.now[0]
    if tuple_.edge != NONE and tuple_.remote != BEGUN:
        state.crossed[0, tuple_.edge] += 1.0
        state.crossed[1, tuple_.edge] += state.now[0] - tuple_.sent
        if state.roots[tuple_.root].recorded:
            row = state.transfers[state.counters[TRANSFERS]]
            state.counters[TRANSFERS] += 1
            row.tuple_id, row.root_id, row.edge = tuple_.id, state.roots[tuple_.root].id, tuple_.edge
            row.sender, row.receiver = tuple_.sender, number
            row.sender_machine, row.receiver_machine = tuple_.from_machine, thread.machine
            row.sent, row.received, row.schedule = tuple_.sent, state.now[0], state.counters[SCHEDULE]
    settle(state, thread.machine)
    machine = state.machines[thread.machine]
    seconds *= machine.slow * coldness(state, thread)
    thread.work += seconds
    thread.finish = machine.clock + seconds
    state.running[thread.machine, machine.active] = number
    machine.active += 1
    retime(state, thread.machine)


@inlined
def arrive(state: Running, record: int) -> None:
    """A tuple has come to a thread; where that runs no more, to one that does."""
    tuple_ = state.pool[record]
    number = tuple_.dest
    component = state.threads[number].component
    if state.threads[number].machine < 0:
        number = state.placing.first[component] + state.threads[number].number % state.running_threads[component]
        tuple_.dest = number
    thread = state.threads[number]
    tuple_.next = NONE
    if thread.tail == NONE:
        thread.head = record
    else:
        state.pool[thread.tail].next = record
    thread.tail = record
    thread.queued += 1
    if thread.serving == NONE:
        take(state, number)


@inlined
def new_tuple(state: Running, root: int, dest: int, sender: int, edge: int) -> int:
    """A record for a tuple."""
    record = state.counters[FREE_TUPLE]
    tuple_ = state.pool[record]
    state.counters[FREE_TUPLE] = tuple_.next
    state.counters[TUPLES_LEFT] -= 1
    tuple_.root, tuple_.dest, tuple_.sender, tuple_.edge, tuple_.remote = root, dest, sender, edge, 0
    tuple_.sent = state.now[0]
    tuple_.id = state.counters[NEXT_TUPLE]
    state.counters[NEXT_TUPLE] += 1
    return int(record)


@inlined
def send(state: Running, number: int, root: int, dest: int, edge: int) -> None:
    """Put a tuple on its way from one thread to another."""
    thread, target = state.threads[number], state.threads[dest]
    costs = state.placing.costs
    record = new_tuple(state, root, dest, number, edge)
    here, there = thread.machine, target.machine
    state.pool[record].from_machine = here
    slow = 0.5 * (state.machines[here].slow + state.machines[there].slow) * coldness(state, target)
    if here != there:
        state.pool[record].remote = 1
        thread.debt += costs[SERIALISE]
        turn = costs[PER_WORKER] * (state.used[state.placing.application[thread.component]] - 1)
        turn += costs[PER_THREAD] * state.elsewhere[target.component, here]
        fly(state, record, state.now[0] + slow * (costs[REMOTE] + 2.0 * uniform(thread) * turn))
    elif thread.process != target.process:
        fly(state, record, state.now[0] + slow * costs[PROCESS])
    else:
        fly(state, record, state.now[0] + slow * costs[LOCAL])


@inlined
def key_of(state: Running, thread: Rows) -> int:
    """A key of the thread's application, drawn by how often each comes."""
    application = state.placing.application[thread.component]
    low, high = state.first_key[application], state.first_key[application + 1] - 1
    first = low
    drawn = uniform(thread)
    while low < high:
        middle = (low + high) >> 1
        if state.keys[middle] <= drawn:
            low = middle + 1
        else:
            high = middle
    return int(low - first)


@inlined
def send_all(state: Running, number: int, root: int) -> int:
    """Send all that comes out of a thread's tuple; how many that are."""
    placing = state.placing
    thread = state.threads[number]
    first_edge, last_edge = placing.first_edge[thread.component], placing.first_edge[thread.component + 1]
    sent = 0
    for edge in range(first_edge, last_edge):
        several = int(placing.outputs[edge])
        left = placing.outputs[edge] - several
        if left > 0.0 and uniform(thread) < left:
            several += 1
        receiver = placing.receiver[edge]
        first, count = placing.first[receiver], state.running_threads[receiver]
        grouping = placing.grouping[edge]
        for _ in range(several):
            if grouping == ALL:
                for dest in range(count):
                    send(state, number, root, first + dest, edge)
                sent += count
                continue
            dest = 0
            if grouping == FIELDS:
                dest = key_of(state, thread) % count
            elif grouping == DIRECT:
                dest = thread.number % count
            elif grouping != GLOBAL:
                dest = state.turns[number, edge - first_edge] % count
                state.turns[number, edge - first_edge] = (dest + 1) % count
            send(state, number, root, first + dest, edge)
            sent += 1
    return sent


@inlined
def acknowledge(state: Running, number: int, root_number: int) -> None:
    """What a thread has done is known at the source after a hop; at the last the source tuple is done."""
    root, thread = state.roots[root_number], state.threads[number]
    source, costs = state.threads[root.source], state.placing.costs
    application = state.placing.application[thread.component]
    slow = state.machines[thread.machine].slow
    hop = costs[LOCAL]
    if source.machine >= 0 and source.machine != thread.machine:
        slow = 0.5 * (slow + state.machines[source.machine].slow)
        hop = costs[REMOTE] + costs[PER_WORKER] * (state.used[application] - 1)
    root.acked = max(root.acked, state.now[0] + hop * slow)
    if root.pending > 0:
        return
    state.acked[0, application] += 1.0
    state.acked[1, application] += root.acked - root.emitted
    if root.recorded:
        row = state.acks[state.counters[ACKS]]
        state.counters[ACKS] += 1
        row.root_id, row.application, row.emitted, row.acked = root.id, application, root.emitted, root.acked
        row.schedule = state.counters[SCHEDULE]
    root.next = state.counters[FREE_ROOT]
    state.counters[FREE_ROOT] = root_number
    state.counters[ROOTS_LEFT] += 1


@inlined
def emit(state: Running, number: int) -> None:
    """A source puts out a tuple: from now on it counts."""
    placing, thread = state.placing, state.threads[number]
    root_number = state.counters[FREE_ROOT]
    root = state.roots[root_number]
    state.counters[FREE_ROOT] = root.next
    state.counters[ROOTS_LEFT] -= 1
    root.source, root.emitted, root.acked, root.id = number, state.now[0], 0.0, state.counters[NEXT_ROOT]
    state.counters[NEXT_ROOT] += 1
    root.recorded = 0
    if state.share[0] > 0.0 and uniform(thread) < state.share[0]:
        root.recorded = 1
    state.acked[2, placing.application[thread.component]] += 1.0
    root.pending = send_all(state, number, root_number)
    if root.pending == 0:
        acknowledge(state, number, root_number)


@inlined
def finish(state: Running, machine_number: int) -> None:
    """A thread of a machine has worked off its tuple."""
    settle(state, machine_number)
    machine = state.machines[machine_number]
    at = next_end(state, machine_number)
    number = state.running[machine_number, at]
    machine.active -= 1
    state.running[machine_number, at] = state.running[machine_number, machine.active]
    thread = state.threads[number]
    machine.clock = max(machine.clock, thread.finish)
    if machine.active == 0:
        machine.clock = 0.0
    retime(state, machine_number)
    record = thread.serving
    tuple_ = state.pool[record]
    thread.serving = NONE
    thread.processed += 1
    state.spent[0, thread.component] += 1.0
    state.spent[1, thread.component] += state.now[0] - thread.began
    root_number, is_source = tuple_.root, tuple_.edge == NONE
    if not is_source and state.roots[root_number].recorded:
        row = state.processes[state.counters[PROCESSES_DONE]]
        state.counters[PROCESSES_DONE] += 1
        row.tuple_id, row.root_id = tuple_.id, state.roots[root_number].id
        row.component, row.thread, row.machine = thread.component, number, thread.machine
        row.began, row.ended, row.schedule = thread.began, state.now[0], state.counters[SCHEDULE]
    tuple_.next = state.counters[FREE_TUPLE]
    state.counters[FREE_TUPLE] = record
    state.counters[TUPLES_LEFT] += 1
    if is_source:
        emit(state, number)
    else:
        sent = send_all(state, number, root_number)
        state.roots[root_number].pending += sent - 1
        if sent == 0:
            acknowledge(state, number, root_number)
    if thread.serving == NONE and thread.head != NONE:
        take(state, number)


@inlined
def come(state: Running, number: int) -> None:
    """A tuple comes to a source's thread, and the time of the next is drawn."""
    thread = state.threads[number]
    if thread.every <= 0.0:
        remove_first(state.heap)
        return
    wait = -np.log(1.0 - uniform(thread)) * thread.every
    schedule(state.heap, len(state.machines) + number, state.now[0] + wait)
    arrive(state, new_tuple(state, 0, number, number, NONE))


@loop
def run_placed(state: Running, until: float, needed: int) -> int:
    """Go on to the moment `until`; `needed` are the most tuples that one event makes. Tells why it came back."""
    counters, heap = state.counters, state.heap
    while True:
        if counters[TUPLES_LEFT] <= needed or counters[ROOTS_LEFT] <= 1:
            return NEEDS_ROOM
        if (
            counters[TRANSFERS] + 1 >= len(state.transfers)
            or counters[PROCESSES_DONE] + 1 >= len(state.processes)
            or counters[ACKS] + 1 >= len(state.acks)
        ):
            return NEEDS_RECORDS
        time = np.inf
        if heap.size[0] > 0:
            time = heap.at[heap.heap[0]]
        lands = counters[IN_FLIGHT] > 0 and state.due[0] <= time
        if lands:
            time = state.due[0]
        if time > until:
            state.now[0] = until
            return REACHED
        state.now[0] = time
        counters[EVENTS] += 1
        if lands:
            arrive(state, land(state))
        elif heap.heap[0] < len(state.machines):
            finish(state, heap.heap[0])
        else:
            come(state, heap.heap[0] - len(state.machines))
