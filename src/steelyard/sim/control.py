"""A policy in charge of a simulated cluster: look, decide, stop and restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from steelyard.control import Bounds, Cap, Controller, Cooldown, Decision, Guard
from steelyard.core import OptionError, ScalingPolicy
from steelyard.core.shown import Shown
from steelyard.scaling import elasticity
from steelyard.sim.dataflow import Source
from steelyard.sim.fluid import STEP, FluidSimulation
from steelyard.sim.results import SimulationResult
from steelyard.sim.scenario import Scenario
from steelyard.sim.simulation import Simulation


@dataclass(frozen=True, repr=False)
class Autoscaled(Shown):
    """A run under an autoscaler."""

    result: SimulationResult
    decisions: Sequence[Decision]
    """All that wanted a change, done or not, oldest first."""

    @property
    def changes(self) -> list[Decision]:
        """Those that were done."""
        return [one for one in self.decisions if not one.done.is_nothing]

    def __str__(self) -> str:
        return "\n".join([str(self.result), *(f"  {one}" for one in self.changes)])


def autoscale(
    scenario: Scenario,
    policy: str | ScalingPolicy,
    seconds: float,
    *,
    every: float = 15.0,
    guards: Sequence[Guard] = (Cooldown(),),
    downtime: float = 30.0,
    state_bandwidth: float = inf,
    step: float = STEP,
    seed: int | None = None,
) -> Autoscaled:
    """Run a scenario for so many seconds, with a policy that changes its numbers of instances.

    It runs as flows, or tuple by tuple where there is a seed.

    Parameters
    ----------
    scenario
        How it begins.
    policy
        Who decides, or its name: `"ds2?overprovisioning=0.1"`.
    seconds
        How long, in the simulated time.
    every
        Seconds between two looks, and what a look is over (Siachamis 2025, artefact: 15).
    guards
        What stands between the policy and the cluster; by default 300 seconds after a change in which nobody decides
        (the same, section 4).
    downtime
        Seconds that a stop and a restart take, while logs grow.
    state_bandwidth
        Of flows: bytes per second at which all state is written and read again when they stop and restart.
    step
        Seconds of a step of flows.
    seed
        Of the tuples. Their sources keep their numbers of instances.
    """
    for name, value in (("seconds", seconds), ("every", every)):
        if not value > 0:
            raise OptionError(f"{name} must be above 0, got {value!r}")
    simulation: FluidSimulation | Simulation
    if seed is None:
        simulation = FluidSimulation(scenario, step, downtime, state_bandwidth)
    else:
        if state_bandwidth < inf:
            raise OptionError("state_bandwidth is of flows: tuple by tuple, leave it out or leave the seed out")
        simulation = Simulation(scenario, seed, downtime=downtime)
        fixed = {one.name: one.parallelism for one in scenario.operators if isinstance(one, Source)}
        guards = [replace(one, fixed=frozenset(fixed)) if isinstance(one, Cap) else one for one in guards]
        guards = [*guards, Bounds(own={name: (count, count) for name, count in fixed.items()})]
    controller = Controller(simulation, elasticity(policy), guards, history=None)
    controller.run(seconds, every)
    return Autoscaled(simulation.result(), tuple(controller.decisions))
