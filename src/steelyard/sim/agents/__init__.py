"""Several agents learn to cut batches and to choose numbers of tasks: their world, one learner, and who is trained."""

from steelyard.sim.agents.keeping import keep
from steelyard.sim.agents.learner import Learner, Team
from steelyard.sim.agents.options import ALL_AT_ONCE, ONE_AT_A_TIME, Training
from steelyard.sim.agents.orchestration import TrainedTeam, repair, train
from steelyard.sim.agents.receivers import Receivers

__all__ = [
    "ALL_AT_ONCE",
    "ONE_AT_A_TIME",
    "Learner",
    "Receivers",
    "Team",
    "TrainedTeam",
    "Training",
    "keep",
    "repair",
    "train",
]
