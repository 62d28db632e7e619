"""What a benchmark gives back: what it measured, what was published, and what was aimed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.bench.claims import Claim, claims_table, tally
from steelyard.bench.tables import Kind, Number, Series, Table, plain
from steelyard.core.errors import OptionError, SteelyardError


class WrongAnswerError(SteelyardError):
    """Two ways to compute the same gave different answers."""


@dataclass(frozen=True)
class Published:
    """A figure that somebody else printed, with where it stands."""

    value: Number | str
    """The number, or the words where the source gives a range (`"2x to 5x"`)."""
    source: str
    """Document and figure, table or section."""
    metric: str = ""
    """The metric of the benchmark that it stands beside; empty where it belongs to the whole."""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError(f"a published figure needs its source, and {self.value!r} has none")


@dataclass(frozen=True)
class Target:
    """What a metric should reach. A miss is reported and never fails the run: clocks are noisy.

    Examples
    --------
    >>> Target("prompt_plan_ms", at_most=50).met({"prompt_plan_ms": 12.5})
    True
    >>> print(Target("prompt_vs_hash", at_least=10.0))
    at least 10
    """

    metric: str
    """Name of the metric."""
    at_least: float | None = None
    at_most: float | None = None
    """The bound; exactly one of them is given. A value that equals it meets the target."""
    explanation: str = ""
    """Why it was missed, shown only then. A benchmark writes it after it has measured."""

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"the target for {self.metric!r} needs either at_least or at_most")

    def met(self, metrics: Mapping[str, Number]) -> bool:
        """Whether the metric reaches the bound; a value that is not a number does not."""
        value = metrics[self.metric]
        if self.at_least is not None:
            return bool(value >= self.at_least)
        assert self.at_most is not None
        return bool(value <= self.at_most)

    def __str__(self) -> str:
        word, bound = ("at least", self.at_least) if self.at_least is not None else ("at most", self.at_most)
        return f"{word} {bound:g}"


@dataclass(frozen=True)
class Result:
    """What one run of a benchmark found.

    Examples
    --------
    >>> Result({"keys": 1000}, {"plan_ms": 3.0}, targets=[Target("plan_ms", at_most=50)]).missed
    []
    """

    parameters: Mapping[str, Any]
    """What the figures depend on: sizes, rates, skew, repetitions."""
    metrics: Mapping[str, Number]
    """The figures by name. `a_vs_b` is the speed of a divided by the speed of b, so above 1 a is faster; a name that
    starts with a time (`rtt_`, `completion_`) is time divided by time. Units end the name (`plan_ms`, `rows_per_s`)."""
    tables: Sequence[Table] = ()
    series: Sequence[Series] = ()
    """The detail behind the figures."""
    published: Sequence[Published] = ()
    """What others printed, each with its source."""
    targets: Sequence[Target] = ()
    """What the figures should reach."""
    kind: Kind = "measured"
    """`"measured"` on this machine or `"simulated"`."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """For single metrics that are of the other kind."""
    notes: Sequence[str] = ()
    """Sentences that a reader of the figures needs."""
    claims: Sequence[Claim] = ()
    """Sentences of a paper beside what was found: they become the first table, and metrics that count them."""

    def __post_init__(self) -> None:
        if self.claims:
            object.__setattr__(self, "metrics", {**self.metrics, **tally(self.claims)})
            object.__setattr__(self, "tables", [claims_table(self.claims), *self.tables])
        named = [target.metric for target in self.targets] + list(self.kinds)
        named += [published.metric for published in self.published if published.metric]
        for metric in named:
            if metric not in self.metrics:
                raise OptionError.unknown("metric", metric, self.metrics)

    @property
    def missed(self) -> list[Target]:
        """The targets that were not reached."""
        return [target for target in self.targets if not target.met(self.metrics)]

    def line(self, name: str) -> Series:
        """The series of this name; OptionError where there is none."""
        for one in self.series:
            if one.name == name:
                return one
        raise OptionError.unknown("series", name, [one.name for one in self.series])

    def table(self, begin: str) -> Table:
        """The table whose title begins so; OptionError where there is none."""
        for one in self.tables:
            if one.title.startswith(begin):
                return one
        raise OptionError.unknown("table", begin, [one.title for one in self.tables])

    def panel(self, name: str = "") -> list[Series]:
        """The series of one panel of a picture: those that are named "panel: series", without the panel's name.

        Without a name: those that are named after no panel.

        >>> result = Result({}, {"a": 1.0}, series=[Series("W", [1], [2]), Series("delay: W", [1], [3])])
        >>> result.panel("delay")
        [Series(name='W', x=[1], y=[3], kind='measured')]
        >>> result.panel()
        [Series(name='W', x=[1], y=[2], kind='measured')]
        """
        parts = [(one, *one.name.rpartition(": ")) for one in self.series]
        return [replace(one, name=rest) for one, panel, _, rest in parts if panel == name]

    def kind_of(self, metric: str) -> Kind:
        """Whether this metric was measured or simulated."""
        return self.kinds.get(metric, self.kind)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Result:
        """The result that `to_dict` wrote; what was not a number has become None.

        >>> Result.from_dict(Result({"keys": 3}, {"plan_ms": 2.5}).to_dict()).metrics
        {'plan_ms': 2.5}
        """
        return cls(
            parameters=saved["parameters"],
            metrics=saved["metrics"],
            tables=[Table(one["title"], one["columns"], one["rows"]) for one in saved["tables"]],
            series=[Series(one["name"], one["x"], one["y"], one["kind"]) for one in saved["series"]],
            published=[Published(one["value"], one["source"], one["metric"]) for one in saved["published"]],
            targets=[
                Target(one["metric"], one["at_least"], one["at_most"], one["explanation"]) for one in saved["targets"]
            ],
            kind=saved["kind"],
            kinds=saved["kinds"],
            notes=saved["notes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON; what is not a number becomes null."""
        return {
            "kind": self.kind,
            "kinds": {metric: self.kind_of(metric) for metric in self.metrics},
            "parameters": {name: plain(value) for name, value in self.parameters.items()},
            "metrics": {name: plain(value) for name, value in self.metrics.items()},
            "published": [
                {"metric": one.metric, "value": plain(one.value), "source": one.source} for one in self.published
            ],
            "targets": [self._target_dict(target) for target in self.targets],
            "tables": [table.to_dict() for table in self.tables],
            "series": [series.to_dict() for series in self.series],
            "notes": list(self.notes),
        }

    def _target_dict(self, target: Target) -> dict[str, Any]:
        met = target.met(self.metrics)
        return {
            "metric": target.metric,
            "aim": str(target),
            "at_least": target.at_least,
            "at_most": target.at_most,
            "value": plain(self.metrics[target.metric]),
            "met": met,
            "explanation": "" if met else target.explanation,
        }
