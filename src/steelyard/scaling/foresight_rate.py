"""What rate will come: forecasts of several kinds, the one that was best so far, and by how much it was wrong."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np

from steelyard.core import State
from steelyard.core.plans import Floats

CHANCES = (1 / 14, 3 / 14, 5 / 14, 0.5, 9 / 14, 11 / 14, 13 / 14)
"""Of the futures that are reckoned with: each stands for a seventh of what may come."""
_NORMAL = np.array([-1.465, -0.792, -0.366, 0.0, 0.366, 0.792, 1.465])
"""The same chances of a normal distribution."""
LEVEL, SHORT, LONG, BENT, DAMPING, KEPT = 1 / 20, 1 / 5, 1 / 2, 3 / 5, 1 / 2, 6.0
"""As shares of the outlook: over which a level is taken, over which slopes are, after which a slope fades, and how long
rates are kept."""
JUDGED = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""As shares of the outlook: how far ahead forecasts are judged."""
FORGET = 1.5
"""As a share of the outlook: after so long an error counts half."""
PRIOR, PRIOR_COUNT = 0.1, 10.0
"""Before anything is known: by which share of itself a rate moves in an eighth of an outlook, and how many errors that
stands for."""
KINDS = ("as it is now", "as it goes now", "as it has gone for a while", "as it bends", "as one period before")
_FITTED = {1: (1, SHORT), 2: (1, LONG), 3: (2, BENT)}
"""Degree of a polynomial, and over which share of the outlook it is fitted."""
_TRUST = np.array([0.95, 1.0, 1.0, 1.0, 1.0])
"""What errors count for: a rate that stays is left only for a kind that is better by more than that."""
_LEAST_PERIOD, _MOST_ANCHORS = 0.5, 240


