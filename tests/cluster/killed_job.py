"""A resident job whose workers are killed: python -m tests.cluster.killed_job MASTER VICTIM KILLS FOLDER REPORT.

An endless job runs until so many kills are done, stops, and is followed by one that goes on from its snapshot and
comes to an end. Victims are `worker`, the process that a worker said it is, `supervisor`, the one that forked it, or
`jvm`, the executor that this is a task of. With victim `driver` it goes on until somebody else kills it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import steelyard as sy
from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job
from steelyard.resident.snapshot import SnapshotStore
from steelyard.spark import resident
from steelyard.spark.resident import SparkLauncher
from tests.cluster.killed_flow import ENDLESS, PATIENCE, WORKERS, dataflow, eventually, rows_read
from tests.cluster.programs import kill_nine
from tests.tiny_spark import tiny

BEGUN = time.monotonic()


ABOVE = {"worker": 0, "supervisor": 1, "jvm": 3}
"""Generations of processes: Python's daemon, which the JVM started, forks supervisors, and these fork workers."""


def above(pid: int, generations: int) -> int:
    """The process that a process comes from."""
    for _ in range(generations):
        asked = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
        pid = int(asked.stdout)
    return pid


def say(what: str) -> None:
    """For the log that a failing test shows."""
    print(f"{time.monotonic() - BEGUN:6.1f} s  {what}", flush=True)


def main() -> None:
    master, victim, kills, place, report = sys.argv[1:6]
    folder = Path(place)
    config = {**tiny(), "spark.executor.memory": "512m"}
    spark = sy.session("killed", master=master, config=config)
    spark.sparkContext.setLogLevel("OFF")
    settings = Settings(store=str(folder / "store"), interval=0.2, heartbeat=0.1, restarts=10**6)
    store, draw = SnapshotStore(folder / "store"), random.Random(7)
    launcher, endless = SparkLauncher(spark), dataflow(ENDLESS, folder)
    job = Job(endless, Placement.spread(endless, WORKERS), launcher, settings)
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

    if victim == "driver":
        eventually(come, "workers")
        say("workers have come")
        thread.join()
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
        kill_nine(above(chosen.pid, ABOVE[victim]))
    eventually(come, "the last generation")
    job.stop()
    thread.join(PATIENCE)
    say("stopped")
    (outcome,) = ended
    rows = rows_read(store) + 500
    again = resident.run(spark, dataflow(rows, folder), workers=WORKERS, settings=settings)
    found = {"restarts": outcome.restarts, "rows": rows, "epochs": again.outcome.epochs, "jobs": launcher.gangs}
    say("came to its end")
    Path(report).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
