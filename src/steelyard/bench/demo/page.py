"""What the demonstration leaves behind: a chart, and a page that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from steelyard.bench import charts
from steelyard.bench.demo.stream import NEWCOMER, OURS, SLOTS, WAYS, Measured
from steelyard.bench.demo.view import View, median

COLOURS = dict.fromkeys(WAYS, charts.COLOURS[4]) | {NEWCOMER: charts.GREY, OURS: charts.COLOURS[0]}
SCORING, FETCHING = charts.COLOURS[0], charts.COLOURS[1]
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
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.blocks { display: grid; grid-template-columns: repeat(5, 1fr); gap: 1rem; }
.columns { display: flex; align-items: flex-end; gap: 3px; height: 9rem; border-bottom: 1px solid var(--line); }
.columns > div { flex: 1; height: 100%; display: flex; flex-direction: column; justify-content: flex-end; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin: 0 .3rem 0 .8rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin-top: .5rem; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left; }
td.number, th.number { text-align: right; }
summary { cursor: pointer; color: var(--soft); margin-top: 1rem; }
@media (max-width: 44rem) { .blocks { grid-template-columns: repeat(2, 1fr); } }
"""


Parts = list[tuple[float, float]]
"""Seconds of each slot for scoring rows and for fetching profiles, the longest task first."""


def parts_of(view: View, batch: Measured) -> Parts:
    """What each task of a batch waited for; a slot without a task waited for nothing."""
    work = view.scenario.work
    found = [(task.rows * work.wait_us / 1e6, task.keys * work.fetch_us / 1e6) for task in batch.tasks]
    found += [(0.0, 0.0)] * (SLOTS - len(found))
    return sorted(found, key=sum, reverse=True)


def write_picture(path: Path, view: View) -> Path:
    """The chart, as PNG; PlottingError where matplotlib is not installed."""
    return charts.save(lambda figure: _draw(figure, view), path)


def _draw(figure: charts.Figure, view: View) -> None:
    figure.set_size_inches(13, 6.5)
    rooms: Any = figure.subfigures(2, 1, height_ratios=(1, 1.2))
    above, below = rooms
    _times(above.subplots(), view)
    panels = below.subplots(1, len(WAYS), sharey=True)
    for axes, way in zip(panels, WAYS, strict=True):
        parts = parts_of(view, view.counted(way)[-1])
        places = range(1, SLOTS + 1)
        scoring = [rows for rows, _ in parts]
        axes.bar(places, scoring, color=SCORING, label="scoring rows")
        axes.bar(places, [keys for _, keys in parts], bottom=scoring, color=FETCHING, label="fetching profiles")
        axes.set_xticks(places)
        charts.finish(axes, title=way, x="task, longest first", y="waits, s" if way == WAYS[0] else "")
        axes.grid(visible=False, axis="x")
    below.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)


def _times(axes: charts.Axes, view: View) -> None:
    values = [median(view.counted(way), "seconds") for way in WAYS]
    drawn = axes.barh(range(len(WAYS)), values, color=[COLOURS[way] for way in WAYS], height=0.6)
    axes.bar_label(drawn, fmt="{:.2f}", padding=4, color=charts.INK)
    axes.set_yticks(range(len(WAYS)), WAYS)
    axes.set_ylim(len(WAYS) - 0.4, -0.6)
    axes.margins(x=0.1)
    charts.finish(axes, title="Time per batch", x="seconds", y="way")
    axes.grid(visible=False, axis="y")


def write_page(path: Path, view: View, said: Sequence[str]) -> Path:
    """The page: what was gained, bars of each way, why, and every batch."""
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in reversed(said))
    scenario = view.scenario
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
<section>
<h2>Time per batch</h2>
{_bars(view)}
<p class="soft">{escape(view.story)} Medians of {scenario.batches} batches behind {scenario.warm_ups} small ones that
warm a way up; keys by Zipf's law with exponent {scenario.exponent:g}, seed {scenario.seed}. All ways gave the same
answers.</p>
</section>
<section>
<h2>Why: what each of {SLOTS} tasks waited for, by its rows and keys, in the last batch</h2>
<p class="soft"><span class="key" style="background:{SCORING}"></span>scoring rows
<span class="key" style="background:{FETCHING}"></span>fetching profiles. A batch takes as long as its tallest task.</p>
{_columns(view)}
</section>
<section>
<h2>Every batch</h2>
{_table(view)}
</section>
</body>
</html>
""",
        encoding="utf-8",
    )
    return path


def _bars(view: View) -> str:
    values = {way: median(view.counted(way), "seconds") for way in WAYS}
    whole = max(values.values()) or 1.0
    rows = "".join(
        f'<div>{escape(way)}</div><div class="track"><div class="bar" '
        f'style="width:{value / whole:.1%};background:{COLOURS[way]}"></div></div>'
        f'<div class="number">{value:.2f} s</div>'
        for way, value in values.items()
    )
    return f'<div class="bars">{rows}</div>'


def _columns(view: View) -> str:
    found = {way: parts_of(view, view.counted(way)[-1]) for way in WAYS}
    tallest = max(sum(parts[0]) for parts in found.values()) or 1.0
    drawn = []
    for way, parts in found.items():
        bars = "".join(
            f'<div title="{rows:.2f} s for rows, {keys:.2f} s for profiles">'
            f'<div style="height:{keys / tallest:.1%};background:{FETCHING}"></div>'
            f'<div style="height:{rows / tallest:.1%};background:{SCORING}"></div></div>'
            for rows, keys in parts
        )
        label = f"{way}: longest {sum(parts[0]):.2f} s"
        drawn.append(
            f'<div><div class="columns" role="img" aria-label="{escape(label)}">{bars}</div>'
            f'<div class="soft">{escape(way)}<br>longest {sum(parts[0]):.2f} s</div></div>'
        )
    return f'<div class="blocks">{"".join(drawn)}</div>'


def _table(view: View) -> str:
    names = ("way", "batch", "s", "longest task, s", "fetches", "rows largest / mean", "chose")
    head = "".join(f"<th{' class=number' if 0 < place < 6 else ''}>{name}</th>" for place, name in enumerate(names))
    body = "".join(
        f"<tr><td>{escape(batch.way)}</td><td class=number>{_number(batch, view)}</td>"
        f"<td class=number>{batch.seconds:.2f}</td><td class=number>{batch.longest:.2f}</td>"
        f"<td class=number>{batch.fetched:,}</td><td class=number>{batch.largest_over_mean:.2f}</td>"
        f"<td>{escape(batch.policy)}</td></tr>"
        for batch in view.batches
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _number(batch: Measured, view: View) -> str:
    return str(batch.batch - view.scenario.warm_ups + 1) if batch.counts else "warm-up"
