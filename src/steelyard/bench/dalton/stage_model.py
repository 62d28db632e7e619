"""What a plan of partitioner, combiners and reducers can sustain, from traces and from costs measured here.

Rows go through three stages that work at the same time (Zapridou et al. 2022, section 2): partitioners choose a
combiner, combiners aggregate, reducers merge the partial aggregates of keys that may be in several combiners. The
slowest task of the slowest stage says how many rows per second the plan takes without back-pressure. Where each row
goes is no model: it is what the policies of this package did with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from steelyard.bench import mean
from steelyard.bench.timing import in_turns
from steelyard.core.counts import Ints
from steelyard.core.hidden import BUCKET, PANE, ROWS
from steelyard.core.policies import Flags, Router
from steelyard.partition import PromptAllocator

if TYPE_CHECKING:
    import pyarrow as pa

Engine = Literal["windows", "queues", "panes"]
ENGINES: tuple[Engine, ...] = ("windows", "queues", "panes")
"""How combiners keep windows.

`"windows"`: a row is added to each of the W/s windows that it is in, and every window sends all its partials, as
Flink 1.12 does, on which the authors ran; queues are deep enough to even out a window's rows. `"queues"`: the same
with queues of a few thousand rows, so that a combiner that is full for a while holds up all others. `"panes"`: a row
is added once, to its slide, and only the slide's partials are merged into the window, as Steelyard does.
"""
QUEUE = 5_000
"""Rows within which a combiner's load evens out in the engine `"queues"`."""
TEXTS = 1_200
WORDS = 10_000
"""Vocabulary of the texts."""
MICRO = 1e6


@dataclass(frozen=True)
class OperatorCosts:
    """CPU time of the operators' own code, in microseconds."""

    row: float
    """To take one more row into a group of rows of one key."""
    group: float
    """To begin a group: grouping, the aggregate's call, and the partial that comes out."""
    merge: float
    """To merge one partial into the result."""

    @property
    def alone(self) -> float:
        """A row that is added by itself, as engines do that process a row at a time."""
        return self.row + self.group


