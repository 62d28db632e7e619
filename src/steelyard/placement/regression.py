"""Support vector regression of latencies: fitted by scikit-learn, kept as arrays, and evaluated in NumPy.

Li 2018, section 2.2.4. What the document leaves open is fixed here: features are standardised, latencies are learnt as
logarithms, and parameters are fixed (those of `Parameters`). Others can be compared by cross-validation in which a
schedule's windows are never in both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats

KERNELS = ("rbf", "linear", "poly", "sigmoid")
"""Those that the document compares; radial basis functions win there."""
MOST_ROWS = 3_000
"""More of a component or an edge are not learnt from: training takes more than the square of them."""
FOLDS = 5
MOST_KNOWN = 4_000
"""Rows of which a regression remembers what it computed."""
TINY = 1e-9
"""Seconds below which no latency is told from another."""
DEGREE = 3


@dataclass(frozen=True)
class Parameters:
    """Of one support vector regression."""

    kernel: str = "rbf"
    C: float = 10.0
    epsilon: float = 0.1
    gamma: float = 0.0
    """0 stands for 1 / features, which of standardised features is scikit-learn's `scale`."""

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise OptionError.unknown("kernel", self.kernel, KERNELS)
        for name in ("C", "epsilon", "gamma"):
            value = getattr(self, name)
            if not 0 <= value < np.inf or (name == "C" and not value):
                raise OptionError(f"{name} must be a number {'above 0' if name == 'C' else 'of 0 or more'}: {value!r}")


def grid(kernels: Sequence[str] = KERNELS) -> list[Parameters]:
    """All parameters that `Pipeline.scores` compares; a linear kernel has no gamma.

    >>> len(grid(["rbf"])), len(grid(["linear"]))
    (27, 9)
    """
    return [
        Parameters(kernel, C, epsilon, gamma)
        for kernel, C, epsilon in product(kernels, (1.0, 10.0, 100.0), (0.05, 0.1, 0.2))
        for gamma in ((0.0,) if kernel == "linear" else (0.0, 0.1, 1.0))
    ]


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted one; `predict` needs no scikit-learn.

    Parameters
    ----------
    parameters
        What it was fitted with; `gamma` is the number itself.
    mean, scale
        float64[features]: what standardises a row.
    target_mean, target_scale
        The same of logarithms of latencies.
    support
        float64[vectors, features]: standardised rows.
    dual
        float64[vectors]: their coefficients.
    intercept
        What all of them are added to.
    """

    parameters: Parameters
    mean: Floats
    scale: Floats
    target_mean: float
    target_scale: float
    support: Floats
    dual: Floats
    intercept: float

    _known: dict[str, dict[bytes, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was computed of rows before: a search asks about nearly the same ones again and again."""

    def predict(self, rows: Floats) -> Floats:
        """Latencies in seconds of float64[rows, features]."""

        def made(new: Floats) -> Floats:
            ready = (new - self.mean) / self.scale
            return self._seconds(self._kernel(ready, self.support) @ self.dual)

        return self._remembered("seconds", rows, made)

    def pairs(self, senders: Floats, receivers: Floats) -> tuple[Floats, Floats]:
        """Latencies between every sender's end and every receiver's: on two machines, and on one.

        Each is float64[senders, receivers]. All kernels are functions of sums over the features of the two ends and of
        whether they are on one machine. Radial basis functions are products, so that a product of matrices gives all.
        """
        count = senders.shape[1]
        up = self._end("senders", senders, slice(0, count))
        down = self._end("receivers", receivers, slice(count, 2 * count))
        together = (np.array([0.0, 1.0]) - self.mean[-1]) / self.scale[-1]
        one = self.support[:, -1]
        if self.parameters.kernel == "rbf":
            factors = [self.dual * np.exp(-self.parameters.gamma * (at - one) ** 2) for at in together]
            found = [self._seconds((up * factor) @ down.T) for factor in factors]
        else:
            found = [self._pairs_by_product(up, down, at * one) for at in together]
        return found[0], found[1]

    def _end(self, which: str, rows: Floats, at: slice) -> Floats:
        """float64[rows, vectors]: a kernel's part of one end, or the product that it is a function of."""

        def made(new: Floats) -> Floats:
            ready, own = (new - self.mean[at]) / self.scale[at], self.support[:, at]
            return self._kernel(ready, own) if self.parameters.kernel == "rbf" else ready @ own.T

        return self._remembered(which, rows, made)

    def _remembered(self, what: str, rows: Floats, made: Callable[[Floats], Floats]) -> Floats:
        known, keys = self._known.setdefault(what, {}), [row.tobytes() for row in rows]
        new = [at for at, key in enumerate(keys) if key not in known]
        if new and len(known) > MOST_KNOWN:
            known.clear()
            new = list(range(len(keys)))
        if new:
            known.update(zip((keys[at] for at in new), made(rows[new]), strict=True))
        return np.array([known[key] for key in keys])

    def _pairs_by_product(self, up: Floats, down: Floats, together: Floats) -> Floats:
        return np.stack([self._seconds(self._of_product(row + down + together) @ self.dual) for row in up])

    def _kernel(self, rows: Floats, support: Floats) -> Floats:
        if self.parameters.kernel == "rbf":
            return np.asarray(np.exp(-self.parameters.gamma * _squared(rows, support)))
        return self._of_product(rows @ support.T)

    def _of_product(self, product: Floats) -> Floats:
        gamma = self.parameters.gamma
        if self.parameters.kernel == "linear":
            return product
        if self.parameters.kernel == "poly":
            return np.asarray((gamma * product) ** DEGREE)
        return np.asarray(np.tanh(gamma * product))

    def _seconds(self, standardised: Floats) -> Floats:
        logarithm = (standardised + self.intercept) * self.target_scale + self.target_mean
        return np.asarray(np.exp(np.clip(logarithm, -50.0, 50.0)))


