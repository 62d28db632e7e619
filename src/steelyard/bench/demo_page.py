"""What the demonstration leaves behind: a chart, and a page that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.bench import charts
from steelyard.bench.demo_stream import ENGINES, SLOTS, Measured
from steelyard.bench.demo_view import View, median

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip(ENGINES, (charts.GREY, charts.COLOURS[1], charts.COLOURS[0]), strict=True))
STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --soft: #6b7280; --paper: #f9fafb; --card: #ffffff;
  --line: #e5e7eb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --soft: #9ca3af; --paper: #111827;
  --card: #1f2937; --line: #374151; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 56rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 0; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; } p { margin: .4rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1rem;
  margin: 1.5rem 0; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .35rem .75rem; align-items: center; }
.track { height: 1.1rem; position: relative; }
.bar { height: 100%; border-radius: .2rem; min-width: 2px; }
.limit { position: absolute; top: -.2rem; bottom: -.2rem; border-left: 2px dashed var(--ink); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.blocks { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; }
.columns { display: flex; align-items: flex-end; gap: 3px; height: 7rem; border-bottom: 1px solid var(--line); }
.columns > div { flex: 1; border-radius: .15rem .15rem 0 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin-top: .5rem; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left; }
td.number, th.number { text-align: right; }
summary { cursor: pointer; color: var(--soft); margin-top: 1rem; }
@media (max-width: 36rem) { .blocks { grid-template-columns: 1fr; } }
"""


def write_picture(path: Path, views: Sequence[View]) -> Path:
    """The chart of all scenarios, as PNG; PlottingError where matplotlib is not installed."""
    return charts.save(lambda figure: _draw(figure, views), path)


def _draw(figure: Figure, views: Sequence[View]) -> None:
    figure.set_size_inches(10, 3.2 * len(views))
    panels = figure.subplots(len(views), 3, squeeze=False)
    for (times, longest, sizes), view in zip(panels, views, strict=True):
        name = view.scenario.name
        _compare(times, view, "seconds", title=f"{name}: time of a batch", x="time, s")
        times.axvline(view.scenario.interval, color=charts.INK, linestyle=":", linewidth=1.2)
        times.annotate(" interval", (view.scenario.interval, -0.42), color=charts.INK, fontsize=8, ha="left")
        kind = "time" if view.scenario.waits else "processor time"
        _compare(longest, view, "critical_path", title="Longest task", x=f"{kind}, s")
        _sizes(sizes, view)


def _compare(axes: Axes, view: View, figure_name: str, *, title: str, x: str) -> None:
    values = [median(view.counted(engine), figure_name) for engine in ENGINES]
    drawn = axes.barh(range(len(ENGINES)), values, color=[COLOURS[engine] for engine in ENGINES], height=0.6)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # the interval's line passes under a figure
    for label in axes.bar_label(drawn, fmt="{:.2f}", padding=4, color=charts.INK, bbox=behind):
        label.set_zorder(4)
    axes.set_yticks(range(len(ENGINES)), ENGINES)
    axes.set_ylim(len(ENGINES) - 0.4, -0.6)
    axes.margins(x=0.2)
    charts.finish(axes, title=title, x=x, y="engine")
    axes.grid(visible=False, axis="y")


def _sizes(axes: Axes, view: View) -> None:
    width = 0.8 / len(ENGINES)
    for place, engine in enumerate(ENGINES):
        sizes = sorted(_padded(view.counted(engine)[-1]), reverse=True)
        axes.bar(
            [block + (place - 1) * width for block in range(1, SLOTS + 1)], sizes, width=width, color=COLOURS[engine]
        )
    axes.set_xticks(range(1, SLOTS + 1))
    charts.thousands(axes.yaxis)
    charts.finish(axes, title="Rows of each task", x="task, largest first", y="rows")
    axes.grid(visible=False, axis="x")


