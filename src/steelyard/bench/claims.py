"""Claims of a paper beside what was found: a mean over seeds with its interval, and a verdict from these alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steelyard.bench.tables import Cell, Table

SEEDS, QUICK_SEEDS = 10, 3
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
# Student's t, 95 % in the middle, by degrees of freedom.
_T = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)


def mean(values: Iterable[float]) -> float:
    """The plain mean, of seeds or of whatever else.

    >>> mean(one / 2 for one in (1, 2))
    0.75
    """
    return float(np.mean(list(values)))


def over(ours: Iterable[float], theirs: Iterable[float]) -> list[float]:
    """Figures over those of another, seed by seed; without end over nothing.

    >>> over([3.0, 1.0], [2.0, 0.0])
    [1.5, inf]
    """
    return [float(one / other) if other else math.inf for one, other in zip(ours, theirs, strict=True)]


class Interval(NamedTuple):
    """A mean over seeds, and the 95 % interval around it."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """From one value per seed.

        >>> Interval.of([1.0, 2.0, 3.0])
        Interval(mean=2.0, low=-0.48..., high=4.48...)
        """
        mean = float(np.mean(values))
        freedom = len(values) - 1
        if freedom < 1:
            return cls(mean, mean, mean)
        t = _T[freedom] if freedom < len(_T) else 1.96 + 2.4 / freedom
        half = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what came out for each seed."""

    claim: str
    published: str
    """The sentence, and what the paper gives for it."""
    values: Sequence[float]
    """One figure per seed."""
    at_least: float = -math.inf
    at_most: float = math.inf
    """What the figure must be for the claim to hold. All of the interval above (below) it: it holds; all of it on the
    other side: it does not; otherwise the seeds do not decide."""
    reason: str = ""
    """Why it does not hold, as far as the figures tell; shown only then. A claim that may fail needs one."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at_least) or math.isfinite(self.at_most)):
            raise ValueError(f"the claim {self.claim!r} cannot fail: give at_least or at_most")
        if not len(self.values):
            raise ValueError(f"the claim {self.claim!r} needs numbers")

    @property
    def interval(self) -> Interval:
        """Mean and interval of the values."""
        return Interval.of(self.values)

    @property
    def verdict(self) -> str:
        """Whether the claim holds.

        >>> Claim("a is faster than b", "1.5x", [1.4, 1.5, 1.45], at_least=1).verdict
        'holds'
        >>> Claim("a is faster than b", "1.5x", [0.9, 1.5, 0.8], at_least=1).verdict
        'undecided'
        """
        found = self.interval
        if self.at_least <= found.low and found.high <= self.at_most:
            return HOLDS
        if found.high < self.at_least or found.low > self.at_most:
            return FAILS
        return OPEN

    def row(self) -> tuple[Cell, ...]:
        """As a row of `claims_table`."""
        bounds = []
        if math.isfinite(self.at_least):
            bounds.append(f">= {self.at_least:g}")
        if math.isfinite(self.at_most):
            bounds.append(f"<= {self.at_most:g}")
        why = "" if self.verdict == HOLDS else self.reason
        return (self.claim, self.published, str(self.interval), " and ".join(bounds), self.verdict, why)


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every claim with its verdict.

    >>> claims_table([Claim("a is faster", "1.5x", [1.4, 1.5, 1.45], at_least=1)]).title
    'claims (over 3 seeds)'
    """
    seeds = max((len(claim.values) for claim in claims), default=1)
    title = f"claims (over {seeds} seeds)" if seeds > 1 else "claims (of one run)"
    columns = ("claim", "published", "ours, mean and 95 % interval", "holds if", "verdict", "reason")
    return Table(title, columns, [claim.row() for claim in claims])


def tally(claims: Sequence[Claim]) -> dict[str, int]:
    """How many claims hold, for the metrics."""
    verdicts = [claim.verdict for claim in claims]
    return {
        "claims": len(verdicts),
        "claims_hold": verdicts.count(HOLDS),
        "claims_fail": verdicts.count(FAILS),
        "claims_undecided": verdicts.count(OPEN),
    }


def seeds_note(quick: bool) -> str:
    """What a reader must know about the seeds."""
    return (
        f"Quick run: intervals are over {QUICK_SEEDS} seeds only; a full run has {SEEDS}."
        if quick
        else f"Intervals of 95 % are Student's, over {SEEDS} seeds."
    )
