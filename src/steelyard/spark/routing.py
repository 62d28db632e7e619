"""Policies that decide row by row, in the tasks that read a batch: each source partition is one partitioner.

A partitioner sees the 64-bit ids of its rows' keys and gives back blocks; the rows themselves stay in the JVM.
What it learnt comes back to the driver with the task's other reports, goes out again with the next batch, and
is part of the query's commit. A task that is run again starts from the same state and sees its rows in the same
order, and so decides the same: rows that were shuffled before, whose order may differ, are sorted first.

Of a policy that goes by what rows cost (`Placer`) the ids are those of a column's values, rows are placed before the
map function, and what its tasks measured (`costs.py`) comes to the policy with the other reports.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from steelyard.core import Batched, Cooperative, Placer, State, TuplePolicy
from steelyard.core.hidden import BLOCK, ITEM, SPLIT
from steelyard.core.policies import require_blocks
from steelyard.spark.placement import is_determinate, key_hash
from steelyard.spark.rows import COSTS, MAP, quoted
from steelyard.spark.tasklog import Entry, TaskLog

if TYPE_CHECKING:
    from steelyard.spark.costs import TaskMeter

ROUTE = "route"
"""The stage under which partitioners report."""
FORGET_AFTER = 60
"""Batches after which the state of a source partition that no longer comes is dropped."""


class Partitioners:
    """The partitioners of a query and what they know between batches.

    Parameters
    ----------
    policy
        What they follow.
    states
        What each has learnt, by the number of its source partition.
    blocks
        How many blocks they learnt it for; with another number they begin anew.
    """

    def __init__(self, policy: TuplePolicy, states: Mapping[int, State] | None = None, blocks: int = 0) -> None:
        self.policy = policy.in_batches() if isinstance(policy, Batched) else policy
        self.states: dict[int, State] = dict(states or {})
        self.blocks = blocks
        self._absent: dict[int, int] = {}
        self._sent: Broadcast[dict[int, bytes]] | None = None

    def placed(self, rows: DataFrame, keys: tuple[str, ...], blocks: int, batch: int, log: TaskLog | None) -> DataFrame:
        """`rows` in `blocks` partitions, each where its partitioner sends it; adds `__block` and `__split`.

        A batch is one slide of the policy's window. Every key may be in several blocks, since a partitioner does
        not know what the others do with it. Where costs are to be measured, `__item` is added too.
        """
        if blocks != self.blocks:
            self.states, self.blocks = {}, blocks
        if self._sent is not None:  # of a batch that is over; kept, they would pile up in the driver
            self._sent.destroy()
        packed_states = {number: packed(state) for number, state in self.states.items()}
        self._sent = rows.sparkSession.sparkContext.broadcast(packed_states)
        if not is_determinate(rows):
            rows = rows.sortWithinPartitions(F.xxhash64(*(quoted(name) for name in rows.columns)))
        route = _routing(self.policy, self._sent, blocks, batch, log)
        make: Any = arrow_udf  # its overloads do not know functions with type hints
        where = make(route, T.IntegerType()).asNondeterministic()
        ids = key_hash(keys)
        if isinstance(self.policy, Placer):
            ids = key_hash((self.policy.cost_of,)) if self.policy.cost_of else F.lit(0).cast("long")
        if self.measures:
            rows, ids = rows.withColumn(ITEM, ids), F.col(ITEM)
        return rows.withColumns({BLOCK: where(ids), SPLIT: F.lit(True)}).repartitionById(blocks, BLOCK)

    @property
    def by_cost(self) -> bool:
        """Whether rows are placed before the function that costs."""
        return isinstance(self.policy, Placer)

    @property
    def measures(self) -> bool:
        """Whether the policy wants to know what rows cost."""
        return isinstance(self.policy, Placer) and self.policy.learns

    def meter(self) -> Callable[[], TaskMeter] | None:
        """What makes a task's meter, where there is something to measure."""
        from steelyard.spark.costs import TaskMeter  # noqa: PLC0415 - which packs as is done here

        policy, blocks = self.policy, self.blocks
        return (lambda: TaskMeter(policy, blocks)) if isinstance(policy, Placer) and policy.learns else None

    def learn(self, entries: Mapping[Any, Entry], batch: int) -> None:
        """Take in what the tasks of a batch reported; partitioners that cooperate are told of each other."""
        if isinstance(self.policy, Placer):
            measured = {number: entry for (stage, number), entry in entries.items() if stage == MAP and COSTS in entry}
            self.policy.learn({number: unpacked(entry[COSTS]) for number, entry in measured.items()})
        came = {
            number: entry for (stage, number), entry in entries.items() if stage == ROUTE and entry["batch"] == batch
        }
        self.states |= {number: unpacked(entry["state"]) for number, entry in came.items()}
        self._absent = {n: 0 if n in came else self._absent.get(n, 0) + bool(came) for n in self.states}
        self.states = {n: state for n, state in self.states.items() if self._absent[n] < FORGET_AFTER}
        if isinstance(self.policy, Cooperative) and self.states:
            self.states = dict(self.policy.synchronise(self.states, self.blocks))

    def to_text(self) -> str:
        """As text, for a checkpoint."""
        whole = {"blocks": np.array(self.blocks)}
        for number, state in self.states.items():
            whole |= {f"{number}/{name}": array for name, array in state.items()}
        return base64.b64encode(packed(whole)).decode()

    def restore(self, text: str) -> None:
        """The inverse of `to_text`."""
        whole = dict(unpacked(base64.b64decode(text)))
        blocks = int(whole.pop("blocks"))
        states: dict[int, dict[str, Any]] = {}
        for name, array in whole.items():
            number, _, own = name.partition("/")
            states.setdefault(int(number), {})[own] = array
        self.states, self.blocks = dict(states), blocks


