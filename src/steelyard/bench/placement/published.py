"""What the dissertation prints of its three systems, in milliseconds where nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = "Li, Efficient Online Scheduling in Distributed Stream Data Processing Systems, Syracuse University, 2018"


@dataclass(frozen=True)
class Published:
    """Stabilised mean tuple times of a setup, by policy.

    Parameters
    ----------
    figure
        Where it stands.
    times
        Milliseconds by the name of our policy.
    starts
        The same right after the deployment.
    """

    figure: str
    times: Mapping[str, float]
    starts: Mapping[str, float]


DEFAULT, MODEL, DQN, ACTOR, EXTRA = "default", "model_based", "dqn", "actor_critic", "extra"
"""How our policies are called that stand beside published ones."""
SEARCH, GUIDED = "local_search", "guided"
"""Those that nobody published."""


def _published(figure: str, names: tuple[str, ...], *times: float, starts: tuple[float, ...] = ()) -> Published:
    return Published(figure, dict(zip(names, times, strict=True)), dict(zip(names, starts, strict=False)))


_A, _B, _C = (DEFAULT, MODEL), (DEFAULT, MODEL, DQN, ACTOR), (DEFAULT, MODEL, EXTRA)

PUBLISHED: Mapping[str, Published] = {
    "wc-30": _published("Fig. 2.7", _A, 2.2, 1.5, starts=(5.6, 2.0)),
    "lsp-33": _published("Fig. 2.8", _A, 3.0, 2.4, starts=(4.9, 4.0)),
    "wc-2-sources": _published("Fig. 2.10", _A, 2.24, 1.56, starts=(5.8, 2.0)),
    "cq-small": _published("Fig. 3.3a", _B, 1.96, 1.46, 1.54, 1.33, starts=(3.71, 3.22, 3.20, 2.94)),
    "cq-medium": _published("Fig. 3.3b", _B, 2.08, 1.61, 1.59, 1.43),
    "cq-large": _published("Fig. 3.3c", _B, 2.64, 2.12, 2.45, 1.72),
    "lsp-large": _published("Fig. 3.5", _B, 9.61, 7.91, 8.19, 7.20),
    "wc-large": _published("Fig. 3.7", _B, 3.10, 2.16, 2.29, 1.70),
    "3x-cq-small": _published("Fig. 4.2a", _C, 4.06, 3.10, 2.67, starts=(5.81, 4.86, 4.28)),
    "3x-cq-medium": _published("Fig. 4.2b", _C, 4.25, 3.31, 2.77),
    "3x-cq-large": _published("Fig. 4.2c", _C, 5.29, 4.23, 3.12),
    "3x-wc-large": _published("Fig. 4.3", _C, 6.51, 4.57, 3.37),
    "3x-lsp-large": _published("Fig. 4.4", _C, 19.93, 16.15, 12.33),
    "hybrid": _published("Fig. 4.5", _C, 10.95, 8.42, 6.45),
}
"""By setup. The figures of three instances are taken as means over the instances: three alike give about twice the time
of one, and the mean of the three large setups is that of the hybrid one within 5 %."""

CHAPTER2 = ("wc-30", "lsp-33", "wc-2-sources")
CHAPTER3 = ("cq-small", "cq-medium", "cq-large", "lsp-large", "wc-large")
CHAPTER4 = ("3x-cq-small", "3x-cq-medium", "3x-cq-large", "3x-wc-large", "3x-lsp-large", "hybrid")

REDUCTION = {"wc-30": 31.8, "lsp-33": 20.0, "cq-31": 22.7, "wc-2-sources": 30.4}
"""Figs. 2.7 to 2.10: by how many percent the model-based placement's time is below the default's."""
SPLIT_PROCESSING = {"wc-30": 0.080, "wc-15": 0.083, "wc-7": 0.088}
"""Fig. 2.11: processing time of SplitSentence under the default placement."""
THROUGHPUT = (6600.0, 6700.0)
"""Fig. 3.9, tuples per second of the large setup of continuous queries, whatever the placement."""
STEP = {
    ("cq-large", ACTOR): (1.72, 1.76),
    ("cq-large", MODEL): (2.12, 2.17),
    ("3x-cq-large", EXTRA): (3.13, 3.15),
    ("hybrid", EXTRA): (6.49, 6.50),
}
"""Figs. 3.10 and 4.6: before and after half as many tuples more from minute 20 on."""
AVERAGES = {"ac_vs_default": 33.5, "ac_vs_model": 14.0, "extra_vs_default": 39.6, "extra_vs_model": 21.6}
"""Percent, over the five setups of chapter 3 and the six of chapter 4."""
BAND = 8.0
"""Points by which a reduction may be off and still be called the same."""


def ordered(setup: str) -> frozenset[str]:
    """Policies of whose times on a setup it is printed which is the lower.

    >>> sorted(ordered("cq-31")), sorted(ordered("wc-7"))
    (['default', 'model_based'], [])
    """
    if setup in PUBLISHED:
        return frozenset(PUBLISHED[setup].times)
    return frozenset((DEFAULT, MODEL)) if setup in REDUCTION else frozenset()


def reduction(setup: str, ours: str, theirs: str) -> float:
    """By how many percent one policy's published time is below another's.

    >>> round(reduction("cq-small", "actor_critic", "default"), 1)
    32.1
    """
    times = PUBLISHED[setup].times
    return 100.0 * (1.0 - times[ours] / times[theirs])
