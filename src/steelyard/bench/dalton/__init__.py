"""Experiments of Dalton and its rivals."""