def _routing(
    policy: TuplePolicy, sent: Broadcast[dict[int, bytes]], blocks: int, batch: int, log: TaskLog | None
) -> Any:
    """The function that a task runs over its key ids."""
    tick = batch * getattr(policy, "slide", 1)

    def route(parts: Iterator[pa.Array]) -> Iterator[pa.Array]:
        task = TaskContext.get()
        number = task.partitionId() if task else 0
        router = policy.router(blocks, number)
        states = sent.value
        if states:
            router.restore(unpacked(states[predecessor(number, states)]))
        rows = 0
        for part in parts:
            keys = np.array(part.to_numpy(zero_copy_only=False), dtype=np.int64)  # which a compiled loop may write to
            rows += len(keys)
            block = router.route(keys, np.full(len(keys), tick, dtype=np.int64)).block
            require_blocks(policy.name, block, len(keys), blocks)
            yield pa.array(block, pa.int32())
        if log is not None and rows:
            log.add(ROUTE, {"batch": batch, "rows": rows, "state": packed(router.state())})

    return route


def predecessor(number: int, states: Collection[int]) -> int:
    """The partitioner whose state a source partition goes on with: its own, or if it has none that of another.

    Which partitions have rows may change from batch to batch, and what was learnt of one part of a stream is mostly
    true of the others: to begin anew is worse.

    >>> [predecessor(number, [0, 2, 5]) for number in (0, 1, 2, 3)]
    [0, 2, 2, 0]
    """
    return number if number in states else sorted(states)[number % len(states)]


def packed(state: State) -> bytes:
    """Arrays as bytes.

    >>> unpacked(packed({"q": np.arange(3.0)}))["q"].tolist()
    [0.0, 1.0, 2.0]
    """
    file = io.BytesIO()
    save: Any = np.savez_compressed
    save(file, **{f"_{name}": array for name, array in state.items()})  # no name is one of its own
    return file.getvalue()


def unpacked(data: bytes) -> State:
    """The inverse of `packed`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name[1:]: arrays[name] for name in arrays.files}
