"""Benchmarks of the engines: beside plain Spark, and by themselves."""
