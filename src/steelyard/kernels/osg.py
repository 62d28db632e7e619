"""Schedulers and operator instances of shuffle groupings, for compiled loops.

A scheduler sends each tuple to one of k instances of a stateless operator; an instance learns how long items take and
reports to the schedulers. Banks hold several of them in arrays whose first axis is the number of the scheduler or of
the instance, so that a simulator runs all of them in one loop; an engine has banks of one.

What runs for every tuple is inlined and takes numbers out of whole banks: arrays that go into a call, or a view of one
scheduler's part, would have their references counted for every tuple, which costs more than the choice.

States and messages are those of Rivetti et al. 2016, section 3.2; what goes beyond them is said where it is done.
"""

from __future__ import annotations

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.mixing import mix
from steelyard.kernels.osg_sketch import (
    COUNT,
    TIME,
    add,
    copy_cells,
    estimate,
    relative_error,
    scale_cells,
    take_snapshot,
)
from steelyard.kernels.osg_state import (
    ANSWERS,
    ASKED,
    EPOCH,
    EPOCHS,
    EXECUTED,
    KNOWN,
    LEARNT,
    LEARNT_NOISE,
    MATRICES,
    MODE,
    NOT_MARKED,
    NUMBER,
    PRIOR_TUPLES,
    RECENT,
    RECENT_REPLIES,
    REPLIES,
    REQUESTS,
    ROUND,
    ROUND_ROBIN,
    RUN,
    SEND_ALL,
    SENT_BEFORE,
    SHUFFLED,
    SINCE,
    STABILIZING,
    START,
    STATE,
    TURN,
    UNLEARNT_NOISE,
    WAIT_ALL,
    Floats,
    Ints,
    Learners,
    Rule,
    Schedulers,
    permute,
)


@njit(inline="always")
def owner(item: int, instances: int) -> int:
    """Which instance learns an item where instances share the items out."""
    return int(np.int64(mix(item, 0x51) % np.uint64(instances)))


@njit(inline="always")
def expected(rule: Rule, hashes: Ints, bank: Schedulers, number: int, to: int, item: int) -> float:
    """UPDATE C_hat's estimate (Listing 3.2): how long an item takes on an instance, as far as a scheduler knows."""
    by = owner(item, rule.instances) if rule.shared else to
    otherwise = bank.means[number, by] if rule.mean_unseen else 0.0
    learnt = estimate(bank.cells, number, by, hashes, rule.columns, item, otherwise)
    return float(learnt / bank.learnt_at[number, by] * bank.speeds[number, to] if rule.continuous else learnt)


@njit(inline="always")
def least(loads: Floats, number: int, instances: int) -> int:
    """SUBMIT: the instance with the least load, the first of those that are equal."""
    best = 0
    for to in range(1, instances):
        if loads[number, to] < loads[number, best]:
            best = to
    return best


@njit(inline="always")
def least_in_turn(bank: Schedulers, number: int, instances: int) -> int:
    """The same, but of those that are equal the first behind the one that was chosen last.

    Where idle instances count as equal, several schedulers that took the first would all take the same.
    """
    loads, status = bank.loads, bank.status
    first = status[number, TURN]
    best = first
    for spot in range(first + 1, first + instances):
        to = spot if spot < instances else spot - instances
        if loads[number, to] < loads[number, best]:
            best = to
    status[number, TURN] = best + 1 if best + 1 < instances else 0
    return int(best)


@njit()
def begin_epoch(bank: Schedulers, number: int) -> None:
    """Enter SEND_ALL (3.B, 3.F): the next k tuples go to the instances in turn and carry requests."""
    status = bank.status[number]
    status[MODE] = SEND_ALL
    status[TURN] = 0
    status[EPOCH] += 1
    status[REPLIES] = 0
    bank.replied[number, :] = False
    bank.traffic[number, EPOCHS] += 1


@njit()
def end_epoch(bank: Schedulers, number: int) -> None:
    """Correct all loads and enter RUN, once every instance has replied (3.E)."""
    for to in range(bank.loads.shape[1]):
        bank.loads[number, to] += bank.deltas[number, to]
    bank.status[number, MODE] = RUN
    bank.status[number, SINCE] = 0


@njit(inline="always")
def choose(
    rule: Rule, hashes: Ints, bank: Schedulers, number: int, item: int, costs: Floats, row: int, now: float
) -> tuple[int, int, float]:
    """Where one tuple goes; and the epoch and the load that it carries as a request, or NOT_MARKED.

    Row `row` of `costs` has the exact times on each instance, which kind KNOWN alone looks at.
    """
    if rule.kind == LEARNT:
        if rule.continuous:
            return _choose_continuously(rule, hashes, bank, number, item, now)
        return _choose_in_epochs(rule, hashes, bank, number, item)
    if rule.kind == KNOWN:
        return _choose_knowing(rule, bank, number, costs, row, now), NOT_MARKED, 0.0
    return _choose_in_turn(rule, bank, number), NOT_MARKED, 0.0


