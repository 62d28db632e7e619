"""What happens to rows that cannot be processed: fail, drop, or keep them in a dead-letter table."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from steelyard.core import BatchReport, JoinReport, OptionError
from steelyard.spark.sinks import FileSink

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

    def complaint(self, report: BatchReport | JoinReport, letters: DataFrame) -> str:
        """What the user reads when a query fails on bad rows: how many, why, one of them, and the remedy."""
        counted = {reason: f"{count} row{'s' * (count != 1)}" for reason, count in report.bad_rows.items()}
        why = "; ".join(f"{count}: {reason}" for reason, count in counted.items())
        example = letters.first()
        shown = f" For example {example['row']} ({example['reason']})." if example else ""
        return (
            f"batch {report.batch} has rows that cannot be processed: {why}.{shown} Mend the source, or your function, "
            "or choose .on_bad_rows('drop') or .on_bad_rows('dead_letter', path=...)"
        )

    def keep(self, letters: DataFrame, batch: int) -> None:
        """Write the bad rows of a batch to the dead-letter table."""
        assert self.path is not None
        FileSink(self.path).write(letters, batch)
