"""The highest rate that a job sustains under a protocol: the one at which latency does not grow."""

from __future__ import annotations

from steelyard.checkpoint import Beside, CheckpointProtocol, protocol
from steelyard.sim.checkpoints.costs import ProtocolCosts, measured_costs, padded
from steelyard.sim.checkpoints.graph import Graph
from steelyard.sim.checkpoints.job import Job
from steelyard.sim.checkpoints.simulation import Simulation, tick_of

GROWTH = 0.01
"""Seconds by which the mean latency may grow in a second."""
STEP, HALVINGS = 0.04, 2
"""First steps of the search, as a share of the rate, and how often they are halved: it is exact to 1 %."""
WARM, SETTLE, WATCHED = 30.0, 2.5, 10.0
"""Seconds for which the stream went on before, seconds that are not looked at, and those that are: two intervals."""
COARSE = 2.0
"""Epochs are so many times as long as in other runs: a search needs many, and its result does not depend on them."""


def sustains(job: Job, named: str | CheckpointProtocol, rate: float, costs: ProtocolCosts | None = None) -> bool:
    """Whether a rate is sustained: the mean latency of each second shows no growth."""
    run = Simulation(job, named, rate, costs=costs, warm=WARM, tick=COARSE * tick_of(job.workers)).run(SETTLE + WATCHED)
    found = run.outcome(SETTLE)
    return bool(found.seconds) and found.slope <= GROWTH


def sustainable(job: Job, named: str | CheckpointProtocol, costs: ProtocolCosts | None = None) -> float:
    """Rows per second, by bisection around what the costs of a row let one expect."""
    low = rate = expected_rate(job, protocol(named), costs or measured_costs())
    if sustains(job, named, rate, costs):
        while sustains(job, named, rate := low * (1 + STEP), costs):
            low = rate
        high = rate
    else:
        high = rate
        while not sustains(job, named, low := high * (1 - STEP), costs):
            high = low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sustains(job, named, middle, costs):
            low = middle
        else:
            high = middle
    return low


def expected_rate(job: Job, chosen: CheckpointProtocol, costs: ProtocolCosts) -> float:
    """Rows per second at which workers would never be idle, checkpoints left out: where the search begins."""
    graph = Graph(job, chosen, costs)
    note = 0.0
    half = next(iter(graph.instances.values())).half
    if type(half).note is not Beside.note:
        of_notes, wire = costs.of_notes(half), half.place.outputs[0].number
        size, on_wire = len(half.note(wire)), padded(half.note(wire))
        note = of_notes.make + of_notes.read + size * (of_notes.make_byte + of_notes.read_byte)
        note += on_wire * (costs.note_byte + (costs.log_byte if chosen.logged else 0.0))
    seconds = sum(feed.share * feed.row_seconds for feed in job.feeds)
    for hop, rows in job.flows().items():
        each = graph.charges[hop]
        message = each.make_message + each.read_message + each.work_message + note
        seconds += rows * (message / job.rows_per_message + each.make_row + each.read_row + each.work_row)
    return job.workers / seconds
