"""Elasticity policies: how many map and reduce tasks the next batch gets."""

from steelyard.scaling.fixed import Fixed

__all__ = ["Fixed"]
