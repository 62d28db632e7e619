"""Nearest assignments and counts by brute force, and by the mixed-integer programs as they are written down."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp


def one_hot(assignments: np.ndarray, columns: int) -> np.ndarray:
    return (np.asarray(assignments)[..., None] == np.arange(columns)).astype(float)


def assignment_distances(proto: np.ndarray, most: int) -> list[float]:
    """The smallest squared distances, over every assignment that there is."""
    rows, columns = proto.shape
    every = np.array(list(itertools.product(range(columns), repeat=rows)))
    return sorted(((one_hot(every, columns) - proto) ** 2).sum(axis=(1, 2)))[:most]


def count_distances(proto: np.ndarray, limits: np.ndarray, exactly: bool, most: int) -> list[float]:
    """The smallest squared distances, over every matrix of counts that there is."""
    each = []
    for wanted, limit in zip(proto, limits, strict=True):
        least = limit if exactly else 1
        rows = [row for row in itertools.product(range(limit + 1), repeat=len(wanted)) if least <= sum(row) <= limit]
        each.append(sorted(((np.array(rows) - wanted) ** 2).sum(axis=1))[:most])
    return sorted(sum(one) for one in itertools.product(*each))[:most]


def assignments_by_milp(proto: np.ndarray, most: int) -> list[np.ndarray]:
    """Solve, exclude what was found, and solve again."""
    rows, columns = proto.shape
    once = LinearConstraint(np.kron(np.eye(rows), np.ones(columns)), 1, 1)
    cuts: list[LinearConstraint] = []
    found: list[np.ndarray] = []
    while len(found) < most:
        solved = milp(
            (1 - 2 * proto).ravel(),
            constraints=[once, *cuts],
            bounds=Bounds(0, 1),
            integrality=np.ones(rows * columns),
            options={"mip_rel_gap": 0},
        )
        if solved.x is None:
            break
        chosen = np.round(solved.x).reshape(rows, columns)
        cuts.append(LinearConstraint(chosen.ravel(), -np.inf, rows - 1))
        found.append(chosen.argmax(axis=1))
    return found