class Plan(NamedTuple):
    """How slots are shared out."""

    combiners: int
    reducers: int

    @classmethod
    def of(cls, slots: int, *, one_step: bool = False) -> Plan:
        """One slot in eight is a reducer (section 5.1); a plan of one step has none.

        >>> Plan.of(64), Plan.of(64, one_step=True)
        (Plan(combiners=56, reducers=8), Plan(combiners=64, reducers=0))
        """
        return cls(slots, 0) if one_step else cls(slots - max(1, slots // 8), max(1, slots // 8))


class Stages(NamedTuple):
    """Microseconds that the busiest task of each stage spends for one row of the stream."""

    partitioner: float
    combiner: float
    reducer: float

    @property
    def rate(self) -> float:
        """Rows per second that the slowest stage sustains.

        >>> Stages(0.5, 20.0, 2.0).rate
        50000.0
        """
        return MICRO / max(self)

    @property
    def slowest(self) -> str:
        """The stage that limits the rate."""
        return self._fields[int(np.argmax(self))]


class Partials(NamedTuple):
    """Pairs of key and block, and the rows of each."""

    key: Ints
    block: Ints
    rows: Ints


@dataclass(frozen=True, eq=False)
class Trace:
    """What a policy did with a stream: for each row its key, block, and whether the key may be split.

    Times are row counts: row i of the trace has time i.
    """

    keys: Ints
    block: np.ndarray[Any, np.dtype[np.int32]]
    split: Flags
    blocks: int
    route_us: float
    """CPU time of routing, a row."""
    exact: bool = False
    """Whether partials are forwarded that hold all of their key in the window, whatever the router believed."""

    def window(self, end: int, length: int, slide: int) -> Window:
        """The window of so many rows that ends before row `end`."""
        start = max(0, end - length)
        return Window(
            self.keys[start:end], self.block[start:end], self.split[start:end], self.blocks, slide, self.exact
        )


@dataclass(frozen=True, eq=False)
class Window:
    """The rows of one window, and its partials: pairs of key and block that have rows.

    Keys are small whole numbers, as those of `dalton_streams` are.
    """

    keys: Ints
    block: np.ndarray[Any, np.dtype[np.int32]]
    split: Flags
    blocks: int
    slide: int
    exact: bool = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.keys)

    @property
    def slides(self) -> float:
        """How many slides the window has."""
        return len(self.keys) / self.slide

    @cached_property
    def loads(self) -> Ints:
        """int64[blocks]: rows of each block."""
        return np.bincount(self.block, minlength=self.blocks)

    @property
    def largest_share(self) -> float:
        """Share of the fullest block."""
        return float(self.loads.max() / max(1, self.rows))

    def passing_share(self, queue: int = QUEUE) -> float:
        """Share of the block that is fullest at a time, as a mean over stretches of `queue` rows."""
        stretches = max(1, self.rows // queue)
        used = min(self.rows, stretches * queue)
        code = np.arange(used) // queue * self.blocks + self.block[:used]
        loads = np.bincount(code, minlength=stretches * self.blocks).reshape(stretches, self.blocks)
        return float((loads.max(axis=1) / np.maximum(1, loads.sum(axis=1))).mean())

    @cached_property
    def _pair(self) -> Ints:
        return self.keys * self.blocks + self.block

    @cached_property
    def partials(self) -> Partials:
        """Those of the window."""
        pairs, rows = np.unique(self._pair, return_counts=True)
        return Partials(pairs // self.blocks, pairs % self.blocks, rows)

    @cached_property
    def pane_partials(self) -> Partials:
        """Those of each slide by itself, all slides together."""
        beyond = (int(self.keys.max(initial=0)) + 1) * self.blocks
        coded, rows = np.unique(np.arange(self.rows) // self.slide * beyond + self._pair, return_counts=True)
        pairs = coded % beyond
        return Partials(pairs // self.blocks, pairs % self.blocks, rows)

    def shared(self, keys: Ints) -> Flags:
        """bool[...]: which keys must go through the reducers even when partials are forwarded."""
        if self.exact:
            return np.asarray((np.bincount(self.partials.key) > 1)[keys])
        marked = np.zeros(int(self.keys.max(initial=0)) + 1, np.bool_)
        marked[self.keys[self.split]] = True
        return np.asarray(marked[keys])

    def stages(
        self,
        reducers: int,
        costs: OperatorCosts,
        *,
        engine: Engine,
        forwarding: bool,
        partitioner_us: float,
    ) -> Stages:
        """Microseconds per row in each stage. Without reducers all partials are final."""
        merge_us = costs.merge / self.rows
        if engine != "panes":
            share = self.largest_share if engine == "windows" else self.passing_share()
            # share_i * c_c * W / s, and partials_j * c_r / s
            combiner = share * self.slides * costs.alone
            sent = self.partials.key
            if forwarding:
                sent = sent[self.shared(sent)]
            reducer = _busiest(sent, reducers) * merge_us * self.slides
            return Stages(partitioner_us, combiner, reducer)
        panes = self.pane_partials
        passed = self.shared(panes.key) if forwarding else np.full(len(panes.key), reducers > 0)
        # What is not sent on is merged into its window by the combiner itself.
        kept = np.bincount(panes.block[~passed], minlength=self.blocks)
        groups = np.bincount(panes.block, minlength=self.blocks)
        work = self.loads * costs.row + groups * costs.group + kept * costs.merge
        reducer = _busiest(panes.key[passed], reducers) * merge_us
        return Stages(partitioner_us, float(work.max() / self.rows), reducer)


def _busiest(keys: Ints, reducers: int) -> int:
    """Partials of the reducer that has most, when keys are hashed to reducers."""
    return int(np.bincount(hashed(keys, reducers), minlength=1).max()) if reducers and len(keys) else 0


def hashed(keys: Ints, reducers: int) -> Ints:
    """int64[...]: the reducer of each key, by a hash that has nothing in common with that of the blocks."""
    mixed = np.asarray(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(33)) % np.uint64(max(1, reducers)), dtype=np.int64)


def routed(router: Router, keys: Ints) -> Trace:
    """Route a stream whose times are row counts, and measure the CPU time of it."""
    times = np.arange(len(keys), dtype=np.int64)
    clock = time.thread_time_ns()
    block, split = router.route(keys, times)
    taken = (time.thread_time_ns() - clock) / 1e3
    return Trace(keys, block, split, router.blocks, taken / max(1, len(keys)))


Costs = Mapping[Engine, OperatorCosts]


def measured_costs() -> Costs:
    """Costs of both kinds of engine, measured once in a process."""
    rows, tasks = word_count_costs("windows"), word_count_costs("panes")
    return {"windows": rows, "queues": rows, "panes": tasks}


def mean_stages(found: Sequence[Stages]) -> Stages:
    """Mean of each stage's cost over windows."""
    return Stages(*(mean(column) for column in zip(*found, strict=True)))


def micro_batch_us(keys: Ints, block: Any, plan: Plan, costs: OperatorCosts, partition_us: float) -> Stages:
    """Microseconds of one batch in each stage: they come one after the other, so a batch takes their sum."""
    pairs = np.unique(keys * plan.combiners + block)
    loads = np.bincount(block, minlength=plan.combiners)
    groups = np.bincount(pairs % plan.combiners, minlength=plan.combiners)
    combine = float((loads * costs.row + groups * costs.group).max())
    return Stages(partition_us, combine, _busiest(pairs // plan.combiners, plan.reducers) * costs.merge)


@lru_cache(maxsize=4)
def word_count_costs(engine: Engine, seed: int = 7, repetitions: int = 4) -> OperatorCosts:
    """Costs of Word Count (section 5.1) in this process: the least CPU time of some repetitions.

    Texts have 10 to 20 words. For `"panes"` it is the code of Steelyard's map and reduce tasks, and the two costs of a
    combiner are a least-squares fit over batches with few, some, and as many keys as rows. For the others it is the
    same in plain Python, a row at a time: cut the text, count its words in the map of its key; merge two maps.
    """
    from steelyard.workloads.tweets import Tweets  # noqa: PLC0415 - builds a vocabulary

    texts = Tweets(words=WORDS, seed=seed).rows(0, TEXTS, np.zeros(TEXTS, np.int64)).column("text")
    if engine != "panes":
        # Some milliseconds each: many of them find a moment when nothing else runs.
        return _row_at_a_time(texts.to_pylist(), 20 * repetitions)
    return _of_tasks(texts, repetitions)


def _row_at_a_time(texts: list[str], repetitions: int) -> OperatorCosts:
    # 3.5 rows per key, as in a window of Zipf 1.0 (60,000 rows, 17,000 keys)
    keys = (np.arange(len(texts)) % max(1, 2 * len(texts) // 7)).tolist()

    def combined() -> dict[int, dict[str, int]]:
        held: dict[int, dict[str, int]] = {}
        for key, text in zip(keys, texts, strict=True):
            counts = held.setdefault(key, {})
            for word in text.split():
                counts[word] = counts.get(word, 0) + 1
        return held

    partials = list(combined().values())

    def merged() -> None:
        whole: dict[int, dict[str, int]] = {}
        for number, part in enumerate(partials):
            counts = whole.setdefault(number // 4, {})
            for word, times in part.items():
                counts[word] = counts.get(word, 0) + times

    add, merge = least_us([combined, merged], repetitions)
    return OperatorCosts(row=add / len(texts), group=0.0, merge=merge / len(partials))


def _of_tasks(texts: pa.Array, repetitions: int) -> OperatorCosts:
    import pyarrow as pa  # noqa: PLC0415

    from steelyard.applications.wordcount import WordCounts  # noqa: PLC0415 - loads PySpark
    from steelyard.spark.aggregator import AggregatorUse  # noqa: PLC0415
    from steelyard.spark.combine import combiner  # noqa: PLC0415
    from steelyard.spark.reduce import merger  # noqa: PLC0415

    rows = len(texts)
    uses = {"words": AggregatorUse(WordCounts(), ("text",))}
    combine = combiner(("key",), uses, _partial_schema(), 8, PromptAllocator(), None, 64)
    design = [(rows, rows // 50), (rows, rows // 4), (rows, rows)]
    batches = []
    for _, keys in design:
        key = np.arange(rows, dtype=np.int64) % keys
        batches.append(pa.record_batch({"key": key, PANE: np.zeros(rows, np.int64), "text": texts}))
    (partials,) = combine(iter(batches[-1:]))
    folds = [_folding(partials, size, merger, uses) for size in (2, 8)]
    combines = [partial(_drained, combine, batch) for batch in batches]
    taken = least_us([*combines, *folds], repetitions)
    row, group = np.linalg.lstsq(np.array(design, float), np.array(taken[: len(design)]), rcond=None)[0]
    merge = mean(taken[len(design) :]) / partials.num_rows
    # A fit over noisy times may come out below 0, which no operator is.
    return OperatorCosts(max(float(row), 0.01), max(float(group), 0.01), merge)


def _partial_schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    words = pa.struct([("words", pa.list_(pa.string())), ("counts", pa.list_(pa.int64()))])
    return pa.schema(
        [
            (BUCKET, pa.int32()),
            ("key", pa.int64()),
            (PANE, pa.int64()),
            (ROWS, pa.int64()),
            ("words", words),
        ]
    )


def _folding(partials: pa.RecordBatch, size: int, merger: Callable[..., Any], uses: Any) -> Callable[[], object]:
    """What merges all partials in lists of so many."""
    import pyarrow as pa  # noqa: PLC0415

    states = partials.column("words")
    offsets = pa.array(np.arange(0, len(states) + 1, size, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, states)
    return partial(_drained, merger(uses, pa.schema([("words", lists.type)])), pa.record_batch({"words": lists}))


def _drained(step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batch: pa.RecordBatch) -> object:
    """Run a task's step over one batch to its end."""
    return list(step(iter([batch])))


def least_us(actions: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """CPU time of the fastest run of each action, in microseconds."""
    return [MICRO * min(taken) for taken in in_turns(dict(enumerate(actions)), turns, time.thread_time).values()]


def window_ends(rows: int, window: int, slide: int, count: int) -> Iterator[int]:
    """Where up to `count` full windows end, evenly spread over the rows after the first window.

    >>> list(window_ends(100, window=40, slide=10, count=3))
    [60, 80, 100]
    """
    last = rows // slide
    first = -(-window // slide)
    yield from (int(end) * slide for end in np.unique(np.linspace(first, last, count + 1).astype(int)[1:]))
