"""Elasticity policies: how many map and reduce tasks the next batch gets, how many instances an operator has."""

from steelyard.scaling.by_speed import BySpeed
from steelyard.scaling.dhalion import Dhalion
from steelyard.scaling.ds2 import DS2
from steelyard.scaling.fixed import Fixed
from steelyard.scaling.flink import Flink
from steelyard.scaling.foresight import Foresight
from steelyard.scaling.hpa_cpu import HpaCpu
from steelyard.scaling.hpa_varga import HpaVarga
from steelyard.scaling.registry import elasticity, elasticity_names
from steelyard.scaling.together import Together
from steelyard.scaling.zones import Zones

__all__ = [
    "DS2",
    "BySpeed",
    "Dhalion",
    "Fixed",
    "Flink",
    "Foresight",
    "HpaCpu",
    "HpaVarga",
    "Together",
    "Zones",
    "elasticity",
    "elasticity_names",
]
