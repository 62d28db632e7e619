"""The least MPI that a small batch can have, solved exactly, and how near PartLy comes to it. Needs SciPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steelyard.bench.prompt.oracle import NoPlanError, small_cases
from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import Floats


def least_mpi(counts: KeyCounts, blocks: int, seconds: float = 30.0) -> float:
    """The least `BlockPlan.mpi_normalised` of any plan: a mixed-integer program for HiGHS.

    Variables are the rows x_ij and flags y_ij of Eq 2.7, the largest block S and the largest number of keys C; what is
    minimised is S / (N/p) + C / (K/p) + fragments / K.

    Examples
    --------
    >>> round(least_mpi(KeyCounts.of({"a": 4, "b": 2, "c": 2}), 2), 3)
    0.111
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an optional dependency

    keys = len(counts)
    pieces = keys * blocks
    of_key, of_block = np.kron(np.eye(keys), np.ones(blocks)), np.kron(np.ones(keys), np.eye(blocks))
    none = np.zeros
    rows, each = counts.rows, np.eye(pieces)
    ends = np.ones((blocks, 1))
    constraints = [
        LinearConstraint(np.hstack([of_key, none((keys, pieces + 2))]), rows, rows),
        LinearConstraint(np.hstack([each, -np.diag(np.repeat(rows, blocks)), none((pieces, 2))]), -np.inf, 0),
        LinearConstraint(np.hstack([of_block, none((blocks, pieces)), -ends, none((blocks, 1))]), -np.inf, 0),
        LinearConstraint(np.hstack([none((blocks, pieces)), of_block, none((blocks, 1)), -ends]), -np.inf, 0),
    ]
    weights = np.r_[np.zeros(pieces), np.full(pieces, 1 / keys), blocks / counts.total, blocks / keys]
    most = np.r_[np.repeat(rows, blocks), np.ones(pieces), counts.total, keys]
    solved = milp(
        c=weights,
        constraints=constraints,
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, most),
        options={"time_limit": seconds},
    )
    if solved.status != 0 or solved.fun is None:
        raise NoPlanError(f"no plan of {keys} keys in {blocks} blocks: {solved.message}")
    return max(0.0, (float(solved.fun) - 3) / 3)


def beside_optimum(plan: Callable[[KeyCounts, int], BlockPlan], cases: int, seed: int) -> tuple[Floats, Floats]:
    """Of small drawn batches: the MPI of a policy's plans, and the least there is."""
    found = [(plan(*case).mpi_normalised(), least_mpi(*case)) for case in small_cases(cases, seed)]
    own, least = np.array(found).T
    return own, least
