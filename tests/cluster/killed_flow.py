"""What jobs run whose workers or drivers are killed: counts in windows and totals, of a skewed stream, into files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steelyard import count, sum
from steelyard.core.dataflow import Dataflow
from steelyard.resident import Flow, Generated, Parquet
from steelyard.resident.snapshot import SnapshotStore
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant

KEYS, SEED, WORKERS, PIECES, BLOCK = 20, 3, 2, 2, 64
WINDOW_MS = 500
ENDLESS = 10**9
PATIENCE = 120.0


def reader(rows: int, pace: bool = True) -> Generated:
    """Rows of a skewed stream, at a pace."""
    zipf = Zipf(keys=KEYS, seed=SEED)
    return Generated(zipf, rows=rows, pace=Constant(2500) if pace else None, pieces=PIECES, block_rows=BLOCK)


def dataflow(rows: int, folder: Path) -> Dataflow:
    """Counts in windows, and totals in the end, into Parquet files."""
    flow = Flow("killed", parallelism=WORKERS)
    read = flow.source(reader(rows), time="event_time", batch_rows=BLOCK, name="read")
    keyed = read.shuffle().map(lambda batch: batch, name="pass").key_by("key")
    keyed.aggregate(window=f"{WINDOW_MS} milliseconds", n=count(), name="count").sink(
        Parquet(str(folder / "windows")), name="windows"
    )
    keyed.aggregate(n=count(), total=sum("value"), emit="end", name="total").sink(
        Parquet(str(folder / "totals")), name="totals"
    )
    return flow.dataflow()


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:g} s in vain for {what}")
        time.sleep(0.01)


def rows_read(store: SnapshotStore) -> int:
    """The least number of rows that has all that were read so far."""
    manifest = store.newest()
    assert manifest is not None
    last = 0
    for name, file in manifest.files.items():
        if name.startswith("read#"):
            for split, offset in store.load(file)["step offsets"].items():
                block, within = divmod(offset, BLOCK)
                last = max(last, (block * PIECES + int(split)) * BLOCK + within)
    return last


def expected(rows: int) -> tuple[Counter, dict]:
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


def require_right(folder: Path, rows: int) -> None:
    """AssertionError where the files have not every result once, of so many rows."""
    windows, totals = expected(rows)
    got = pq.read_table(folder / "windows")
    assert Counter({(row["key"], row["window_start"]): row["n"] for row in got.to_pylist()}) == windows
    assert got.num_rows == len(windows)
    got = pq.read_table(folder / "totals")
    assert {row["key"]: (row["n"], row["total"]) for row in got.to_pylist()} == totals
    assert got.num_rows == len(totals)
    assert not list(folder.glob("*/_staged*"))
