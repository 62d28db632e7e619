"""How large the full decision problem is that Dalton's bandit stands in for (Zapridou et al. 2022, section 3).

A state of the full problem is a key, the fragmentation of all keys and the load of all combiners. Three steps make
it small: only heavy hitters are learnt, loads are rounded to quanta, and, since with large quanta an action hardly
changes the next state, the problem is treated as a contextual bandit whose context is the key.
"""

from __future__ import annotations

from math import comb

from steelyard.core import OptionError


def load_vectors(rows: int, combiners: int, quantum: int = 1) -> int:
    """How many load vectors so many rows in the window can make: C(rows / q + n - 1, n - 1).

    >>> load_vectors(rows=2, combiners=2)   # (2, 0), (1, 1), (0, 2)
    3
    """
    _positive(combiners=combiners, quantum=quantum)
    if rows < 0:
        raise OptionError(f"a window has 0 rows or more, got rows={rows}")
    return comb(rows // quantum + combiners - 1, combiners - 1)


def states(keys: int, combiners: int, rows: int, quantum: int = 1) -> int:
    """States of the problem: K 2^(K n) C(rows / q + n - 1, n - 1).

    The paper's examples: ten keys, and eight heavy hitters with loads in steps of ten.

    >>> f"{states(keys=10, combiners=8, rows=100):.2e}"
    '3.15e+35'
    >>> f"{states(keys=8, combiners=8, rows=100, quantum=10):.2e}"
    '2.87e+24'
    """
    _positive(keys=keys)
    return int(keys * 2 ** (keys * combiners) * load_vectors(rows, combiners, quantum))


def state_actions(keys: int, combiners: int, rows: int, quantum: int = 1) -> int:
    """Pairs of state and action, of which a table of the full problem would have one value each.

    The paper calls its second example's 3e24 state-action pairs; it is the number of states.
    """
    return states(keys, combiners, rows, quantum) * combiners


def rows_between_influences(combiners: int, quantum: int) -> tuple[int, int]:
    """Fewest and most rows after which an action changes the rounded load: q <= T <= n (q - 1) + 1.

    >>> rows_between_influences(combiners=8, quantum=10)
    (10, 73)
    """
    _positive(combiners=combiners, quantum=quantum)
    return quantum, combiners * (quantum - 1) + 1


def bandit_values(combiners: int) -> int:
    """Values that the bandit holds at most: one a heavy hitter, of which there are at most n, and action."""
    _positive(combiners=combiners)
    return combiners * combiners


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise OptionError(f"{name} must be 1 or more, got {number}")
