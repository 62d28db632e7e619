"""Dalton: heavy hitters are split by what a bandit has learnt, all other keys go where their hash sends them.

E. Zapridou, I. Mytilinis, A. Ailamaki, Dalton: Learned Partitioning for Distributed Data Streams, PVLDB 16(3),
2022; the cap on splitting and the statistics' sizes are those of the authors' published program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from steelyard.core import OptionError, Routed, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats, at_least_one_block

if TYPE_CHECKING:
    from steelyard.kernels.bandit_state import Rule

_STATISTICS = ("map", "sketch", "hybrid")
_SMALLEST_CAP = 2
_USUAL_CAP = 6
_NARROWEST_SKETCH = 40
"""Columns of the authors' sketch; its noise, one part in 40, hides heavy hitters of more than 40 blocks."""


@dataclass(frozen=True)
class Dalton:
    """Split only keys that are too heavy for one block, and learn which blocks suit them (Algorithm 1).

    A key is a heavy hitter where it has at least a block's fair share of the rows of a statistics interval. Its
    rows go to the block with the best reward so far, or now and then to a random one. The reward falls with the
    load of the block and with the number of blocks that have the key in the window.

    `window`, `slide` and `stats_window` are in the unit of the times that come with the rows. Where a batch is the
    unit, as in micro-batch engines, pass the batch's number as the time of all its rows and give the window in
    batches: `Dalton.of_batches()`.

    Parameters
    ----------
    epsilon
        How often a row of a hot key explores a random block.
    step
        Weight of a new reward against the old value, gamma in the paper.
    p1
        Weight of the imbalance in the reward; that of the fragmentation is 1 - p1.
    initial
        The value of a block that a key has not tried: below any reward, so that untried blocks are explored only.
    window, slide
        Loads and fragmentation are those of the last `window`, which moves on by `slide`.
    stats_window
        Length of the intervals in which frequencies are counted; 0 means one slide.
    split_cap
        Most blocks that exploring may give a key: a number, `"n"` for all blocks, or `"none"` for no cap at all;
        `"auto"` is 6, and all blocks in micro-batch engines, where a block is a short task. The cap starts at 2 and
        rises by one when 70 % of the hot keys have reached it. Without it, exploring spreads every hot key over all
        blocks within a window.
    statistics
        Frequencies: `"map"` is exact, `"sketch"` estimates by count-min, `"hybrid"` takes the sketch for an
        interval when the one before had at least `hybrid_at` keys.
    sketch_width, sketch_depth
        Size of the sketch; width 0 means four columns a block, and 40 at least.
    hybrid_at
        Distinct keys in an interval from which `"hybrid"` estimates.
    heavy_hitters
        Splits so many of the most frequent keys whatever their share; 0 goes by the definition.
    hybrid_keys
        False sends all keys through the bandit.
    seed
        Of exploration.

    Examples
    --------
    >>> keys = np.where(np.arange(4000) % 2, 7, np.arange(4000))   # every second row has key 7
    >>> routed = Dalton(window=1000, slide=100).router(4).route(keys, np.arange(4000))
    >>> np.bincount(routed.block[2000:], minlength=4).tolist()   # by hash, block 3 would have 1000 of these 2000
    [...]
    >>> routed.split[2000:2004].tolist()
    [False, True, False, True]
    """

    epsilon: float = 0.1
    step: float = 0.1
    p1: float = 0.5
    initial: float = -2.0
    window: int = 60_000
    slide: int = 1_000
    stats_window: int = 0
    split_cap: str = "auto"
    statistics: Literal["map", "sketch", "hybrid"] = "map"
    sketch_width: int = 0
    sketch_depth: int = 4
    hybrid_at: int = 10_000
    heavy_hitters: int = 0
    hybrid_keys: bool = True
    seed: int = 3

    name: ClassVar[str] = "dalton"
    paper: ClassVar[str] = "Zapridou, Mytilinis, Ailamaki 2022"

    def __post_init__(self) -> None:
        object.__setattr__(self, "split_cap", str(self.split_cap))
        for option, lowest, highest in (("epsilon", 0, 1), ("p1", 0, 1)):
            value = getattr(self, option)
            if not lowest <= value <= highest:
                raise OptionError(f"{option} of {self.name} is a share from 0 to 1, got {value}")
        if not 0 < self.step <= 1:
            raise OptionError(f"step of {self.name} must be above 0 and at most 1, got {self.step}")
        if not np.isfinite(self.initial):
            raise OptionError(f"initial of {self.name} must be a finite number, got {self.initial}")
        for option, least in (
            ("window", 1),
            ("slide", 1),
            ("stats_window", 0),
            ("sketch_width", 0),
            ("sketch_depth", 1),
            ("hybrid_at", 0),
            ("heavy_hitters", 0),
        ):
            if getattr(self, option) < least:
                raise OptionError(f"{option} of {self.name} must be {least} or more, got {getattr(self, option)}")
        if self.slide > self.window:
            raise OptionError(f"slide of {self.name} must not exceed its window {self.window}, got {self.slide}")
        if self.statistics not in _STATISTICS:
            raise OptionError.unknown(f"statistics of {self.name}", self.statistics, _STATISTICS)
        if self.heavy_hitters and not self.hybrid_keys:
            raise OptionError(
                f"heavy_hitters={self.heavy_hitters} of {self.name} chooses keys for the bandit and "
                "hybrid_keys=false sends it all of them: give one of the two"
            )
        self._cap(1)

    @classmethod
    def of_batches(cls, window: int = 60, **parameters: Any) -> Self:
        """For rows whose times are batch numbers: loads and fragmentation over the last `window` batches.

        The micro-batch variant (section 3.4): statistics are those of one batch, and splitting is capped by the
        number of blocks.

        >>> Dalton.of_batches().window
        60
        """
        return cls(**{"window": window, "slide": 1, "split_cap": "n", **parameters})

    def in_batches(self) -> Self:
        """The same with the defaults of a micro-batch engine: a cap that was not chosen is the number of blocks."""
        return replace(self, split_cap="n") if self.split_cap == "auto" else self

    def router(self, blocks: int, partitioner: int = 0) -> DaltonRouter:
        """A new partitioner."""
        return DaltonRouter(self, blocks, partitioner)

    @property
    def statistics_interval(self) -> int:
        """Length of a statistics interval."""
        return self.stats_window or self.slide

    def rule(self, blocks: int) -> Rule:
        """The parameters as the compiled loop takes them."""
        from steelyard.kernels.bandit_state import Rule  # noqa: PLC0415 - tasks need no compiler

        return Rule(
            blocks=blocks,
            share=1.0 / blocks,
            panes=-(-self.window // self.slide),
            slide=self.slide,
            stats=self.statistics_interval,
            greedy=round((1.0 - self.epsilon) * 2**53),
            step=float(self.step),
            p1=float(self.p1),
            p2=1.0 - self.p1,
            initial=float(self.initial),
            split_limit=self._cap(blocks),
            forced=self.heavy_hitters,
            all_hot=not self.hybrid_keys,
            statistics=_STATISTICS.index(self.statistics),
            hybrid_at=self.hybrid_at,
        )

    def sketch_size(self, blocks: int) -> tuple[int, int]:
        """Depth and width of the sketch."""
        return self.sketch_depth, self.sketch_width or max(_NARROWEST_SKETCH, 4 * blocks)

    def _cap(self, blocks: int) -> int:
        if self.split_cap == "none":
            return 0
        if self.split_cap == "auto":
            return _USUAL_CAP
        if self.split_cap == "n":
            return max(_SMALLEST_CAP, blocks)
        if not self.split_cap.isdecimal() or int(self.split_cap) < _SMALLEST_CAP:
            raise OptionError(
                f"split_cap of {self.name} is a number of blocks from {_SMALLEST_CAP} on, 'auto', 'n' or 'none', "
                f"got {self.split_cap!r}"
            )
        return int(self.split_cap)


class QTable(NamedTuple):
    """What a partitioner has learnt of its hot keys, in the order of the keys."""

    keys: Ints
    """int64[h]"""
    values: Floats
    """float64[h, blocks]: Q(k, a)."""
    expiry: Ints
    """int64[h]: the last time at which each key is hot, unless it has enough rows again."""


class DaltonRouter:
    """One partitioner of Dalton's with its windows, statistics and Q table.

    Examples
    --------
    >>> router = Dalton(window=400, slide=100, seed=1).router(blocks=4)
    >>> routed = router.route(np.zeros(1000, np.int64), np.arange(1000))
    >>> router.loads.sum(), router.q_table().keys.tolist()
    (np.int64(400), [0])
    """

    def __init__(self, policy: Dalton, blocks: int, partitioner: int = 0, *, own_intervals: bool = True) -> None:
        at_least_one_block(blocks)
        self.policy = policy
        self.blocks = int(blocks)
        rule = policy.rule(self.blocks)
        self._rule = rule if own_intervals else rule._replace(stats=0)
        from steelyard.kernels.bandit_state import new_bandit  # noqa: PLC0415 - tasks need no compiler

        self._bandit = new_bandit(self._rule, policy.sketch_size(self.blocks), policy.seed, partitioner)

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks for rows in order of arrival; `split` is True where the key is hot, or was so in the window."""
        from steelyard.kernels.bandit import route  # noqa: PLC0415 - tasks need no compiler

        # a read-only array would be another type to the compiler, and compile everything once more
        ids = np.require(keys, np.int64, ["C", "W"])
        at = np.require(times, np.int64, ["C", "W"])
        if ids.shape != at.shape or ids.ndim != 1:
            raise ValueError(f"a row has one key and one time, got {ids.shape} keys and {at.shape} times")
        block = np.empty(len(ids), np.int32)
        split = np.empty(len(ids), np.bool_)
        done = route(self._rule, self._bandit, ids, at, block, split, 0)
        while done < len(ids):
            self._make_room()
            done = route(self._rule, self._bandit, ids, at, block, split, done)
        return Routed(block, split)

    @property
    def loads(self) -> Ints:
        """int64[blocks]: rows of the window in each block, L."""
        return np.array(self._bandit.loads)

    @property
    def rows_in_interval(self) -> int:
        """Rows since the statistics interval began."""
        from steelyard.kernels.bandit_state import BASE, ROWS  # noqa: PLC0415 - tasks need no compiler

        return int(self._bandit.clock[ROWS] - self._bandit.clock[BASE])

    @property
    def max_split(self) -> int:
        """Blocks that exploring may give a key, as the cap stands."""
        from steelyard.kernels.bandit_state import MAX_SPLIT  # noqa: PLC0415 - tasks need no compiler

        return min(int(self._bandit.clock[MAX_SPLIT]), self.blocks)

    def q_table(self) -> QTable:
        """The hot keys with their values."""
        from steelyard.kernels.bandit_state import HOT  # noqa: PLC0415 - tasks need no compiler

        hot = self._bandit.hot[: self._bandit.clock[HOT]]
        rows = self._bandit.rows[hot]
        by_key = np.argsort(rows["key"])
        return QTable(rows["key"][by_key], self._bandit.q[hot[by_key]], rows["expires"][by_key])

    def split_keys(self) -> Ints:
        """int64[...]: keys that may be in more than their hash block: the hot, and those split in the window."""
        from steelyard.kernels.bandit_state import held_rows  # noqa: PLC0415 - tasks need no compiler

        return np.sort(self._bandit.rows["key"][held_rows(self._bandit)])

    def top_keys(self, count: int) -> tuple[Ints, Ints]:
        """The most frequent keys of the statistics interval, hottest first, and their frequencies."""
        from steelyard.kernels.bandit_state import BASE  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.heavy import top  # noqa: PLC0415 - tasks need no compiler

        slots, rows = top(self._bandit.table, self._bandit.clock[BASE], count)
        return self._bandit.table["key"][slots], rows

    def frequencies(self, keys: Ints) -> Ints:
        """int64[len(keys)]: rows of each key in the statistics interval."""
        return self._entries(keys)[0]

    def fragmentation(self, keys: Ints) -> Ints:
        """int64[len(keys)]: blocks that have each key in the window, ||X(k)||."""
        return self._entries(keys)[1]

    def _entries(self, keys: Ints) -> tuple[Ints, Ints]:
        from steelyard.kernels.bandit_exchange import describe  # noqa: PLC0415 - tasks need no compiler

        return describe(self._rule, self._bandit, np.ascontiguousarray(keys, dtype=np.int64))

    def begin_interval(self, now: int, length: int) -> None:
        """End the statistics interval at `now`, and begin one of so much: for a router without own intervals."""
        from steelyard.kernels.bandit import close_statistics  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.bandit_state import UNREACHABLE  # noqa: PLC0415 - tasks need no compiler

        self._make_room()
        close_statistics(self._rule, self._bandit, now, UNREACHABLE, now + 2 * length - 1)

    def adopt(self, table: QTable, load: int, expiry: int) -> None:
        """Go on with the hot keys and values of others.

        Parameters
        ----------
        table
            Replaces the own Q table.
        load
            The load of an interval, Lambda; 0 where there was none, and the threshold stays.
        expiry
            How long keys stay hot that turn so in the running interval.
        """
        from steelyard.kernels.bandit_exchange import adopt  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.bandit_state import EXPIRY, NEED  # noqa: PLC0415 - tasks need no compiler

        self._make_room(len(table.keys))
        adopt(self._rule, self._bandit, *(np.ascontiguousarray(part) for part in table))
        self._bandit.clock[EXPIRY] = expiry
        if load and not self._rule.all_hot and not self._rule.forced:
            self._bandit.clock[NEED] = -(-load // self.blocks)

    def hold_rewards(self, *, learning: bool = False) -> None:
        """From now on keep rewards aside, and learn from them at once only with `learning`."""
        from steelyard.kernels.bandit_state import BOTH, HOLD, LOGGING  # noqa: PLC0415 - tasks need no compiler

        self._bandit.clock[LOGGING] = BOTH if learning else HOLD

    def replay_rewards(self, first: int = 0) -> None:
        """Learn from the rewards that were kept aside, from number `first` on; they stay."""
        from steelyard.kernels.bandit_exchange import replay  # noqa: PLC0415 - tasks need no compiler

        self._make_room(len(np.unique(self._bandit.log_key[first : self.held_rewards])))
        replay(self._rule, self._bandit, first)

    def drop_rewards(self, number: int, *, release: bool) -> None:
        """Forget the first of the rewards that were kept aside; with `release` learn from new ones at once again."""
        from steelyard.kernels.bandit_state import (  # noqa: PLC0415 - tasks need no compiler
            LEARN,
            LOG_ARRAYS,
            LOGGED,
            LOGGING,
        )

        held = self.held_rewards
        for name in LOG_ARRAYS:
            log = getattr(self._bandit, name)
            log[: held - number] = log[number:held].copy()
        self._bandit.clock[LOGGED] = held - number
        if release:
            self._bandit.clock[LOGGING] = LEARN

    @property
    def held_rewards(self) -> int:
        """Rewards that are kept aside."""
        from steelyard.kernels.bandit_state import LOGGED  # noqa: PLC0415 - tasks need no compiler

        return int(self._bandit.clock[LOGGED])

    def state(self) -> State:
        """All that the next `route` depends on; keys that left the window are left out."""
        from steelyard.kernels.bandit_state import packed  # noqa: PLC0415 - tasks need no compiler

        return packed(self._rule, self._bandit)

    def restore(self, state: State) -> None:
        """Go on as the router that gave this state would."""
        from steelyard.kernels.bandit_state import unpacked  # noqa: PLC0415 - tasks need no compiler

        for name in ("rows", "table"):
            words = getattr(self._bandit, name).dtype.itemsize // 8
            if state[name].shape[1:] != (words,):
                raise ValueError(
                    f"{name} of the state has {state[name].shape[1:]} numbers a line instead of {words}: "
                    "it was written by another version of Steelyard"
                )
        slides = self._bandit.panes.shape
        if state["panes"].shape != slides:
            raise ValueError(
                f"the state is of {state['panes'].shape} slides and blocks, this router has {slides}: "
                "a state goes to a router of the same policy and blocks"
            )
        self._bandit = unpacked(state)

    def check(self) -> None:
        """Raise AssertionError unless the kept sums and choices are what they stand for."""
        from steelyard.kernels.bandit_state import check  # noqa: PLC0415 - tasks need no compiler

        check(self._rule, self._bandit)

    def _make_room(self, keys: int = 1) -> None:
        from steelyard.kernels.bandit_state import with_room  # noqa: PLC0415 - tasks need no compiler

        self._bandit = with_room(self._rule, self._bandit, keys)
