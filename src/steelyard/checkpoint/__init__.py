"""Checkpoint protocols: when instances make their state durable, and where all go back to after a failure."""

from steelyard.checkpoint.communication_induced import CommunicationInduced
from steelyard.checkpoint.coordinated import Coordinated, Unaligned
from steelyard.checkpoint.history import FORCED, INITIAL, LOCAL, ROUND, Checkpoint, History, Line, Wire
from steelyard.checkpoint.hybrid import Hybrid
from steelyard.checkpoint.lines import CheckpointGraph, in_flight, is_useless, lost, orphans, recovery_line, truncation
from steelyard.checkpoint.none import NoCheckpoints
from steelyard.checkpoint.protocol import Beside, Central, Change, CheckpointProtocol, Place, Reaction, Rounds
from steelyard.checkpoint.registry import PROTOCOLS, protocol
from steelyard.checkpoint.stop_the_world import StopTheWorld
from steelyard.checkpoint.uncoordinated import Uncoordinated

__all__ = [
    "FORCED",
    "INITIAL",
    "LOCAL",
    "PROTOCOLS",
    "ROUND",
    "Beside",
    "Central",
    "Change",
    "Checkpoint",
    "CheckpointGraph",
    "CheckpointProtocol",
    "CommunicationInduced",
    "Coordinated",
    "History",
    "Hybrid",
    "Line",
    "NoCheckpoints",
    "Place",
    "Reaction",
    "Rounds",
    "StopTheWorld",
    "Unaligned",
    "Uncoordinated",
    "Wire",
    "in_flight",
    "is_useless",
    "lost",
    "orphans",
    "protocol",
    "recovery_line",
    "truncation",
]
