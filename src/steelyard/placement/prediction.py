"""What a tuple will take under placements that nobody has tried: Pred of the document.

Li 2018, sections 2.2.2 to 2.2.5. Loads of threads and weights of threads and pairs stay what they were measured to be;
loads of machines and how many threads share one follow from the placement. So do the features of every latency, which
regressions of each component and each stream give, and their sum along paths is the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.placing import ALL, GLOBAL, Setup
from steelyard.core.plans import Floats
from steelyard.placement.features import WINDOW, Weights
from steelyard.placement.paths import tuple_times
from steelyard.placement.regression import Regression

TOGETHER = 4
"""Placements that are predicted at once."""


@dataclass(frozen=True, eq=False)
class History:
    """What stays as it is wherever threads run.

    Parameters
    ----------
    load
        float64[threads]: tuples per window that a thread works off, or gives where it is of a source.
    instance
        float64[threads]: w(i, j), of each component 1 together.
    pair
        Of each stream float64[senders, receivers]: w(i, j, k), 1 together.
    rates
        float64[applications]: source tuples per second, when all this was so.
    """

    load: Floats
    instance: Floats
    pair: tuple[Floats, ...]
    rates: Floats

    @classmethod
    def of(cls, setup: Setup, load: Floats, found: Weights, rates: Floats) -> History:
        """From weights that were measured.

        Where no tuple was measured at all, threads of a component are weighted by their loads.
        """
        instance, edges = load.copy(), [str(edge) for edge in setup.edges]
        seen = found.instance
        threads = seen["exec"].to_numpy(np.int64)
        for number in np.unique(setup.component_of[threads]):
            span = slice(int(setup.first[number]), int(setup.first[number + 1]))
            instance[span] = 0.0
        instance[threads] = seen["weight"].to_numpy(np.float64)
        pairs = []
        for edge, (sender, receiver) in zip(edges, setup.links.tolist(), strict=True):
            own = found.pair[found.pair["edge"] == edge]
            made = np.zeros((int(setup.most[sender]), int(setup.most[receiver])))
            at = own["src_exec"].to_numpy(np.int64) - setup.first[sender]
            to = own["dst_exec"].to_numpy(np.int64) - setup.first[receiver]
            made[at, to] = own["weight"].to_numpy(np.float64)
            pairs.append(made)
        return cls(load, _shares(setup, instance), tuple(pairs), rates)

    @classmethod
    def even(cls, setup: Setup, rates: Floats, outputs: Sequence[float] = ()) -> History:
        """As if every thread of a component got as many tuples as the others, of so many for each of its sender's."""
        given = np.zeros(len(setup.operators))
        factors = outputs or [1.0] * len(setup.edges)
        for at, one in enumerate(setup.operators):
            if one.source:
                beside = [other.source and other.application == one.application for other in setup.operators]
                given[at] = rates[one.application] / sum(beside)
        for at, (sender, receiver) in enumerate(setup.links.tolist()):
            copies = setup.operators[receiver].parallelism if setup.edges[at].grouping == ALL else 1
            given[receiver] += given[sender] * factors[at] * copies
        running = np.array([one.parallelism for one in setup.operators])
        runs = np.arange(setup.threads) - setup.first[setup.component_of] < running[setup.component_of]
        weight = np.where(runs, 1.0 / running[setup.component_of], 0.0)
        pairs = []
        for edge, (sender, receiver) in zip(setup.edges, setup.links.tolist(), strict=True):
            up, down = (weight[setup.first[at] : setup.first[at + 1]] for at in (sender, receiver))
            first = (np.arange(len(down)) == 0).astype(np.float64)
            pairs.append(np.outer(up, first if edge.grouping == GLOBAL else down))
        return cls(WINDOW * given[setup.component_of] * weight, weight, tuple(pairs), rates)

    def with_load(self, load: Floats) -> History:
        """The same with other loads of threads."""
        return replace(self, load=load)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Times of tuples by learnt latencies. It is asked as a cluster's fast level is.

    Parameters
    ----------
    setup
        Applications and machines.
    processing
        By component: the regression of its processing latency.
    transfer
        By stream, as in `"spout -> query"`: that of its transfer latency.
    history
        Loads and weights.
    """

    setup: Setup
    processing: Mapping[str, Regression]
    transfer: Mapping[str, Regression]
    history: History

    def __post_init__(self) -> None:
        for name, there, kind in (
            *((one.name, self.processing, "component") for one in self.setup.operators if not one.source),
            *((str(edge), self.transfer, "stream") for edge in self.setup.edges),
        ):
            if name not in there:
                raise OptionError(f"no latency of {kind} {name!r} was learnt: record some of its tuples")

    def times(self, assignments: Ints, rates: Floats | None = None) -> Floats:
        """Predicted seconds of a tuple: float64[B, applications] for int64[B, threads]."""
        parts = [
            tuple_times(self.setup, *self.latencies(assignments[at : at + TOGETHER], rates))
            for at in range(0, len(assignments), TOGETHER)
        ]
        made: Floats = np.concatenate(parts) if parts else np.zeros((0, len(self.setup.applications)))
        return made

    def latencies(self, assignments: Ints, rates: Floats | None = None) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """By number: t_i^Proc of each component and t_i^Tran of each stream, each float64[B]."""
        setup = self.setup
        runs = assignments >= 0
        load = self._load(rates) * runs
        machine_load, there = np.zeros((2, len(assignments), setup.machines))
        rows, threads = np.nonzero(runs)
        at = assignments[rows, threads]
        np.add.at(machine_load, (rows, at), load[rows, threads])
        np.add.at(there, (rows, at), 1.0)
        hosts = np.array([[host.cores, host.memory_gb] for host in setup.hosts])
        own = np.arange(len(assignments))[:, None]
        ends = np.concatenate([hosts[assignments], load[..., None], machine_load[own, assignments][..., None]], axis=-1)
        beside = there[own, assignments]
        processing = {
            number: self._processing(number, ends, beside, runs)
            for number, one in enumerate(setup.operators)
            if not one.source
        }
        transfer = {edge: self._transfer(edge, ends, assignments) for edge in range(len(setup.edges))}
        return processing, transfer

    def _load(self, rates: Floats | None) -> Floats:
        if rates is None:
            return self.history.load
        factor = rates / np.where(self.history.rates > 0, self.history.rates, 1.0)
        return self.history.load * factor[self.setup.application_of[self.setup.component_of]]

    def _span(self, number: int) -> slice:
        return slice(int(self.setup.first[number]), int(self.setup.first[number + 1]))

    def _processing(self, number: int, ends: Floats, beside: Floats, runs: Any) -> Floats:
        """Eq 2.2; threads with the same features are predicted once."""
        span = self._span(number)
        rows = np.concatenate([ends[:, span], beside[:, span, None]], axis=-1)
        known, which = _distinct(rows)
        seconds = self.processing[self.setup.operators[number].name].predict(known)[which]
        return _mean(seconds, self.history.instance[span] * runs[:, span], axis=(1,))

    def _transfer(self, edge: int, ends: Floats, assignments: Ints) -> Floats:
        """Eq 2.3; ends with the same features are predicted once."""
        up, down = (self._span(number) for number in self.setup.links[edge].tolist())
        senders, sender = _distinct(ends[:, up])
        receivers, receiver = _distinct(ends[:, down])
        apart, together = self.transfer[str(self.setup.edges[edge])].pairs(senders, receivers)
        at, to = assignments[:, up, None], assignments[:, None, down]
        one, other = sender[:, :, None], receiver[:, None, :]
        seconds = np.where(at == to, together[one, other], apart[one, other])
        return _mean(seconds, self.history.pair[edge] * ((at >= 0) & (to >= 0)), axis=(1, 2))


def _mean(seconds: Floats, weight: Floats, axis: tuple[int, ...]) -> Floats:
    """Weighted; what does not run has no weight. Without any tuple it is 0."""
    total = weight.sum(axis=axis)
    found: Floats = (seconds * weight).sum(axis=axis) / np.where(total > 0, total, 1.0)
    return found


def _distinct(rows: Floats) -> tuple[Floats, Ints]:
    """Rows that differ, and which of them each is: float64[B, n, features] to float64[m, features] and int64[B, n]."""
    flat = np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]))
    bytes_of = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first, which = np.unique(bytes_of, return_index=True, return_inverse=True)
    return flat[first], which.reshape(rows.shape[:-1])


def _shares(setup: Setup, weight: Floats) -> Floats:
    total = np.add.reduceat(weight, setup.first[:-1])[setup.component_of]
    return np.asarray(weight / np.where(total > 0, total, 1.0))
