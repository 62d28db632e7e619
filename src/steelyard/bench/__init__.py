"""Experiments: one module each, found by name, that put what was measured beside what was published.

An experiment is a function with a decorator, and the drawing of what it found, in a module of this package::

    @experiment("planning", title="Time to cut a batch into blocks", figure="Abdelhamid 2021, Fig 2.9b")
    def planning(run: Run) -> Result:
        ...

    @planning.picture
    def draw(figure: Figure, result: Result) -> None:
        ...

Everything here can be imported without Spark.
"""

from steelyard.bench import charts
from steelyard.bench.claims import Claim, Interval, mean, over
from steelyard.bench.registry import Experiment, Run, experiment, spark_for
from steelyard.bench.result import Published, Result, Target, WrongAnswerError
from steelyard.bench.tables import Cell, Kind, Number, Series, Table

__all__ = [
    "Cell",
    "Claim",
    "Experiment",
    "Interval",
    "Kind",
    "Number",
    "Published",
    "Result",
    "Run",
    "Series",
    "Table",
    "Target",
    "WrongAnswerError",
    "charts",
    "experiment",
    "mean",
    "over",
    "spark_for",
]
