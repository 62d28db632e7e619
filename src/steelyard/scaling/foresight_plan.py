"""What each number of instances would cost, with what may come: workers, and rows that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.plans import Floats
from steelyard.scaling.foresight_rate import CHANCES

STEPS = 96
"""Of the outlook."""
LEVELS = 40
"""Capacities that are weighed."""
LATER = (0.0, 1 / 12, 1 / 6, 1 / 3, 1 / 2)
"""As shares of the outlook: when a rescale may begin instead of now."""
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
    return {name: int(min(np.searchsorted(curve, rate), len(curve) - 1)) + 1 for name, curve in curves.items()}


def capacity(curves: Mapping[str, Floats], instances: Mapping[str, int]) -> float:
    """Rows per second that sources may read with these instances; unbounded where nothing is known of any."""
    return min((float(curve[min(instances[name], len(curve)) - 1]) for name, curve in curves.items()), default=np.inf)


def keeping(outlook: Outlook) -> Plan:
    """All stays as it is."""
    can = capacity(outlook.curves, outlook.now)
    cost, caught_up = _cost(outlook, np.array([can]), [outlook.now], np.array([np.inf]))
    return Plan(outlook.now, can, np.inf, float(cost[0]), float(caught_up[0]))


def best(outlook: Outlook) -> Plan:
    """The cheapest of all rescales, now or later."""
    found = _candidates(outlook)
    can = np.array([capacity(outlook.curves, one) for one in found])
    begins = np.repeat(np.array(LATER) * outlook.seconds, len(found))
    cost, caught_up = _cost(outlook, np.tile(can, len(LATER)), found * len(LATER), begins)
    chosen = int(np.argmin(cost))
    own = chosen % len(found)
    return Plan(found[own], float(can[own]), float(begins[chosen]), float(cost[chosen]), float(caught_up[chosen]))


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
    made = {name: 1 for name in outlook.now}
    curves = {name: curve for name, curve in outlook.curves.items() if name in made}
    made.update({name: count for name, count in outlook.now.items() if name not in curves})
    while sum(made.values()) < outlook.workers:
        open_ = [name for name, curve in curves.items() if made[name] < len(curve)]
        if not open_:
            break
        slowest = min(open_, key=lambda name: curves[name][made[name] - 1])
        made[slowest] += 1
    return made


def _cost(
    outlook: Outlook, can: Floats, instances: Sequence[Mapping[str, int]], begins: Floats
) -> tuple[Floats, Floats]:
    """For each candidate what it costs, mean over the futures, and when it has caught up in the middle one.

    What waits is what came and was not read, never below 0: with X the sum of what comes less what could be read, it
    is X less the lowest X so far, where that is below 0.
    """
    step = outlook.seconds / STEPS
    moments = (np.arange(STEPS) + 0.5) * step
    had = capacity(outlook.curves, outlook.now)
    had = had if np.isfinite(had) else float(outlook.rates.max()) * 2
    can = np.where(np.isfinite(can), can, had)
    before = moments < begins[:, None]
    over = np.clip((moments + step / 2 - begins[:, None] - outlook.standstill) / step, 0.0, 1.0)
    speeds = np.where(before, had, can[:, None] * over)
    came = (outlook.rates[None, :, :] - speeds[:, None, :]) * step
    piled = outlook.behind + np.cumsum(came, axis=2)
    waits = piled - np.minimum(np.minimum.accumulate(piled, axis=2), 0.0)
    late = waits / outlook.usual
    # what is left at the end is worked off at the speed and the rate of the end
    spare = np.maximum(speeds[:, None, -1] - outlook.rates[None, :, -1], 0.05 * outlook.usual)
    afterwards = late[:, :, -1] * np.minimum(waits[:, :, -1] / spare, 2 * outlook.seconds) / 2
    lag = late.sum(axis=2).mean(axis=1) * step + afterwards.mean(axis=1)
    has = sum(outlook.now.values())
    workers = np.array([sum(one.values()) for one in instances], dtype=np.float64)
    at_once = np.clip(begins, 0.0, outlook.seconds)
    spent = at_once * has + (outlook.seconds - at_once) * workers
    middle = waits[:, len(CHANCES) // 2, :] <= 0.1 * outlook.usual
    # caught up is the moment after the last one at which rows were behind
    last_late = STEPS - np.argmax(~middle[:, ::-1], axis=1)
    caught_up = np.where(middle.all(axis=1), 0.0, np.where(middle[:, -1], last_late * step, np.inf))
    return spent + outlook.price * lag, caught_up
