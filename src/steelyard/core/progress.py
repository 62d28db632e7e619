"""What happened in a query: one kind of event for every engine and everything that happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

from steelyard.core.errors import OptionError
from steelyard.core.shown import Shown, counted

BATCH, EPOCH = "batch", "epoch"
"""Kinds of progress: a batch has ended; what resident workers did is committed."""
DECISION, BROUGHT, MOVED, FAILED, RECOVERED, STOPPED = (
    "decision",
    "brought",
    "moved",
    "failed",
    "recovered",
    "stopped",
)
"""Other kinds: a policy has decided, what that brought, state has moved, the query or its workers failed, it went on
after that, it has ended."""


@dataclass(frozen=True, repr=False)
class Progress(Shown):
    """One thing that happened in a query.

    What only one engine knows is in `details`, and can be asked for as if it were a field: `progress.blocks`.

    Parameters
    ----------
    batch
        The batch, or the epoch, that it is about.
    rows
        Rows of the batch, those that were refused too; of an epoch, all since the start.
    late_rows, bad_rows
        Rows behind the watermark; rows that were refused, by reason.
    results
        Result rows handed to the sink.
    watermark
        How far event time has come; None before the first row.
    seconds
        By phase, with their `total`.
    decision
        Why there are other numbers of tasks from now on, why state moves, or what failed; else empty.
    kind
        What happened: `batch`, `epoch`, `decision`, `brought`, `moved`, `failed`, `recovered` or `stopped`.
    time, name, id, run_id
        When, and of which query: `id` is the same for all runs from one checkpoint.
    details
        What the engine knows beside that.
    words
        The most of it, as people read it.

    Examples
    --------
    >>> progress = Progress(3, rows=10, results=2, details={"blocks": 4})
    >>> progress.blocks
    4
    >>> print(progress)
    batch 3: 10 rows, 2 results, 0.00 s
    """

    batch: int
    rows: int = 0
    late_rows: int = 0
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    results: int = 0
    watermark: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    decision: str = ""
    kind: str = BATCH
    time: str = ""
    name: str = ""
    id: str = ""
    run_id: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""

    def __getattr__(self, name: str) -> Any:
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        if name.startswith("_"):
            raise AttributeError(name)
        hint = OptionError.unknown("detail of progress", name, [*(one.name for one in fields(self)), *details])
        raise AttributeError(str(hint))

    def more(self, **known: Any) -> Progress:
        """The same with more that is known: fields, and details.

        >>> Progress(1).more(rows=5, blocks=2).to_dict()["blocks"]
        2
        """
        names = {one.name for one in fields(self)}
        own = {name: value for name, value in known.items() if name in names}
        details = {name: value for name, value in known.items() if name not in names}
        return replace(self, **own, details={**self.details, **details})

    def to_dict(self) -> dict[str, Any]:
        """As plain values, details beside the rest, for JSON."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("details", "words")}
        return {**plain, **{name: _plain(value) for name, value in self.details.items()}}

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), default=str)

    def _facts(self) -> Mapping[str, object]:
        """All that is not nothing, but for the single tasks."""
        return {
            name: value
            for name, value in self.to_dict().items()
            if value != 0 and name not in ("tasks", "reduce_tasks")
        }

    def __str__(self) -> str:
        if self.kind not in (BATCH, EPOCH):
            return f"{self.kind}: {self.words or self.decision}"
        bad = f", {sum(self.bad_rows.values())} bad" if self.bad_rows else ""
        late = f", {self.late_rows} late" if self.late_rows else ""
        words = f" {self.words}" if self.words else ""
        return (
            f"{self.kind} {self.batch}: {counted(self.rows, 'row')}{bad}{late}{words}, "
            f"{counted(self.results, 'result')}, {self.seconds.get('total', 0.0):.2f} s"
        )


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
