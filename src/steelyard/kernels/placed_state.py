"""Applications on machines as arrays: what the two levels of a placed cluster read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

# groupings, in the order of `core.placing.GROUPINGS`
SHUFFLE, FIELDS, ALL, GLOBAL, DIRECT = range(5)
# positions in `costs`
LOCAL, PROCESS, REMOTE, PER_WORKER, PER_THREAD, SERIALISE = range(6)
THREAD_CPU, CROWDING, COLD, WARM, PROCESSES, COSTS = range(6, 12)


class Placing(NamedTuple):
    """Components in threads, edges between them, machines, and what all of it costs."""

    first: Ints
    """int64[components + 1]: the first thread of each."""
    application: Ints
    """int64[components]."""
    source: Ints
    """int64[components]: 1 where tuples begin."""
    service: Floats
    """float64[components]: mean seconds of a core for a tuple."""
    spread: Floats
    """float64[components]: its standard deviation over its mean, from 0 (always the same) to 1 (exponential)."""
    first_edge: Ints
    """int64[components + 1]: the first edge of each; edges are sorted by their sender."""
    receiver: Ints
    """int64[edges]."""
    grouping: Ints
    """int64[edges]."""
    outputs: Floats
    """float64[edges]: tuples that a tuple becomes."""
    first_share: Ints
    """int64[components]: where in `shares` those of a component begin that gets its tuples by key; -1, by no key."""
    shares: Floats
    """By component and number of threads n, from 1 on: the part of the tuples that each of n threads gets."""
    cores: Floats
    """float64[machines]."""
    costs: Floats
    """float64[COSTS]."""
