"""When worksets are balanced anew: at every window, when loads differ too much, or when latencies do."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Protocol, runtime_checkable

from steelyard.core.errors import OptionError
from steelyard.core.worksets import JoinObservation

IMBALANCE_LIMIT = 0.2
"""In average loads of a worker. The dissertation leaves it to the application."""
LATENCY_SPREAD = 0.2
"""The monitor of the authors acts where two workers differ by more than 20 percent."""


@dataclass(frozen=True)
class Verdict:
    """Whether to balance, and why or why not. It is true where worksets are to be balanced.

    >>> "balance" if Verdict(False, "no new window") else "wait"
    'wait'
    """

    balance: bool
    reason: str

    def __bool__(self) -> bool:
        return self.balance


@runtime_checkable
class Trigger(Protocol):
    """Says when to balance. Called in the driver after each batch; it keeps no state."""

    def should(self, seen: JoinObservation) -> Verdict:
        """Whether worksets are balanced before the next batch."""
        ...


@dataclass(frozen=True)
class EveryWindow:
    """At the start of every window, when there are no records to ship: what the experiments of the dissertation do.

    >>> EveryWindow().should(JoinObservation(loads=[1.0, 1.0], window_started=True))
    Verdict(balance=True, reason='a window started')
    """

    name: ClassVar[str] = "every_window"
    paper: ClassVar[str] = "Siachamis 2024, chapter 2"

    def should(self, seen: JoinObservation) -> Verdict:
        """Yes where a window started."""
        return Verdict(seen.window_started, "a window started" if seen.window_started else "no window started")


@dataclass(frozen=True)
class ImbalanceAbove:
    """When the degree of imbalance, over the average load of a worker, is above a limit.

    Parameters
    ----------
    limit
        0 is any imbalance; with n workers, `2 (n - 1)` is all load on one of them, and never exceeded.

    Examples
    --------
    >>> ImbalanceAbove(0.5).should(JoinObservation(loads=[3.0, 1.0])).reason
    'imbalance of 1.00 average loads is above 0.5: worker 0 has 1.50 of one, worker 1 0.50'
    """

    name: ClassVar[str] = "imbalance_above"

    limit: float = IMBALANCE_LIMIT

    def __post_init__(self) -> None:
        _require_positive("limit", self.limit, or_zero=True)

    def should(self, seen: JoinObservation) -> Verdict:
        """Yes where `sum |L_n - L_avg| > limit * L_avg`."""
        shares, degree = seen.shares, seen.imbalance
        if not shares:
            return Verdict(False, "there is no load")
        if degree <= self.limit:
            return Verdict(False, f"imbalance of {degree:.2f} average loads is not above {self.limit:g}")
        most, least = shares.index(max(shares)), shares.index(min(shares))
        return Verdict(
            True,
            f"imbalance of {degree:.2f} average loads is above {self.limit:g}: "
            f"worker {most} has {shares[most]:.2f} of one, worker {least} {shares[least]:.2f}",
        )


@dataclass(frozen=True)
class LatencyAbove:
    """When the pairs of some worker take longer than they may.

    Parameters
    ----------
    seconds
        The latency that is still good.

    Examples
    --------
    >>> LatencyAbove(seconds=1).should(JoinObservation(loads=[3.0, 1.0], latencies=[2.5, 0.1]))
    Verdict(balance=True, reason='latency of 2.500 s at worker 0 is above 1 s')
    """

    name: ClassVar[str] = "latency_above"

    seconds: float

    def __post_init__(self) -> None:
        _require_positive("seconds", self.seconds)

    def should(self, seen: JoinObservation) -> Verdict:
        """Yes where the slowest worker is slower than that."""
        known = _measured(seen)
        if not known:
            return Verdict(False, "no latency was measured")
        slowest, worker = max(known)
        relation = "above" if slowest > self.seconds else "not above"
        return Verdict(
            slowest > self.seconds, f"latency of {slowest:.3f} s at worker {worker} is {relation} {self.seconds:g} s"
        )


@dataclass(frozen=True)
class LatencySpread:
    """When the latencies of two workers differ by more than a share, or a worker has no pair while others have.

    Parameters
    ----------
    share
        0.2 means that the slowest may take 1.2 times as long as the fastest.

    Examples
    --------
    >>> LatencySpread(0.2).should(JoinObservation(loads=[3.0, 1.0], latencies=[0.15, 0.1]))
    Verdict(balance=True, reason='worker 0 takes 0.150 s, more than 1.2 times the 0.100 s of worker 1')
    """

    name: ClassVar[str] = "latency_spread"

    share: float = LATENCY_SPREAD

    def __post_init__(self) -> None:
        _require_positive("share", self.share, or_zero=True)

    def should(self, seen: JoinObservation) -> Verdict:
        """Yes where the slowest is slower than `1 + share` times the fastest."""
        known = _measured(seen)
        if not known:
            return Verdict(False, "no latency was measured")
        idle = [worker for worker, latency in enumerate(seen.latencies) if latency is None]
        if idle:
            return Verdict(True, f"worker {idle[0]} had no pair while others had")
        (slowest, slow), (fastest, fast) = max(known), min(known)
        spread = slowest > (1 + self.share) * fastest
        return Verdict(
            spread,
            f"worker {slow} takes {slowest:.3f} s, {'' if spread else 'not '}more than {1 + self.share:g} times "
            f"the {fastest:.3f} s of worker {fast}",
        )


def _measured(seen: JoinObservation) -> list[tuple[float, int]]:
    return [(latency, worker) for worker, latency in enumerate(seen.latencies) if latency is not None]


def _require_positive(option: str, value: float, or_zero: bool = False) -> None:
    if not (isfinite(value) and (value > 0 or (or_zero and value == 0))):
        raise OptionError(
            f"option {option!r} must be a finite number {'from' if or_zero else 'above'} 0, got {value!r}"
        )
