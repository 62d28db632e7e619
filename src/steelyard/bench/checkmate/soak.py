"""Logs and checkpoints over many minutes: what a store holds must not grow while a line moves on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.checkmate.live_cases import QUERIES, Rows, dataflow
from steelyard.bench.engine.overhead import growth, resident_mib
from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ProcessLauncher
from steelyard.resident.snapshot import CHECKPOINTS

SECONDS, QUICK_SECONDS = 600.0, 12.0
WORKERS = 2
RATE = 2_000.0
INTERVAL = 0.5
PROTOCOLS = ("unaligned", "uncoordinated", "communication_induced")
IN_ROUNDS = ("coordinated", "hybrid")
"""Those of the second experiment: all at once would be more than two cores can do."""
QUERY = "q8"
"""Two streams that are joined in windows: state comes and goes, and all channels but the last carry rows."""
SAMPLES_A_SECOND = 4.0
MOST_GROWTH = 1.1
WARM_SHARE = 0.1
"""Of the time, in which windows fill for the first time."""


@dataclass
class Soaked:
    """What the store of one job held, sample by sample."""

    seconds: list[float] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """Bytes of what senders keep."""
    files: list[float] = field(default_factory=list)
    """Files of checkpoints and logs."""
    commits: list[float] = field(default_factory=list)
    """Bytes of the files that say what belongs to a line."""
    workers: list[float] = field(default_factory=list)
    """MiB of all workers: what is in memory until the next checkpoint is in it."""
    epochs: int = 0

    @property
    def samples(self) -> dict[str, list[float]]:
        """By what."""
        return {"logs": self.logs, "files": self.files, "commits": self.commits, "workers": self.workers}

    @property
    def grown(self) -> dict[str, float]:
        """By what: mean of the last fifth over that of the first; only of what is there at all."""
        return {name: growth(sizes) for name, sizes in self.samples.items() if sum(sizes)}

    def look(self, passed: float, store: Path, job: Job) -> None:
        """Take a sample."""
        found = [(one.name, _size(one)) for one in (store / CHECKPOINTS).glob("*")]
        self.seconds.append(passed)
        self.logs.append(sum(size for name, size in found if "log" in name))
        self.files.append(len(found))
        self.commits.append(sum(_size(one) for one in store.glob("commit-*.json")))
        self.workers.append(sum(resident_mib(one.pid) for one in job.workers.values()))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # removed as the line moved
        return 0


def soak(protocol: str, seconds: float, store: Path) -> Soaked:
    """Run a query for so long, with checkpoints by a protocol."""
    began = time.time()
    made = dataflow(QUERIES[QUERY], Rows(RATE, round(RATE * seconds), began))
    settings = Settings(str(store), INTERVAL, heartbeat=0.2, restarts=0, protocol=protocol)
    job = Job(made, Placement.spread(made, WORKERS), ProcessLauncher(), settings)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=work, name=protocol, daemon=True)
    thread.start()
    found = Soaked()
    while thread.is_alive():
        thread.join(1 / SAMPLES_A_SECOND)
        passed = time.time() - began
        if WARM_SHARE * seconds <= passed < seconds and job.workers:
            found.look(passed, store, job)
    if raised:
        raise raised[0]
    found.epochs = job.outcome.epochs
    return found


@experiment("checkmate-soak", title="Logs and checkpoints over many minutes", figure=None)
def checkpoint_soak(run: Run) -> Result:
    """Bytes of logs, numbers of files and memory, from the first fifth of the time to the last, by protocol."""
    return soaked(run, PROTOCOLS)


@experiment(
    "checkmate-soak-rounds", title="Logs and checkpoints over many minutes, of protocols with rounds", figure=None
)
def rounds_soak(run: Run) -> Result:
    """The same for `coordinated` and `hybrid`."""
    return soaked(run, IN_ROUNDS)


def soaked(run: Run, protocols: Sequence[str]) -> Result:
    """Protocols side by side."""
    seconds = run.pick(SECONDS, QUICK_SECONDS)
    run.progress.say(f"{len(protocols)} protocols side by side for {seconds:g} s")
    with TemporaryDirectory(prefix="steelyard-soak-") as scratch, ThreadPoolExecutor(len(protocols)) as side_by_side:
        found = side_by_side.map(lambda one: soak(one, seconds, Path(scratch) / one), protocols)
        return result_of(dict(zip(protocols, found, strict=True)), seconds)


def result_of(found: dict[str, Soaked], seconds: float) -> Result:
    """The figures from what was seen."""
    grown = {protocol: one.grown for protocol, one in found.items()}
    kept = [size for one in grown.values() for what, size in one.items() if what != "workers"]
    metrics = {"log_growth": max(kept), "worker_growth": max(one["workers"] for one in grown.values())}
    metrics |= {f"{protocol}_log_growth": one["logs"] for protocol, one in grown.items() if "logs" in one}
    columns = ("protocol", "what", "first", "last", "most", "last fifth over first")
    rows = [
        (protocol, what, sizes[0], sizes[-1], max(sizes), grown[protocol].get(what, ""))
        for protocol, one in found.items()
        for what, sizes in one.samples.items()
    ]
    return Result(
        parameters={
            "seconds": seconds,
            "workers": WORKERS,
            "rows_per_s": RATE,
            "interval_s": INTERVAL,
            "query": QUERY,
            "commits": {protocol: one.epochs for protocol, one in found.items()},
        },
        metrics=metrics,
        tables=[Table("logs and commits in bytes, memory of workers in MiB", columns, rows)],
        series=[Series(protocol, one.seconds, one.files) for protocol, one in found.items()],
        targets=[
            Target("log_growth", at_most=MOST_GROWTH, explanation="what no line can ask for is not all removed"),
            Target("worker_growth", at_most=MOST_GROWTH, explanation="the memory of workers was still growing"),
        ],
        notes=[
            "log_growth: mean of the last fifth of the samples over mean of the first, of bytes of logs, numbers of "
            "files and bytes of commits, the largest of all protocols; worker_growth is the same of memory (RSS).",
            f"The first {WARM_SHARE:.0%} of the time do not count. The jobs run side by side, each in two processes.",
        ],
    )


@checkpoint_soak.picture
@rounds_soak.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Files over time, by protocol."""
    charts.lines(
        figure.add_subplot(), result.series, title="Files of checkpoints and logs in the store", x="time, s", y="files"
    )
