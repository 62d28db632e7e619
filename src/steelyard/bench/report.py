"""One page of HTML for a directory of results: published beside measured, with the pictures that lie beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from steelyard.bench.claims import HOLDS
from steelyard.bench.display import readable
from steelyard.bench.registry import Experiment, experiments
from steelyard.bench.result import Result
from steelyard.bench.runner import FORMAT
from steelyard.core.errors import OptionError

PAGE = "report.html"

STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --soft: #6b7280; --paper: #f9fafb; --card: #ffffff;
  --line: #e5e7eb; --met: #047857; --missed: #b91c1c; --tag: #e0e7ff; --tag-ink: #3730a3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --soft: #9ca3af; --paper: #111827;
  --card: #1f2937; --line: #374151; --met: #34d399; --missed: #f87171; --tag: #312e81; --tag-ink: #e0e7ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 0; }
p { margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
nav ul { columns: 18rem; padding: 0; margin: .75rem 0; list-style: none; font-size: .85rem; }
nav li { break-inside: avoid; white-space: nowrap; }
a { color: inherit; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1rem;
  margin: 1.5rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .75rem 0; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .25rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal; }
th { font-weight: 600; } td.number, th.number { text-align: right; } .number, .aim { white-space: nowrap; }
code { font: .88em ui-monospace, monospace; }
pre { overflow-x: auto; background: var(--paper); border: 1px solid var(--line); border-radius: .4rem;
  padding: .5rem .75rem; margin: .5rem 0; }
img { display: block; width: 100%; height: auto; background: #ffffff; border-radius: .4rem; margin: .75rem 0; }
.tag { display: inline-block; background: var(--tag); color: var(--tag-ink); border-radius: 1rem;
  padding: 0 .6rem; font-size: .8rem; }
.met { color: var(--met); font-weight: 600; } .missed { color: var(--missed); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); }
"""


