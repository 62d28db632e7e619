"""Pictures of benchmarks: one look for all of them. matplotlib is the extra `plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.bench.result import Number, Result, Series
from steelyard.core.errors import SteelyardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^")
"""For the first lines, and for those whose colour was there before."""
GREY = "#6b7280"
INK = "#1f2937"
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 8.0, 4.5, 144


class PlottingError(SteelyardError):
    """No picture can be drawn; the message says what to install."""


def new_figure() -> Figure:
    """An empty figure that needs no screen; PlottingError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise PlottingError(
            "pictures need matplotlib, which is not installed: pip install 'steelyard[plot]'"
        ) from error
    return Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained", facecolor="white")


def save(draw: Callable[[Figure], None], path: Path) -> Path:
    """Draw on a new figure and write it as PNG; the same drawing gives the same bytes."""
    figure = new_figure()
    draw(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
    return path


def draw_result(result: Result) -> Callable[[Figure], None]:
    """The benchmark's own drawing; otherwise its series as lines; otherwise its metrics as bars."""
    if result.chart is not None:
        return result.chart
    if result.series:
        return lambda figure: lines(figure.add_subplot(), result.series)
    return lambda figure: bars(figure.add_subplot(), result.metrics)


def legend_beside(axes: Axes) -> None:
    """A legend where it covers nothing."""
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


def lines(axes: Axes, series: Sequence[Series], *, title: str = "", x: str = "", y: str = "", log: str = "") -> None:
    """One line for each series. `log` names the axes with a logarithmic scale: "x", "y" or "xy"."""
    for number, one in enumerate(series):
        dashed = "--" if one.kind == "simulated" else "-"
        again, which = divmod(number, len(COLOURS))
        marker = MARKERS[again % len(MARKERS)]
        axes.plot(one.x, one.y, dashed, marker=marker, markersize=5, color=COLOURS[which], label=one.name)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if len(series) > 1:
        legend_beside(axes)
    finish(axes, title)


def bars(
    axes: Axes,
    values: Mapping[str, Number],
    *,
    title: str = "",
    x: str = "",
    published: Mapping[str, Number] | None = None,
) -> None:
    """A horizontal bar for each value, with its number; a mark where a published figure stands beside it."""
    names = list(values)
    places = range(len(names))
    drawn = axes.barh(places, list(values.values()), color=COLOURS[0], height=0.6, label="measured")
    axes.bar_label(drawn, fmt=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", padding=4, color=INK)
    beside = {names.index(name): value for name, value in (published or {}).items() if name in values}
    if beside:
        axes.scatter(
            list(beside.values()),
            list(beside),
            marker="|",
            s=600,
            color=COLOURS[1],
            label="published",
            zorder=3,
        )
        legend_beside(axes)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(x)
    finish(axes, title)


def bound(axes: Axes, value: float, label: str) -> None:
    """A dashed horizontal line at a target or a published figure."""
    axes.axhline(value, linestyle=":", color=GREY, linewidth=1.2)
    axes.annotate(label, (0.01, value), xycoords=("axes fraction", "data"), va="bottom", color=GREY, fontsize=9)


def finish(axes: Axes, title: str = "") -> None:
    """The common look: title to the left, no box, light grid lines behind the data."""
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, which="both")
