"""Prices of things from sums of them: a regression that forgets, and whose prices are never below 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.core import Observation

Floats = np.ndarray[Any, np.dtype[np.float64]]

PULL = 0.01
"""How strongly prices are held where they were, in so far as batches are too alike to tell them apart."""
FORGOTTEN = 1e-100
"""Weight below which nothing is concluded: smaller numbers lose their digits."""


class Fit:
    """Prices of some things, from sums of them that took so many seconds; newer sums weigh more.

    Parameters
    ----------
    things
        How many prices there are.
    memory
        Weight of what was known, when sums come in.

    Examples
    --------
    >>> fit = Fit(2, memory=0.9)
    >>> fit.learn(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 5.0]), first=np.ones(2))
    >>> fit.prices.round(1).tolist()
    [2.0, 3.0]
    """

    def __init__(self, things: int, memory: float) -> None:
        self.memory = memory
        self.prices = np.zeros(things)
        self._square = np.zeros((things, things))
        self._product = np.zeros(things)

    def learn(self, sums: Floats, seconds: Floats, first: Floats) -> None:
        """Take in sums; `first` are the prices that are believed before any other."""
        if not self._square.any():
            self.prices = first
        self._square = self.memory * self._square + sums.T @ sums
        self._product = self.memory * self._product + sums.T @ seconds
        # Where sums do not tell things apart, their prices stay in the proportion that they had.
        pull = PULL * self._square.diagonal()
        known = np.flatnonzero(pull > FORGOTTEN)  # of a thing that was not seen for long, the price stays
        while len(known):
            square = self._square[np.ix_(known, known)] + np.diag(pull[known])
            found = np.linalg.solve(square, self._product[known] + pull[known] * self.prices[known])
            if found.min() >= 0:
                self.prices = self.prices.copy()
                self.prices[known] = found
                return
            self.prices = np.where(np.isin(np.arange(len(pull)), known[found < 0]), 0.0, self.prices)
            known = known[found >= 0]  # nothing takes less than no time

    def learn_tasks(self, observation: Observation) -> tuple[Floats, Floats] | None:
        """Take in what rows and keys took the map tasks of a batch; all rows and keys, and the seconds of each task.

        None where nobody measured them. At first a row and a key are believed to have taken half of the time each.
        """
        batch = observation.batch
        tasks = [task for task in batch.tasks if task.rows] if batch is not None else []
        taken = np.array([[task.rows, task.clusters] for task in tasks], np.float64)
        seconds = np.array([task.seconds for task in tasks])
        if not tasks or not np.isfinite(seconds).all() or seconds.min() < 0 or not seconds.any():
            return None
        sums = taken.sum(axis=0)
        share = seconds.sum() / (2 if sums[1] else 1)
        self.learn(taken, seconds, np.array([share / sums[0], share / sums[1] if sums[1] else 0.0]))
        return sums, seconds

    def state(self) -> Floats:
        """As one array."""
        return np.vstack([self.prices, self._product, self._square])

    def restore(self, state: Floats) -> None:
        """The inverse of `state`."""
        self.prices, self._product, self._square = state[0].copy(), state[1].copy(), state[2:].copy()
