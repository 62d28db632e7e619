"""The horizontal autoscaler of Kubernetes, by processor time, for each operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import Action, Observation, OptionError, State
from steelyard.scaling.hpa import WINDOW, Highest, for_target
from steelyard.scaling.sight import nothing, unsaid


@dataclass(eq=False)
class HpaCpu:
    """Keep the processors of each operator's workers busy for a share of the time.

    More instances come at once, fewer when nobody wished for more for the length of the window.

    Parameters
    ----------
    target
        Share of its time for which an instance shall use a processor (Siachamis 2024, section 4: 0.7).
    window
        Seconds for which a wish counts (300).

    Examples
    --------
    >>> from steelyard.core import OperatorObservation
    >>> parse = OperatorObservation("map", 4, processed_per_second=9.0, busy=1.0, cpu=0.9)
    >>> HpaCpu().decide(Observation(15.0, 15.0, (parse,))).parallelism
    {'map': 6}

    References
    ----------
    The Kubernetes authors, *Horizontal Pod Autoscaling*; for each operator, and without its band of tolerance, as G.
    Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, section 4. Where processor time is no measure
    of work, as where state does not fit into memory, neither is this.
    """

    target: float = 0.7
    window: float = WINDOW

    name: ClassVar[str] = "hpa_cpu"
    paper: ClassVar[str] = "Siachamis 2024, section 4"
    needs: ClassVar[tuple[str, ...]] = ("operators", "cpu")

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise OptionError(f"target of HpaCpu must be above 0 and at most 1, got {self.target!r}")
        self._highest = Highest(self.window)

    def decide(self, observation: Observation) -> Action:
        """Instances for each operator."""
        if why := unsaid(observation, "cpu") or self._highest.jumped(observation):
            return nothing(why)
        used = {one.name: one.cpu or 0.0 for one in observation.operators}
        now = observation.parallelism
        wished = {name: for_target(now[name], share, self.target) for name, share in used.items()}
        said = ", ".join(f"{name} {share:.0%}" for name, share in used.items())
        return Action(
            self._highest.of(observation.time, wished), f"processors are to be used for {self.target:.0%}: {said}"
        )

    def state(self) -> State:
        """Wishes of the window."""
        return self._highest.state()

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        self._highest.restore(state)
