"""Resident workers on Spark that are killed with `kill -9` again and again lose nothing and double nothing."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.cluster.killed_job import WINDOW_MS, reader
from tests.cluster.programs import report_of

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def expected(rows):
    """Counts by key and window, and counts and totals by key, by plain Python."""
    whole = reader(rows, pace=False).fresh()
    whole.splits(1)
    windows, counts, totals = Counter(), Counter(), Counter()
    for split in ("0", "1"):
        offset, ended = 0, False
        while not ended:
            batch, offset, ended = whole.read(split, offset, rows)
            for row in batch.to_pylist() if batch is not None else ():
                at = row["event_time"]
                windows[
                    row["key"], at.replace(microsecond=at.microsecond // (WINDOW_MS * 1000) * WINDOW_MS * 1000)
                ] += 1
                counts[row["key"]] += 1
                totals[row["key"]] += row["value"]
    return windows, {key: (n, pytest.approx(totals[key])) for key, n in counts.items()}


@pytest.mark.parametrize(
    ("master", "victim", "kills"), [("local[4]", "python", 17), ("local-cluster[2,2,1024]", "jvm", 3)]
)
def test_workers_that_are_killed_at_random_moments_change_no_answer(tmp_path, master, victim, kills):
    report = report_of(
        "tests.cluster.killed_job", master, victim, str(kills), str(tmp_path), log=tmp_path / "log", seconds=400
    )
    assert report["restarts"] >= kills
    windows, totals = expected(report["rows"])
    got = pq.read_table(tmp_path / "windows")
    assert Counter({(row["key"], row["window_start"]): row["n"] for row in got.to_pylist()}) == windows
    assert got.num_rows == len(windows)
    got = pq.read_table(tmp_path / "totals")
    assert {row["key"]: (row["n"], row["total"]) for row in got.to_pylist()} == totals
    assert got.num_rows == len(totals)
    assert not list(tmp_path.glob("*/_staged*"))
