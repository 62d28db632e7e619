"""Several partitioners of Dalton's on one stream, which learn together (Zapridou et al. 2022, section 4).

Each partitioner sends what it has learnt to the Q table reducer once in a while and goes on routing; meanwhile its
rewards are kept aside. The reducer waits for all, merges, and answers all of them. Nothing here reads a clock or
sends anything: whoever drives the partitioners (a simulator, an engine's driver) carries messages and time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

import numpy as np

from steelyard.core import OptionError, Routed, State
from steelyard.core.counts import Ints
from steelyard.partition.dalton import Dalton, DaltonRouter, QTable
from steelyard.partition.qtable_reducer import Feedback, Merge, QTableReducer, SyncMessage

_SYNC = ("adaptive", "fixed", "never")
_MERGE = ("normalised", "paper")
_AWAITING = ("hold", "learn")


class Phase(Enum):
    """Where a partitioner is in a round (Algorithm 2)."""

    PREPARE = "prepare"
    """It learns from its rewards at once."""
    AWAIT = "await"
    """It has sent what it knows and waits for the answer; rewards are kept aside, to be learnt on top of it."""


@dataclass(frozen=True)
class CooperativeDalton(Dalton):
    """Dalton for several partitioners, whose statistics interval is the time between two rounds.

    Parameters
    ----------
    sync_every
        Time between rounds at the start, DSYNC in the paper; 0 means one slide.
    sync
        `"adaptive"`: rounds come half as often when an answer is late, and twice as often when the reducer idles;
        `"fixed"`: `sync_every` stays; `"never"`: partitioners learn alone.
    merge
        `"normalised"`: the mean of the tables, weighted by each partitioner's rows of the key. `"paper"`: the
        formula as printed, whose weights do not add up to 1 and so pull all values to 0 (section 4.1).
    idle_factor
        Rounds come twice as often when the reducer idles so many times longer than it works: 1 in the paper,
        2 in the authors' program.
    awaiting
        What a partitioner does with its rewards while it waits for an answer. `"hold"`: it keeps them aside, as
        printed. `"learn"`: it also learns from them at once, as in the authors' program. The answer replaces its
        table, and kept rewards that it does not have yet are learnt on top of it either way: with one round at a
        time only decisions in between differ.

    The other parameters are those of `Dalton`; `stats_window` is not used, except with `sync="never"`.

    Examples
    --------
    >>> policy = CooperativeDalton(window=400, slide=100)
    >>> reducer, (one, two) = policy.reducer(4, partitioners=2), (policy.router(4, 0), policy.router(4, 1))
    >>> times = np.arange(150)
    >>> for partitioner in one, two:
    ...     routed = partitioner.route(np.full(150, 9), times)
    ...     for message in partitioner.take_messages():
    ...         reducer.receive(message)
    >>> feedback = reducer.merge()
    >>> feedback.load, feedback.table.keys.tolist()
    (200, [9])
    >>> one.phase
    <Phase.AWAIT: 'await'>
    >>> one.receive(feedback)
    >>> one.phase
    <Phase.PREPARE: 'prepare'>
    """

    sync_every: int = 0
    sync: Literal["adaptive", "fixed", "never"] = "adaptive"
    merge: Merge = "normalised"
    idle_factor: float = 1.0
    awaiting: Literal["hold", "learn"] = "hold"

    name: ClassVar[str] = "cooperative_dalton"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sync_every < 0:
            raise OptionError(f"sync_every of {self.name} must be 0 or more, got {self.sync_every}")
        if self.idle_factor < 0:
            raise OptionError(f"idle_factor of {self.name} must be 0 or more, got {self.idle_factor}")
        if self.sync not in _SYNC:
            raise OptionError.unknown(f"sync of {self.name}", self.sync, _SYNC)
        if self.merge not in _MERGE:
            raise OptionError.unknown(f"merge of {self.name}", self.merge, _MERGE)
        if self.awaiting not in _AWAITING:
            raise OptionError.unknown(f"awaiting of {self.name}", self.awaiting, _AWAITING)

    @property
    def first_interval(self) -> int:
        """Time between rounds at the start."""
        return self.sync_every or self.slide

    def router(self, blocks: int, partitioner: int = 0) -> CooperativeRouter:  # type: ignore[override]
        """A new partitioner."""
        return CooperativeRouter(self, blocks, partitioner)

    def reducer(self, blocks: int, partitioners: int) -> QTableReducer:
        """The reducer for so many partitioners."""
        return QTableReducer(
            blocks,
            partitioners,
            sync_every=self.first_interval,
            initial=self.initial,
            merge=self.merge,
            adaptive=self.sync == "adaptive",
            idle_factor=self.idle_factor,
        )

    def synchronise(self, states: Mapping[int, State], blocks: int) -> Mapping[int, State]:
        """A round between two batches, when one is due: for engines whose partitioners run inside tasks.

        All of them have ended their batch, so the answer comes at once and no reward waits.
        """
        if self.sync == "never" or not states:
            return states
        routers = {number: self.router(blocks, number) for number in states}
        for number, router in routers.items():
            router.restore(states[number])
        next_batch = max(router.latest for router in routers.values()) + self.slide
        if not all(router.due(next_batch) or router.phase is Phase.AWAIT for router in routers.values()):
            return states
        messages: list[SyncMessage] = []
        for router in routers.values():
            router.advance(next_batch)
            messages += router.take_messages()[-1:]
        reducer = dataclasses.replace(self, sync="fixed").reducer(blocks, len(routers))
        for message in messages:
            reducer.receive(dataclasses.replace(message, round=0))
        feedback = reducer.merge()
        for router, message in zip(routers.values(), messages, strict=True):
            router.receive(dataclasses.replace(feedback, round=message.round))
        return {number: router.state() for number, router in routers.items()}


class CooperativeRouter:
    """One of several partitioners: Algorithm 2 around a `DaltonRouter`.

    A round begins with the first row at or after its time, or when `advance` says that the time has come. It ends
    when the reducer's feedback is given to `receive`. A round that begins before the last one was answered asks
    for twice the time between rounds. Of each round it is known how many of the kept rewards its table had learnt
    already: on its answer the others are learnt, so that none is lost and none is learnt twice.
    """

    def __init__(self, policy: CooperativeDalton, blocks: int, partitioner: int = 0) -> None:
        self.policy = policy
        self.blocks = int(blocks)
        self.partitioner = partitioner
        self.learner = DaltonRouter(policy, blocks, partitioner, own_intervals=policy.sync == "never")
        self.sync_every = policy.first_interval
        self.latest = 0
        self._last_sync: int | None = None
        self._round = 0
        self._unanswered: dict[int, int] = {}  # by round: how many kept rewards the table that was sent has learnt
        self._learnt = 0  # how many of them the own table has learnt
        self._split = np.empty(0, np.int64)
        self._outbox: list[SyncMessage] = []

    @property
    def phase(self) -> Phase:
        """Whether an answer is awaited."""
        return Phase.AWAIT if self._unanswered else Phase.PREPARE

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks for rows in order of arrival; rounds that fall between them are sent to `take_messages`."""
        ids, at = np.asarray(keys, dtype=np.int64), np.asarray(times, dtype=np.int64)
        block, split = np.empty(len(ids), np.int32), np.empty(len(ids), np.bool_)
        done = 0
        while done < len(ids):
            self.advance(int(at[done]))
            end = len(ids)
            if self._last_sync is not None:
                end = int(np.searchsorted(at, self._last_sync + self.sync_every, side="left"))
            block[done:end], split[done:end] = self.learner.route(ids[done:end], at[done:end])
            self._split = np.union1d(self._split, ids[done:end][split[done:end]])
            self.latest = int(at[end - 1])
            done = end
        return Routed(block, split)

    def due(self, now: int) -> bool:
        """Whether a round begins at this time."""
        return self._last_sync is not None and now - self._last_sync >= self.sync_every

    def advance(self, now: int) -> None:
        """Tell the time, with or without rows: begins a round if one is due."""
        if self.policy.sync == "never":
            return
        if self._last_sync is None:
            self._last_sync = now // self.sync_every * self.sync_every
            self.learner.begin_interval(self._last_sync, self.sync_every)
        if self.due(now):
            self._send(now - (now - self._last_sync) % self.sync_every)

    def _send(self, now: int) -> None:
        learner = self.learner
        table = learner.q_table()
        alive = table.expiry >= now
        table = QTable(table.keys[alive], table.values[alive], table.expiry[alive])
        top_keys, top_rows = learner.top_keys(self.blocks)
        self._outbox.append(
            SyncMessage(
                partitioner=self.partitioner,
                round=self._round,
                now=now,
                table=table,
                table_rows=learner.frequencies(table.keys),
                top_keys=top_keys,
                top_rows=top_rows,
                rows=learner.rows_in_interval,
                split=self._split,
                sync_every=self.sync_every,
                proposal=self.sync_every * (2 if self.phase is Phase.AWAIT else 1),
            )
        )
        if self.policy.awaiting == "learn":
            self._learnt = learner.held_rewards
        self._unanswered[self._round] = self._learnt
        self._round += 1
        self._last_sync = now
        self._split = np.empty(0, np.int64)
        learner.begin_interval(now, self.sync_every)
        learner.hold_rewards(learning=self.policy.awaiting == "learn")

    def take_messages(self) -> list[SyncMessage]:
        """What is to be sent to the reducer, once."""
        messages, self._outbox = self._outbox, []
        return messages

    def receive(self, feedback: Feedback) -> None:
        """Adopt what all have learnt together, then learn from the rewards that were kept aside."""
        if feedback.round not in self._unanswered:
            raise ValueError(
                f"partitioner {self.partitioner} awaits no answer to round {feedback.round}; it awaits "
                f"{list(self._unanswered) or 'none'}"
            )
        assert self._last_sync is not None  # a round was sent
        learnt = self._unanswered[feedback.round]
        left = {number: known for number, known in self._unanswered.items() if number > feedback.round}
        self.sync_every = feedback.sync_every
        self.learner.adopt(feedback.table, feedback.load, self._last_sync + 2 * self.sync_every - 1)
        self.learner.replay_rewards(learnt)
        needless = min(left.values()) if left else self.learner.held_rewards
        self._learnt = self.learner.held_rewards - needless
        self._unanswered = {number: known - needless for number, known in left.items()}
        self.learner.drop_rewards(needless, release=not left)

    def state(self) -> State:
        """The learner's state, where the rounds are, and messages that nobody has taken."""
        rounds = [self.sync_every, self.latest, self._round, self._last_sync is not None, self._last_sync or 0]
        state: dict[str, np.ndarray[Any, Any]] = dict(self.learner.state())
        state["sync_rounds"] = np.array(rounds, np.int64)
        state["sync_unanswered"] = np.array([*self._unanswered.items()], np.int64).reshape(-1, 2)
        state["sync_learnt"] = np.array([self._learnt], np.int64)
        state["sync_split"] = self._split.copy()
        for number, message in enumerate(self._outbox):
            state |= {f"sync_message_{number}_{name}": array for name, array in message.arrays().items()}
        return state

    def restore(self, state: State) -> None:
        """Go on as the partitioner that gave this state would."""
        self.learner.restore(state)
        self.sync_every, self.latest, self._round, started, last_sync = map(int, state["sync_rounds"])
        self._last_sync = last_sync if started else None
        self._unanswered = {int(number): int(known) for number, known in state["sync_unanswered"]}
        self._learnt = int(state["sync_learnt"][0])
        self._split = np.array(state["sync_split"], dtype=np.int64)
        self._outbox = [SyncMessage.of_arrays(arrays) for arrays in _numbered(state, "sync_message_")]


def _numbered(state: State, prefix: str) -> Sequence[dict[str, np.ndarray[Any, Any]]]:
    """The groups of arrays whose names are a prefix, a number and a name."""
    groups: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
    for full_name, array in state.items():
        if full_name.startswith(prefix):
            number, _, name = full_name[len(prefix) :].partition("_")
            groups.setdefault(int(number), {})[name] = array
    return [groups[number] for number in sorted(groups)]
