"""What each number of instances would cost, with what may come: workers, and rows that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steelyard.core.plans import Floats
from steelyard.scaling.foresight_rate import CHANCES

STEPS = 60
"""Of the outlook."""
LEVELS, SECOND = 32, 12
"""Capacities that are weighed, and those for a second rescale."""
LATER = (0.0, 1 / 12, 1 / 6, 1 / 4)
"""As shares of the outlook: when a rescale may begin instead of now."""
AGAIN = 1 / 3
"""As a share of the outlook: how long after a rescale another one may begin."""
WORTH_HAVING = 0.95
"""Share of what the largest number of instances can do that as few as possible shall do at most."""
BEHIND = 0.1
"""Seconds of lag that are none."""
_WIDEST, _LEAST = 3.0, 0.2
"""Largest and smallest capacity that is weighed, of the most and the least that may come."""


@dataclass(frozen=True)
class Outlook:
    """What is known when a plan is made.

    Parameters
    ----------
    rates
        float64[futures, STEPS]: rows per second that come.
    seconds
        How long the outlook is.
    behind
        Rows that are behind.
    usual
        Rows per second that usually come: lag is weighed by it.
    curves
        For each operator, float64[instances]: rows per second that sources may read so that so many keep up.
    now
        Instances of each operator.
    standstill
        Seconds for which a rescale stops the job.
    price
        Worker-seconds that a second is worth in which usual rows are a second late.
    workers
        All that there are; 0 where that is not known.
    """

    rates: Floats
    seconds: float
    behind: float
    usual: float
    curves: Mapping[str, Floats]
    now: Mapping[str, int]
    standstill: float
    price: float
    workers: int = 0


@dataclass(frozen=True)
class Plan:
    """Numbers of instances, and what they are expected to bring."""

    parallelism: Mapping[str, int]
    capacity: float
    """Rows per second that sources may read with them."""
    begins: float
    """Seconds from now; nothing is to be done yet where that is above 0."""
    cost: float
    """Worker-seconds, with the price of lag, over the outlook."""
    caught_up: float
    """Seconds from now until nothing is behind in the future in the middle; infinite where that is not in sight."""


def needed(curves: Mapping[str, Floats], rate: float) -> dict[str, int]:
    """Fewest instances with which sources may read so many rows per second, as far as any number can.

    >>> needed({"map": np.array([10.0, 20.0, 30.0])}, 15.0), needed({"map": np.array([10.0, 20.0, 30.0])}, 99.0)
    ({'map': 2}, {'map': 3})
    """
    found = {}
    for name, curve in curves.items():
        # where a hot key bounds what any number can do, those that hardly bring anything are not asked for
        found[name] = int(np.searchsorted(curve, min(rate, WORTH_HAVING * float(curve[-1])))) + 1
    return found


def capacity(curves: Mapping[str, Floats], instances: Mapping[str, int]) -> float:
    """Rows per second that sources may read with these instances; unbounded where nothing is known of any."""
    return min((float(curve[min(instances[name], len(curve)) - 1]) for name, curve in curves.items()), default=np.inf)


def keeping(outlook: Outlook) -> Plan:
    """All stays as it is."""
    can = _bounded(outlook, np.array([capacity(outlook.curves, outlook.now)]))
    cost, caught_up = _cost(outlook, can, np.array([sum(outlook.now.values())]), np.inf)
    return Plan(outlook.now, float(can[0]), np.inf, float(cost[0]), float(caught_up[0]))


def best(outlook: Outlook) -> Plan:
    """The cheapest of all rescales, now or later."""
    found = _candidates(outlook)
    can = _bounded(outlook, np.array([capacity(outlook.curves, one) for one in found]))
    workers = np.array([sum(one.values()) for one in found])
    plans = []
    for share in LATER:
        cost, caught_up = _cost(outlook, can, workers, share * outlook.seconds)
        own = int(np.argmin(cost))
        plans.append(
            Plan(found[own], float(can[own]), share * outlook.seconds, float(cost[own]), float(caught_up[own]))
        )
    return min(plans, key=lambda plan: plan.cost)


def _bounded(outlook: Outlook, can: Floats) -> Floats:
    """Capacities; what nothing is known of does not hold anybody up."""
    return np.where(np.isfinite(can), can, 2 * float(outlook.rates.max()) + 1.0)


def _candidates(outlook: Outlook) -> list[Mapping[str, int]]:
    """Numbers of instances for capacities between little and much; no more than there are workers."""
    least, most = float(outlook.rates[:, -1].min()), float(outlook.rates.max())
    most = max(most, outlook.usual)
    levels = np.geomspace(max(least, most / 50) * _LEAST, most * _WIDEST, LEVELS)
    found = [{**outlook.now, **needed(outlook.curves, level)} for level in levels]
    if outlook.workers:
        fitting = [one for one in found if sum(one.values()) <= outlook.workers]
        found = [*fitting, _all_workers(outlook)]
    return list({tuple(one.items()): one for one in found}.values())


def _all_workers(outlook: Outlook) -> dict[str, int]:
    """The numbers that can do most of those that there are workers for."""
    made = dict.fromkeys(outlook.now, 1)
    curves = {name: curve for name, curve in outlook.curves.items() if name in made}
    made.update({name: count for name, count in outlook.now.items() if name not in curves})
    while sum(made.values()) < outlook.workers:
        open_ = [name for name, curve in curves.items() if made[name] < len(curve)]
        if not open_:
            break
        slowest = min(open_, key=lambda name: curves[name][made[name] - 1])
        made[slowest] += 1
    return made


def _cost(outlook: Outlook, can: Floats, workers: Floats, begins: float) -> tuple[Floats, Floats]:
    """For each candidate what it costs, mean over the futures, and when it has caught up in the middle one.

    A rescale that begins then is followed by another one where that is cheaper, each future for itself: nobody has to
    be ready at once for all that may come in the whole outlook.
    """
    step = outlook.seconds / STEPS
    edges = np.arange(STEPS) * step
    had = float(_bounded(outlook, np.array([capacity(outlook.curves, outlook.now)]))[0])
    over = np.clip((edges + step - begins - outlook.standstill) / step, 0.0, 1.0)
    speeds = np.where(edges + step / 2 < begins, had, can[:, None] * over)
    waits = _waits(outlook, outlook.behind, outlook.rates, speeds[:, None, :])
    has = float(sum(outlook.now.values()))
    first = min(begins, outlook.seconds)
    turn = min(round((first + outlook.seconds * AGAIN) / step), STEPS)
    lag = waits[:, :, :turn].sum(axis=2) * step / outlook.usual
    spent = first * has + np.maximum(turn * step - first, 0.0) * workers
    left = outlook.seconds - turn * step
    stays = outlook.price * _late(outlook, waits, speeds[:, None, :], turn) + left * workers[:, None]
    cost = spent[:, None] + outlook.price * lag
    if left > 0:
        cost += np.minimum(stays, _again(outlook, waits[:, :, turn - 1], can, workers, turn))
    else:
        cost += stays
    middle = waits[:, len(CHANCES) // 2, :] <= BEHIND * outlook.usual
    # caught up is the moment after the last one at which rows were behind
    last_late = STEPS - np.argmax(~middle[:, ::-1], axis=1)
    caught_up = np.where(middle.all(axis=1), 0.0, np.where(middle[:, -1], last_late * step, np.inf))
    return cost.mean(axis=1), caught_up


def _again(outlook: Outlook, behind: Floats, can: Floats, workers: Floats, turn: int) -> Floats:
    """float64[candidates, futures]: the cheapest second rescale, from a moment on at which so many rows are behind."""
    step = outlook.seconds / STEPS
    some = np.unique(np.linspace(0, len(can) - 1, SECOND).round().astype(int))
    edges = np.arange(STEPS - turn) * step
    over = np.clip((edges + step - outlook.standstill) / step, 0.0, 1.0)
    speeds = (can[some][:, None] * over)[:, None, None, :]
    rates = outlook.rates[:, turn:]
    waits = _waits(outlook, behind[:, :, None], rates, speeds)
    late = _late(outlook, waits, speeds, 0)
    total: Floats = outlook.price * late + (workers[some] * len(edges) * step)[:, None, None]
    return total.min(axis=0)  # type: ignore[no-any-return]


def _waits(outlook: Outlook, behind: float | Floats, rates: Floats, speeds: Floats) -> Floats:
    """Rows that are behind at the end of each step.

    With X the sum of what was behind, came and could not be read, that is X less the lowest X so far, where that is
    below 0: what could be read while nothing waits is lost.
    """
    piled = behind + np.cumsum((rates - speeds) * (outlook.seconds / STEPS), axis=-1)
    return piled - np.minimum(np.minimum.accumulate(piled, axis=-1), 0.0)


def _late(outlook: Outlook, waits: Floats, speeds: Floats, begin: int) -> Floats:
    """Seconds times seconds of lag from a step to the end; what is left then is worked off as things are there."""
    late = waits[..., begin:].sum(axis=-1) * (outlook.seconds / STEPS)
    spare = np.maximum(speeds[..., -1] - outlook.rates[:, -1], 0.05 * outlook.usual)
    afterwards = np.minimum(waits[..., -1] / spare, 2 * outlook.seconds) / 2
    found: Floats = (late + waits[..., -1] * afterwards) / outlook.usual
    return found
