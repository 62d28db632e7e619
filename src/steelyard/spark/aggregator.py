"""Aggregates written in Python that combine in two stages: what PySpark itself does not have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from steelyard.core import OptionError


class Aggregator(ABC):
    """An aggregate of your own. Map tasks `add` whole slices of a key, reduce tasks `merge`, and `finish` ends it.

    `add` is called in the map tasks, once for each key (and pane of a window) of a block, with NumPy arrays
    that hold all of its values there: one call a key, not one a row. Columns that NumPy has no type for
    (strings, arrays, structs) come as Arrow arrays. In a column of numbers a null is NaN.

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
    """

    state: ClassVar[str]
    result: ClassVar[str]

    @abstractmethod
    def zero(self) -> Any:
        """The state of no rows."""

    @abstractmethod
    def add(self, state: Any, *columns: Any) -> Any:
        """A state with a slice of rows added. May change `state` in place, and gives it back."""

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """Two states as one; must not depend on which comes first."""

    @abstractmethod
    def finish(self, state: Any) -> Any:
        """The result."""

    def subtract(self, whole: Any, part: Any) -> Any:
        """`whole` without `part`, which was merged into it. Override it where the aggregate has an inverse.

        Sliding windows then drop an expired pane by one subtraction instead of merging all the others again.
        """
        raise NotImplementedError

    @property
    def has_inverse(self) -> bool:
        """Whether `subtract` was overridden."""
        return type(self).subtract is not Aggregator.subtract

    def of(self, *columns: str) -> AggregatorUse:
        """This aggregate over these columns, for `agg(name=...)`."""
        if not isinstance(self, Aggregator):  # called on the class, with the first column in place of an object
            given = ", ".join(map(repr, (self, *columns)))  # type: ignore[unreachable]
            raise OptionError(f"of(...) is called on an object of your class: write YourAggregator().of({given})")
        if not columns:
            raise OptionError(f"{type(self).__name__}().of(...) needs at least one column")
        for attribute in ("state", "result"):
            if not isinstance(getattr(self, attribute, None), str):
                raise OptionError(
                    f"{type(self).__name__} needs a class attribute `{attribute}` with a type in DDL, "
                    "for example 'n bigint, total double'"
                )
        return AggregatorUse(self, columns)


@dataclass(frozen=True)
class AggregatorUse:
    """An aggregator and the columns it reads."""

    aggregator: Aggregator
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{type(self.aggregator).__name__}().of({', '.join(map(repr, self.columns))})"
