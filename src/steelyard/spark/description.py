"""The verbs that every description of a query has: where results go, where state lives, when batches begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from steelyard.core import OptionError
from steelyard.core.durations import micros, spoken


class Description:
    """A frozen dataclass that each verb adds to; its fields must include those below."""

    _sink: tuple[str, dict[str, Any]] | None
    _checkpoint: str | None
    _trigger: dict[str, Any]
    _name: str | None

    def sink(self, kind: str, **options: Any) -> Self:
        """Where results go: `"parquet"` path, `"memory"` name, `"console"`, `"foreach_batch"` function, `"kafka"`."""
        return self._with(_sink=(kind, options))

    def checkpoint(self, path: str) -> Self:
        """Where offsets and state live; needed for a restart. A temporary folder where none is given."""
        return self._with(_checkpoint=str(path))

    def trigger(self, processing_time: str | None = None, available_now: bool = False) -> Self:
        """A batch every `processing_time`; or all that is there now, then stop."""
        if (processing_time is None) == (not available_now):
            raise OptionError("trigger: give either processing_time='1 second' or available_now=True")
        if processing_time is None:
            return self._with(_trigger={"availableNow": True})
        return self._with(_trigger={"processingTime": spoken(micros(processing_time, "trigger"))})

    def name(self, name: str) -> Self:
        """A name for the query."""
        return self._with(_name=name)

    def _with(self, **fields: Any) -> Self:
        described: Any = self  # a dataclass, which a class that is none cannot say
        changed: Self = replace(described, **fields)
        return changed
