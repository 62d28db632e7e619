"""Worksets of a similarity join, as who balances them sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

WorksetId = tuple[int, int]
"""Space partition, and number of the workset in it."""


@dataclass(frozen=True, slots=True)
class WorksetLoad:
    """What one workset cost, and where.

    Parameters
    ----------
    partition, workset
        Which one it is.
    worker
        Where it is, from 0.
    load
        Comparisons, or any other measure that adds up; not negative.
    size
        Bytes that a move ships.
    whole
        Whether it can be cut: it is not, and is no piece of one that was.
    """

    partition: int
    workset: int
    worker: int
    load: float
    size: int = 0
    whole: bool = True

    @property
    def id(self) -> WorksetId:
        """Which workset it is, among those of all space partitions."""
        return self.partition, self.workset


@dataclass(frozen=True)
class JoinObservation:
    """What the workers of a similarity join did since the last look.

    Parameters
    ----------
    loads
        Load of each worker.
    latencies
        Seconds that a high percentile of each worker's pairs took, None where a worker had no pair. Empty where
        they were not measured.
    window_started
        Whether a new window began.
    worksets
        What each workset cost that had a part in it, and which worker has it now.
    batch
        The newest batch.
    moved, moved_bytes
        Worksets that changed their worker or were cut, and what that shipped.
    dealt_anew
        Whether records were dealt out in another way: the worksets of former looks are no more.
    """

    loads: Sequence[float]
    latencies: Sequence[float | None] = ()
    window_started: bool = False
    worksets: Sequence[WorksetLoad] = ()
    batch: int = -1
    moved: int = 0
    moved_bytes: int = 0
    dealt_anew: bool = False

    def behind(self, hidden: JoinObservation) -> JoinObservation:
        """With what a policy must know of the look before, which was hidden from it: not loads, but what changed.

        >>> seen = JoinObservation([1.0], moved=1).behind(JoinObservation([9.0], moved=2, dealt_anew=True))
        >>> seen.loads, seen.moved, seen.dealt_anew
        ([1.0], 3, True)
        """
        return replace(
            self,
            moved=self.moved + hidden.moved,
            moved_bytes=self.moved_bytes + hidden.moved_bytes,
            dealt_anew=self.dealt_anew or hidden.dealt_anew,
        )

    @property
    def shares(self) -> list[float]:
        """Load of each worker over the average; empty where there is no load."""
        average = sum(self.loads) / len(self.loads) if self.loads else 0.0
        return [load / average for load in self.loads] if average > 0 else []

    @property
    def imbalance(self) -> float:
        """The degree of imbalance, in average loads of a worker.

        >>> JoinObservation([3.0, 1.0]).imbalance
        1.0
        """
        # DI / L_avg = sum over workers |L_n / L_avg - 1|
        return sum(abs(share - 1) for share in self.shares)
