"""One look for each policy in the pictures of the experiments on Dalton."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.bench import Series, charts
from steelyard.bench.charts import COLOURS, GREY, INK

_LOOKS = {
    "hash": (COLOURS[1], "--", "s"),
    "shuffle": (COLOURS[2], "--", "^"),
    "pk2": (COLOURS[3], "--", "v"),
    "cam": (COLOURS[4], ":", "D"),
    "cm": (GREY, ":", "x"),
    "dagreedy": (INK, "-.", "P"),
    "dalton": (COLOURS[0], "-", "o"),
    "dalton, cap n": (COLOURS[5], "-", "o"),
}


def policy_lines(axes: charts.Axes, series: Sequence[Series], *, small: bool = False) -> None:
    """A line for each policy; Dalton's are wider. Names that are no policy's take colours in turn."""
    for number, one in enumerate(series):
        colour, style, marker = _LOOKS.get(one.name, (COLOURS[number % len(COLOURS)], "-", "o"))
        ours = one.name.startswith("dalton")
        axes.plot(
            one.x,
            one.y,
            style,
            marker=marker,
            markersize=2.5 if small else 5,
            linewidth=2.2 if ours else 1.4,
            color=colour,
            label=one.name,
        )
