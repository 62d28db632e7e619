"""An autoscaler in charge of a simulated cluster: measure, decide, stop and restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.core import OptionError, ParallelismPolicy
from steelyard.core.shown import Shown
from steelyard.sim.fluid import STEP, FluidSimulation
from steelyard.sim.results import SimulationResult
from steelyard.sim.scenario import Scenario


@dataclass(frozen=True)
class Rescaling:
    """One time that the numbers of instances changed."""

    time: float
    instances: dict[str, int]
    reason: str

    @property
    def workers(self) -> int:
        """Instances of all operators together."""
        return sum(self.instances.values())


@dataclass(frozen=True, repr=False)
class Autoscaled(Shown):
    """A run under an autoscaler."""

    result: SimulationResult
    rescalings: Sequence[Rescaling]

    def __str__(self) -> str:
        changes = [f"  {one.time:,.0f} s: {one.instances}, {one.reason}" for one in self.rescalings]
        return "\n".join([str(self.result), *changes])


def autoscale(
    scenario: Scenario,
    policy: ParallelismPolicy,
    seconds: float,
    *,
    every: float = 15.0,
    cooldown: float = 300.0,
    pause: float = 30.0,
    step: float = STEP,
) -> Autoscaled:
    """Run a scenario as flows for so many seconds, with a policy that changes its numbers of instances.

    Parameters
    ----------
    scenario
        How it begins.
    policy
        Who decides.
    seconds
        How long, in the simulated time.
    every
        Seconds between two looks, and what a look is over (Siachamis 2025, artefact: 15).
    cooldown
        Seconds after a change in which nothing is decided (the same, section 4: 300).
    pause
        Seconds that a stop and a restart take, while logs grow.
    step
        Seconds of a step.
    """
    if not hasattr(policy, "decide"):
        raise OptionError(f"policy is an object of steelyard.scaling, as DS2(), got {policy!r}")
    for name, value in (("seconds", seconds), ("every", every)):
        if not value > 0:
            raise OptionError(f"{name} must be above 0, got {value!r}")
    simulation = FluidSimulation(scenario, step)
    rescalings: list[Rescaling] = []
    quiet_until = 0.0
    while simulation.now < seconds - step / 2:
        simulation.advance(min(every, seconds - simulation.now))
        observation = simulation.observe()
        simulation.sample()
        if simulation.now < quiet_until:
            continue
        decision = policy.decide(observation)
        wanted = {**observation.instances(), **decision.instances}
        if wanted != observation.instances():
            simulation.rescale(wanted, pause)
            rescalings.append(Rescaling(simulation.now, wanted, decision.reason))
            quiet_until = simulation.now + pause + cooldown
    return Autoscaled(simulation.result(), tuple(rescalings))
