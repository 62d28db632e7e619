"""Policies of placement: which machine or worker an instance lives on."""

from steelyard.placement.default import Default
from steelyard.placement.registry import placement, placement_names

__all__ = ["Default", "placement", "placement_names"]
