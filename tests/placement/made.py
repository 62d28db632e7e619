"""A cluster by a formula that records tuples: as quick as a test needs it, and its times are known exactly."""

from itertools import pairwise

import numpy as np

from steelyard.core.measured import ACK, PROCESS, TRANSFER, Reading, Records
from steelyard.core.placing import Component, Host, Setup, Stream

APART, TOGETHER = 0.0008, 0.0002
"""Seconds of a hop."""


def chain(machines=4, threads=(2, 4, 4), cores=4.0):
    names = ("spout", "query", "file", "store")[: len(threads)]
    parts = tuple(Component(name, n, source=not at) for at, (name, n) in enumerate(zip(names, threads, strict=True)))
    streams = tuple(Stream(a, b) for a, b in pairwise(names))
    return Setup(parts, streams, machines * (Host(cores),))


class Formula:
    """Work takes longer with the load of a machine, a hop is cheaper within one; clocks are milliseconds off."""

    def __init__(self, setup, rate=400.0, seed=0, noise=0.05):
        self.setup, self.noise = setup, noise
        self.assignment, self.now, self.rates = setup.round_robin(), 0.0, np.array([rate])
        self._rng = np.random.default_rng(seed)
        self._offsets = self._rng.normal(0, 0.005, setup.machines)
        self._share, self._kept, self._deployments, self._ids = 0.0, [], 0, 0

    def deploy(self, assignment):
        moved = self.setup.moved(self.assignment, assignment)
        self.assignment = self.setup.checked(assignment)
        self._deployments += moved > 0
        return moved

    def scale_rates(self, factor):
        self.rates = self.rates * factor

    def run(self, seconds):
        self.now += seconds

    def record(self, share=1.0):
        self._share = share

    def work(self, assignments):
        """Seconds of work of a tuple of every component but the source, on each machine: float64[B, machines]."""
        there = np.zeros((len(assignments), self.setup.machines))
        rows, threads = np.nonzero(assignments >= 0)
        np.add.at(there, (rows, assignments[rows, threads]), 1.0)
        return 0.0005 * (1 + 0.02 * there**2)

    def times(self, assignments, rates=None):
        """The true mean time of a tuple."""
        work, found = self.work(assignments), np.zeros(len(assignments))
        rows = np.arange(len(assignments))[:, None]
        first = self.setup.first
        for number in range(1, len(self.setup.operators)):
            own = assignments[:, first[number] : first[number + 1]]
            before = assignments[:, first[number - 1] : first[number]]
            found += work[rows, own].mean(axis=1)
            same = (before[:, :, None] == own[:, None, :]).mean(axis=(1, 2))
            found += same * TOGETHER + (1 - same) * APART
        return found[:, None]

    def measure(self, seconds=10.0):
        begin, rate = self.now, self.rates[0]
        self.now += seconds
        processed = np.zeros(self.setup.threads)
        for number, one in enumerate(self.setup.operators):
            processed[self.setup.first[number] :][: one.parallelism] = rate * seconds / one.parallelism
        if self._share:
            self._kept.append(self._recorded(begin, seconds))
        time = self.times(self.assignment[None])[0]
        return Reading(self.now, seconds, self.assignment.copy(), time, self.rates, self.rates, processed)

    def _recorded(self, begin, seconds):
        count = int(self.rates[0] * seconds * self._share)
        roots = self._ids + np.arange(count)
        at = begin + np.sort(self._rng.random(count)) * (seconds - 0.1)
        emitted = at.copy()
        sender = self._rng.integers(0, self.setup.most[0], count)
        work = self.work(self.assignment[None])[0]
        transfers, processes = [], []
        for number in range(1, len(self.setup.operators)):
            receiver = self.setup.first[number] + self._rng.integers(0, self.setup.most[number], count)
            ids = self._ids + count * number + np.arange(count)
            where, to = self.assignment[sender], self.assignment[receiver]
            hop = np.where(where == to, TOGETHER, APART) * self._noisy(count)
            done = work[to] * self._noisy(count)
            transfers.append(
                self._table(TRANSFER, ids, roots, number - 1, sender, receiver, where, to,
                            at + self._offsets[where], at + hop + self._offsets[to], self._deployments)
            )  # fmt: skip
            processes.append(
                self._table(PROCESS, ids, roots, number, receiver, to, at + hop + self._offsets[to],
                            at + hop + done + self._offsets[to], self._deployments)
            )  # fmt: skip
            at, sender = at + hop + done, receiver
        self._ids += count * len(self.setup.operators)
        acks = self._table(ACK, roots, 0, emitted, at, self._deployments)
        return Records(np.concatenate(transfers), np.concatenate(processes), acks)

    def _noisy(self, count):
        return np.maximum(1 + self.noise * self._rng.standard_normal(count), 0.01)

    def _table(self, dtype, *columns):
        found = np.zeros(len(columns[0]), dtype)
        for name, column in zip(dtype.names, columns, strict=True):
            found[name] = column
        return found

    def records(self):
        kept, self._kept = self._kept, []
        empty = [np.zeros(0, kind) for kind in (TRANSFER, PROCESS, ACK)]
        return Records(*(np.concatenate([*one]) for one in zip(empty, *kept, strict=True)))

    def exchange(self, machine, times=1):
        delay, offset = 0.0003, self._offsets[machine]
        t1 = self.now + 0.001 * np.arange(times)
        return np.stack([t1, t1 + delay + offset, t1 + 2 * delay + offset, t1 + 3 * delay], axis=1)