def fitted(rows: Floats, seconds: Floats, parameters: Parameters) -> Regression:
    """Learn latencies from rows of features.

    Parameters
    ----------
    rows
        float64[rows, features]
    seconds
        float64[rows]: mean latencies.
    parameters
        Of the regression.

    Examples
    --------
    >>> load = np.linspace(0, 1, 40)[:, None]
    >>> found = fitted(load, np.exp(load[:, 0]), Parameters(C=100, epsilon=0.01, gamma=1))
    >>> bool(abs(found.predict(np.array([[0.5]]))[0] - np.exp(0.5)) < 0.02)
    True
    """
    if len(rows) != len(seconds) or not len(rows):
        raise OptionError(f"a latency is learnt from as many rows as there are times, got {len(rows)}, {len(seconds)}")
    if not (np.isfinite(rows).all() and np.isfinite(seconds).all()):
        raise OptionError("a latency cannot be learnt from rows that are no numbers: leave them out")
    mean, scale = rows.mean(axis=0), _scales(rows)
    ready, logarithms = (rows - mean) / scale, np.log(np.maximum(seconds, TINY))
    target_mean, target_scale = float(logarithms.mean()), float(logarithms.std()) or 1.0
    gamma = parameters.gamma or 1.0 / rows.shape[1]
    machine = _svr()(
        kernel=parameters.kernel, C=parameters.C, epsilon=parameters.epsilon, gamma=gamma, degree=DEGREE, coef0=0.0
    )
    machine.fit(ready, (logarithms - target_mean) / target_scale)
    kept = Parameters(parameters.kernel, parameters.C, parameters.epsilon, gamma)
    dual = np.asarray(machine.dual_coef_, np.float64).reshape(-1)
    support = np.asarray(machine.support_vectors_, np.float64).reshape(len(dual), rows.shape[1])
    return Regression(kept, mean, scale, target_mean, target_scale, support, dual, float(machine.intercept_[0]))


def accuracy(predicted: Floats, actual: Floats) -> float:
    """Mean of 1 - |predicted - actual| / actual (Li 2018, section 2.3.2).

    >>> accuracy(np.array([0.9, 1.0]), np.array([1.0, 1.0]))
    0.95
    """
    return float(np.mean(1.0 - np.abs(predicted - actual) / np.maximum(actual, TINY)))


def cross_validated(
    rows: Floats, seconds: Floats, groups: Sequence[Any] | Ints, parameters: Parameters, folds: int = FOLDS
) -> float:
    """Accuracy on rows that were not learnt from; rows of one group (a schedule) are left out together.

    Nan where there are fewer than two groups.
    """
    _, numbers = np.unique(np.asarray(groups), return_inverse=True)
    folds = min(folds, int(numbers.max(initial=0)) + 1)
    if folds < 2:
        return float("nan")
    found = []
    for fold in range(folds):
        left_out = numbers % folds == fold
        made = fitted(rows[~left_out], seconds[~left_out], parameters)
        found.append(accuracy(made.predict(rows[left_out]), seconds[left_out]))
    return float(np.mean(found))


def thinned(rows: Floats, seconds: Floats, groups: Any, most: int = MOST_ROWS) -> tuple[Floats, Floats, Any]:
    """At most so many rows, at even distances, so that every schedule stays there."""
    if len(rows) <= most:
        return rows, seconds, groups
    chosen = np.linspace(0, len(rows) - 1, most).round().astype(np.int64)
    return rows[chosen], seconds[chosen], np.asarray(groups)[chosen]


def _scales(rows: Floats) -> Floats:
    """Standard deviations; 1 of features that are the same in all rows, up to rounding."""
    found = rows.std(axis=0)
    return np.where(found > 1e-12 * np.maximum(np.abs(rows).max(axis=0), 1e-300), found, 1.0)


def _squared(rows: Floats, others: Floats) -> Floats:
    distances = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * rows @ others.T
    return np.asarray(np.maximum(distances, 0.0))


def _svr() -> Any:
    try:
        from sklearn.svm import SVR  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise OptionError(
            "placement by predicted times needs scikit-learn to learn them: pip install 'steelyard[predict]'"
        ) from None
    return SVR
