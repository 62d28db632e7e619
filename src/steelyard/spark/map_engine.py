"""The micro-batch engine of programs that aggregate nothing: what the map function gives goes to the sink.

plan -> place rows in blocks -> map -> sink -> commit -> report -> next batch's numbers of tasks
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from steelyard.core import OptionError, Partitioner, Placer, Progress, RowRule
from steelyard.core.counts import KeyCounts
from steelyard.core.hidden import BLOCK
from steelyard.core.policies import TuplePolicy
from steelyard.partition import partitioner_names, policy
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.rows import clean_rows, judged


class MapEngine(MicroBatch):
    """Runs a map function over one batch after the other, each exactly once.

    The rows of a batch are kept while it runs: whether one is bad is known before the sink gets the others, and the
    function sees each row once.
    """

    def _process(self, batch: DataFrame, number: int) -> Progress:
        self._begin(batch)
        clock = self._clock(batch, number)
        plan, source, counted = self._planned(batch, clock)
        rows = judged(self._rows(counted, plan, number), self.bound).persist()
        try:
            with clock.phase("process"):
                first = rows.agg(*self._measure_columns(BLOCK in rows.columns)).first()
            assert first is not None, "an aggregate without keys gives one row"
            seen = {**first.asDict(), "late": 0, "failed": 0, "kept": 0, "keys": 0}
            report = self._accounted(seen, number, plan, source)
            self._refuse_bad_rows(rows, None, report)
            results = report.rows - sum(report.bad_rows.values())
            with clock.phase("sink"):
                if results:
                    self.sink.write(clean_rows(rows, self.bound), number)
        finally:
            rows.unpersist()
            if counted is not batch:
                counted.unpersist()
        commit = replace(self.last, batch=number, delay=self.program.delay)
        return self._finish(commit, report.more(results=results), clock)

    def _measure_columns(self, in_blocks: bool) -> list[Column]:
        return [F.count(F.lit(1)).alias("rows"), *self._bad_measures(), *self._block_measures(in_blocks)]


def places_without_keys(policy: Partitioner | TuplePolicy) -> bool:
    """Whether a policy can say where rows go that have no keys."""
    if isinstance(policy, Placer):
        return True
    if not isinstance(policy, Partitioner) or policy.needs_counts:
        return False
    return policy.plan(KeyCounts.of({}), 1).rule is not RowRule.HASH


def require_no_keys(chosen: Partitioner | TuplePolicy) -> None:
    """Raise an OptionError where a policy goes by keys."""
    if not places_without_keys(chosen):
        able = [name for name in partitioner_names() if places_without_keys(policy(name))]
        raise OptionError(
            f"partition_by: {chosen.name!r} goes by keys, and without group_by there are none: choose "
            f"{', '.join(map(repr, able))} or 'osg?cost_of=column'"
        )
