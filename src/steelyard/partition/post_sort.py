"""Prompt without the tree: keys are sorted after the cut-off, in time that the batch then waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.partition.prompt import Prompt


@dataclass(frozen=True)
class PostSort(Prompt):
    """The plan of Prompt from an exact sort at the end of the batch (Abdelhamid 2021, section 2.6.2).

    What differs is when the keys are put in order: Prompt's accumulator does it while rows arrive, this
    variant between the cut-off and the heartbeat, so that its sort counts as partitioning time.

    Examples
    --------
    >>> PostSort().after_cut_off(sort_seconds=0.3, plan_seconds=0.25)
    0.55
    >>> Prompt().after_cut_off(sort_seconds=0.3, plan_seconds=0.25)
    0.25
    """

    name: ClassVar[str] = "prompt_postsort"
    paper: ClassVar[str] = "Abdelhamid 2021, section 2.6"
    buffers: ClassVar[bool] = False

    @staticmethod
    def after_cut_off(sort_seconds: float, plan_seconds: float) -> float:
        """What of a batch's partitioning is left to do at the cut-off: all of it."""
        return sort_seconds + plan_seconds
