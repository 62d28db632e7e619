"""A policy that plans batches and looks at what its plans cost, on an edge on which rows come without an end."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import (
    BatchObservation,
    BlockPlan,
    KeyCounts,
    Learning,
    Observation,
    Observing,
    Partitioner,
    Routed,
    RowRule,
    State,
)
from steelyard.core.counts import Ints
from steelyard.core.plans import at_least_one_block, spread
from steelyard.core.policies import Blocks

LISTED = 4_096
"""Keys of a round that the next plan lists: the most frequent ones."""
GOLDEN = 0.6180339887498949
"""Multiples of it, without what is before the point, fall evenly between 0 and 1 however many they are."""
_MOST_PARTS = 64
_IDS, _ROWS, _TAIL, _NEXT = "carried/keys", "carried/rows", "carried/tail", "carried/next"
"""Names in `CarriedRouter.state`."""


@dataclass(frozen=True)
class RoutedByCarriedPlan:
    """Routes rows by a plan of the rows before, which holds until it is known what it cost.

    Rows between two calls of `observe` are a round. As in micro-batches, key counts are carried from one round to the
    plan of the next; a key that it does not list goes by the plan's rule.

    Parameters
    ----------
    partitioner
        Plans, and has `observe`. Its keys are 64-bit ids. Each router has a copy, and learns for itself.

    Examples
    --------
    >>> from steelyard.partition.auto import Auto
    >>> router = RoutedByCarriedPlan(Auto()).router(blocks=2, partitioner=3)
    >>> router.route(np.array([5, 5, 9]), np.arange(3)).block.tolist()
    [1, 1, 1]
    """

    partitioner: Partitioner

    @property
    def name(self) -> str:
        """The partitioner's."""
        return self.partitioner.name

    def router(self, blocks: int, partitioner: int = 0) -> CarriedRouter:
        """A router; where a plan leaves rows in place, it sends all to the block of its own number."""
        at_least_one_block(blocks)
        return CarriedRouter(copy.deepcopy(self.partitioner), blocks, partitioner)


class _Followed(NamedTuple):
    """A plan, and where each of its keys is."""

    plan: BlockPlan
    order: Ints
    ids: Ints
    """The plan's keys in rising order, and `order`, their places in the plan."""
    starts: Ints
    """int64[keys + 1]: where the fragments of each key begin."""
    ends: Ints
    """int64[fragments]: rows of all fragments up to the end of each."""