@njit(inline="always")
def _choose_in_turn(rule: Rule, bank: Schedulers, number: int) -> int:
    status = bank.status
    to = bank.order[number, status[number, TURN]]
    status[number, TURN] += 1
    if status[number, TURN] == rule.turns:
        status[number, TURN] = 0
        status[number, ROUND] += 1
        if rule.kind == SHUFFLED and rule.reshuffle:
            permute(bank.order[number, : rule.instances], rule.seed, status[number, ROUND])
    return int(to)


@njit(inline="always")
def _choose_knowing(rule: Rule, bank: Schedulers, number: int, costs: Floats, row: int, now: float) -> int:
    loads = bank.loads
    if rule.idle_aware:
        for other in range(rule.instances):
            loads[number, other] = max(loads[number, other], now)
        to = least_in_turn(bank, number, rule.instances)
    else:
        to = least(loads, number, rule.instances)
    loads[number, to] += costs[row, to]
    return to


@njit(inline="always")
def _choose_in_epochs(rule: Rule, hashes: Ints, bank: Schedulers, number: int, item: int) -> tuple[int, int, float]:
    """The state machine of Figure 3, and the periodic synchronisation of the authors' program."""
    status, loads = bank.status, bank.loads
    if status[number, MODE] == ROUND_ROBIN:
        to = status[number, TURN]
        status[number, TURN] = (to + 1) % rule.instances
        return to, NOT_MARKED, 0.0
    status[number, SINCE] += 1
    if status[number, MODE] == RUN and 0 < rule.resync < status[number, SINCE]:
        begin_epoch(bank, number)
    to = status[number, TURN] if status[number, MODE] == SEND_ALL else least(loads, number, rule.instances)
    # Elapsed time has the tuples of all schedulers in it. One that counted its own alone would repay by itself what
    # all of them repay, and overshoot by their number.
    others = rule.schedulers if rule.elapsed else 1
    loads[number, to] += others * expected(rule, hashes, bank, number, to, item)
    if status[number, MODE] != SEND_ALL:
        return to, NOT_MARKED, 0.0
    carried = loads[number, to]
    status[number, TURN] += 1
    bank.traffic[number, REQUESTS] += 1
    if status[number, TURN] == rule.instances:
        status[number, MODE] = WAIT_ALL
        if status[number, REPLIES] == rule.instances:
            end_epoch(bank, number)
    return to, status[number, EPOCH], carried


@njit(inline="always")
def _choose_continuously(
    rule: Rule, hashes: Ints, bank: Schedulers, number: int, item: int, now: float
) -> tuple[int, int, float]:
    """Beyond the paper: no phase of round robin but until every instance has replied once, and no epochs.

    Each instance gets a request every `resync` tuples and `apart` seconds of work, and its reply corrects its load at
    once. What a request carries is its load without the corrections so far, so that replies that cross each other do
    not correct twice. The first requests follow each other closely: a mean of a few tuples is far off, and instances
    that were corrected would get all tuples until those that were not seem as loaded.
    """
    status, loads = bank.status, bank.loads
    instances = rule.instances
    if status[number, MODE] == ROUND_ROBIN:
        to = status[number, TURN]
        status[number, TURN] = (to + 1) % instances
    elif rule.idle_aware:
        for other in range(instances):
            if loads[number, other] < now:
                bank.deltas[number, other] += now - loads[number, other]
                loads[number, other] = now
        to = least_in_turn(bank, number, instances)
    else:
        to = least(loads, number, instances)
    # Elapsed time has in it what the instance does for others: see `_choose_in_epochs`.
    thought = expected(rule, hashes, bank, number, to, item)
    own, everything = bank.time_of[number, 0], bank.time_of[number, 1]
    loads[number, to] += (everything / own if own > 0.0 else rule.schedulers) * thought
    bank.work[number, to, 0] += 1.0 if thought > 0.0 else 0.0
    bank.work[number, to, 1] += thought / bank.speeds[number, to]
    bank.unmarked[number, to] += 1
    before = bank.asked[number, to, bank.requests[number, to] % ASKED, 2]
    if bank.unmarked[number, to] < bank.gaps[number, to] or 0.0 < bank.work[number, to, 1] - before < rule.apart:
        return to, NOT_MARKED, 0.0
    bank.unmarked[number, to] = 0
    bank.gaps[number, to] = min(2 * bank.gaps[number, to], rule.resync)
    bank.traffic[number, REQUESTS] += 1
    bank.requests[number, to] += 1
    request, place = bank.requests[number, to], bank.requests[number, to] % ASKED
    bank.asked[number, to, place, 0] = request
    bank.asked[number, to, place, 1] = bank.work[number, to, 0]
    bank.asked[number, to, place, 2] = bank.work[number, to, 1]
    return to, request, loads[number, to] - bank.deltas[number, to]


