"""A benchmark's figures on the terminal: measured beside published and target."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from steelyard.bench.result import Result
from steelyard.bench.tables import Cell, Table


def show(result: Result, console: Console) -> None:
    """The figures, then the tables behind them, the sources, the explanations of misses and the notes."""
    console.print(_figures(result))
    for table in result.tables:
        console.print(_detail(table))
    for source in dict.fromkeys(published.source for published in result.published):
        console.print(f"[dim]published: {escape(source)}[/dim]", highlight=False)
    for target in result.missed:
        why = f": {target.explanation}" if target.explanation else ""
        console.print(f"[yellow]missed:[/yellow] {escape(f'{target.metric} {target}{why}')}", highlight=False)
    for note in result.notes:
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def _figures(result: Result) -> Grid:
    grid = Grid("metric", box=None, header_style="bold", pad_edge=False)
    grid.add_column("value", justify="right")
    for heading in ("kind", "published", "target"):
        grid.add_column(heading)
    for metric, value in result.metrics.items():
        published = [readable(one.value) for one in result.published if one.metric == metric]
        targets = [
            f"{target} [green]met[/green]" if target.met(result.metrics) else f"{target} [red]missed[/red]"
            for target in result.targets
            if target.metric == metric
        ]
        grid.add_row(
            escape(metric),
            readable(value),
            result.kind_of(metric),
            escape(", ".join(published)) or "[dim]-[/dim]",
            ", ".join(targets) or "[dim]-[/dim]",
        )
    return grid


def _detail(table: Table) -> Grid:
    grid = Grid(title=escape(table.title), title_justify="left", box=None, header_style="dim", pad_edge=False)
    for column in table.columns:
        grid.add_column(escape(column), justify="right")
    for row in table.rows:
        grid.add_row(*(escape(readable(cell)) for cell in row))
    return grid


def readable(value: Cell) -> str:
    """A value with as many digits as a person wants.

    >>> [readable(value) for value in (0.123456, 12.3456, 1234567, 1234.5678, True, None, "2x")]
    ['0.1235', '12.35', '1,234,567', '1,235', 'yes', '-', '2x']
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return value
