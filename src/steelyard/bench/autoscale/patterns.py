"""Rates of the contest: a level for each minute."""

from __future__ import annotations

from itertools import islice
from math import cos, pi

from steelyard.bench.registry import DEFAULT_SEED
from steelyard.workloads import Steps, Walk
from steelyard.workloads.draws import java_uniform

MINUTE = 60.0
MINUTES = 140
MOST = 2_500_000.0
"""Rows per second."""
HIGH, MEDIUM = 2_000_000.0, 1_000_000.0
"""Of steps."""
INCREASING, DECREASING, COSINE, RANDOM, STEPS = "increasing", "decreasing", "cosine", "random", "steps"
PATTERNS = (INCREASING, DECREASING, COSINE, RANDOM)
PUBLISHED_SEED, PUBLISHED_RANDOM_SEED = 1066, 1073
PERIOD = 60
"""Minutes of a cosine."""
STEP_TENS = (1, 4, 4)
"""Tens of minutes for which nothing comes, much and less."""


def rate_of(pattern: str, seed: int, wave: tuple[float, float, float]) -> Steps:
    """The rate of one run: that of the published seed for the default seed, and of those that follow for others.

    Parameters
    ----------
    pattern
        Which one.
    seed
        Of the run.
    wave
        Of a cosine: its mean, its swing and the most by which chance moves a level, in rows per second.

    Examples
    --------
    >>> [round(level / 1e6, 2) for level in rate_of("increasing", 7, (0, 0, 0)).levels[::60]]
    [0.04, 0.92, 2.2]
    """
    offset = seed - DEFAULT_SEED
    if pattern == INCREASING:
        walk = Walk(0.0, down=MOST / 30, up=MOST / 22, seed=PUBLISHED_SEED + offset)
        return Steps(MINUTE, walk.levels[1 : MINUTES + 1])
    if pattern == DECREASING:
        walk = Walk(MOST + 2000, down=MOST / 21, up=MOST / 28, seed=PUBLISHED_SEED + offset)
        return Steps(MINUTE, walk.levels[1 : MINUTES + 1])
    if pattern == RANDOM:
        walk = Walk(MOST / 2, down=MOST / 5, up=MOST / 5, high=MOST, seed=PUBLISHED_RANDOM_SEED + offset)
        return Steps(MINUTE, walk.levels[:MINUTES])
    if pattern == STEPS:
        levels = [level for tens, level in zip(STEP_TENS, (0.0, HIGH, MEDIUM), strict=True) for _ in range(tens)]
        return Steps(10 * MINUTE, tuple(levels))
    mean, swing, noise = wave
    chance = islice(java_uniform(PUBLISHED_SEED + offset), MINUTES)
    return Steps(
        MINUTE,
        tuple(
            max(mean + swing * cos(2 * pi * minute / PERIOD) + noise * (2 * share - 1), 0.0)
            for minute, share in enumerate(chance)
        ),
    )
