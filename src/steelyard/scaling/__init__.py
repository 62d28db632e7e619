"""Elasticity policies: how many map and reduce tasks the next batch gets. One policy a file."""

from steelyard.scaling.fixed import Fixed
from steelyard.scaling.registry import elasticity, elasticity_names
from steelyard.scaling.zones import Zones

__all__ = ["Fixed", "Zones", "elasticity", "elasticity_names"]
