"""What an engineer without a paper would write: the same model, searched until no single change helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.placing import Setup
from steelyard.placement.draws import drawn
from steelyard.placement.model_based import one_pass
from steelyard.placement.predicting import Predicting, Times, dealt_as

PASSES = 8


@dataclass
class LocalSearch(Predicting):
    """Search the model of `model_based` from several starts, round after round, until no move of a thread helps.

    Starts are round robin, the present placement, all threads dealt to the first machines only (one, two, … of them),
    and the best of many that are drawn. The best of all ends wins. It shows what of the gain is the model's, and what
    the search's.

    Parameters
    ----------
    schedules, dwell, settle, tuples, kernel, pooled, diversified
        As of `model_based`.
    draws
        Placements that are drawn and predicted; the best of them is a start.
    starts
        How many of the starts, best first, are searched from.
    seed
        Of the draws.
    """

    draws: int = 200
    starts: int = 3
    seed: int = 0

    name: ClassVar[str] = "local_search"

    def search(self, setup: Setup, times: Times, present: Ints) -> Ints:
        """From the best starts."""
        begun = self._starts(setup, present)
        known = times(begun)
        order = np.argsort(known, kind="stable")[: max(self.starts, 1)]
        ends = np.array([self._down(setup, times, begun[at]) for at in order])
        return np.asarray(ends[int(times(ends).argmin())])

    def _starts(self, setup: Setup, present: Ints) -> Ints:
        dealt = dealt_as(setup, present)
        few = np.array([np.where(dealt >= 0, dealt % used, dealt) for used in range(1, setup.machines + 1)])
        starts = [present[None], dealt[None], few]
        if ((setup.round_robin() >= 0) == (present >= 0)).all():  # draws have as many threads as at the start
            starts.append(drawn(setup, self.draws, self.seed))
        all_of = np.concatenate(starts)
        return np.asarray(all_of[setup.feasible(all_of)])

    def _down(self, setup: Setup, times: Times, start: Ints) -> Ints:
        for _ in range(PASSES):
            end = one_pass(setup, times, start)
            if (end == start).all():
                break
            start = end
        return start
