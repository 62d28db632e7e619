"""What learnt policies share: networks, replay, targets, saving, curves. Training needs the extra `learn`."""

from steelyard.learning.curves import Curve
from steelyard.learning.networks import Layers, Network, forward
from steelyard.learning.replay import Replay
from steelyard.learning.seeds import Fading, generator
from steelyard.learning.targets import Periodic, Soft
from steelyard.learning.trained import Trained, once_per_file
from steelyard.learning.training import LearningError, adam, libraries

__all__ = [
    "Curve",
    "Fading",
    "Layers",
    "LearningError",
    "Network",
    "Periodic",
    "Replay",
    "Soft",
    "Trained",
    "adam",
    "forward",
    "generator",
    "libraries",
    "once_per_file",
]
