"""What learners of placements learn from: placements that were tried, and the times that tuples took there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import READINGS, Fast, Measured, settled
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.learning import generator
from steelyard.placement.draws import drawn

NOISE = 0.02
"""Of one reading, as a share of what it tells, in samples that are drawn from the fast level."""
_AT_ONCE = 2_000


@dataclass(frozen=True, eq=False)
class Experience:
    """Placements, one deployed after the other, and what each of them was worth.

    Parameters
    ----------
    before, after
        int64[samples, threads]: the assignment that was there, and the one that was deployed.
    load
        float64[samples, applications]: arrival rates over those that the setup begins with.
    times
        float64[samples, applications]: mean tuple times that were measured then, in seconds.
    """

    before: Ints
    after: Ints
    load: Floats
    times: Floats

    def __len__(self) -> int:
        return len(self.after)


def samples(
    cluster: Fast,
    seed: int,
    count: int,
    *,
    diversified: bool = True,
    vary: bool = False,
    moves: bool = False,
    loads: Sequence[float] = (1.0,),
    noise: float = NOISE,
) -> Experience:
    """Transitions with random placements, from the fast level: the same for the same seed, and nothing is deployed.

    Parameters
    ----------
    cluster
        What tells the times.
    seed, count
        For the draws, and how many there are.
    diversified, vary
        How placements are drawn: see `draws.drawn`.
    moves
        Each sample moves a single thread of a random placement; otherwise the next one has nothing to do with it.
    loads
        Factors of arrival rates, one of which is drawn for each sample.
    noise
        Of one reading; a time is the mean of five.
    """
    setup, random = cluster.setup, generator(seed, "samples")
    if moves:
        before = drawn(setup, count, seed, diversified=diversified)
        after = before.copy()
        thread = random.integers(setup.threads, size=count)
        after[np.arange(count), thread] = random.integers(setup.machines, size=count)
    else:
        both = drawn(setup, count + 1, seed, diversified=diversified, vary=vary)
        before, after = both[:-1], both[1:]
    which = random.integers(len(loads), size=count)
    times = np.empty((count, len(setup.applications)))
    for number, load in enumerate(loads):
        places = np.flatnonzero(which == number)
        for at in range(0, len(places), _AT_ONCE):
            part = places[at : at + _AT_ONCE]
            times[part] = cluster.times(after[part], cluster.rates * load)
    times *= np.exp(random.normal(0.0, noise / np.sqrt(READINGS), times.shape))
    load_of = np.repeat(np.asarray(loads, dtype=float)[which][:, None], times.shape[1], axis=1)
    return Experience(before, after, load_of, times)


def tried(cluster: Measured, assignments: Ints, moves: bool = False, seed: int = 0) -> Experience:
    """Transitions on a cluster that can only be measured: deploy each, wait, and read.

    With `moves`, each is followed by one in which a single thread has moved, and only those transitions are kept.
    """
    setup = cluster.setup
    if moves:
        random = generator(seed, "moves")
        after = assignments.copy()
        thread = random.integers(setup.threads, size=len(after))
        after[np.arange(len(after)), thread] = random.integers(setup.machines, size=len(after))
        assignments = np.stack([assignments, after], axis=1).reshape(-1, setup.threads)
    before = np.concatenate([cluster.assignment[None], assignments[:-1]])
    times = np.array([settled(cluster, one).times for one in assignments])
    kept = slice(1, None, 2) if moves else slice(None)
    load = np.ones((len(times), len(setup.applications)))
    return Experience(before[kept], assignments[kept], load[kept], times[kept])


@dataclass(frozen=True)
class Reward:
    """What a placement is worth: how much less tuples take than they do where threads are dealt in turn.

    r = clip(1 - T / T_default), with T the sum of the applications' times by their weights: the papers' -T, moved and
    scaled, so that overloaded placements do not set the scale.

    Parameters
    ----------
    reference
        T where threads are dealt in turn.
    weights
        Of the applications.
    clip
        T above so many times the reference counts as that.

    Examples
    --------
    >>> Reward(2.0, (1.0,), clip=2.0).of(np.array([[1.5], [2.0], [90.0]])).tolist()
    [0.25, 0.0, -1.0]
    """

    reference: float
    weights: tuple[float, ...]
    clip: float = 2.0

    def total(self, times: Floats) -> Floats:
        """T of float64[..., applications]; without an end where no tuple was done."""
        found: Floats = np.where(np.isnan(times), np.inf, times) @ np.asarray(self.weights)
        return found

    def of(self, times: Floats) -> Floats:
        """The reward of float64[..., applications]."""
        return 1 - np.minimum(self.total(times) / self.reference, self.clip)


def weights_for(setup: Setup, weights: Sequence[float]) -> tuple[float, ...]:
    """One weight for each application: 1, where none are given."""
    given = tuple(float(one) for one in weights) or (1.0,) * len(setup.applications)
    if len(given) != len(setup.applications) or min(given) < 0 or not max(given) > 0:
        raise OptionError(
            f"weights are numbers of 0 or more, one for each of {len(setup.applications)} applications, got {given}"
        )
    return given