@dataclass(frozen=True)
class SavedResults:
    """The results of a directory, and the JSON files in it that are something else."""

    records: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def read_results(directory: Path) -> SavedResults:
    """Every benchmark's JSON in `directory`, in order of name; OptionError where there is none."""
    found = SavedResults()
    for path in sorted(directory.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            record = None
        if isinstance(record, dict) and record.get("format") == FORMAT:
            found.records.append(record)
        else:
            found.skipped.append(path.name)
    if not found.records:
        raise OptionError(
            f"no benchmark results in {directory}: make some with `steelyard bench run --all --out {directory}`"
        )
    return found


def redraw(directory: Path) -> list[Path]:
    """Draw the picture of every result in `directory` again, from its JSON; nothing is measured."""
    known, drawn = experiments(), []
    for record in read_results(directory).records:
        name, result = record["name"], Result.from_dict(record)
        own = known.get(name) or Experiment(name, record["title"], lambda run: result)  # noqa: B023 - draws only
        drawn.append(own.save_picture(result, directory / f"{name}.png"))
    return drawn


def write_report(directory: Path) -> tuple[Path, SavedResults]:
    """Write `report.html` for the results in `directory`; gives its path and what was read."""
    found = read_results(directory)
    page = directory / PAGE
    page.write_text(render(found.records, directory), encoding="utf-8")
    return page, found


def render(records: list[dict[str, Any]], directory: Path) -> str:
    """The page; pictures are those that lie in `directory`, beside it."""
    contents = "".join(
        f'<li><a href="#{escape(record["name"])}">{escape(record["name"])}</a> {_tally(record)}</li>'
        for record in records
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    sections = "\n".join(_section(record, directory) for record in records)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Steelyard: published beside measured</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Published beside measured</h1>
<p>{_verdict(records)}</p>
<p class="soft">Benchmarks of Steelyard, which makes PySpark streams load-aware. A target is what a paper or we ask of a
figure. <code>a_vs_b</code> is the speed of a over the speed of b: above 1, a is faster. Page made {made}.</p>
{_what_does_not_hold(records)}
<nav><ul>{contents}</ul></nav>
</header>
{sections}
</body>
</html>
"""


def _verdict(records: list[dict[str, Any]]) -> str:
    """How many targets hold and how many claims of the papers, a sentence each."""
    targets = [target for record in records for target in record["targets"]]
    held = sum(target["met"] for target in targets)
    said = (
        f'{len(records)} experiments with {len(targets)} targets: <span class="met">{held} hold</span>, '
        f'<span class="missed">{len(targets) - held} do not</span>.'
    )
    claims = [_claims(record) for record in records]
    if not any(every for _, every in claims):
        return said
    shown, every = (sum(counts) for counts in zip(*claims, strict=True))
    return (
        f'{said} Of {every} claims about published experiments <span class="met">{shown} hold here</span>, '
        f'<span class="missed">{every - shown} do not</span> or are undecided.'
    )


def _claims(record: dict[str, Any]) -> tuple[int, int]:
    """How many claims hold, of how many."""
    tables = [table for table in record["tables"] if "verdict" in table["columns"]]
    verdicts = [row[table["columns"].index("verdict")] for table in tables for row in table["rows"]]
    return verdicts.count(HOLDS), len(verdicts)


def _what_does_not_hold(records: list[dict[str, Any]]) -> str:
    """Every target that was missed, with a link to its experiment."""
    rows = "".join(
        f'<li><a href="#{escape(record["name"])}">{escape(record["name"])}</a>: '
        f"<code>{escape(target['metric'])}</code> "
        f"{escape(readable(target['value']))}, {escape(target['aim'])} was asked</li>"
        for record in records
        for target in record["targets"]
        if not target["met"]
    )
    return f"<details open><summary>Targets that do not hold</summary><ul>{rows}</ul></details>" if rows else ""


def _section(record: dict[str, Any], directory: Path) -> str:
    figure = f'<p class="soft">Stands beside: {escape(record["figure"])}</p>' if record.get("figure") else ""
    tables = "".join(_table(table) for table in record["tables"])
    details = f"<details><summary>Detail</summary>{tables}</details>" if tables else ""
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in record["notes"])
    return f"""<section id="{escape(record["name"])}">
<h2>{escape(record["name"])} <span class="tag">{escape(record["kind"])}</span></h2>
<p>{escape(record["title"])}</p>
{figure}{_figures(record)}{_misses(record)}{_picture(record, directory)}{notes}{details}
<pre><code>{escape(record["command"])}</code></pre>
<p class="soft">{escape(_circumstances(record))}</p>
</section>"""


def _figures(record: dict[str, Any]) -> str:
    rows = []
    for metric, value in record["metrics"].items():
        published = "<br>".join(
            f'{escape(readable(one["value"]))} <span class="soft">{escape(one["source"])}</span>'
            for one in record["published"]
            if one["metric"] == metric
        )
        targets = "<br>".join(_target(one) for one in record["targets"] if one["metric"] == metric)
        kind = record["kinds"].get(metric, record["kind"])
        label = f' <span class="tag">{escape(kind)}</span>' if kind != record["kind"] else ""
        rows.append(
            f"<tr><td><code>{escape(metric)}</code>{label}</td>"
            f'<td class="number">{escape(readable(value))}</td><td>{published}</td><td class="aim">{targets}</td></tr>'
        )
    whole = "".join(
        f'<p>Published: {escape(readable(one["value"]))} <span class="soft">{escape(one["source"])}</span></p>'
        for one in record["published"]
        if not one["metric"]
    )
    head = f'<tr><th>metric</th><th class="number">{escape(record["kind"])}</th><th>published</th><th>target</th></tr>'
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>{whole}'


def _target(target: dict[str, Any]) -> str:
    word = "met" if target["met"] else "missed"
    return f'{escape(target["aim"])} <span class="{word}">{word}</span>'


def _misses(record: dict[str, Any]) -> str:
    return "".join(
        f'<p><span class="missed">missed</span> <code>{escape(target["metric"])}</code> '
        f"({escape(target['aim'])}): {escape(target['explanation'] or 'no explanation was given')}</p>"
        for target in record["targets"]
        if not target["met"]
    )


def _tally(record: dict[str, Any]) -> str:
    missed = sum(not target["met"] for target in record["targets"])
    told = []
    if record["targets"]:
        told.append(f'<span class="missed">{missed} missed</span>' if missed else '<span class="met">met</span>')
    shown, every = _claims(record)
    if every:
        told.append(f'<span class="soft">{shown}/{every} claims</span>')
    return " ".join(told)


def _picture(record: dict[str, Any], directory: Path) -> str:
    if not record.get("picture"):
        return ""
    # Only a name inside the directory: a record from elsewhere cannot reach for other files.
    path = directory / Path(record["picture"]).name
    if not path.is_file():
        return f'<p class="soft">The picture {escape(path.name)} is missing.</p>'
    return f'<img alt="Chart of {escape(record["name"])}" loading="lazy" src="{escape(path.name)}">'


def _table(table: dict[str, Any]) -> str:
    numbers = [
        all(isinstance(row[place], int | float | None) for row in table["rows"])
        for place in range(len(table["columns"]))
    ]
    style = [' class="number"' if number else "" for number in numbers]
    head = "".join(f"<th{style[place]}>{escape(name)}</th>" for place, name in enumerate(table["columns"]))
    body = "".join(
        "<tr>" + "".join(f"<td{style[place]}>{escape(readable(cell))}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in table["rows"]
    )
    return f'<div class="wide"><table><caption>{escape(table["title"])}</caption><tr>{head}</tr>{body}</table></div>'


def _circumstances(record: dict[str, Any]) -> str:
    machine, versions = record["machine"], record["versions"]
    parameters = ", ".join(f"{name} {_words(value)}" for name, value in record["parameters"].items())
    memory = f", {machine['memory_gib']} GiB" if machine.get("memory_gib") else ""
    load = f", load {record['load']['before']} before and {record['load']['after']} after" if "load" in record else ""
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{parameters}. Seed {record['seed']}{', quick run' if record['quick'] else ''}, {record['seconds']:.0f} s on "
        f"{machine['cores']} cores ({machine['cpu']}){memory}, {machine['system']}{load}; {software}; "
        f"{record['started']}."
    )


def _words(value: Any) -> str:
    """A parameter as it is read aloud.

    >>> _words({"warm-ups": 2, "sizes": [1, 5]})
    '(warm-ups 2, sizes 1, 5)'
    """
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {_words(one)}' for name, one in value.items())})"
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)
