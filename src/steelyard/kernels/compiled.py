"""How loops are compiled, kept for later processes, and announced.

All compiled functions of the library are made here. What is compiled is kept: beside the package, or, where that folder
cannot be written, in the user's cache folder. The first time that a part is compiled in an installation, the log says
so before it starts.

A function that gets a tuple of twenty arrays copies their descriptions at each call, and counts references to each of
them. In a loop whose steps take a tenth of a microsecond that is nearly all of the time: see `loop`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

log = logging.getLogger(__name__)

PARTS: dict[str, tuple[str, int]] = {
    "bandit": ("Dalton", 8),
    "bandit_exchange": ("Dalton's exchange between partitioners", 0),
    "best_fit": ("best fit", 0),
    "chains": ("chains of moves", 0),
    "choices": ("policies with several choices for a key", 6),
    "cluster_groupings": ("the simulator of groupings by cost", 45),
    "cluster_loop": ("the simulator", 25),
    "cluster_markers": ("the simulator's markers", 0),
    "cluster_service": ("the simulator's services", 0),
    "cluster_windows": ("the simulator's windows", 0),
    "count_tree": ("Prompt's counts", 3),
    "distance": ("distances of similarity joins", 5),
    "distance_ragged": ("distances of texts and sets", 3),
    "event_heap": ("the simulator's events", 0),
    "fluid": ("the simulator of flows", 3),
    "fragments": ("fragments of keys", 0),
    "greedy": ("greedy policies", 6),
    "heavy": ("heavy hitters", 0),
    "key_table": ("tables of keys", 0),
    "mixing": ("hashes of numbers", 0),
    "nearest": ("placements near a wish", 6),
    "nh": ("seals of frames", 0),
    "osg": ("groupings by cost", 3),
    "osg_batches": ("groupings by cost in batches", 5),
    "osg_queues": ("shuffle edges", 25),
    "osg_sketch": ("sketches of costs", 0),
    "osg_state": ("groupings by cost", 0),
    "packing": ("Prompt", 4),
    "placed_loop": ("the simulator of placements", 12),
    "placed_times": ("times of placements", 6),
    "partly": ("PartLy", 8),
    "sliding": ("sliding windows", 0),
    "space_saving": ("frequent keys", 0),
    "xxhash": ("hashes of keys", 0),
}
"""By module: what a user would call it, and about how many seconds it takes to compile; 0, too few to speak of."""
_NO_REFERENCES: dict[str, Any] = {"_nrt": False}
"""Numba's name for leaving its memory management out; its type stubs do not list it."""
_NO_CACHE = "no locator available"
"""In numba's message where it finds no folder that it can write to."""

F = TypeVar("F", bound=Callable[..., Any])
_told: set[str] = set()


def njit(**options: Any) -> Callable[[F], F]:
    """As numba's decorator, for functions that are kept; where nothing can be kept, the log says so once."""

    def decorate(function: F) -> F:
        try:
            made: F = numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if _NO_CACHE not in str(error):
                raise
            _tell_once(
                "compiled loops cannot be kept, since neither the package's folder nor the user's cache folder can be "
                "written: each process compiles them anew; set NUMBA_CACHE_DIR to a folder that can"
            )
            made = numba.njit(**options)(function)
        return made

    return decorate


def inlined(function: F) -> F:
    """Compile a step of a loop: it becomes part of whoever calls it, makes no arrays, and counts no references."""
    return njit(forceinline=True, **_NO_REFERENCES)(function)


def loop(function: F) -> F:
    """Compile a loop over such steps; like them it makes no arrays."""
    return njit(**_NO_REFERENCES)(function)


class _Announcer(event.Listener):
    """Hears from numba what it begins to compile; what was kept is loaded without a word.

    A function compiles those that it calls: the outermost one is the one that somebody waits for. Numba compiles one at
    a time, whatever the threads.
    """

    def __init__(self) -> None:
        self.depth = 0

    def on_start(self, started: Any) -> None:
        """Say what is compiled, and for about how long."""
        self.depth += 1
        package, _, module = started.data["dispatcher"].py_func.__module__.rpartition(".")
        if self.depth > 1 or package != __package__:
            return
        what, seconds = PARTS[module]
        if seconds:
            _tell_once(f"compiling {what}: about {seconds} s, once for an installation")

    def on_end(self, ended: Any) -> None:
        """Whoever called it goes on."""
        self.depth -= 1


def _tell_once(words: str) -> None:
    if words not in _told:
        _told.add(words)
        log.warning(words)


_register: Callable[..., None] = event.register
_register("numba:compile", _Announcer())
