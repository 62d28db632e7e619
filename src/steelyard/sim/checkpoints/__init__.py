"""A contest of checkpoint protocols on workers that exist on paper: the protocols are those that an engine runs."""

from steelyard.sim.checkpoints.costs import NoteCosts, ProtocolCosts, measured, measured_costs
from steelyard.sim.checkpoints.job import Feed, Hop, Job, Stage
from steelyard.sim.checkpoints.queries import query
from steelyard.sim.checkpoints.recovery import Failure, InconsistentLineError, Restart
from steelyard.sim.checkpoints.simulation import Simulation, tick_of
from steelyard.sim.checkpoints.sustainable import sustainable, sustains
from steelyard.sim.checkpoints.tally import Outcome

__all__ = [
    "Failure",
    "Feed",
    "Hop",
    "InconsistentLineError",
    "Job",
    "NoteCosts",
    "Outcome",
    "ProtocolCosts",
    "Restart",
    "Simulation",
    "Stage",
    "measured",
    "measured_costs",
    "query",
    "sustainable",
    "sustains",
    "tick_of",
]
