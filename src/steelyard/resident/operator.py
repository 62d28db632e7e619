"""What an operator is: a description that can be checked and sent, and a step that runs as one instance."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.topology import Instance
from steelyard.resident.shares import Share

if TYPE_CHECKING:
    from steelyard.resident.moving import Reassigned

Batches = Iterable[pa.RecordBatch]
State = dict[str, Any]
"""What an instance knows, by name: Arrow tables, and plain values that JSON can hold. Nothing is pickled."""


def owned(state: State) -> State:
    """The same, of which nobody else has a part that may change; what is no table is copied."""
    return {part: value if isinstance(value, pa.Table | bytes) else deepcopy(value) for part, value in state.items()}


MIN_WATERMARK = -(1 << 63)
"""The watermark before the first row."""
MAX_WATERMARK = (1 << 63) - 1
"""The watermark behind the last row."""


class Attempt(NamedTuple):
    """Who writes: a run of a job, and one of its generations. No two attempts ever have the same.

    A run begins with the name of its store, if it has one: all runs from the same store are of one job.
    """

    run: str
    generation: int

    @classmethod
    def first(cls, store: str = "") -> Attempt:
        """The first generation of a new run, from the store of this name."""
        new = secrets.token_hex(4)
        return cls(f"{store}.{new}" if store else new, 0)

    @property
    def job(self) -> str:
        """What all runs from one store have in common.

        >>> Attempt("5c21.9f3a", 2).job
        '5c21'
        """
        return self.run.partition(".")[0]

    def behind(self, cut: int) -> Attempt:
        """Who writes behind so many cuts of this generation: no file of before has the same name.

        >>> Attempt("5c21.9f3a", 2).behind(1).job, str(Attempt("5c21.9f3a", 2).behind(1))
        ('5c21', '5c21.9f3a.1-2')
        """
        return self._replace(run=f"{self.run}.{cut}") if cut else self

    def __str__(self) -> str:
        return f"{self.run}-{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Attempt:
        """The attempt that `str` gave.

        >>> Attempt.parse("9f3a-2")
        Attempt(run='9f3a', generation=2)
        """
        run, _, generation = text.rpartition("-")
        return cls(run, int(generation))


ALONE = Attempt("alone", 0)
"""Of what runs without a job."""


def _nowhere(batch: pa.RecordBatch) -> None:
    raise RuntimeError(f"nobody collects results here ({batch.num_rows} rows): the instance runs without a worker")


@dataclass(frozen=True)
class InstanceContext:
    """What an instance is told when it starts.

    Parameters
    ----------
    instance, parallelism
        Which one it is, of how many.
    inputs
        The columns of each input.
    schema
        The columns that it gives.
    deliver
        Hands a batch of results to whoever runs the dataflow; they are seen when their epoch is committed.
    attempt
        Which attempt of the job it is part of: for names of files that an earlier attempt must not touch.
    """

    instance: Instance
    parallelism: int
    inputs: Sequence[pa.Schema]
    schema: pa.Schema
    deliver: Callable[[pa.RecordBatch], None] = field(default=_nowhere, compare=False)
    attempt: Attempt = ALONE


class Step:
    """A running instance. One thread calls it, never two at once; what it raises fails the worker.

    The worker calls `restore` first where there is a snapshot, then `process` for each batch and `on_watermark`
    when time goes on in all inputs; `finish` after the last row; `snapshot` only between two batches, with numbers that
    grow; `committed` when nobody goes back behind one of those; and `close` in the end, also after a failure.
    """

    refused: int = 0
    """Rows that were dropped so far because they came late, or had no time."""

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """What comes out for a batch at an input."""
        raise NotImplementedError

    def on_watermark(self, time: int) -> Batches:
        """No row before `time` (microseconds since 1970) comes any more, but for late ones.

        At the end `time` is `MAX_WATERMARK`. A job that goes on from there may get more rows, so that it is no time to
        keep in a snapshot: all of them would be late.
        """
        return ()

    def finish(self) -> Batches:
        """No row comes any more at all; called again where a job that goes on from its end has got more rows."""
        return ()

    def flush(self) -> Batches:
        """An epoch ends, and a snapshot follows: what is given belongs to the epoch."""
        return ()

    def snapshot(self, number: int) -> State:
        """All that the instance needs to go on from here: the state of its checkpoint `number`."""
        return {}

    def restore(self, state: State) -> None:
        """Go on as the instance that gave this state would."""
        if state:
            raise OptionError(f"{type(self).__name__} keeps no state, but is to go on from {sorted(state)}")

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        """Give away what is of keys that are with others from now on; by instance, for all that are to get something.

        Called where `OperatorLogic.gives_groups` says so, for instance `number` of before, at a cut: all instances have
        worked off all rows from before it.
        """
        raise NotImplementedError

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        """Add what others gave, by instance. It may have worked off rows of its own keys since the cut.

        `number` is which instance it was before; None where it had no keys.
        """
        raise NotImplementedError

    def committed(self, number: int) -> None:
        """Nobody goes back behind checkpoint `number` any more; later ones may have been taken meanwhile."""

    def close(self) -> None:
        """Let go of files and sockets."""


class OperatorLogic(ABC):
    """A description of an operator: a small object without state that `start`s steps in workers."""

    kind: ClassVar[str]
    ports: int = 1
    emits: bool = True
    by_name: ClassVar[bool] = False
    """Whether its states do not depend on the order of columns."""

    @property
    def waits_for_time(self) -> bool:
        """Whether it gives results when event time has passed them, as windows do."""
        return False

    @property
    def flushes(self) -> bool:
        """Whether it gives results when an epoch ends."""
        return False

    @property
    def state_settings(self) -> str:
        """What its states depend on beside its columns: a job goes on from a snapshot only with the same."""
        return ""

    @property
    def keeps_nothing(self) -> bool:
        """Whether it has no state, and may come and go between two runs of a job with what is around it unchanged."""
        return False

    def keys(self, port: int) -> tuple[str, ...] | None:
        """The columns by which rows of this input must meet in one instance; None where any will do."""
        return None

    @property
    def deals(self) -> bool:
        """Whether `dealt` knows what to do with states; one that never has any need not."""
        return type(self).dealt is not OperatorLogic.dealt

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """The state of one new instance, out of those of all that were there before, in the order of their numbers.

        Called in workers, once for each new instance and before its step's `restore`, where a job goes on from a
        snapshot with another number of instances, or other key groups; nothing was under way when it was taken. What
        all new instances get together is what all old ones had. It is called again, with the same states, where workers
        fail before the next snapshot.
        """
        kept = sorted({name for state in states for name in state})
        if kept:
            raise OptionError(f"a {self.kind} keeps {kept}, and does not say how that is dealt out: define `dealt`")
        return {}

    @property
    def gives_groups(self) -> bool:
        """Whether its steps can `give` and `take` what they know of some keys, where all of their rows go by hash."""
        return False

    @abstractmethod
    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that come out; OptionError for a column that is not there."""

    @abstractmethod
    def start(self, context: InstanceContext) -> Any:
        """A step for one instance."""


