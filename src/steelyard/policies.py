"""All families of policies: what `steelyard policies` prints, and what docs/policies.md is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import Parameter
from typing import Any

from steelyard.checkpoint.registry import PROTOCOLS
from steelyard.core.registry import Entry, Family
from steelyard.grouping.registry import GROUPINGS
from steelyard.partition.registry import PARTITIONERS
from steelyard.placement.registry import PLACEMENTS
from steelyard.scaling.registry import ELASTICITY
from steelyard.similarity.registry import BALANCERS, TRIGGERS

FAMILIES: Mapping[str, Family[Any]] = {
    "partition": PARTITIONERS,
    "grouping": GROUPINGS,
    "scaling": ELASTICITY,
    "checkpoint": PROTOCOLS,
    "placement": PLACEMENTS,
    "balance": BALANCERS,
    "trigger": TRIGGERS,
}
"""By what a user calls them."""
_HEAD = """# Every policy there is

For who wants to know what can be named in `.partition_by(...)`, `.shuffle(...)`, `.elastic(...)`,
`.engine(..., protocol=...)` and `.balance(...)`: type `steelyard policies`, or `steelyard policies FAMILY` for what
follows. A class with a `name` in the folder of its family is a policy of it; this page is written by
`steelyard policies --markdown > docs/policies.md`.
"""


def spelled_out(entry: Entry) -> str:
    """A name as it may be written, with all parameters as they are by default.

    >>> spelled_out(FAMILIES["partition"].entries["prompt"])
    'prompt?residual_order=ascending&zigzag_start=restart'
    >>> spelled_out(FAMILIES["trigger"].entries["latency_above"])
    'latency_above?seconds=...'
    """
    given = "&".join(f"{name}={_text(value)}" for name, value in entry.parameters.items())
    return f"{entry.name}?{given}" if given else entry.name


def _text(value: object) -> str:
    """The value of a parameter as it stands behind a name; `...` where there is none by default."""
    if value is Parameter.empty:
        return "..."
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_markdown() -> str:
    """The whole of docs/policies.md."""
    return "\n".join((_HEAD, *_lines()))


def _lines() -> Iterator[str]:
    for family, kind in FAMILIES.items():
        yield from (f"## {family}", "", f"{kind.title}.", "")
        yield "| name | what it does | parameters | who made it | runs in | lives in |"
        yield "|---|---|---|---|---|---|"
        for one in kind.entries.values():
            given = ", ".join(f"`{name}={_text(value)}`" for name, value in one.parameters.items()) or "none"
            cells = (f"`{one.name}`", one.what, given, one.paper or "made here", ", ".join(one.runs), f"`{one.file}`")
            yield f"| {' | '.join(cells)} |"
        yield ""
