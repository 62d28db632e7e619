"""What the sweeps of the experiments on OSG have in common: their result and their picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.bench import charts
from steelyard.bench.claims import Claim, claims_table, tally
from steelyard.bench.osg.settings import NOTE, Setting, Sweep, parameters
from steelyard.bench.result import Number, Published, Result, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sweep_result(
    found: Sweep[Any],
    seeds: Sequence[int],
    claims: Sequence[Claim],
    metrics: Mapping[str, Number],
    policies: Mapping[str, str],
    *,
    what: str,
    published: Sequence[Published],
    targets: Sequence[Target] = (),
    notes: Sequence[str] = (),
) -> Result:
    """Claims, speed-ups and a picture of a sweep over `what`."""
    return Result(
        parameters=parameters(Setting(), seeds, policies, points=found.points),
        metrics={**metrics, **tally(claims)},
        kind="simulated",
        tables=[claims_table(claims), found.table(what)],
        series=found.series(),
        published=published,
        targets=targets,
        notes=[NOTE, *notes],
    )


def sweep_drawing(x: str, log: str = "") -> charts.Drawing:
    """The drawing of a sweep: speed-ups by what changes, which `x` names."""

    def draw(figure: Figure, result: Result) -> None:
        axes = figure.add_subplot()
        title = "Mean completion time: speed-up over round robin"
        charts.lines(axes, result.series, title=title, x=x, y="speed-up, simulated", log=log)
        charts.bound(axes, 1.0, "round robin")

    return draw
