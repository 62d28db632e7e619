"""Key forwarding: partial aggregates that are the whole of their key skip the reducers.

Zapridou et al. 2022, section 4.2. The paper forwards what the partitioner believes to be cold. A key may turn hot
or cold inside a window, though, and then a cold-looking partial is not the whole key. So a partial is forwarded
here only where the key was in one block for all of the window, `||X(k)|| == 1`, which keeps every result exact.
"""

from __future__ import annotations

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.policies import Flags


def whole(keys: Ints, blocks: Ints) -> Flags:
    """bool[len(keys)]: which partials (key, block) of a window hold all rows of their key.

    For one who sees all partials of the window. A pair may be given once or many times.

    >>> whole(np.array([1, 2, 1, 3]), np.array([0, 0, 5, 2])).tolist()
    [False, True, False, True]
    """
    if not len(keys):
        return np.zeros(0, np.bool_)
    of, position = np.unique(np.asarray(keys, dtype=np.int64), return_inverse=True)
    least = np.full(len(of), np.iinfo(np.int64).max)
    most = np.full(len(of), -1, dtype=np.int64)
    np.minimum.at(least, position, blocks)
    np.maximum.at(most, position, blocks)
    return np.asarray((least == most)[position])


def forwardable(keys: Ints, split: Ints) -> Flags:
    """bool[len(keys)]: which keys' partials may skip the reducers, when `split` lists the keys that may not.

    For a combiner, which sees only its own partials: the one partitioner sends `DaltonRouter.split_keys()` with
    the mark that closes the window. That list has every key with rows outside its hash block in the window.

    >>> forwardable(np.array([4, 9, 2]), split=np.array([9])).tolist()
    [True, False, True]
    """
    return np.asarray(~np.isin(np.asarray(keys, dtype=np.int64), split))


class SharedSplits:
    """Forwarding where several partitioners feed the combiners: only what all of them report as whole.

    A partitioner cannot know by itself that another has split a key. With at least one round of synchronisation a
    slide, the rounds that cover a window list all keys that anyone split in it. Until the round that covers the
    window's end has come, and where rounds are longer than a slide, nothing is forwarded.

    Parameters
    ----------
    slide
        Slide of the window, in the unit of the partitioners' times.

    Examples
    --------
    >>> shared = SharedSplits(slide=10)
    >>> shared.learn(np.array([7]), covers=20, reaches=20, sync_every=10)
    >>> shared.forwardable(np.array([7, 8]), start=0, end=20).tolist()
    [False, True]
    >>> shared.forwardable(np.array([7, 8]), start=10, end=30).tolist()   # the second slide's round is not here yet
    [False, False]
    """

    def __init__(self, slide: int) -> None:
        self._slide = slide
        self._rounds: list[tuple[int, int, bool, Ints]] = []

    def learn(self, split: Ints, *, covers: int, reaches: int, sync_every: int) -> None:
        """Take in a round of synchronisation.

        Parameters
        ----------
        split
            Keys that any partitioner may have split since the round before.
        covers, reaches
            The time before which all rows of all partitioners are in this round or an earlier one, and the time
            before which some are.
        sync_every
            How long the round was.
        """
        frequent = sync_every <= self._slide
        self._rounds.append((covers, reaches, frequent, np.unique(np.asarray(split, dtype=np.int64))))

    def forget(self, before: int) -> None:
        """Let go of rounds that no window from time `before` on needs."""
        self._rounds = [entry for entry in self._rounds if entry[1] > before]

    def forwardable(self, keys: Ints, *, start: int, end: int) -> Flags:
        """bool[len(keys)]: whose partials of the window [start, end) may skip the reducers."""
        rounds = [entry for entry in self._rounds if entry[1] > start]
        covered = any(covers >= end for covers, *_ in rounds)
        if not covered or not all(frequent for _, _, frequent, _ in rounds):
            return np.zeros(len(keys), np.bool_)
        return forwardable(keys, np.concatenate([split for *_, split in rounds]))
