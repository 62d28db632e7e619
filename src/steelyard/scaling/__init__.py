"""Elasticity policies: how many map and reduce tasks the next batch gets, how many instances an operator has."""

from steelyard.scaling.ds2 import DS2
from steelyard.scaling.fixed import Fixed
from steelyard.scaling.registry import elasticity, elasticity_names
from steelyard.scaling.zones import Zones

__all__ = ["DS2", "Fixed", "Zones", "elasticity", "elasticity_names"]
