"""What an operator's work depends on: rows that come, results that it makes, and state that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from steelyard.core import OperatorObservation, State
from steelyard.core.plans import Floats

CAUSES = ("rows", "results", "state")
"""Of work: each row, each row that is handed on, and each row for each byte that its instance keeps."""
STEADY = 0.02
"""A cause is believed where it explains so much more of the work than the causes before it do."""
HOTTEST = 0.05
"""Less than that share of all rows beyond its own part is no hot instance."""
_FORGET_SKEW = 0.1
"""Of what was known of differences between instances, with each look."""
_FIELDS = 23
"""Of the array of an operator."""
_AT_WORK, _SLOWEST = 0.05, 4.0
"""Who worked for less of its time says nothing of costs; and no instance is slower than so many times the mean."""


@dataclass
class Work:
    """One operator: sums from which its costs are found, older looks counting less.

    Seconds of work are explained by rows, by results and by rows times bytes of state (per instance). An operator whose
    windows all end at once makes results in a burst: its time at work goes into them, and rows are not dearer for it. A
    join whose state grows takes longer for a row; with more instances each keeps less, and takes less.

    Examples
    --------
    >>> work, quiet = Work(), dict(state_bytes=0.0, parallelism=2)
    >>> for _ in range(9):  # three looks at rows alone, then one at which a window ends
    ...     for _ in range(3):
    ...         work.learn(OperatorObservation("w", processed_per_second=100.0, busy=0.5, **quiet), 10.0, 1e3, 1200.0)
    ...     fires = OperatorObservation("w", processed_per_second=100.0, sent_per_second=50.0, busy=0.75, **quiet)
    ...     work.learn(fires, 10.0, 1e3, 1200.0)
    >>> [round(float(cost), 3) for cost in work.costs]
    [0.01, 0.01, 0.0]
    """

    moments: Floats = field(default_factory=lambda: np.zeros((4, 4)))
    """float64[4, 4]: products of rows, results, rows times state, and seconds of work with each other."""
    rows: float = 0.0
    results: float = 0.0
    of_source: float = 0.0
    """Rows that came to it, that it handed on, and that sources read in the same time."""
    state_bytes: float = 0.0
    """Of all instances, at the newest look that knew."""
    hot: float = 0.0
    """Share of all rows that goes to one instance beyond its part."""
    slow: float = 1.0
    """Cost of a row at the slowest instance over the mean: where all get as many rows, all wait for it."""
    looks: float = 0.0

    def learn(self, seen: OperatorObservation, seconds: float, of_source: float, forget: float) -> None:
        """A look at which the operator did something.

        Parameters
        ----------
        seen
            The operator.
        seconds
            How long the look was over.
        of_source
            Rows that all sources read per second.
        forget
            Seconds after which a look counts half.
        """
        older = 0.5 ** (seconds / forget)
        rows, results = seen.processed_per_second * seconds, seen.sent_per_second * seconds
        self.state_bytes = seen.state_bytes if seen.state_bytes is not None else self.state_bytes
        with_state = rows * self.state_bytes / seen.parallelism
        worked = seen.busy * seconds * seen.parallelism
        one = np.array([rows, results, with_state, worked]) / np.sqrt(max(rows + results, 1e-9))
        self.moments = older * self.moments + np.outer(one, one)
        self.rows, self.results = older * self.rows + rows, older * self.results + results
        self.of_source = older * self.of_source + of_source * seconds
        self.looks += 1
        self._learn_differences(seen)

    def _learn_differences(self, seen: OperatorObservation) -> None:
        each = [one.processed_per_second for one in seen.instances]
        if len(each) < 2 or not sum(each):
            return
        # with a share h of one key and all others alike, the hottest instance has h + (1 - h) / n of all rows
        largest, count = max(each) / sum(each), len(each)
        hot = max(0.0, (largest - 1 / count) / (1 - 1 / count))
        self.hot += (hot - self.hot) * (_FORGET_SKEW if self.looks > 1 else 1.0)
        costs = [one.busy / one.processed_per_second for one in seen.instances if one.processed_per_second > 0]
        if len(costs) == len(each) and min(one.busy for one in seen.instances) > _AT_WORK:
            slow = min(max(costs) * len(costs) / sum(costs), _SLOWEST)
            self.slow += (slow - self.slow) * _FORGET_SKEW

    @property
    def known(self) -> bool:
        """Whether it worked at all, on rows of which sources have read some."""
        return self.moments[3, 3] > 0 and self.rows > 0 and self.of_source > 0

    @property
    def per_source_row(self) -> float:
        """Rows that come to it for one that sources read."""
        return self.rows / self.of_source

    @property
    def outputs(self) -> float:
        """Rows that it hands on for one that comes."""
        return self.results / self.rows

    @property
    def costs(self) -> Floats:
        """Seconds for a row, for a result, and for a row and a byte that is kept; none is below 0.

        Of all sets of causes that leave none below 0, the smallest that explains nearly as much as the best.
        """
        causes, work = self.moments[:3, :3], self.moments[:3, 3]
        size = np.sqrt(np.maximum(np.diag(causes), 1e-300))
        best, best_left = np.zeros(3), np.inf
        for many in (1, 2, 3):
            for chosen in combinations(range(3), many):
                if 0 not in chosen:
                    continue
                own = np.ix_(chosen, chosen)
                scaled = causes[own] / np.outer(size[list(chosen)], size[list(chosen)]) + 1e-9 * np.eye(many)
                found = np.linalg.solve(scaled, work[list(chosen)] / size[list(chosen)]) / size[list(chosen)]
                if not np.isfinite(found).all() or (found < 0).any():
                    continue
                costs = np.zeros(3)
                costs[list(chosen)] = found
                left = self.moments[3, 3] - 2 * costs @ work + costs @ causes @ costs
                better = best_left - left > STEADY * max(best_left, 0.0) if many > 1 else left < best_left
                if better:
                    best, best_left = costs, left
        return best

    def curve(self, most: int, state: float) -> Floats:
        """float64[most]: rows per second that sources may read so that 1, 2 and more instances keep up.

        Parameters
        ----------
        most
            Instances of the last one.
        state
            Bytes that all of them keep.
        """
        row, result, kept = self.costs
        instances = np.arange(1, most + 1)
        seconds = row + result * self.outputs + kept * state / instances
        hot = self.hot if self.hot > HOTTEST else 0.0
        can = 1 / (hot + (1 - hot) / instances)
        return can / np.maximum(self.per_source_row * seconds * self.slow, 1e-15)  # type: ignore[no-any-return]

    @property
    def array(self) -> Floats:
        """All of it in one array."""
        others = (self.rows, self.results, self.of_source, self.state_bytes, self.hot, self.slow, self.looks)
        return np.concatenate([self.moments.ravel(), others])

    @classmethod
    def of(cls, array: Floats) -> Work:
        """From such an array."""
        return cls(array[:16].reshape(4, 4).copy(), *array[16:].tolist())


def state_of(works: Mapping[str, Work]) -> State:
    """Of all operators."""
    names = sorted(works)
    arrays = np.array([works[name].array for name in names]).reshape(len(names), _FIELDS)
    return {"operators": np.array(names, dtype=np.str_), "works": arrays}


def works_of(state: State) -> dict[str, Work]:
    """That gave this state."""
    return {name: Work.of(array) for name, array in zip(state["operators"].tolist(), state["works"], strict=True)}


def too_hot(work: Work, rate: float, state: float) -> bool:
    """Whether no number of instances carries so many rows per second of sources: one of them has too much."""
    if work.hot <= HOTTEST:
        return False
    row, result, _ = work.costs
    return bool(rate * work.per_source_row * (row + result * work.outputs) * work.hot >= 1.0)
