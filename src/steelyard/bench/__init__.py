"""Benchmarks: one module each, found by name, that put what was measured beside what was published.

A benchmark is a function with a decorator, in a module of this package::

    @benchmark("planning", title="Time to cut a batch into blocks", figure="Abdelhamid 2021, Fig 2.9b")
    def planning(run: Run) -> Result:
        ...

Everything here can be imported without Spark.
"""

from steelyard.bench.registry import Benchmark, Run, benchmark
from steelyard.bench.result import Published, Result, Series, Table, Target

__all__ = ["Benchmark", "Published", "Result", "Run", "Series", "Table", "Target", "benchmark"]
