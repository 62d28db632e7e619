"""What a paper claims, over several seeds: an interval, a verdict, and the reason where it does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.bench.result import Table

HOLDS, FAILS = "holds", "does not hold"
SEEDS, QUICK_SEEDS = 10, 3

# Student's t for a two-sided interval of 95 %, by degrees of freedom; beyond the table the normal law's.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL = 1.96


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and both ends of its confidence interval of 95 %; of one value, the value three times.

    >>> [round(end, 2) for end in interval([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < 2:
        return mean, mean, mean
    freedom = len(found) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _NORMAL
    half = t * float(found.std(ddof=1)) / len(found) ** 0.5
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Claim:
    """A sentence that is true or false of numbers, one for each seed.

    It holds where the whole confidence interval of the mean is on the right side of the bound. An interval that
    contains the bound does not show the claim, so it counts as not holding.

    Parameters
    ----------
    text
        What is claimed.
    published
        The words of the source, and where they stand.
    values
        One number a seed.
    at_least, at_most
        The bound; exactly one of them is given.
    reason
        Why it does not hold, shown only then.

    Examples
    --------
    >>> claim = Claim("a is twice as fast as b", "2x, a paper", [2.4, 2.5, 2.6], at_least=2.0)
    >>> claim.verdict, claim.ours
    ('holds', '2.5 (2.252 to 2.748)')
    """

    text: str
    published: str
    values: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"the claim {self.text!r} needs either at_least or at_most")
        if not len(self.values):
            raise ValueError(f"the claim {self.text!r} needs numbers")

    @property
    def holds(self) -> bool:
        """Whether the numbers show it."""
        _, low, high = interval(self.values)
        return bool(low >= self.at_least if self.at_least is not None else high <= (self.at_most or 0.0))

    @property
    def verdict(self) -> str:
        """`holds` or `does not hold`."""
        return HOLDS if self.holds else FAILS

    @property
    def ours(self) -> str:
        """Mean and interval, in words."""
        mean, low, high = interval(self.values)
        return f"{mean:.4g} ({low:.4g} to {high:.4g})"

    @property
    def bound(self) -> str:
        """The bound, in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """All claims with their verdicts, which are computed from the numbers."""
    rows = [
        (claim.text, claim.published, claim.bound, claim.ours, claim.verdict, "" if claim.holds else claim.reason)
        for claim in claims
    ]
    return Table("claims", ("claim", "published", "bound", "ours, 95 %", "verdict", "reason"), rows)


def claims_held(claims: Sequence[Claim]) -> dict[str, int]:
    """How many of the claims hold, as metrics."""
    return {"claims": len(claims), "claims_that_hold": sum(bool(claim.holds) for claim in claims)}


def seeds_of(quick: bool, seed: int) -> list[int]:
    """The seeds of a run: ten, or three of a quick one."""
    return [seed + i for i in range(QUICK_SEEDS if quick else SEEDS)]


def seeds_note(quick: bool) -> str:
    """What a reader must know about the seeds."""
    return (
        f"Quick run: intervals are over {QUICK_SEEDS} seeds only; a full run has {SEEDS}."
        if quick
        else f"Intervals of 95 % are Student's, over {SEEDS} seeds."
    )
