"""Mechanisms on Spark: they measure, ask a policy, and act; they do not decide."""
