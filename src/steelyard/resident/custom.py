"""Operators of your own: a factory of steps, with as many inputs and as much state as they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa

from steelyard.core import OptionError
from steelyard.resident.operator import (
    Batches,
    InstanceContext,
    OperatorLogic,
    State,
    Step,
    conform,
    owned,
    require_columns,
)
from steelyard.resident.shares import Share

Deal: TypeAlias = Callable[[Sequence[State], Share], State]
"""The state of one new instance, out of those of all that were there before: see `OperatorLogic.dealt`."""


@dataclass(frozen=True)
class Custom(OperatorLogic):
    """A user's operator.

    Parameters
    ----------
    factory
        Called once for each instance, in its worker; gives a `Step`.
    schema
        The columns that come out; None where they are those of input 0.
    key_columns
        For each input the columns by which its rows must meet, or None where any instance will do.
    deal
        How states are dealt out where the operator gets another number of instances; one that keeps state and has none
        is refused then. Where rows do not go by hash, instances may not have been equally far in event time: a new one
        goes on from where the one was that was furthest behind, and hears of the times behind that again.
    """

    factory: Callable[[InstanceContext], Step]
    schema: pa.Schema | None = None
    key_columns: tuple[tuple[str, ...] | None, ...] = (None,)
    deal: Deal | None = None

    kind: ClassVar[str] = "process"

    @property
    def ports(self) -> int:  # type: ignore[override]
        """As many inputs as there are keys given."""
        return len(self.key_columns)

    def keys(self, port: int) -> tuple[str, ...] | None:
        """What was said."""
        return self.key_columns[port]

    @property
    def deals(self) -> bool:
        """Whether it was said how."""
        return self.deal is not None

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """As was said."""
        return super().dealt(states, share) if self.deal is None else self.deal(states, share)

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """What was said, or what goes in."""
        for given, keys in zip(inputs, self.key_columns, strict=True):
            require_columns(given, keys or ())
        return inputs[0] if self.schema is None else self.schema

    def start(self, context: InstanceContext) -> Step:
        """The user's step, its output checked."""
        step = self.factory(context)
        if not isinstance(step, Step):
            raise OptionError(
                f"the factory of {context.instance.operator!r} must give a Step, got {type(step).__name__}"
            )
        return _CheckedStep(step, context)


class _CheckedStep(Step):
    """Holds a user's step to the columns that it declared."""

    def __init__(self, step: Step, context: InstanceContext) -> None:
        self._step, self._schema = step, context.schema
        self._whose = f"the step of {context.instance.operator!r}"

    @property
    def refused(self) -> int:  # type: ignore[override]
        return self._step.refused

    def _checked(self, made: Batches) -> Batches:
        return (conform(batch, self._schema, self._whose) for batch in made)

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        return self._checked(self._step.process(port, batch))

    def on_watermark(self, time: int) -> Batches:
        return self._checked(self._step.on_watermark(time))

    def finish(self) -> Batches:
        return self._checked(self._step.finish())

    def snapshot(self, number: int) -> State:
        return owned(self._step.snapshot(number))  # it is written while the step goes on

    def restore(self, state: State) -> None:
        self._step.restore(state)

    def committed(self, number: int) -> None:
        self._step.committed(number)

    def close(self) -> None:
        self._step.close()
