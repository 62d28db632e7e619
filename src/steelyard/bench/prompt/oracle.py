"""The best plan there is, for a handful of keys: balanced bin packing with fragmentable items, solved exactly.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, section 2.4.2,
Eq 2.7 to 2.13. Needs SciPy, whose solver is HiGHS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import BlockPlan, KeyCounts, Partitioner, SteelyardError
from steelyard.core.plans import Floats, at_least_one_block
from steelyard.partition.prompt import Prompt

MOST_KEYS = 20
MOST_BLOCKS = 4


class NoPlanError(SteelyardError):
    """The solver found no plan: there is none, or time ran out."""


def exact_plan(counts: KeyCounts, blocks: int, even_keys: bool = True, seconds: float = 60.0) -> BlockPlan:
    """A plan with the fewest fragments among those whose blocks have no more than ceil(N / B) rows.

    Parameters
    ----------
    counts, blocks
        At most 20 keys and 4 blocks; a ValueError beyond.
    even_keys
        Whether every block must have at least floor(K / B) different keys. The printed Eq 2.11 sums over all
        blocks and so demands nothing; its text wants K / B for each. Rounded up it has often no solution.
    seconds
        After which the solver gives up.

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> plan = exact_plan(counts, blocks=4)
    >>> len(plan.rows), int(plan.sizes.max()), int(plan.cardinalities.min())
    (9, 97, 2)
    """
    from scipy.optimize import Bounds, milp  # noqa: PLC0415 - an optional dependency

    at_least_one_block(blocks)
    keys = len(counts)
    if keys > MOST_KEYS or blocks > MOST_BLOCKS:
        raise ValueError(
            f"{keys} keys in {blocks} blocks are too many: at most {MOST_KEYS} in {MOST_BLOCKS} are solved"
        )
    if not keys:
        return BlockPlan.of(counts, blocks, key=[], block=[], rows=[], policy="exact")
    pieces = keys * blocks
    solved = milp(
        c=np.r_[np.zeros(pieces), np.ones(pieces)],  # 2.7
        constraints=list(_constraints(counts.rows, blocks, keys // blocks if even_keys else 0)),
        integrality=np.ones(2 * pieces),  # 2.12, where the print has positive integers: x may be 0
        bounds=Bounds(0, np.r_[np.repeat(counts.rows, blocks), np.ones(pieces)]),
        options={"time_limit": seconds},
    )
    if solved.status != 0 or solved.x is None:
        raise NoPlanError(f"no plan of {keys} keys in {blocks} blocks: {solved.message}")
    rows = np.rint(solved.x[:pieces]).astype(np.int64)
    key, block = np.divmod(np.arange(pieces), blocks)
    return BlockPlan.of(counts, blocks, key=key, block=block, rows=rows, policy="exact")


def _constraints(rows: Any, blocks: int, least_keys: int) -> Iterator[Any]:
    """Eq 2.8 to 2.11 over the variables x_ij (rows of key i in block j), then y_ij (whether there are any)."""
    from scipy.optimize import LinearConstraint  # noqa: PLC0415 - an optional dependency

    keys, pieces = len(rows), len(rows) * blocks
    capacity = -(-int(rows.sum()) // blocks)  # 2.13 holds by this
    of_key = np.kron(np.eye(keys), np.ones(blocks))
    of_block = np.kron(np.ones(keys), np.eye(blocks))
    none, each = np.zeros((keys, pieces)), np.eye(pieces)
    size = np.repeat(rows, blocks)

    def both(x: Any, y: Any) -> Any:
        return np.hstack([x, y])

    yield LinearConstraint(both(of_key, none), rows, rows)  # 2.8
    yield LinearConstraint(both(of_block, np.zeros_like(of_block)), -np.inf, capacity)  # 2.9
    yield LinearConstraint(both(each, -np.diag(size)), -np.inf, 0)  # 2.10: x_ij <= s_i y_ij
    # Missing in print: y_ij <= x_ij. Without it 2.11 could be met by fragments of no rows.
    yield LinearConstraint(both(each, -each), 0, np.inf)
    yield LinearConstraint(both(np.zeros_like(of_block), of_block), least_keys, np.inf)  # 2.11
    # Not in print, and changing no optimum: a key needs ceil(s_i / C) blocks, and blocks are alike, so they may
    # be numbered by the largest key's rows. The solver need not find that out.
    yield LinearConstraint(both(none, of_key), -(-rows // capacity), np.inf)
    largest = int(np.argmax(rows)) * blocks
    falling = each[largest : largest + blocks - 1] - each[largest + 1 : largest + blocks]
    if blocks > 1:
        yield LinearConstraint(both(falling, np.zeros_like(falling)), 0, np.inf)


@dataclass(frozen=True)
class GapReport:
    """How far a partitioner's fragments are from the fewest possible.

    Parameters
    ----------
    partitioner
        Its name.
    fragments, optimum
        int64[cases]: fragments of its plan and of the exact one, case by case.
    """

    partitioner: str
    fragments: Any
    optimum: Any

    @property
    def gaps(self) -> Floats:
        """float64[cases]: fragments too many, over the optimum."""
        return np.asarray(self.fragments / self.optimum - 1.0)

    @property
    def mean(self) -> float:
        """The mean gap."""
        return float(self.gaps.mean())

    @property
    def largest(self) -> float:
        """The largest gap."""
        return float(self.gaps.max())

    @property
    def share_optimal(self) -> float:
        """The share of cases without a gap."""
        return float(np.mean(self.fragments <= self.optimum))

    def __repr__(self) -> str:
        return (
            f"GapReport({self.partitioner}: {len(self.optimum)} cases, {100 * self.mean:.1f} % fragments too many, "
            f"{100 * self.largest:.1f} % at most, {100 * self.share_optimal:.1f} % optimal)"
        )


def small_cases(cases: int, seed: int, keys: int = 8, blocks: int = 3) -> Iterator[tuple[KeyCounts, int]]:
    """Batches that can be solved: 2 to `keys` keys of Zipf-like counts for 2 to `blocks` blocks."""
    drawn = np.random.default_rng(seed)
    for _ in range(cases):
        number = int(drawn.integers(2, keys + 1))
        weights = np.arange(1, number + 1) ** -drawn.uniform(0.0, 2.0)
        rows = 1 + drawn.multinomial(int(drawn.integers(number, 200)), weights / weights.sum())
        yield KeyCounts(pa.array(range(number)), rows), int(drawn.integers(2, blocks + 1))


def gap_report(
    partitioner: Partitioner | None = None,
    cases: int = 200,
    seed: int = 0,
    keys: int = 8,
    blocks: int = 3,
    even_keys: bool = False,
) -> GapReport:
    """Plan small drawn batches with a partitioner (Prompt unless given) and exactly, and compare the fragments.

    With `even_keys` the optimum has at least floor(K / B) keys in every block, which a partitioner need not
    heed: it may then have fewer fragments than the optimum.

    Examples
    --------
    >>> report = gap_report(cases=5)
    >>> report.mean >= 0, len(report.gaps)
    (True, 5)
    """
    policy = partitioner or Prompt()
    fragments, optimum = [], []
    for counts, number in small_cases(cases, seed, keys, blocks):
        fragments.append(len(policy.plan(counts, number).rows))
        optimum.append(len(exact_plan(counts, number, even_keys).rows))
    return GapReport(policy.name, np.array(fragments), np.array(optimum))
