"""Storm's default scheduler: threads to machines in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core.control import Action
from steelyard.core.measured import Reading
from steelyard.core.placing import Setup


@dataclass(frozen=True)
class Default:
    """Deal the threads of each application to the machines in turn.

    Threads are dealt in the order of components, and each application begins with the first machine, so that numbers of
    an application's threads on two machines differ by one at most. What is deployed so stays where it is; threads that
    are elsewhere are dealt anew. It looks at no measurement.

    Examples
    --------
    >>> from steelyard.core.placing import Component, Host, Stream
    >>> import numpy as np
    >>> setup = Setup(
    ...     (Component("spout", 1, source=True), Component("query", 3)), (Stream("spout", "query"),), 2 * (Host(),)
    ... )
    >>> none, at = np.zeros(1), np.array([0, 0, 0, 1])
    >>> action = Default().place(setup, Reading(0.0, 1.0, at, none, none, none, np.zeros(4)))
    >>> action.placement
    {'query#0': 1}
    """

    name: ClassVar[str] = "default"
    paper: ClassVar[str] = "Storm's EvenScheduler"

    def place(self, setup: Setup, seen: Reading) -> Action:
        """All threads in turn."""
        wanted = setup.dealt(setup.parallelism_of(seen.assignment))
        moved = setup.moved(seen.assignment, wanted)
        if not moved:
            return Action(reason="threads are dealt to machines in turn already")
        return setup.action(wanted, f"threads are dealt to machines in turn: {moved} move", seen.assignment)
