"""What happens to rows that cannot be processed: fail, drop, or keep them in a dead-letter table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from steelyard.core import BadRowError, BatchError, OptionError, Progress, SteelyardError
from steelyard.core.shown import counted
from steelyard.spark.sinks import FileSink

EVERY = 10
"""Rows of which a function must have raised on every one before that is told as a mistake of the program."""
POLICIES = ("fail", "drop", "dead_letter")


def on_every_row(report: Progress, tried: Mapping[str, int]) -> str | None:
    """The reason why each of the rows that a function was `tried` on is bad, if there were enough of them to tell."""
    hopeless = (reason for reason, rows in tried.items() if rows >= EVERY and report.bad_rows.get(reason) == rows)
    return next(hopeless, None)


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
        if self.policy == "dead_letter" and self.path is None:
            raise OptionError("on_bad_rows('dead_letter') needs the folder that keeps them: add path='a/folder'")
        if self.policy != "dead_letter" and self.path is not None:
            raise OptionError(f"on_bad_rows({self.policy!r}) keeps no rows: leave out path, or choose 'dead_letter'")

    def refuse_letters(self) -> None:
        """OptionError where dead letters are wanted of a static DataFrame, whose rows may be read more than once."""
        if self.policy == "dead_letter":
            raise OptionError("to_df() writes no dead letters: choose .on_bad_rows('drop') or .on_bad_rows('fail')")

    def complaint(self, title: str, report: Progress, letters: DataFrame, tried: Mapping[str, int]) -> SteelyardError:
        """What the user reads when a query fails on bad rows: how many, why, one of them, and the remedy.

        Where a function of the user's raised on each of the rows that it was `tried` on, by reason, it is the function
        that is told of: to drop all rows is no remedy.
        """
        example = letters.first()
        shown = f" For example {example['row']} ({example['reason']})." if example else ""
        reason = on_every_row(report, tried)
        if reason:
            return BatchError(
                f"{title}, batch {report.batch} failed: {reason} on every one of its {tried[reason]} rows, which is a "
                f"mistake of the program, not of a row.{shown} Mend the function"
            )
        why = "; ".join(f"{counted(rows, 'row')}: {reason}" for reason, rows in report.bad_rows.items())
        return BadRowError(
            f"{title}, batch {report.batch} has rows that cannot be processed: {why}.{shown} Mend the source, or your "
            "function, or choose .on_bad_rows('drop') or .on_bad_rows('dead_letter', path=...)"
        )

    def keep(self, letters: DataFrame, batch: int) -> None:
        """Write the bad rows of a batch to the dead-letter table."""
        assert self.path is not None
        FileSink(self.path).write(letters, batch)
