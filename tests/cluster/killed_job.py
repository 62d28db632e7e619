"""A resident job whose workers are killed: python -m tests.cluster.killed_job MASTER VICTIM KILLS FOLDER REPORT.

An endless job runs until so many kills are done, stops, and is followed by one that goes on from its snapshot and
comes to an end. Victims are `python`, the process that a worker said it is, or `jvm`, the executor that started it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import steelyard as sy
from steelyard.core.dataflow import Dataflow
from steelyard.resident import Flow, Generated, Parquet, Settings, count, sum
from steelyard.resident.snapshot import SnapshotStore
from steelyard.spark import resident
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant
from tests.cluster.programs import kill_nine

KEYS, SEED, WORKERS, PIECES, BLOCK = 20, 3, 2, 2, 64
WINDOW_MS = 500
ENDLESS = 10**9
PATIENCE = 120.0
BEGUN = time.monotonic()


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


def executor_of(pid: int) -> int:
    """The JVM that started Python's daemon, which forked this worker."""
    for _ in range(2):
        asked = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
        pid = int(asked.stdout)
    return pid


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


def say(what: str) -> None:
    """For the log that a failing test shows."""
    print(f"{time.monotonic() - BEGUN:6.1f} s  {what}", flush=True)


def main() -> None:
    master, victim, kills, place, report = sys.argv[1:6]
    folder = Path(place)
    config = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.executor.memory": "512m"}
    spark = sy.session("killed", master=master, config=config)
    spark.sparkContext.setLogLevel("OFF")
    settings = Settings(store=str(folder / "store"), interval=0.2, heartbeat=0.1, restarts=10**6)
    store, draw = SnapshotStore(folder / "store"), random.Random(7)
    job = resident.job(spark, dataflow(ENDLESS, folder), workers=WORKERS, settings=settings)
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(job.run())
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    generation = -1
    say("the session is there")

    def come() -> bool:
        assert not ended, ended
        there = job.workers
        return len(there) == WORKERS and all(one.generation > generation for one in there.values())

    for _ in range(int(kills)):
        eventually(come, "the next generation")
        say("workers have come")
        there = job.workers
        if draw.random() < 0.7:  # else while it is deployed, or goes on from its snapshot
            before = store.latest() or 0
            eventually(lambda before=before: (store.latest() or 0) > before, "a snapshot")
        time.sleep(draw.uniform(0, 0.3))
        chosen = there[draw.randrange(WORKERS)]
        assert chosen.pid != os.getpid()
        generation = chosen.generation
        say(f"kills worker of generation {generation}, after epoch {store.latest()}")
        kill_nine(executor_of(chosen.pid) if victim == "jvm" else chosen.pid)
    eventually(come, "the last generation")
    job.stop()
    thread.join(PATIENCE)
    say("stopped")
    (outcome,) = ended
    rows = rows_read(store) + 500
    again = resident.run(spark, dataflow(rows, folder), workers=WORKERS, settings=settings)
    found = {"restarts": outcome.restarts, "rows": rows, "epochs": again.outcome.epochs}
    say("came to its end")
    Path(report).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
