"""Rows of replayable sources: how many become available when, and to which workers their keys lead."""

from __future__ import annotations

import numpy as np

from steelyard.core.plans import Floats
from steelyard.sim.checkpoints.job import Feed, Job

FIRST_ID, HOT_BLOCK = 1_000, 100
"""As in NexMark: ids begin there, and of so many one is hot."""


class Epochs:
    """The log of every source, which is cut into epochs: all rows of one become available at once.

    What is in an epoch does not depend on when it is read: who reads it again gets the same.

    Parameters
    ----------
    job
        Whose sources.
    rate
        Rows per second, of all sources and workers.
    tick
        Seconds of an epoch. Those of one worker become available a little later than those of the one before it.
    seed
        Chooses the keys.
    """

    def __init__(self, job: Job, rate: float, tick: float, seed: int) -> None:
        self._job, self._rate, self.tick, self._seed = job, rate, tick, seed

    def time(self, worker: int, epoch: int) -> float:
        """When the rows of an epoch are available."""
        return (epoch + (worker + 1) / self._job.workers) * self.tick

    def available(self, worker: int, now: float) -> int:
        """How many epochs are."""
        return max(int(np.floor(now / self.tick - (worker + 1) / self._job.workers + 1e-9)) + 1, 0)

    def rows(self, feed: Feed, worker: int, epoch: int) -> int:
        """How many rows an epoch has."""
        each = self._rate * feed.share * self.tick / len(self._job.hosts(feed.name))
        offset = worker / self._job.workers
        return int((epoch + 1) * each + offset) - int(epoch * each + offset)

    def by_receiver(self, feed: Feed, worker: int, epoch: int, several: int) -> list[int]:
        """Rows of an epoch for each of several receivers, by key."""
        rows = self.rows(feed, worker, epoch)
        number = next(place for place, one in enumerate(self._job.feeds) if one.name == feed.name)
        draws = np.random.default_rng((self._seed, number, worker, epoch))
        everywhere = int(draws.binomial(rows, feed.broadcast)) if feed.broadcast else 0
        chosen = draws.multinomial(rows - everywhere, self.chances(feed, epoch, several))
        found: list[int] = (chosen + everywhere).tolist()
        return found

    def chances(self, feed: Feed, epoch: int, several: int) -> Floats:
        """float64[several]: how probable each of several receivers is, for a key of this epoch.

        The key of a row goes to the receiver of its number modulo the receivers, as in the published system. With ten
        workers the first of every hundred ids is always that of worker 0.
        """
        uniform = np.full(several, 1 / several)
        if not feed.hot:
            return uniform
        ids = self._rate * feed.ids_per_row * self.tick
        first, last = epoch * ids, (epoch + 1) * ids
        blocks = np.arange(int(first // HOT_BLOCK), int(last // HOT_BLOCK) + 1)
        overlap = np.minimum(last, (blocks + 1) * HOT_BLOCK) - np.maximum(first, blocks * HOT_BLOCK)
        hot = (FIRST_ID + blocks * HOT_BLOCK + feed.hot_place) % several
        spread = np.bincount(hot, overlap, several) / max(ids, 1e-12)
        chances = feed.hot * spread + (1 - feed.hot) * uniform
        return np.asarray(chances / chances.sum())
