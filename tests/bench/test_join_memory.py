"""The benchmark of a join's memory: its data have the pairs that it says, and its figures are of what was seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steelyard.bench import charts
from steelyard.bench.s3j.memory import (
    COPIES,
    NARROW,
    Case,
    Measured,
    below,
    draw,
    held_mib,
    pairs_within,
    result_of,
    texts,
    vectors,
)
from steelyard.similarity import metric


def test_only_copies_are_near_to_each_other():
    some = texts(60, seed=1)
    jaccard = metric("jaccard")
    records, _ = jaccard.records(some)
    near = np.argwhere(np.triu(jaccard.pairwise(records, records) <= 0.5, 1))
    assert near.tolist() == [[n - 1, n] for n in range(COPIES - 1, 60, COPIES)]
    assert 4_000 < Case("", some, {}, 15).data_mib * 2**20 / 60 < 6_000
    points = vectors(2_100, seed=1)
    assert pairs_within(points, NARROW) == 2_100 // COPIES
    angular = metric("angular")
    assert pairs_within(points, 0.42) == np.triu(angular.pairwise(points, points) <= 0.42, 1).sum()


def test_figures_are_over_the_data_and_above_idle_workers():
    case = Case("a", pa.array(["x" * 2**20] * 4, pa.large_string()), {}, 6)
    found = [Measured(case, 100.0, peak) for peak in (120.0, 160.0, 90.0)]
    result = result_of(found)
    assert result.metrics["memory_vs_data"] == result.metrics["memory_vs_data_wide"] == 15.0
    assert result.metrics["memory_vs_data_narrow"] == 0.0
    assert not result.targets[0].met(result.metrics)
    assert "60 MiB" in result.targets[0].explanation
    figure = charts.new_figure()
    draw(figure, result)
    assert len(figure.axes[0].patches) == 6


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells it")
def test_the_most_that_children_had_is_seen():
    program = "import sys; data = b'x' * (64 << 20); print(len(data), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdout.readline()
        assert child.pid in set(below(os.getpid()))
        assert held_mib(os.getpid()) > 64
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(30)
