"""What happens to rows that cannot be processed: fail, drop, or keep them in a dead-letter table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.core import OptionError
from steelyard.spark.program import Bound
from steelyard.spark.rows import BAD, BAD_ROW, refused
from steelyard.spark.sinks import ParquetSink

POLICIES = ("fail", "drop", "dead_letter")


@dataclass(frozen=True)
class BadRows:
    """The choice for bad rows, and where dead letters go.

    Parameters
    ----------
    policy
        `"fail"` stops the query, `"drop"` counts them, `"dead_letter"` also writes them, as (reason, row as JSON),
        to Parquet files under `path`, each exactly once.
    """

    policy: str = "fail"
    path: str | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise OptionError.unknown("policy for bad rows", self.policy, POLICIES)
        if (self.policy == "dead_letter") != (self.path is not None):
            raise OptionError("on_bad_rows: a path goes with 'dead_letter', and only with it")

    def complaint(self, batch: int, bad: Mapping[str, int], rows: DataFrame, bound: Bound) -> str:
        """What the user reads when a query fails on bad rows: how many, why, one of them, and the remedy."""
        why = "; ".join(f"{count} rows: {reason}" for reason, count in bad.items())
        example = refused(rows, bound).first()
        shown = f" For example {example['row']} ({example['reason']})." if example else ""
        return (
            f"batch {batch} has rows that cannot be processed: {why}.{shown} Mend the source, or choose "
            ".on_bad_rows('drop') or .on_bad_rows('dead_letter', path=...)"
        )

    def keep(self, rows: DataFrame, partials: DataFrame | None, bound: Bound, batch: int) -> None:
        """Write the bad rows of a batch to the dead-letter table."""
        assert self.path is not None
        letters = refused(rows, bound)
        if partials is not None:
            failed = partials.where(F.col(BAD).isNotNull())
            letters = letters.unionByName(failed.select(F.col(BAD).alias("reason"), F.col(BAD_ROW).alias("row")))
        ParquetSink(self.path).write(letters, batch)