def require_columns(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Raise OptionError for the first column that is not there."""
    for column in columns:
        if column not in schema.names:
            raise OptionError.unknown("column", column, schema.names)


def conform(batch: pa.RecordBatch, schema: pa.Schema, whose: Any) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`; OptionError where a function gave other ones than it said.

    >>> conform(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema({"n": pa.int64()}), "f").schema
    n: int64
    """
    if not isinstance(batch, pa.RecordBatch):
        raise OptionError(f"{whose} must give a pyarrow.RecordBatch, got {type(batch).__name__}")
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise OptionError(f"{whose} gave columns {batch.schema.names}, and its schema says {schema.names}")
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OptionError(f"{whose} gave columns that are not of its schema's types: {error}") from error


def schema_of(given: pa.Schema | Mapping[str, pa.DataType] | Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
    """A schema from a schema, a dictionary or pairs; dictionary-encoded columns are refused.

    >>> schema_of({"n": pa.int64(), "word": "string"}).names
    ['n', 'word']
    """
    try:
        schema = given if isinstance(given, pa.Schema) else pa.schema(given)
    except (TypeError, ValueError) as error:
        raise OptionError(
            "a schema is a pyarrow.Schema or a dictionary such as {'user': 'string', 'fare': 'double'} with types of "
            f"Arrow, got {given!r}: {error}"
        ) from error
    for column in schema:
        if pa.types.is_dictionary(column.type):
            raise OptionError(f"column {column.name!r} is dictionary-encoded: give its plain type, {column.type}")
    return schema.remove_metadata()
