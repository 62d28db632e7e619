"""Placement of threads on machines: the figures of Li 2018 beside ours, on simulated clusters."""