@njit()
def take_totals(rule: Rule, bank: Schedulers, number: int, sender: int, count: float, time: float) -> None:
    """What an instance says of all its tuples.

    With continuous synchronisation a mean over a few tuples is used, which says little about its instance: items
    without matrices take the mean of all instances, at the speed that one had when it sent its matrices.
    """
    totals = bank.totals[number, : rule.instances]
    totals[sender, COUNT], totals[sender, TIME] = count, time
    if not rule.continuous:
        bank.means[number, sender] = time / count if count > 0.0 else 0.0
        return
    counts, times = 0.0, 0.0
    for at in range(len(totals)):
        counts += totals[at, COUNT]
        times += totals[at, TIME]
    for at in range(len(totals)):
        bank.means[number, at] = times / counts * bank.learnt_at[number, at] if counts > 0.0 else 0.0


@njit()
def _take_speed(
    rule: Rule, bank: Schedulers, number: int, sender: int, request: int, count: float, time: float
) -> None:
    """Learn the speeds of instances from how long their latest tuples took beside what was thought of these tuples.

    Which items they were does not matter then, as it does in a mean. Instances are compared by their latest replies,
    when all have replied: if all tuples take longer from some moment on, those heard of first must not seem slower.
    Speeds are shrunk towards 1 as James and Stein do, by how much they stand out of the noise of so many tuples.
    """
    k = rule.instances
    asked, last_reply, latest = (
        bank.asked[number, sender, request % ASKED],
        bank.last_reply[number, sender],
        bank.latest[number, :k],
    )
    if request < 1 or asked[0] != request:
        return
    done, took, tuples, thought = (
        count - last_reply[0],
        time - last_reply[1],
        asked[1] - last_reply[2],
        asked[2] - last_reply[3],
    )
    last_reply[0], last_reply[1], last_reply[2], last_reply[3] = count, time, asked[1], asked[2]
    if done <= 0.0 or took < 0.0 or tuples <= 0.0 or thought <= 0.0:
        return  # nothing was known of these tuples, or the instance began anew
    latest[sender, 0], latest[sender, 1], latest[sender, 2] = tuples, thought, took / done * tuples
    bank.has_latest[number, sender] = True
    if not bank.has_latest[number, :k].all():
        return
    bank.has_latest[number, :] = False
    all_thought, all_took = 0.0, 0.0
    for at in range(len(latest)):
        all_thought += latest[at, 1]
        all_took += latest[at, 2]
    usual, spent = all_took / all_thought, bank.spent[number]
    if usual <= 0.0:
        return
    noise = LEARNT_NOISE if bank.known[number, :k].all() else UNLEARNT_NOISE
    for at in range(len(latest)):
        fading = RECENT / (RECENT + latest[at, 0])
        spent[at, 0] = fading * spent[at, 0] + latest[at, 0]
        spent[at, 1] = fading * spent[at, 1] + latest[at, 1]
        spent[at, 2] = fading * spent[at, 2] + latest[at, 2] / usual
        excess = spent[at, 2] / spent[at, 1] - 1.0
        surprise = excess * excess * spent[at, 0] / noise
        bank.speeds[number, at] = 1.0 + excess * (1.0 - 1.0 / surprise) if surprise > 1.0 else 1.0


@njit()
def _take_share(rule: Rule, bank: Schedulers, number: int, own: float, everything: float, usual: float) -> None:
    """Learn how much of their time instances spend on the scheduler's own tuples.

    The rest goes into those of others, who may send more or less than this one. An instance with several threads spends
    less of its time on a tuple than the tuple takes.
    """
    if own <= 0.0 or everything <= 0.0:
        return  # nothing is known, or the instance began anew
    time_of = bank.time_of
    if time_of[number, 0] <= 0.0:
        time_of[number, 0] = PRIOR_TUPLES * usual
        time_of[number, 1] = PRIOR_TUPLES * usual * rule.schedulers
    fading = 1.0 - 1.0 / (RECENT_REPLIES * rule.instances)
    time_of[number, 0] = fading * time_of[number, 0] + own
    time_of[number, 1] = fading * time_of[number, 1] + everything


