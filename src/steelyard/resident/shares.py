"""What an instance takes of the states of all that were there before it, where a job goes on with other numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from steelyard.core.key_groups import KeyGroups
from steelyard.resident.keys import table_key_ids


@dataclass(frozen=True)
class Share:
    """The part of one of the new instances of an operator.

    Parameters
    ----------
    number
        Which of them it is.
    before, now
        Who had which key, and who has it from now on.
    everywhere
        Inputs whose rows go to all instances.

    Examples
    --------
    >>> left, right = (Share(number, KeyGroups(128, 3), KeyGroups(128, 2)) for number in (0, 1))
    >>> rows = pa.table({"k": [1, 2, 3]})
    >>> left.mine(rows, ["k"])["k"].to_pylist(), right.mine(rows, ["k"])["k"].to_pylist()
    ([1], [2, 3])
    >>> left.taken_over, right.taken_over
    ([0, 2], [1])
    """

    number: int
    before: KeyGroups
    now: KeyGroups
    everywhere: frozenset[int] = frozenset()

    @property
    def taken_over(self) -> list[int]:
        """The instances of before whose part without keys this one goes on with: each has one heir."""
        return list(range(self.number, self.before.parallelism, self.now.parallelism))

    def owns(self, rows: pa.Table, keys: Sequence[str]) -> pa.Array:
        """Which rows are of a key that comes here from now on: those of its columns in the order of `key_by`."""
        return pa.array(self.now.owners(table_key_ids(rows, keys)) == self.number)

    def mine(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The rows of keys that come here from now on."""
        return rows.filter(self.owns(rows, keys))

    def gathered(self, tables: Iterable[pa.Table], keys: Sequence[str]) -> pa.Table | None:
        """The same of all tables, of which one at least has columns; None where there is no table."""
        found = [self.mine(rows, keys) for rows in tables]
        return pa.concat_tables([one.select(found[0].schema.names) for one in found]) if found else None
