"""Which benchmarks there are: each is a decorated function in a module of this package or of one in it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steelyard.bench.progress import Reporter
from steelyard.bench.result import Result
from steelyard.core.errors import OptionError

DEFAULT_SEED = 7
DEFAULT_OUT = Path("out")


@dataclass(frozen=True)
class Run:
    """What a benchmark is told about the run it is part of.

    Parameters
    ----------
    quick
        Whether a rough answer in less than a minute is wanted, with smaller sizes and fewer repetitions.
    seed
        For every random choice: two runs with one seed use the same data.
    out
        Where files may be written.
    progress
        For what a waiting person wants to see.
    """

    quick: bool = False
    seed: int = DEFAULT_SEED
    out: Path = DEFAULT_OUT
    progress: Reporter = field(default_factory=Reporter)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name.

    Parameters
    ----------
    name
        What a person types.
    title
        What it measures, in a few words.
    function
        Called once a run.
    figure
        The published figure or table that it stands beside, or None.
    """

    name: str
    title: str
    function: Callable[[Run], Result]
    figure: str | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n", 1)[0]


_registered: dict[str, Benchmark] = {}


def benchmark(
    name: str, *, title: str, figure: str | None = None
) -> Callable[[Callable[[Run], Result]], Callable[[Run], Result]]:
    """Make a function of a `Run` known as the benchmark `name`; the function itself stays as it is."""

    def register(function: Callable[[Run], Result]) -> Callable[[Run], Result]:
        known = _registered.get(name)
        # A module that is loaded a second time replaces its own entry.
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(f"benchmark {name!r} is in {known.function.__module__} and in {function.__module__}")
        _registered[name] = Benchmark(name, title, function, figure)
        return function

    return register


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name, in alphabetical order.

    >>> "planning" in benchmarks()
    True
    """
    package = importlib.import_module("steelyard.bench")
    for module in pkgutil.walk_packages(package.__path__, "steelyard.bench."):
        # The demonstration lives here too; it is no benchmark and starts slowly.
        if not module.name.startswith("steelyard.bench.demo"):
            importlib.import_module(module.name)
    return dict(sorted(_registered.items()))


def choose(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names, in this order and each once; OptionError for a name that is none."""
    known = benchmarks()
    for name in names:
        if name not in known:
            raise OptionError.unknown("benchmark", name, known)
    return [known[name] for name in dict.fromkeys(names)]