@dataclass(frozen=True)
class Forecast:
    """What may come.

    Parameters
    ----------
    ahead
        float64[moments]: seconds from now.
    rates
        float64[futures, moments]: rows per second, the lowest future first.
    kind
        Which forecast was taken for the middle of the outlook.
    off
        By how many rows per second it was wrong so far, mean, that far ahead.
    """

    ahead: Floats
    rates: Floats
    kind: str
    off: float

    @property
    def middle(self) -> Floats:
        """The future in the middle."""
        return self.rates[len(CHANCES) // 2]  # type: ignore[no-any-return]


class Rates:
    """Rates of a while, and forecasts from them.

    Five kinds of forecasts are made: the rate stays; it goes on in a line as over a short and over a longer while, or
    in a bend, which fades; it does what it did one period before, if there seems to be a period. Each is judged by
    what it would have said in the past, and the best for each distance is taken. Its errors then are the futures that
    are reckoned with now: each a seventh of them.

    Parameters
    ----------
    outlook
        Seconds ahead that matter. All other times are shares of it.

    Examples
    --------
    >>> rates = Rates(1200.0)
    >>> for minute in range(60):
    ...     rates.add(60.0 * minute, 1000.0 + 10 * minute)
    >>> found = rates.forecast(np.array([300.0]))
    >>> found.kind, round(float(found.middle[0]), -1)
    ('as it goes now', 1640.0)
    """

    def __init__(self, outlook: float) -> None:
        self.outlook = outlook
        self._kept: deque[tuple[float, float]] = deque()

    def add(self, time: float, rate: float) -> None:
        """A rate until this moment."""
        if self._kept and time <= self._kept[-1][0]:
            return
        self._kept.append((time, rate))
        while self._kept[0][0] < time - KEPT * self.outlook:
            self._kept.popleft()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def mean(self) -> float:
        """Mean rate of all that is kept."""
        return float(np.mean([rate for _, rate in self._kept])) if self._kept else 0.0

    def at(self, time: float) -> float:
        """The rate that there was at a moment."""
        times, rates = np.array(self._kept).T
        return float(np.interp(time, times, rates))

    def forecast(self, ahead: Floats) -> Forecast:
        """Of the moments so many seconds ahead of the newest rate."""
        times, rates = np.array(self._kept).T
        line = _Line(times, rates, self.outlook)
        now = times[-1:]
        errors, best = self._judged(line)
        judged = np.array(JUDGED) * self.outlook
        nearest = np.abs(ahead[:, None] - judged).argmin(axis=1)
        each = np.stack([line.said(kind, now, ahead)[0] for kind in range(len(KINDS))])
        middle = each[np.array(best)[nearest], np.arange(len(ahead))]
        # errors are known at a few distances; beyond the last and before the first they go with the root of time
        scale = np.sqrt(np.clip(ahead / judged[0], None, 1.0)) * np.sqrt(np.clip(ahead / judged[-1], 1.0, None))
        spread = np.stack([np.interp(ahead, judged, errors[:, one]) for one in range(len(CHANCES))]) * scale
        centre = 1
        off = float(np.abs(errors[centre]).mean())
        return Forecast(ahead, np.maximum(middle + spread, 0.0), KINDS[best[centre]], off)

    def _judged(self, line: _Line) -> tuple[Floats, list[int]]:
        """float64[distances, futures]: errors of the best kind for each distance; and which kinds these are."""
        now, level = line.end, max(line.level(np.array([line.end]))[0], 0.0)
        found, best = [], []
        far = np.array(JUDGED) * self.outlook
        anchors = line.anchors(now - far[0])
        said = np.stack([line.said(kind, anchors, far) for kind in range(len(KINDS))])
        came = line.level((anchors[:, None] + far).ravel()).reshape(len(anchors), len(far))
        for number, share in enumerate(JUDGED):
            prior = PRIOR * level * np.sqrt(share / JUDGED[0]) * _NORMAL
            own = anchors <= now - far[number]
            if not own.any():
                found.append(prior)
                best.append(0)
                continue
            off = came[own, number] - said[:, own, number]
            weights = 0.5 ** ((now - far[number] - anchors[own]) / (FORGET * self.outlook))
            usable = np.isfinite(off)
            mean_off = np.where(usable, np.abs(off), 0.0) @ weights / np.maximum(usable @ weights, 1e-9)
            # a forecast that could be judged less than half of the time is not known well enough
            mean_off[usable @ weights < weights.sum() / 2] = np.inf
            kind = int(np.argmin(mean_off * _TRUST))
            judged = usable[kind]
            values = np.concatenate([off[kind][judged], prior])
            heavy = np.concatenate([weights[judged], np.full(len(prior), PRIOR_COUNT / len(prior))])
            found.append(_quantiles(values, heavy))
            best.append(kind)
        return np.array(found), best

    def state(self) -> State:
        """As arrays."""
        return {"rates": np.array(self._kept, dtype=np.float64).reshape(-1, 2)}

    def restore(self, state: State) -> None:
        """Go on from that."""
        self._kept = deque((time, rate) for time, rate in state["rates"].tolist())


class _Line:
    """Rates over time, added up, so that a mean over any while is two lookups."""

    def __init__(self, times: Floats, rates: Floats, outlook: float) -> None:
        spans = np.diff(times, prepend=2 * times[0] - times[1] if len(times) > 1 else times[0] - outlook * LEVEL)
        self.times = np.concatenate([[times[0] - spans[0]], times])
        self.sums = np.concatenate([[0.0], np.cumsum(rates * spans)])
        self.outlook, self.first = outlook, float(rates[0])
        self.begin, self.end = float(self.times[0]), float(times[-1])
        self.period = self._found_period()

    def _sum(self, moments: Floats) -> Floats:
        before = np.minimum(moments - self.begin, 0.0) * self.first  # it was as at first before that
        return np.interp(moments, self.times, self.sums) + before  # type: ignore[no-any-return]

    def level(self, moments: Floats) -> Floats:
        """Mean rate of the last while before each moment."""
        while_ = LEVEL * self.outlook
        return (self._sum(moments) - self._sum(moments - while_)) / while_

    def anchors(self, until: float) -> Floats:
        """Moments at which forecasts could have been made."""
        found = self.times[(self.times > self.begin + LEVEL * self.outlook) & (self.times <= until)]
        return found[:: max(len(found) // _MOST_ANCHORS, 1)]

    def said(self, kind: int, moments: Floats, ahead: Floats) -> Floats:
        """float64[moments, ahead]: what a kind of forecast says at each moment; NaN where it cannot."""
        level = self.level(moments)[:, None]
        if kind == 0:
            return np.repeat(level, len(ahead), axis=1)
        if kind in _FITTED:
            return self._fitted(*_FITTED[kind], level, moments, ahead)
        if not self.period:
            return np.full((len(moments), len(ahead)), np.nan)
        then = moments[:, None] + ahead - self.period
        known = (moments - self.period >= self.begin)[:, None] & (then <= moments[:, None])
        moved = level - self.level(moments - self.period)[:, None]
        return np.where(known, np.maximum(self.level(then.ravel()).reshape(then.shape) + moved, 0.0), np.nan)

    def _fitted(self, degree: int, share: float, level: Floats, moments: Floats, ahead: Floats) -> Floats:
        """A line or a parabola through the levels of a while goes on, and fades to a level that stays."""
        step, points = LEVEL * self.outlook, round(share / LEVEL) + 1
        back = np.arange(points)
        levels = self.level((moments[:, None] - step * back).ravel()).reshape(len(moments), points)
        bent = levels @ _fit(points, degree).T  # from the value now on: slope, bend
        known = (moments - (points - 1) * step >= self.begin)[:, None]
        fading = DAMPING * self.outlook
        way = fading * -np.expm1(-(ahead + step / 2) / fading) / step
        said = bent[:, :1] + sum(bent[:, [power]] * way**power for power in range(1, degree + 1))
        return np.where(known, np.maximum(said, 0.0), level)

    def _found_period(self) -> float:
        """How long one turn takes, where what was kept looks like more than one of them; 0 where it does not."""
        step = LEVEL * self.outlook
        grid = np.arange(self.begin + step, self.end + step / 2, step)
        least = int(_LEAST_PERIOD / LEVEL)
        if len(grid) < 3 * least:
            return 0.0
        values = self.level(grid)
        spread = float(values.std())
        lags = np.arange(least, 5 * len(grid) // 6)
        off = np.array([np.abs(values[lag:] - values[:-lag]).mean() for lag in lags])
        # of lags that fit well, one at which it had moved away before: neighbours of a smooth line fit, too
        away = np.maximum.accumulate(off)
        fits = (off < spread / 3) & (away > spread)
        return float(lags[np.where(fits, off, np.inf).argmin()] * step) if fits.any() else 0.0


@cache
def _fit(points: int, degree: int) -> Floats:
    """float64[powers, points]: weights of values, newest first, in the polynomial that is nearest to all of them."""
    return np.linalg.pinv(np.vander(-np.arange(points), degree + 1, increasing=True).astype(np.float64))


def _quantiles(values: Floats, weights: Floats) -> Floats:
    """Values at the middle of each seventh of all weights."""
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return np.interp(np.array(CHANCES) * weights.sum(), below, values[order])  # type: ignore[no-any-return]
