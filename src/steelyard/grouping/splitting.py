"""What each of several tuples took that were executed together, where only the time of all is known."""

from __future__ import annotations

import numpy as np

from steelyard.core import OptionError, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats


class TimeSplitter:
    """Shares a batch's time out among its tuples, in proportion to what their items have taken so far.

    The first batch is shared out evenly. Where items come in ever other company, the shares then move towards what each
    takes by itself: an item whose batches take longer than the others in them explain gets more of the next one. Their
    sum is always the batch's time. This is how expectation maximisation separates sums of positive parts (Shepp and
    Vardi 1982), one batch at a time, in a small sketch instead of a table of all items.

    Parameters
    ----------
    columns, rows
        Size of the sketch.
    keep
        Share of what is known that stays with every batch, so that early shares, which are rough, are forgotten.
    seed
        Of the hash functions.

    Examples
    --------
    >>> splitter = TimeSplitter()
    >>> splitter.split(np.array([1, 2]), 4.0).tolist()
    [2.0, 2.0]
    >>> _ = splitter.split(np.array([1]), 1.0)
    >>> cheap, dear = splitter.split(np.array([1, 2]), 4.0).tolist()
    >>> cheap < dear, cheap + dear
    (True, 4.0)
    """

    def __init__(self, columns: int = 512, rows: int = 3, keep: float = 0.995, seed: int = 5) -> None:
        from steelyard.kernels.osg_sketch import coefficients  # noqa: PLC0415 - slow to import

        if not 0 < keep <= 1:
            raise OptionError(f"keep must be above 0 and at most 1, got {keep}")
        self._keep = keep
        self._hashes = coefficients(rows, seed)
        self._cells = np.zeros((1, 1, rows, columns, 2))
        self._fit = np.zeros(2)

    def split(self, items: Ints, seconds: float) -> Floats:
        """float64[tuples]: what each took; they add up to `seconds`."""
        return self.split_each(items, np.array([len(items)]), np.array([seconds]))

    def split_each(self, items: Ints, sizes: Ints, seconds: Floats) -> Floats:
        """The same for several batches, one behind the other in `items`: their sizes, and what each took."""
        from steelyard.kernels.osg_batches import split_times  # noqa: PLC0415 - slow to import

        took = np.empty(len(items))
        whole = np.require(items, np.int64, ["C", "W"])
        split_times(self._hashes, self._cells, self._fit, whole, sizes, seconds, self._keep, took)
        return took

    @property
    def trust(self) -> float:
        """From 0 to 1: how much of what an item is thought to take beyond the mean it does take.

        The slope of a line through batches, of what they took by what was thought of them before. It is 0 where items
        say nothing of times, however different these were: what was learnt of each is then chance.

        >>> splitter = TimeSplitter()
        >>> for turn in range(40):
        ...     _ = splitter.split(np.array([turn % 2]), 1.0 + turn % 2)
        >>> round(splitter.trust, 3)
        1.0
        """
        return float(min(1.0, max(0.0, self._fit[0] / self._fit[1]))) if self._fit[1] > 0.0 else 0.0

    def state(self) -> State:
        """All that the next split depends on."""
        return {"splits": self._cells.copy(), "fit": self._fit.copy()}

    def restore(self, state: State) -> None:
        """Go on as the splitter that gave this state would."""
        if state["splits"].shape != self._cells.shape:
            raise OptionError(f"a state of {state['splits'].shape} cells, and here are {self._cells.shape}")
        self._cells[...] = state["splits"]
        self._fit[...] = state["fit"]