class CarriedRouter:
    """Follows a plan until `observe`, and then makes another. Made by `RoutedByCarriedPlan.router`.

    Its state is what the partitioner has learnt, and the key counts of the last round. A router that is given it begins
    with a new plan.
    """

    def __init__(self, partitioner: Partitioner, blocks: int, number: int) -> None:
        self.partitioner = partitioner
        self.blocks = blocks
        self._number = number % blocks
        self._counts = KeyCounts(pa.array([], pa.int64()), np.empty(0, np.int64))
        self._followed: _Followed | None = None
        self._seen: list[tuple[Ints, Ints]] = []
        self._next = 0

    @property
    def plan(self) -> BlockPlan | None:
        """The plan that it follows; None before the first row of a round."""
        return self._followed.plan if self._followed else None

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks by the plan of this round. Any key may have been elsewhere before; times do not matter."""
        from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - tasks need no compiler

        if not len(keys):
            return Routed(np.empty(0, np.int32), np.empty(0, np.bool_))
        if self._followed is None:
            self._followed = _followed(self.partitioner.plan(self._counts, self.blocks))
        ids, rows, numbers = number_keys(keys)
        self._seen.append((ids, rows))
        if len(self._seen) > _MOST_PARTS:
            self._seen = [_added_up(self._seen)]
        places = self._next + np.arange(len(keys), dtype=np.int64)
        self._next += len(keys)
        rule = self._followed.plan.rule
        if rule is RowRule.IN_PLACE:
            block = np.full(len(keys), self._number)
        elif rule is RowRule.HASH:
            block = self._listed(self._followed, ids, numbers, places)
        else:  # in turn, whether listed or not
            block = (places + self._number) % self.blocks
        return Routed(block.astype(np.int32), np.ones(len(keys), np.bool_))

    def _listed(self, followed: _Followed, ids: Ints, numbers: Blocks, places: Ints) -> Ints:
        """Blocks by key: of a key in several, rows go to each of them in proportion to its fragment."""
        plan = followed.plan
        block = np.mod(ids, self.blocks)
        if len(plan.key):
            near = np.minimum(np.searchsorted(followed.ids, ids), len(followed.ids) - 1)
            known, key = followed.ids[near] == ids, followed.order[near]
            block = np.where(known, plan.block[followed.starts[key]], block)
            cut = np.flatnonzero(known & plan.split[key])
            if len(cut):
                rows = np.flatnonzero(np.isin(numbers, cut))
                which = key[numbers[rows]]
                before = followed.ends[followed.starts[which]] - plan.rows[followed.starts[which]]
                spot = before + np.floor(places[rows] * GOLDEN % 1.0 * plan.counts.rows[which]).astype(np.int64)
                found = block[numbers]
                found[rows] = plan.block[np.searchsorted(followed.ends, spot, side="right")]
                return np.asarray(found)
        return np.asarray(block[numbers])

    def observe(self, observation: Observation) -> None:
        """What the rows of this round cost: the next row begins another."""
        assert isinstance(self.partitioner, Observing)
        if self._followed and self._followed.plan.rule is RowRule.IN_PLACE and observation.batch:
            observation = replace(observation, batch=_of_all(observation.batch))
        self.partitioner.observe(observation)
        if self._seen:
            ids, rows = _added_up(self._seen)
            self._counts = KeyCounts(pa.array(ids, pa.int64()), rows).top(LISTED)
        self._seen, self._followed = [], None

    def state(self) -> State:
        """What the partitioner has learnt, and what its next plan is made from."""
        learnt = self.partitioner.state() if isinstance(self.partitioner, Learning) else {}
        counts = self._counts
        return {
            **learnt,
            _IDS: counts.keys.to_numpy(),
            _ROWS: counts.rows.copy(),
            _TAIL: np.array([counts.tail_rows, counts.tail_keys]),
            _NEXT: np.array(self._next),
        }

    def restore(self, state: State) -> None:
        """Go on with what was learnt; a new round begins."""
        counts = KeyCounts(pa.array(state[_IDS], pa.int64()), state[_ROWS], *map(int, state[_TAIL]))
        if isinstance(self.partitioner, Learning):
            self.partitioner.restore({name: part for name, part in state.items() if not name.startswith("carried/")})
        self._counts, self._next = counts, int(state[_NEXT])
        self._seen, self._followed = [], None


def _of_all(seen: BatchObservation) -> BatchObservation:
    """What one router saw whose rows stay in place, as a batch of all of them: each has an instance of its own.

    Rows are as many as its own, as they are where it spreads them over all instances.

    >>> seen = BatchObservation.of_edge(1, [0, 5], [0, 2], [0.0, 0.5], beside=0.1, senders=4)
    >>> [(task.rows, task.clusters, task.seconds) for task in _of_all(seen).tasks]
    [(3, 1, 0.25), (2, 1, 0.25)]
    """
    several = min(seen.senders, seen.blocks)
    rows, clusters = spread(seen.rows, several), spread(sum(task.clusters for task in seen.tasks), several)
    whole = sum(task.seconds for task in seen.tasks)
    each = [whole / several] * several
    beside = seen.processing_seconds - max((task.seconds for task in seen.tasks), default=0.0)
    return BatchObservation.of_edge(seen.number, rows.tolist(), clusters.tolist(), each, beside)


def _followed(plan: BlockPlan) -> _Followed:
    ids = plan.counts.keys.to_numpy()
    order = np.argsort(ids)
    return _Followed(plan, order, ids[order], np.r_[0, np.cumsum(plan.fragments_of_key)], np.cumsum(plan.rows))


def _added_up(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    ids, where = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    rows = np.zeros(len(ids), np.int64)
    np.add.at(rows, where, np.concatenate([rows for _, rows in parts]))
    return ids, rows
