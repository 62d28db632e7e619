"""Batches that PartLy's network was not trained on: streams of the other experiments, and real text."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.bench.prompt.metrics import Rows, workloads
from steelyard.workloads.cluster import Cluster
from steelyard.workloads.taxi import Taxi

ROWS, ZIPF_KEYS = 60_000, 5_000
"""Of a batch: the document's had hundreds to thousands of keys."""
BLOCKS = 24
SOURCES, CELLS, TAXIS, JOBS = "words of Python sources", "taxi pick-up cells", "taxis", "cluster jobs"
CELL = 200
"""Cells of a degree: half a kilometre."""
_WORD = re.compile(rb"[A-Za-z]{2,}")


def batches(rows: int = ROWS, keys: int = ZIPF_KEYS) -> Mapping[str, Callable[[int], Rows]]:
    """Each a function of the seed."""
    return {
        **workloads(rows, keys),
        SOURCES: lambda seed: _sources(seed, rows),
        CELLS: lambda seed: _cells(seed, rows),
        TAXIS: lambda seed: Rows.of(_column(Taxi(seed=seed), "medallion", rows)),
        JOBS: lambda seed: Rows.of(_column(Cluster(seed=seed), "job_id", rows)),
    }


def _column(workload: Taxi | Cluster, name: str, rows: int) -> pa.Array:
    return workload.rows(0, rows, np.zeros(rows, np.int64)).column(name)


def _cells(seed: int, rows: int) -> Rows:
    drawn = Taxi(seed=seed).rows(0, rows, np.zeros(rows, np.int64))
    parts = [
        pc.cast(pc.floor(pc.multiply(drawn.column(name), CELL)), pa.int64())
        for name in ("pickup_longitude", "pickup_latitude")
    ]
    return Rows.of(pc.add(pc.multiply(parts[0], 1_000_000), parts[1]))


@lru_cache(maxsize=1)
def _files() -> list[Path]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    return sorted(path for path in folder.glob("*.py") if path.stat().st_size > 2_000)


def _sources(seed: int, rows: int) -> Rows:
    """Words of modules of Python's own library, in an order of the seed, as many as there are rows."""
    words: list[bytes] = []
    files = _files()
    for number in np.random.default_rng(seed).permutation(len(files)):
        words += _WORD.findall(files[int(number)].read_bytes().lower())
        if len(words) >= rows:
            break
    return Rows.of(pa.array([f"{seed}-{word.decode()}" for word in words[:rows]]))
