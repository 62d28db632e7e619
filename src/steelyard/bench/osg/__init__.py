"""Experiments of online shuffle grouping."""
