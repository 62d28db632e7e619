"""Pictures of a topology: as text that Mermaid draws, and as an SVG that a browser shows without help."""

from __future__ import annotations

from html import escape
from typing import Any

from steelyard.core.topology import Topology, topological

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 150, 46, 110, 30, 24
_FILLS = {"source": "#d7ecd9", "sink": "#f6dfc6"}
_FILL = "#dbe7f5"


def mermaid(topology: Topology[Any, Any]) -> str:
    """The graph in Mermaid's language; feedback edges are dotted.

    Nodes are numbered, since a name may be a word of that language.
    """
    number = {operator.name: f"n{i}" for i, operator in enumerate(topology.operators)}
    lines = ["flowchart LR"]
    for operator in topology.operators:
        text = f"{_quoted(operator.name)}<br/>{operator.kind} x{operator.parallelism}"
        start, end = {"source": ("([", "])"), "sink": ("[/", "/]")}.get(operator.kind, ("[", "]"))
        lines.append(f'    {number[operator.name]}{start}"{text}"{end}')
    for edge in topology.edges:
        arrow = "-.->" if edge.feedback else "-->"
        lines.append(f'    {number[edge.sender]} {arrow}|"{_quoted(edge.label)}"| {number[edge.receiver]}')
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def svg(topology: Topology[Any, Any]) -> str:
    """The graph from left to right, an operator right of all that lead to it."""
    at = _places(topology)
    columns = 1 + max(x for x, _ in at.values())
    rows = 1 + max(y for _, y in at.values())
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP_X
    height = 2 * _MARGIN + rows * _HEIGHT + (rows - 1) * _GAP_Y + (_GAP_Y if topology.cyclic else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(topology.name)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for edge in topology.edges:
        parts.append(_arrow(at[edge.sender], at[edge.receiver], escape(edge.label), edge.feedback))
    for operator in topology.operators:
        x, y = _corner(at[operator.name])
        fill = _FILLS.get(operator.kind, _FILL)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" fill="{fill}" stroke="#555"/>'
            f'<text x="{x + _WIDTH // 2}" y="{y + 19}" text-anchor="middle">{escape(operator.name)}</text>'
            f'<text x="{x + _WIDTH // 2}" y="{y + 36}" text-anchor="middle" fill="#555">'
            f"{escape(operator.kind)} x{operator.parallelism}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(topology: Topology[Any, Any]) -> dict[str, tuple[int, int]]:
    """(column, row) of each operator: the column is the longest way from a source."""
    order, _ = topological(topology.by_name, topology.after)
    column: dict[str, int] = {}
    filled: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in order:
        before = [column[edge.sender] for edge in topology.into(name) if not edge.feedback]
        column[name] = 1 + max(before, default=-1)
        row = filled.get(column[name], 0)
        filled[column[name]] = row + 1
        places[name] = column[name], row
    return places


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return _MARGIN + place[0] * (_WIDTH + _GAP_X), _MARGIN + place[1] * (_HEIGHT + _GAP_Y)


def _arrow(source: tuple[int, int], target: tuple[int, int], label: str, feedback: bool) -> str:
    (x0, y0), (x1, y1) = _corner(source), _corner(target)
    if feedback:  # below the boxes, back to the left
        low = max(y0, y1) + _HEIGHT + _GAP_Y
        start, end = (x0 + _WIDTH // 2, y0 + _HEIGHT), (x1 + _WIDTH // 2, y1 + _HEIGHT)
        path = f"M{start[0]} {start[1]}C{start[0]} {low} {end[0]} {low} {end[0]} {end[1]}"
        text_at = ((start[0] + end[0]) // 2, low - 4)
    else:
        start, end = (x0 + _WIDTH, y0 + _HEIGHT // 2), (x1, y1 + _HEIGHT // 2)
        bend = _GAP_X // 2
        path = f"M{start[0]} {start[1]}C{start[0] + bend} {start[1]} {end[0] - bend} {end[1]} {end[0]} {end[1]}"
        text_at = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2 - 5)
    dashes = ' stroke-dasharray="5 4"' if feedback else ""
    return (
        f'<path d="{path}" fill="none" stroke="#555"{dashes} marker-end="url(#tip)"/>'
        f'<text x="{text_at[0]}" y="{text_at[1]}" text-anchor="middle" fill="#333" font-size="10">{label}</text>'
    )
