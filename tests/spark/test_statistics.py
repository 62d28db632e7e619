"""Key counts that are carried from batch to batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts
from steelyard.spark.statistics import FREQUENT, Carried


def test_keys_that_fall_off_the_list_are_not_counted_again_at_every_batch():
    keys = 3 * FREQUENT
    batch = KeyCounts(pa.array(np.arange(keys)), np.arange(keys, dtype=np.int64) + 1)
    carried = Carried(("k",))
    for _ in range(5):
        carried.update(batch)
    assert len(carried.counts) == FREQUENT
    assert carried.counts.distinct == keys


def test_totals_follow_the_rate_and_survive_a_round_trip():
    carried = Carried(("k",))
    for _ in range(12):
        carried.update(KeyCounts.of({"a": 800, "b": 200}))
    assert 1_900 < carried.counts.total <= 2_000  # half of what is known is one batch old
    again = Carried.from_text(("k",), carried.to_text())
    assert again.counts.to_dict() == carried.counts.to_dict()