@njit()
def take_matrices(
    rule: Rule, bank: Schedulers, number: int, sender: int, cells: Floats, count: float, time: float
) -> None:
    """Matrices of an instance came (3.A, 3.F)."""
    copy_cells(cells, bank.cells[number, sender])
    bank.learnt_at[number, sender] = bank.speeds[number, sender]
    bank.last_reply[number, sender, 0] -= 0.5 * count  # which the instance halves now
    bank.last_reply[number, sender, 1] -= 0.5 * time
    take_totals(rule, bank, number, sender, count, time)
    bank.known[number, sender] = True
    bank.traffic[number, MATRICES] += 1
    if rule.continuous:
        return
    if bank.status[number, MODE] == ROUND_ROBIN and not bank.known[number, : rule.instances].all():
        return
    begin_epoch(bank, number)


@njit()
def take_reply(
    rule: Rule,
    bank: Schedulers,
    number: int,
    sender: int,
    epoch: int,
    delta: float,
    count: float,
    time: float,
    own: float,
    everything: float,
) -> None:
    """A reply of an instance came (3.D, 3.E); one of an epoch that is over is ignored."""
    bank.traffic[number, ANSWERS] += 1
    status = bank.status[number]
    if rule.continuous:
        bank.loads[number, sender] += delta - bank.deltas[number, sender]
        bank.deltas[number, sender] = delta
        take_totals(rule, bank, number, sender, count, time)
        _take_speed(rule, bank, number, sender, epoch, count, time)
        _take_share(rule, bank, number, own, everything, time / count if count > 0.0 else 0.0)
        if not bank.replied[number, sender]:
            bank.replied[number, sender] = True
            status[REPLIES] += 1
            if status[REPLIES] == rule.instances:
                status[MODE] = RUN
        return
    if epoch != status[EPOCH] or bank.replied[number, sender] or status[MODE] not in (SEND_ALL, WAIT_ALL):
        return
    # The authors' program drops replies that come while requests still go out. They are as good as later ones,
    # and without them a fast instance would keep WAIT_ALL waiting for ever.
    bank.replied[number, sender] = True
    bank.deltas[number, sender] = delta
    status[REPLIES] += 1
    if status[MODE] == WAIT_ALL and status[REPLIES] == rule.instances:
        end_epoch(bank, number)


@njit(inline="always")
def execute(rule: Rule, hashes: Ints, bank: Learners, at: int, item: int, time: float, by: int) -> bool:
    """An instance executed a tuple of scheduler `by` (Listing 3.1, Figure 2); whether its matrices are to be sent.

    After sending them the caller calls `forget`.
    """
    status = bank.status
    bank.busy[at, by] += time
    bank.worked[at] += time
    bank.totals[at, COUNT] += 1.0
    bank.totals[at, TIME] += time
    if not rule.shared or owner(item, rule.instances) == status[at, NUMBER]:
        add(bank.cells, at, hashes, rule.columns, item, time, rule.conservative)
    status[at, EXECUTED] += 1
    bank.window_time[at] += time
    if status[at, EXECUTED] < rule.window or bank.window_time[at] < rule.apart:
        return False
    status[at, EXECUTED] = 0
    bank.window_time[at] = 0.0
    if status[at, STATE] == START:
        status[at, STATE] = STABILIZING
        take_snapshot(bank.cells[at], bank.snapshot[at])
        return False
    stable = relative_error(bank.cells[at], bank.snapshot[at], rule.masked) <= rule.tolerance
    take_snapshot(bank.cells[at], bank.snapshot[at])
    if not stable:
        return False
    status[at, STATE] = START
    changed = True
    if rule.on_change and status[at, SENT_BEFORE]:
        changed = relative_error(bank.cells[at], bank.stable[at], rule.masked) > rule.tolerance
    status[at, SENT_BEFORE] = 1
    copy_cells(bank.snapshot[at], bank.stable[at])
    if not changed:
        forget(rule, bank, at)
    return changed


@njit()
def forget(rule: Rule, bank: Learners, at: int) -> None:
    """Reset the matrices (2.C), or keep a share of them."""
    scale_cells(bank.cells[at], rule.keep)
    scale_cells(bank.totals[at], 0.5)  # the mean is always known, and follows changes


@njit(inline="always")
def answer(bank: Learners, at: int, by: int) -> tuple[float, float]:
    """Time that the instance spent on a scheduler's tuples since its last reply to it, and on anything."""
    own, everything = bank.busy[at, by] - bank.answered[at, by, 0], bank.worked[at] - bank.answered[at, by, 1]
    bank.answered[at, by, 0], bank.answered[at, by, 1] = bank.busy[at, by], bank.worked[at]
    return own, everything


@njit(inline="always")
def clock_of(rule: Rule, bank: Learners, at: int, by: int, finished: float) -> float:
    """C_op: time that has elapsed, or time that was spent on this scheduler's tuples, as the paper prints it."""
    return finished if rule.elapsed else bank.busy[at, by]
