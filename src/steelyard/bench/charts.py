"""Pictures of benchmarks: one look for all of them. matplotlib is the extra `plot`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from steelyard.bench.tables import Number, Series
from steelyard.core.errors import SteelyardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes  # noqa: PLC0414 - for those who draw
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure  # noqa: PLC0414

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^")
"""For the first lines, and for those whose colour was there before."""
MOST_MARKERS = 40
"""A line of more points is drawn without their marks."""
CHARACTERS_PER_INCH = 13
SHORT_SCALE = 300
"""A logarithmic scale from a number to less than so many times it has names for 2 and 5 too."""
GREY = "#6b7280"
INK = "#1f2937"
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 8.0, 4.5, 110


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


def panels(
    figure: Figure, across: int, size: tuple[float, float], *, down: int = 1, sharey: bool = False
) -> list[Axes]:
    """Panels beside each other on a figure of so many inches, row after row."""
    figure.set_size_inches(*size)
    return list(figure.subplots(down, across, squeeze=False, sharey=sharey).flat)


def legend_beside(axes: Axes) -> None:
    """A legend to the right of one panel, where it covers nothing."""
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)


def legend_below(figure: Figure, *panels: Axes) -> None:
    """One legend for several panels, below all of them; a name that several panels have stands there once."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    most = max(1, int(figure.get_figwidth() * CHARACTERS_PER_INCH / (6 + max(map(len, named)))))
    across = math.ceil(len(named) / math.ceil(len(named) / most))  # rows of about the same length
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=across, frameon=False, fontsize=9
    )


def lines(
    axes: Axes, series: Sequence[Series], *, title: str, x: str, y: str, log: str = "", legend: bool = True
) -> None:
    """One line for each series, with a legend beside them.

    `log` names the axes with a logarithmic scale: "x", "y" or "xy". Panels that share a legend draw none of their own.
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an extra, and slow to import

    for number, one in enumerate(series):
        dashed = "--" if one.kind == "simulated" else "-"
        again, which = divmod(number, len(COLOURS))
        marker = MARKERS[again % len(MARKERS)] if len(one.x) <= MOST_MARKERS else ""
        axes.plot(one.x, one.y, dashed, marker=marker, markersize=5, color=COLOURS[which], label=one.name)
    logarithmic(axes, log)
    if "x" not in log and all(float(value).is_integer() for one in series for value in one.x):
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    if "y" not in log:
        axes.set_ylim(bottom=0)
    if legend and len(series) > 1:
        legend_beside(axes)
    finish(axes, title=title, x=x, y=y)


def bars(
    axes: Axes,
    values: Mapping[str, Number],
    *,
    title: str,
    x: str,
    y: str,
    ours: Collection[str] | None = None,
) -> None:
    """A horizontal bar for each value, with its number.

    Where `ours` are named, all others are grey. Bars begin at zero, so there is no logarithmic scale: see `dots`.
    """
    names = list(values)
    drawn = axes.barh(range(len(names)), list(values.values()), color=_colours(names, ours), height=0.6)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # a bound passes under a figure
    axes.bar_label(drawn, fmt=_figure, padding=4, color=INK, bbox=behind, zorder=4)
    axes.margins(x=0.2)
    _named_rows(axes, names)
    finish(axes, title=title, x=x, y=y)
    axes.grid(visible=False, axis="y")


def grouped(
    axes: Axes,
    names: Sequence[str],
    groups: Mapping[str, Sequence[Number]],
    *,
    title: str,
    x: str,
    y: str,
    colours: Sequence[str] = COLOURS,
) -> None:
    """Bars side by side at each name, one of each group; the legend is the caller's."""
    width = 0.8 / len(groups)
    for number, (label, values) in enumerate(groups.items()):
        at = [place + (number - (len(groups) - 1) / 2) * width for place in range(len(names))]
        axes.bar(at, values, width, color=colours[number], label=label)
    axes.set_xticks(range(len(names)), names)
    finish(axes, title=title, x=x, y=y)
    axes.grid(visible=False, axis="x")


def dots(
    axes: Axes, values: Mapping[str, Number], *, title: str, x: str, y: str, ours: Collection[str] | None = None
) -> None:
    """A dot for each value on a logarithmic scale, with its number: for values of different magnitude."""
    names = list(values)
    axes.scatter(list(values.values()), range(len(names)), s=60, color=_colours(names, ours), zorder=3)
    for place, value in enumerate(values.values()):
        axes.annotate(_figure(value), (value, place), xytext=(8, 0), textcoords="offset points", va="center", color=INK)
    logarithmic(axes, "x")
    low, high = min(values.values()), max(values.values())
    spare = (high / low) ** 0.25
    axes.set_xlim(low / spare**0.4, high * spare)
    _named_rows(axes, names)
    finish(axes, title=title, x=x, y=y)


def _colours(names: Sequence[str], ours: Collection[str] | None) -> list[str]:
    return [COLOURS[0] if ours is None or name in ours else GREY for name in names]


def _named_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def thousands(*axes: Axis) -> None:
    """Numbers of many digits as 20k and 3M."""
    for axis in axes:
        axis.set_major_formatter(lambda value, _: _short(value))


def _short(value: float) -> str:
    """
    >>> [_short(value) for value in (0, 0.05, 500, 2500, 20_000, 3_000_000)]
    ['0', '0.05', '500', '2.5k', '20k', '3M']
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def logarithmic(axes: Axes, which: str) -> None:
    """Logarithmic scales on the axes that `which` names, "x", "y" or "xy", with numbers in place of powers of ten."""
    from matplotlib.ticker import LogLocator  # noqa: PLC0415 - an extra, and slow to import

    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = axes.xaxis if name == "x" else axes.yaxis
        thousands(axis)
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(_between(axis))
        axis.set_tick_params(
            which="minor", length=3.5, width=0.8, pad=3.5
        )  # as the others, so that numbers are in line


def _between(axis: Axis) -> Callable[[float, float], str]:
    """Names for ticks between powers of ten, where the scale is short."""

    def name(value: float, _: float) -> str:
        low, high = sorted(axis.get_view_interval())
        return _short(value) if high < low * SHORT_SCALE else ""

    return name


def only_ticks(axis: Axis, values: Sequence[Number]) -> None:
    """Ticks at these values, and none between them."""
    axis.set_ticks(values, [_short(value) for value in values])
    axis.set_ticks([], minor=True)


def bound(axes: Axes, value: float, label: str, *, along: Literal["x", "y"] = "y", legend: bool = True) -> None:
    """A dotted line at a target or a limit on the axis `along`, which the legend names: words on lines hide them."""
    line = axes.axhline if along == "y" else axes.axvline
    line(value, linestyle=":" if along == "y" else "-.", color=INK, linewidth=1.4, label=label)
    if legend:
        legend_beside(axes)


def finish(axes: Axes, *, title: str, x: str, y: str) -> None:
    """The common look: title to the left with a capital, both axes named, no box, light grid lines behind the data."""
    axes.set_title(title[:1].upper() + title[1:], loc="left", fontsize=11, color=INK)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", which="both", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, which="both")
