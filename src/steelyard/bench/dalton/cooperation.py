"""Several partitioners on one stream: independent copies of a policy, and Dalton's that learn together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.bench.dalton.policies import ALL, Contender, contenders
from steelyard.bench.dalton.stage_model import Trace
from steelyard.bench.dalton.streams import LONG_SLIDE, WINDOW
from steelyard.core.counts import Ints
from steelyard.core.policies import Routed, Router
from steelyard.partition.cooperation import CooperativeDalton, CooperativeRouter
from steelyard.partition.qtable_reducer import QTableReducer

COOPERATIVE, ALONE = "dalton, cooperative", "dalton, independent"
SECOND = 1_000
"""Rows of all sources in a second of event time: they count a millisecond a row."""
STEP = 1_000
"""Rows between two deliveries of messages: an answer is at most so late."""


@dataclass(frozen=True)
class Shared(Contender):
    """A policy with several partitioners. Only what all can know to be whole is forwarded."""

    sync_every: int = 0
    """Time between rounds of cooperative Dalton; 0 is one slide, -1 is never."""

    def trace(self, sources: Sequence[Ints], slots: int, seed: int) -> Trace:
        """Route as many sources as there are partitioners, whose rows take turns."""
        blocks = self.plan(slots).combiners
        if self.name not in (COOPERATIVE, ALONE):
            return routed_apart([self.router(blocks, number, seed) for number in range(len(sources))], sources)
        policy = CooperativeDalton(
            window=self.window,
            slide=self.slide,
            seed=seed,
            sync="never" if self.sync_every < 0 else "fixed",
            sync_every=max(0, self.sync_every),
        )
        return routed_together(policy, sources, blocks)


def shared(names: Sequence[str] = (*ALL[:-2], ALONE, COOPERATIVE), slide: int = LONG_SLIDE) -> dict[str, Shared]:
    """Rivals as independent copies beside cooperative Dalton.

    Copies that may put one key in different blocks need reducers for every key: only hashing has none, and only
    cooperating partitioners, which sync once per slide, can forward (section 4.2).
    """
    found = {}
    for name, one in contenders(names, WINDOW, slide).items():
        sync_every = -1 if name == ALONE else 0
        found[name] = Shared(
            name,
            one_step=name == "hash",
            forwarding=name == COOPERATIVE,
            window=one.window,
            slide=one.slide,
            sync_every=sync_every,
        )
    return found


def syncing(every: int, slide: int = LONG_SLIDE) -> Shared:
    """Cooperative Dalton with so much time between rounds; it forwards if there is a round in each slide."""
    return replace(shared([COOPERATIVE], slide)[COOPERATIVE], sync_every=every, forwarding=0 < every <= slide)


def interleaved(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The rows of sources that take turns.

    >>> interleaved([np.array([1, 2]), np.array([8, 9])]).tolist()
    [1, 8, 2, 9]
    """
    return np.stack(parts, axis=1).ravel()


def routed_apart(routers: Sequence[Router], sources: Sequence[Ints]) -> Trace:
    """Each partitioner routes its source and knows nothing of the others."""
    count = len(routers)
    clock = time.thread_time_ns()
    found = [
        router.route(keys, np.arange(len(keys)) * count + number)
        for number, (router, keys) in enumerate(zip(routers, sources, strict=True))
    ]
    taken = (time.thread_time_ns() - clock) / 1e3
    keys = interleaved(sources)
    block, split = interleaved([one.block for one in found]), interleaved([one.split for one in found])
    # Partitioners work at the same time, so a row of the stream costs each of them its share only.
    return Trace(keys, block.astype(np.int32), split.astype(np.bool_), routers[0].blocks, taken / len(keys) / count)


def routed_together(policy: CooperativeDalton, sources: Sequence[Ints], blocks: int) -> Trace:
    """Partitioners of cooperative Dalton route their sources step by step; messages are carried between steps."""
    count = len(sources)
    routers = [policy.router(blocks, number) for number in range(count)]
    reducer = policy.reducer(blocks, count)
    times = [np.arange(len(keys)) * count + number for number, keys in enumerate(sources)]
    step = max(1, STEP // count)
    found: list[list[Routed]] = [[] for _ in sources]
    clock = time.thread_time_ns()
    for start in range(0, len(sources[0]), step):
        for number, router in enumerate(routers):
            part = slice(start, start + step)
            found[number].append(router.route(sources[number][part], times[number][part]))
        exchange(routers, reducer)
    taken = (time.thread_time_ns() - clock) / 1e3
    keys = interleaved(sources)
    block = interleaved([np.concatenate([part[0] for part in parts]) for parts in found])
    split = interleaved([np.concatenate([part[1] for part in parts]) for parts in found])
    return Trace(keys, block.astype(np.int32), split.astype(np.bool_), blocks, taken / len(keys) / count)


def exchange(routers: Sequence[CooperativeRouter], reducer: QTableReducer) -> None:
    """Carry what partitioners have to say to the reducer, and its answers back at once."""
    for router in routers:
        for message in router.take_messages():
            reducer.receive(message)
    while reducer.ready:
        feedback = reducer.merge()
        for router in routers:
            router.receive(feedback)


def warm_up_together() -> None:
    """Compile what rounds need, so that no clock sees it."""
    keys = np.random.default_rng(0).zipf(1.3, 2_000) % 500
    routed_together(CooperativeDalton(window=400, slide=100, sync="fixed"), [keys, keys], 4)
