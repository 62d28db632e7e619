"""A user's program with types: never run, but checked by mypy in lint, where an ignore that is not needed fails.

Lines with `type: ignore` are mistakes that a type checker must see before the program runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import steelyard as sy


class Spread(sy.Aggregator):
    """The largest value less the smallest."""

    state = "low double, high double"
    result = "double"

    def zero(self) -> tuple[float, float]:
        return (float("inf"), float("-inf"))

    def add(self, state: tuple[float, float], *columns: Any) -> tuple[float, float]:
        (values,) = columns
        return (min(state[0], values.min()), max(state[1], values.max()))

    def merge(self, left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
        return (min(left[0], right[0]), max(left[1], right[1]))

    def finish(self, state: tuple[float, float]) -> float:
        return state[1] - state[0]


def keep(results: DataFrame, batch: int) -> None:
    """A sink of the user's own."""


def right(trips: DataFrame) -> None:
    """All that is accepted."""
    described = (
        sy.stream(trips)
        .with_watermark("at", "10 seconds")
        .group_by("user", "city")
        .window("1 minute", slide="10 seconds")
        .agg(total=sy.sum("fare"), rows=sy.count(), spread=Spread().of("fare"))
        .partition_by("prompt", blocks=8)
        .checkpoint(Path("checkpoint"))
    )
    described.sink("parquet", path=Path("out")).start()
    described.sink("memory", name="fares").start()
    described.sink("console").trigger(available_now=True).start()
    described.sink("console", rows=5).start()
    described.sink("foreach_batch", function=keep).start()
    query = described.sink("kafka", servers="broker:9092", topic="fares").name("fares").start()
    ended: bool = query.await_termination(timeout=1.5)
    frame: DataFrame = described.to_df() if ended else trips
    join = sy.similarity_join(frame, on="vector", id="id", similarity=0.99, time="at", window="1 minute")
    join.sink("parquet", path="pairs").start().stop()


def wrong(trips: DataFrame) -> None:
    """What a type checker must find."""
    keyed = sy.stream(trips).group_by("user")
    keyed.agg(F.sum("fare"))  # type: ignore[arg-type]
    keyed.agg(total=F.sum("fare"))  # type: ignore[arg-type]
    keyed.agg(total="sum")  # type: ignore[arg-type]
    keyed.agg(spread=Spread())  # type: ignore[arg-type]
    keyed.agg(spread=Spread)  # type: ignore[arg-type]
    counted = keyed.agg(rows=sy.count())
    counted.sink("parquet", pth="out").start()  # type: ignore[attr-defined]
    counted.sink("memory").start()  # type: ignore[attr-defined]
    counted.sink("foreach_batch", function="keep").start()  # type: ignore[attr-defined]
    counted.sink("kafka", servers="broker:9092").start()  # type: ignore[attr-defined]
    counted.groupBy("user")  # type: ignore[attr-defined]
    counted.writeStream  # type: ignore[attr-defined]  # noqa: B018
    sy.avg("fare")  # type: ignore[attr-defined]
