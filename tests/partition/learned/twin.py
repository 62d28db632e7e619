"""The environment once more, a batch at a time, with lists and loops."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

from steelyard.partition.learned.actions import FILL, LATER, level


class Twin:
    def __init__(self, rows, blocks, actions):
        self.rows = sorted(rows, reverse=True)
        self.blocks, self.level = blocks, level(actions)
        self.capacity = -(-sum(rows) // blocks)
        self.placed = [[0] * blocks for _ in rows]
        self.queue, self.late = deque(range(len(rows))), []

    @property
    def done(self):
        return not self.queue and not self.late

    def key(self):
        return self.queue[0] if self.queue else self.late[-1]

    def left(self):
        return self.rows[self.key()] - sum(self.placed[self.key()])

    def loads(self):
        return [sum(key[block] for key in self.placed) for block in range(self.blocks)]

    def shares(self, weights):
        rows, whole = self.left(), sum(weights)
        exact = [Fraction(rows * weight, whole) for weight in weights]
        given = [int(one) for one in exact]
        order = sorted(range(len(weights)), key=lambda part: (given[part] - exact[part], part))
        for part in order[: rows - sum(given)]:
            given[part] += 1
        return given

    def step(self, block, kind):
        if self.done:
            return
        key, mode = self.key(), self.level.modes[kind]
        if mode == LATER:
            self.late.append(self.queue.popleft())
            return
        loads = self.loads()
        if mode == FILL:
            self.placed[key][block] += min(self.left(), max(0, self.capacity - loads[block]))
        else:
            weights = [int(one) for one in self.level.weights[kind] if one]
            others = sorted((one for one in range(self.blocks) if one != block), key=lambda one: (loads[one], one))
            for where, rows in zip([block, *others], self.shares(weights), strict=False):
                self.placed[key][where] += rows
        if not self.left():
            if self.queue:
                self.queue.popleft()
            else:
                self.late.pop()
