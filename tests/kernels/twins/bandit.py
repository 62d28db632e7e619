"""Dalton's loop in dictionaries and lists, with every window counted anew for every row: the twin of `bandit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from steelyard.kernels.bandit_state import FIRST_SPLIT, HYBRID, SKETCH, UNREACHABLE, Rule
from tests.kernels.twins.heavy import sketch_add_plain

_MASK = (1 << 64) - 1


class PlainBandit:
    """Algorithm 1 as one reads it.

    Parameters
    ----------
    rule
        The parameters; `rule.stats` must be positive.
    random
        The state that the random numbers start from.
    width, depth
        Size of the count-min sketch.
    """

    def __init__(self, rule: Rule, random: int, width: int = 64, depth: int = 4) -> None:
        self.rule = rule
        self.random = random & _MASK
        self.sketch = np.zeros((depth, width), np.int64)
        self.sketching = rule.statistics == SKETCH
        self.interval: int | None = None
        self.counts: Counter[int] = Counter()
        self.rows = 0
        self.need = 0 if rule.all_hot else UNREACHABLE
        self.q: dict[int, list[float]] = {}
        self.expires: dict[int, int] = {}
        self.capped: set[int] = set()
        self.max_split = FIRST_SPLIT if rule.split_limit else UNREACHABLE
        self.sent: list[tuple[int, int, int]] = []  # slide, key, block of every row in the window
        self.rewards: list[float] = []

    def route(self, keys: Iterable[int], times: Iterable[int]) -> list[tuple[int, bool]]:
        """Block of each row, and whether its key may be in others."""
        return [self._row(key, time) for key, time in zip(keys, times, strict=True)]

    def loads(self) -> list[int]:
        """L, by counting."""
        inside = Counter(block for _, _, block in self.sent)
        return [inside[block] for block in range(self.rule.blocks)]

    def blocks_of(self, key: int) -> list[int]:
        """X(k), by looking at every row."""
        return sorted({block for _, of, block in self.sent if of == key})

    def _row(self, key: int, time: int) -> tuple[int, bool]:
        rule = self.rule
        self._roll_statistics(time)
        if self._count(key) >= self.need:
            self.q.setdefault(key, [rule.initial] * rule.blocks)
            self.expires[key] = (time // rule.stats + 2) * rule.stats - 1
        slide = time // rule.slide
        self.sent = [sent for sent in self.sent if sent[0] > slide - rule.panes]
        home = key % rule.blocks
        if key not in self.q:
            split = any(block != home for block in self.blocks_of(key))
            self.sent.append((slide, key, home))
            return home, split
        if self._bits() >> 11 < rule.greedy:
            block = max(range(rule.blocks), key=lambda block: (self.q[key][block], block == home, -block))
        else:
            block = self._explore(key)
        self.sent.append((slide, key, block))
        self._learn(key, block)
        return block, True

    def _roll_statistics(self, time: int) -> None:
        rule = self.rule
        interval = time // rule.stats
        if self.interval is None:
            self.interval = interval
        if interval == self.interval:
            return
        if rule.forced:
            hottest = sorted(self.counts, key=lambda key: (-self.counts[key], key))[: rule.forced]
            self._forget([key for key in self.q if key not in hottest])
            for key in hottest:
                self.q.setdefault(key, [rule.initial] * rule.blocks)
        else:
            self._forget([key for key in self.q if self.expires[key] < time])
            if not rule.all_hot:
                self.need = -(-self.rows // rule.blocks)
        self.sketch[:] = 0
        self.sketching = rule.statistics == SKETCH or (rule.statistics == HYBRID and len(self.counts) >= rule.hybrid_at)
        self.counts.clear()
        self.rows = 0
        self.interval = interval

    def _forget(self, keys: list[int]) -> None:
        for key in keys:
            del self.q[key]
            self.capped.discard(key)

    def _count(self, key: int) -> int:
        self.rows += 1
        self.counts[key] = sketch_add_plain(self.sketch, key) if self.sketching else self.counts[key] + 1
        return self.counts[key]

    def _bits(self) -> int:
        self.random = (self.random + 0x9E3779B97F4A7C15) & _MASK
        x = self.random
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    def _explore(self, key: int) -> int:
        bits = self._bits() >> 32
        if key in self.capped:
            held = self.blocks_of(key)
            if held:
                return held[bits * len(held) >> 32]
            self.capped.discard(key)
        return bits * self.rule.blocks >> 32

    def _learn(self, key: int, block: int) -> None:
        rule = self.rule
        held = len(self.blocks_of(key))
        load = float(self.loads()[block])
        mean = len(self.sent) * rule.share
        reward = -(rule.p1 * ((load - mean) / max(load, mean)) + rule.p2 * (held * rule.share))
        self.rewards.append(reward)
        if held >= self.max_split:
            self.capped.add(key)
            if self.max_split < rule.split_limit and 10 * len(self.capped) >= 7 * len(self.q):
                self.max_split += 1
                self.capped.clear()
        self.q[key][block] += rule.step * (reward - self.q[key][block])
