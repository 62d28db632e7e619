"""Runs a scenario from its start to an end, with checkpoints and failures on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.sim.results import SimulationResult
from steelyard.sim.scenario import Scenario
from steelyard.sim.simulation import Simulation
from steelyard.sim.stopping import NOTICED, Checkpoints, Failure

SAMPLES_A_RUN = 20
"""How many rows of metrics an instance has in a run, where nobody says how often to look."""


def simulate(
    scenario: Scenario,
    seconds: float,
    *,
    seed: int = 0,
    every: float = 0.0,
    trace: bool = False,
    checkpoints: Checkpoints | None = None,
    failures: Sequence[Failure] = (),
) -> SimulationResult:
    """Run a scenario for so many seconds, tuple by tuple.

    Parameters
    ----------
    scenario
        What runs where.
    seconds
        How long, in the simulated time; a little longer where it would end in the middle of a stop.
    seed
        For all that is random.
    every
        Seconds between two rows of metrics; 0 gives 20 rows.
    trace
        Whether the result has a row for each tuple that left the cluster.
    checkpoints
        When the cluster is saved, and what that costs; None, a failure goes back to the start.
    failures
        When everything is lost. So it is when a machine runs out of memory, which is noticed after a second.

    Examples
    --------
    >>> from steelyard.sim import Exponential, Operator, Source
    >>> scenario = Scenario.chain(
    ...     Source("log", rate=900, arrivals="poisson"), Operator("map", Exponential(0.001))
    ... )
    >>> result = simulate(scenario, seconds=60, seed=1)
    >>> round(result.total("map").utilisation, 1)
    0.9
    """
    if not 0 < seconds < np.inf:
        raise OptionError(f"seconds of a simulation must be above 0, got {seconds!r}")
    if not every >= 0:
        raise OptionError(f"every must be 0, for {SAMPLES_A_RUN} rows of metrics, or more seconds, got {every!r}")
    simulation = Simulation(scenario, seed, trace)
    _run(simulation, seconds, every or seconds / SAMPLES_A_RUN, checkpoints, failures)
    result = simulation.result()
    return result.with_trace(simulation.trace()) if trace else result


def _run(
    simulation: Simulation,
    seconds: float,
    step: float,
    checkpoints: Checkpoints | None,
    failures: Sequence[Failure],
) -> None:
    """Until so many seconds are over; metrics every `step`, checkpoints and failures when they are due."""
    saved_at = checkpoints.every if checkpoints else np.inf
    coming = sorted(failures, key=lambda failure: failure.at)
    sampled = 0
    while simulation.now < seconds - 1e-9:
        next_failure = coming[0].at if coming else np.inf
        next_sample = min((sampled + 1) * step, seconds)
        waits = simulation.under_way
        simulation._advance_to(max(simulation.now, min(next_sample, saved_at, next_failure)), or_complete=True)
        if checkpoints and waits and not simulation.under_way:
            saved_at = simulation.now + checkpoints.every
        if simulation.now >= next_failure or simulation.exhausted is not None:
            downtime = NOTICED if simulation.exhausted is not None else coming.pop(0).detection
            if checkpoints:
                downtime += checkpoints.restore + checkpoints.per_kept * simulation.saved_kept
            simulation.fail(downtime)
            if checkpoints and saved_at == np.inf:
                saved_at = simulation.now + checkpoints.every
        elif checkpoints and simulation.now >= saved_at and checkpoints.markers:
            simulation.send_markers(checkpoints.snapshot, checkpoints.per_kept)
            saved_at = np.inf
        elif checkpoints and simulation.now >= saved_at:
            simulation.checkpoint(checkpoints.snapshot + checkpoints.per_kept * simulation.kept)
            saved_at = simulation.now + checkpoints.every
        if simulation.now >= next_sample - 1e-9:
            simulation.sample()
            sampled = int(simulation.now / step + 1e-9)
