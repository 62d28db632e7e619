"""Which experiments there are: each is a decorated function in a module of this package or of one in it."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from steelyard.bench import charts
from steelyard.bench.claims import QUICK_SEEDS, SEEDS
from steelyard.bench.progress import Reporter
from steelyard.bench.result import Result
from steelyard.core.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Drawing = Callable[["charts.Figure", Result], None]
"""Draws a picture on an empty figure, from what the experiment's JSON holds and nothing else."""

DEFAULT_SEED = 7
DEFAULT_OUT = Path("out")


@dataclass(frozen=True)
class Run:
    """What an experiment is told about the run it is part of."""

    quick: bool = False
    """Whether a rough answer in less than a minute is wanted, with smaller sizes and fewer repetitions."""
    seed: int = DEFAULT_SEED
    """For every random choice: two runs with one seed use the same data."""
    out: Path = DEFAULT_OUT
    """Where files may be written."""
    progress: Reporter = field(default_factory=Reporter)
    """For what a waiting person wants to see."""

    def pick(self, full: T, quick: T) -> T:
        """What a full run takes, or a quick one.

        >>> Run(quick=True).pick(1_000_000, 10_000)
        10000
        """
        return quick if self.quick else full

    def seeds(self, full: int = SEEDS, quick: int = QUICK_SEEDS) -> list[int]:
        """One seed for each repetition with other data.

        >>> Run(quick=True, seed=7).seeds()
        [7, 8, 9]
        """
        return [self.seed + number for number in range(self.pick(full, quick))]


@dataclass
class Experiment:
    """An experiment by name: what it measures, how, and the picture of what it finds."""

    name: str
    """What a person types."""
    title: str
    """What it measures, in a few words."""
    function: Callable[[Run], Result]
    """Called once for each run; calling the experiment itself does the same."""
    figure: str | None = None
    """The published figure or table that it stands beside, or None."""
    drawing: Drawing | None = None

    def __call__(self, run: Run) -> Result:
        """Run it."""
        return self.function(run)

    def picture(self, draw: Drawing) -> Drawing:
        """Make a function the drawing of this experiment; the function itself stays as it is."""
        self.drawing = draw
        return draw

    def draw(self, figure: charts.Figure, result: Result) -> None:
        """Its own drawing; otherwise series as lines; otherwise metrics as bars."""
        if self.drawing:
            self.drawing(figure, result)
        elif result.series:
            charts.lines(figure.add_subplot(), result.series, title=self.name, x="x", y="y")
        else:
            charts.bars(figure.add_subplot(), result.metrics, title=self.name, x="value", y="metric")

    def save_picture(self, result: Result, path: Path) -> Path:
        """Draw a result and write it as PNG."""
        return charts.save(lambda figure: self.draw(figure, result), path)


_registered: dict[str, Experiment] = {}


def experiment(name: str, *, title: str, figure: str | None = None) -> Callable[[Callable[[Run], Result]], Experiment]:
    """Make a function of a `Run` the experiment `name`."""

    def register(function: Callable[[Run], Result]) -> Experiment:
        known = _registered.get(name)
        # A module that is loaded a second time replaces its own entry.
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(f"experiment {name!r} is in {known.function.__module__} and in {function.__module__}")
        made = _registered[name] = Experiment(name, title, function, figure)
        return made

    return register


def experiments() -> dict[str, Experiment]:
    """Every experiment by name, in alphabetical order.

    >>> "planning" in experiments()
    True
    """
    package = importlib.import_module("steelyard.bench")
    for module in pkgutil.walk_packages(package.__path__, "steelyard.bench."):
        # The demonstration lives here too; it is no experiment and starts slowly.
        if not module.name.startswith("steelyard.bench.demo"):
            importlib.import_module(module.name)
    return dict(sorted(_registered.items()))


def choose(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in this order and each once; OptionError for a name that is none."""
    known = experiments()
    for name in names:
        if name not in known:
            raise OptionError.unknown("benchmark", name, known)
    return [known[name] for name in dict.fromkeys(names)]


@contextmanager
def spark_for(
    name: str, slots: int | str, config: Mapping[str, str] | None = None
) -> Iterator[tuple[SparkSession, Path]]:
    """A session of so many slots, or with a master, for an experiment, and an empty folder; both go when it ends.

    Nothing is loaded beside what is timed.
    """
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    master = slots if isinstance(slots, str) else f"local[{slots}]"
    spark = sy.session(f"steelyard bench {name}", master=master, config=dict(config or {}), ahead=False, quiet=True)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix=f"steelyard-{name}-") as scratch:
            yield spark, Path(scratch)
    finally:
        spark.stop()
