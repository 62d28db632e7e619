"""Aggregates written in Python that combine in two stages: what PySpark itself does not have."""

from __future__ import annotations

import dis
import inspect
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from steelyard.core import OptionError

FORMS = {"add": "add_block", "merge": "merge_block", "finish": "finish_block"}
"""Each step of an aggregate: its form of one key, and its form of all keys of a block."""


class Aggregator:
    """An aggregate of your own. Map tasks `add` whole slices of a key, reduce tasks `merge`, and `finish` ends it.

    `add` is called in the map tasks, once for each key (and pane of a window) of a block, with NumPy arrays
    that hold all of its values there: one call per key, not one per row. Columns that NumPy has no type for
    (strings, arrays, structs) come as Arrow arrays. In a column of numbers or booleans a null is NaN, and the others
    are doubles; a key with whole numbers beyond 2**53 beside nulls fails the query, unless `takes_arrow` is True.

    **All keys at once.** Each step may have a second form, which is called once for all keys of a block: `add_block`,
    `merge_block` and `finish_block` (and `subtract_block`). Rows then come sorted by key, and `offsets` says where each
    key begins. An aggregator may have one form of a step or both. Where it has both, the block form is what runs; the
    other one finds the rows at fault where that raises, and a few keys of each block are computed both ways: where the
    two disagree, the query fails and says so.

    Attributes
    ----------
    state
        The fields of the state in Spark's DDL, such as `"n bigint, total double"`. A state is a tuple of these,
        or another iterable in their order; of a single field, the bare value. It crosses tasks as Arrow
        columns, and is never pickled.
    result
        The type of the result in DDL, such as `"double"`.

    Examples
    --------
    >>> import numpy as np
    >>> class Spread(Aggregator):
    ...     state = "low double, high double"
    ...     result = "double"
    ...     def zero(self):
    ...         return (np.inf, -np.inf)
    ...     def add(self, state, values):
    ...         return (min(state[0], values.min()), max(state[1], values.max()))
    ...     def merge(self, left, right):
    ...         return (min(left[0], right[0]), max(left[1], right[1]))
    ...     def finish(self, state):
    ...         return state[1] - state[0]
    >>> Spread().of("price")
    Spread().of('price')

    The same for all keys of a block:

    >>> class FastSpread(Aggregator):
    ...     state = "low double, high double"
    ...     result = "double"
    ...     def add_block(self, columns, offsets):
    ...         (values,) = columns
    ...         return np.minimum.reduceat(values, offsets[:-1]), np.maximum.reduceat(values, offsets[:-1])
    ...     def merge_block(self, states, offsets):
    ...         low, high = states
    ...         return np.minimum.reduceat(low, offsets[:-1]), np.maximum.reduceat(high, offsets[:-1])
    ...     def finish_block(self, states):
    ...         return states[1] - states[0]
    >>> FastSpread().add_block([np.array([3.0, 1.0, 5.0])], np.array([0, 2, 3]))
    (array([1., 5.]), array([3., 5.]))
    """

    state: ClassVar[str]
    result: ClassVar[str]
    takes_arrow: ClassVar[bool] = False
    """Whether all columns come as Arrow arrays, also those that NumPy has a type for."""

    def zero(self) -> Any:
        """The state of no rows."""
        raise NotImplementedError

    def add(self, state: Any, *columns: Any) -> Any:
        """A state with a slice of rows added. May change `state` in place, and gives it back."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Two states as one; must not depend on which comes first."""
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        """The result."""
        raise NotImplementedError

    def subtract(self, whole: Any, part: Any) -> Any:
        """`whole` without `part`, which was merged into it. Override it where the aggregate has an inverse.

        Sliding windows then drop an expired pane by one subtraction instead of merging all the others again.
        """
        raise NotImplementedError

    def add_block(self, columns: Any, offsets: Any) -> Any:
        """The states of all keys of a block, as a tuple with a column for each field of `state`.

        Parameters
        ----------
        columns
            One column for each of those named in `of`, as `add` gets them, with the rows of all keys: first those of
            one key, then those of the next. Where keys have nulls in a column of whole numbers or booleans, such keys
            come in a call of their own, in which the column has floats; the others keep their type.
        offsets
            int64[keys + 1], NumPy: key i has the rows from `offsets[i]` to `offsets[i + 1]`, at least one.
        """
        raise NotImplementedError

    def merge_block(self, states: Any, offsets: Any) -> Any:
        """One state for each key from several: the states of key i are those from `offsets[i]` to `offsets[i + 1]`.

        States come and go as a tuple with a column for each field: NumPy arrays where NumPy has the type and no value
        is null, Arrow arrays otherwise. They must not be changed in place.
        """
        raise NotImplementedError

    def finish_block(self, states: Any) -> Any:
        """The column of results, one for each state."""
        raise NotImplementedError

    def subtract_block(self, whole: Any, part: Any) -> Any:
        """`subtract` for many pairs of states."""
        raise NotImplementedError

    def gives(self, *methods: str) -> bool:
        """Whether all of these methods were overridden."""
        return all(getattr(type(self), name) is not getattr(Aggregator, name) for name in methods)

    @property
    def has_inverse(self) -> bool:
        """Whether `subtract` or `subtract_block` was overridden."""
        return self.gives("subtract") or self.gives("subtract_block")

    @property
    def has_both_forms(self) -> bool:
        """Whether the form of one key is whole, and a step of it has a form of a block too."""
        return self.gives("zero", *FORMS) and any(self.gives(name) for name in FORMS.values())

    def of(self, *columns: str) -> AggregatorUse:
        """This aggregate over these columns, for `agg(name=...)`."""
        if not isinstance(self, Aggregator):  # called on the class, with the first column in place of an object
            given = ", ".join(map(repr, (self, *columns)))  # type: ignore[unreachable]
            raise OptionError(f"of(...) is called on an object of your class: write YourAggregator().of({given})")
        kind = type(self).__name__
        if not columns:
            raise OptionError(f"{kind}().of(...) needs at least one column")
        for attribute in ("state", "result"):
            if not isinstance(getattr(self, attribute, None), str):
                raise OptionError(
                    f"{kind} needs a class attribute `{attribute}` with a type in DDL, "
                    "for example 'n bigint, total double'"
                )
        for one, block in FORMS.items():
            if not (self.gives(one) or self.gives(block)):
                raise OptionError(f"{kind} needs a method `{one}`, or `{block}` for all keys of a block at once")
        if self.gives("add") and not self.gives("zero"):
            raise OptionError(f"{kind} needs a method `zero`, the state that `add` begins with")
        return AggregatorUse(self, columns)


def never_gives(method: Any) -> bool:
    """Whether a method can give nothing but None, by its code: its `return` was forgotten.

    >>> [never_gives(one) for one in (lambda state: state, lambda state: state or None, print, lambda state: None)]
    [False, False, False, True]
    """
    code = getattr(method, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    ends = [pair for pair in pairwise(dis.get_instructions(code)) if pair[1].opname.startswith("RETURN_")]
    return bool(ends) and all(_gives_none(*pair) for pair in ends)


def _gives_none(before: dis.Instruction, end: dis.Instruction) -> bool:
    """Whether what a `RETURN_*` gives is None for certain: a jump to it may bring anything."""
    if end.opname == "RETURN_CONST":
        return end.argval is None
    return before.opname == "LOAD_CONST" and before.argval is None and not end.is_jump_target


@dataclass(frozen=True)
class AggregatorUse:
    """An aggregator and the columns it reads."""

    aggregator: Aggregator
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{type(self.aggregator).__name__}().of({', '.join(map(repr, self.columns))})"
