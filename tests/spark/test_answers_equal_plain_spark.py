"""Whatever the policy and however many tasks, the answers are plain Spark's `groupBy(window, key)`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from steelyard.spark import partial_log
from tests.fuzz import first_seed
from tests.spark.cases import Case, same

pytestmark = pytest.mark.spark
CASES = 40
GROUPS = 10
AT_ONCE = 4
"""Cases that run side by side: a tiny batch is mostly waiting for the scheduler."""


@pytest.mark.drawn
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_streams_give_plain_sparks_answers(spark, tmp_path, group, monkeypatch):
    if group % 2:  # a few more partials than in the batch before are too many for the driver
        monkeypatch.setattr(partial_log, "LEAST", 1)

    def check(seed: int) -> None:
        case = Case.draw(seed)
        try:
            kept = case.run(spark, str(tmp_path / str(seed)))
            expected = case.expected(spark).toArrow().to_pylist()
            by = [*(["window_start"] if case.window else []), *case.keys]
            same(results_of(case, kept.batches, by), case.as_one_spelling(expected), by)
        except Exception as error:
            raise AssertionError(f"case {seed}: {case}") from error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(check, range(first_seed() + group, first_seed() + CASES, GROUPS)))


def results_of(case, batches, by):
    """What a reader of the sink sees at the end: all rows, the newest of each group, or the last batch's."""
    batches = {number: case.as_one_spelling(rows) for number, rows in batches.items()}
    if case.mode == "append":
        return [row for rows in batches.values() for row in rows]
    if case.mode == "complete":
        return batches[max(batches)] if batches else []
    newest = {}
    for number in sorted(batches):
        newest |= {tuple(row[name] for name in by): row for row in batches[number]}
    return list(newest.values())
