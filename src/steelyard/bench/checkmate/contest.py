"""Who takes part in the contest, and how one run of it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.bench import Series
from steelyard.bench.checkmate.nested import NestedMaps
from steelyard.checkpoint import (
    CheckpointProtocol,
    CommunicationInduced,
    Coordinated,
    Hybrid,
    NoCheckpoints,
    Unaligned,
    Uncoordinated,
)
from steelyard.sim.checkpoints import Failure, Job, Outcome, Simulation, measured, measured_costs
from steelyard.sim.checkpoints.sustainable import expected_rate

SOURCE = "Siachamis 2024, chapter 3"
NONE, COOR, UNC, OWN, CIC, MAPS, UNALIGNED, HYBRID = (
    "none",
    "COOR",
    "UNC",
    "UNC, own clocks",
    "CIC",
    "CIC, nested maps",
    "unaligned",
    "hybrid",
)
CONTENDERS: dict[str, CheckpointProtocol] = {
    NONE: NoCheckpoints(),
    COOR: Coordinated(),
    UNC: Uncoordinated(together=True),
    OWN: Uncoordinated(),
    CIC: CommunicationInduced(),
    MAPS: NestedMaps(),
    UNALIGNED: Unaligned(),
    HYBRID: Hybrid(),
}
SHORT = {
    NONE: "none",
    COOR: "coor",
    UNC: "unc",
    OWN: "unc_own",
    CIC: "cic",
    MAPS: "cic_maps",
    UNALIGNED: "unaligned",
    HYBRID: "hybrid",
}
QUERIES = ("q1", "q3", "q8", "q12")
FAILURE = 18.0
WARM = 30.0
LOAD = 0.8
"""Rates are this share of what the protocol sustains."""
WHO = (
    "UNC has one clock for all instances of a worker, as the published program does; 'own clocks' gives each instance "
    "its own, as the text says. CIC has notes of four bytes and two bits for each instance; 'nested maps' are what the "
    "published program sends."
)
HOW = (
    "Simulated: the protocol objects of steelyard.checkpoint decide, time passes by costs that were measured before "
    "(sim/checkpoints/measured.json). One row a message, as in the published system, unless said otherwise."
)


def rate_of(job: Job, name: str, share: float = LOAD) -> float:
    """A share of the rate at which no worker would be idle, checkpoints left out."""
    return share * expected_rate(job, CONTENDERS[name], measured_costs())


def observe(
    job: Job,
    name: str,
    seconds: float,
    *,
    rate: float | None = None,
    failure: float | None = None,
    after: float = 0.0,
    orders_first: bool = False,
    tick: float | None = None,
) -> Outcome:
    """One run, behind a stream that has gone on for half a minute."""
    failures = [Failure(failure, min(1, job.workers - 1))] if failure is not None else []
    run = Simulation(
        job,
        CONTENDERS[name],
        rate or rate_of(job, name),
        warm=WARM,
        failures=failures,
        orders_first=orders_first,
        tick=tick,
    )
    return run.run(seconds).outcome(after)


def parameters(**more: object) -> dict[str, object]:
    """What all figures depend on."""
    return {"calibrated": measured()["measured"], "calibration": measured()["command"], "interval": 5.0, **more}


def lines(
    found: dict[tuple[str, int], float], panel: str, names: Iterable[str], workers: Sequence[int]
) -> list[Series]:
    """A line for each contender by the number of workers, of one panel."""
    return [
        Series(
            f"{panel}: {name}",
            [count for count in workers if (name, count) in found],
            [found[name, count] for count in workers if (name, count) in found],
            "simulated",
        )
        for name in names
    ]
