"""The verbs that every description of a query has: where results go, where state lives, when batches begin."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Never, Self, TypeAlias, overload

from pyspark.sql import DataFrame

from steelyard.control import Metrics
from steelyard.control.listeners import LOOPBACK
from steelyard.core import OptionError
from steelyard.core.durations import micros, spoken
from steelyard.core.hints import Hinting
from steelyard.core.shown import Shown
from steelyard.spark.query import Query
from steelyard.spark.sinks import check_sink

Path: TypeAlias = str | os.PathLike[str]

Known: TypeAlias = Literal["parquet", "memory", "console", "foreach_batch", "kafka"]
Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]


class OptionsDoNotFitTheSink:
    """What a type checker sees where a sink is given options that it has not: something without any verb."""


_BEFORE = "do it on the DataFrame, before it is given to Steelyard"
_START = ".sink(kind, ...) says where results go, .checkpoint(path) where state lives, and .start() starts the query"


_TRIGGERS = {
    "once": "write .trigger(available_now=True)",
    "availableNow": "write .trigger(available_now=True)",
    "processingTime": "write .trigger(processing_time='1 second')",
    "continuous": "batches follow each other; .engine('resident') has workers that stay",
    "realTime": "batches follow each other; .engine('resident') has workers that stay",
}
"""What PySpark's trigger takes, and what to write instead."""


class Description(Shown, Hinting):
    """A frozen dataclass that each verb adds to; its fields must include those below."""

    _hints: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            ("where", "filter", "select", "selectExpr", "withColumn", "withColumns", "join", "drop"), _BEFORE
        ),
        **dict.fromkeys(("withColumnRenamed", "union", "distinct", "dropDuplicates", "orderBy", "sort"), _BEFORE),
        **dict.fromkeys(("writeStream", "write", "format", "option", "options", "save", "toTable"), _START),
        "queryName": "did you mean 'name'?",
        "foreachBatch": "write .sink('foreach_batch', function=...)",
        "foreach": "write .sink('foreach_batch', function=...)",
        "awaitTermination": "the query that .start() gives has await_termination()",
        "show": "write .sink('console'), or .to_df().show() over a static DataFrame",
        "collect": "write .to_df().collect() over a static DataFrame, or .sink('memory', name=...)",
        "run": "did you mean 'start'?",
    }

    rows: DataFrame
    _sink: tuple[str, dict[str, Any]] | None
    _checkpoint: str | None
    _trigger: dict[str, Any]
    _name: str | None
    _metrics: tuple[int, str] | None

    @overload
    def sink(self, kind: Literal["parquet"], *, path: Path, **options: str | int | float | bool) -> Self: ...
    @overload
    def sink(self, kind: Literal["memory"], *, name: str) -> Self: ...
    @overload
    def sink(self, kind: Literal["console"], *, rows: int = 20) -> Self: ...  # type: ignore[overload-overlap]
    @overload
    def sink(self, kind: Literal["foreach_batch"], *, function: Callable[[DataFrame, int], object]) -> Self: ...
    @overload
    def sink(self, kind: Literal["kafka"], *, servers: str, topic: str, delivery: Delivery = ...) -> Self: ...
    @overload
    def sink(self, kind: Known, **options: Any) -> OptionsDoNotFitTheSink: ...
    @overload
    def sink(self, kind: str, **options: Any) -> Self: ...
    def sink(self, kind: str, *unnamed: Never, **options: Any) -> Any:
        """Where results go: `"parquet"` path, `"memory"` name, `"console"`, `"foreach_batch"` function, `"kafka"`.

        Any other format that Spark can write takes the options of its writer: `.sink("json", path="out")`.
        """
        if unnamed:
            raise OptionError(f"sink: say what {unnamed[0]!r} is, as in .sink('parquet', path='out')")
        plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
        check_sink(kind, plain, self.rows.sparkSession)
        return self._with(_sink=(kind, plain))

    def checkpoint(self, path: Path) -> Self:
        """Where offsets and state live; needed for a restart. A temporary folder where none is given."""
        return self._with(_checkpoint=str(path))

    def trigger(self, processing_time: str | None = None, available_now: bool = False, **unknown: Never) -> Self:
        """A batch every `processing_time`; or all that is there now, then stop."""
        asked: dict[str, Any] = unknown
        for option, value in asked.items():
            if option not in _TRIGGERS:
                raise OptionError.unknown("option of .trigger(...)", option, ("processing_time", "available_now"))
            raise OptionError(f"trigger: there is no {option}={value!r} here: {_TRIGGERS[option]}")
        if (processing_time is None) == (not available_now):
            raise OptionError("trigger: give either processing_time='1 second' or available_now=True")
        if processing_time is None:
            return self._with(_trigger={"availableNow": True})
        return self._with(_trigger={"processingTime": spoken(micros(processing_time, "trigger"))})

    def name(self, name: str) -> Self:
        """A name for the query."""
        return self._with(_name=name)

    def metrics(self, port: int = 9464, host: str = LOOPBACK) -> Self:
        """Answer a Prometheus server at this port while the query runs; by default only one on this machine.

        One port for all queries of a program: `sy.on_progress(sy.Metrics(port))`.
        """
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 1 << 16:
            raise OptionError(f"metrics: port is a whole number below 65536, got {port!r}")
        return self._with(_metrics=(port, host))

    def _start(self, begin: Callable[[], Query]) -> Query:
        """Start a query and those that listen to it, which are made first: a port may be taken."""
        if self._metrics is None:
            return begin()
        metrics = Metrics(*self._metrics, one_query=True)
        try:
            return begin().on_progress(metrics)
        except BaseException:
            metrics.close()
            raise

    def _with(self, **fields: Any) -> Self:
        described: Any = self  # a dataclass, which a class that is none cannot say
        changed: Self = replace(described, **fields)
        return changed