def _padded(batch: Measured) -> list[int]:
    """Rows of each slot; a task that got none is not in a report."""
    return [*batch.sizes, *[0] * (SLOTS - len(batch.sizes))]


def write_page(path: Path, views: Sequence[View], said: Sequence[str]) -> Path:
    """The page: what was gained, bars of each scenario, and every batch."""
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in said)
    sections = "\n".join(_section(view) for view in views)
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Steelyard: a skewed stream, balanced</title>
<style>{STYLE}</style>
</head>
<body>
<h1>A skewed stream, balanced</h1>
{sentences}
<p class="soft">Medians of the batches that count; small batches that warm an engine up are left out.
All three engines gave the same answers.</p>
{sections}
</body>
</html>
""",
        encoding="utf-8",
    )
    return path


def _section(view: View) -> str:
    scenario = view.scenario
    kind = "" if scenario.waits else ", processor time"
    return f"""<section>
<h2>{escape(scenario.name.capitalize())}</h2>
<p>{escape(scenario.story)}.</p>
<p class="soft">{scenario.rows:,} rows per batch, {scenario.keys:,} keys by Zipf's law with exponent
{scenario.exponent:g}, a batch every {scenario.interval:g} s, seed {scenario.seed}.</p>
<h3>Time of a batch (dashed: its interval, {scenario.interval:g} s)</h3>
{_bars(view, "seconds", scenario.interval)}
<h3>Longest task{kind}</h3>
{_bars(view, "critical_path", None)}
<h3>Rows of each task in the last batch</h3>
{_columns(view)}
<details><summary>Every batch</summary>{_table(view)}</details>
</section>"""


def _bars(view: View, figure: str, limit: float | None) -> str:
    values = {engine: median(view.counted(engine), figure) for engine in ENGINES}
    whole = max(*values.values(), limit or 0.0) or 1.0
    line = f'<div class="limit" style="left:{limit / whole:.1%}" title="interval"></div>' if limit else ""
    rows = "".join(
        f'<div>{escape(engine)}</div><div class="track"><div class="bar" '
        f'style="width:{value / whole:.1%};background:{COLOURS[engine]}"></div>{line}</div>'
        f'<div class="number">{value:.2f} s</div>'
        for engine, value in values.items()
    )
    return f'<div class="bars">{rows}</div>'


def _columns(view: View) -> str:
    last = {engine: view.counted(engine)[-1] for engine in ENGINES}
    tallest = max(max(_padded(batch)) for batch in last.values()) or 1
    charts_of = "".join(
        f'<div><div class="columns" role="img" aria-label="{escape(engine)}: {_padded(batch)}">'
        + "".join(
            f'<div title="{rows:,} rows" style="height:{rows / tallest:.1%};background:{COLOURS[engine]}"></div>'
            for rows in _padded(batch)
        )
        + f'</div><div class="soft">{escape(engine)}: the largest has {max(_padded(batch)):,} rows, '
        f"{batch.largest_over_mean:.2f} times the mean</div></div>"
        for engine, batch in last.items()
    )
    return f'<div class="blocks">{charts_of}</div>'


def _table(view: View) -> str:
    longest = "longest task, s" if view.scenario.waits else "longest task, s of processor"
    head = "".join(
        f"<th{'' if place == 0 else ' class=number'}>{name}</th>"
        for place, name in enumerate(("engine", "batch", "s", "of interval", "largest / mean", longest))
    )
    body = "".join(
        f"<tr><td>{escape(batch.engine)}</td><td class=number>{_number(batch, view)}</td>"
        f"<td class=number>{batch.seconds:.2f}</td><td class=number>{batch.seconds / view.scenario.interval:.2f}</td>"
        f"<td class=number>{batch.largest_over_mean:.2f}</td><td class=number>{batch.critical_path:.2f}</td></tr>"
        for batch in view.batches
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _number(batch: Measured, view: View) -> str:
    return str(batch.batch - view.scenario.warm_ups + 1) if batch.counts else "warm-up"
