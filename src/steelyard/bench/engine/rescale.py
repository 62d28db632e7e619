"""Other numbers of instances for a running job: in place, and by stopping and starting again, in turns in one job."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.bench import Cell, Result, Run, Table, Target, charts, experiment
from steelyard.core.aggregates import count
from steelyard.core.dataflow import Dataflow
from steelyard.core.errors import SteelyardError
from steelyard.core.key_groups import DEFAULT_GROUPS, KeyGroups
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Settings
from steelyard.resident.jobs import Job
from steelyard.resident.keys import key_ids
from steelyard.resident.launchers import ProcessLauncher
from steelyard.resident.rescaling import Rescaling
from steelyard.resident.sources import Read, Reader

WORKERS, FEW, MANY = 2, 2, 3
KEYS, QUICK_KEYS = 200_000, 50_000
ROWS_A_SECOND, BATCH_ROWS = 20_000, 500
"""Of all sources; what comes while they are stopped waits for them."""
TURNS, QUICK_TURNS = 8, 2
"""Of each way, half of them to more instances and half to fewer."""
CALM_SECONDS, PATIENCE = 1.5, 120.0
KEY_BYTES = 16
"""What is known of a key: itself and its count, eight bytes each."""
IN_PLACE, RESTART = "in place", "stop and restart"
SCHEMA = pa.schema({"key": pa.int64()})
NOTE = np.dtype([("at", np.float64), ("rows", np.int32, (DEFAULT_GROUPS,))])
"""When rows came out, and how many of each key group."""


class RescaleError(SteelyardError):
    """A job that did not get other numbers of instances."""


@dataclass(frozen=True)
class Paced(Reader):
    """Every key once as fast as can be, then again and again at a rate, whether or not anybody reads.

    Parameters
    ----------
    keys, pieces, rate
        How many keys and splits there are, and rows a second of all splits.
    begun
        The moment of `time.time()` from which rows come.
    """

    keys: int
    pieces: int
    rate: float
    begun: float
    schema: pa.Schema = SCHEMA

    def splits(self, parallelism: int) -> list[str]:
        """As many as there are, whoever reads."""
        return [str(number) for number in range(self.pieces)]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """What has come by now."""
        there = self.keys // self.pieces + int((time.time() - self.begun) * self.rate / self.pieces)
        rows = min(rows, there - offset)
        if rows <= 0:
            return Read(None, offset, False)
        keys = ((offset + np.arange(rows)) * self.pieces + int(split)) % self.keys
        return Read(pa.record_batch([pa.array(keys)], schema=self.schema), offset + rows, False)


def counting(seen: Path, keys: int) -> Dataflow:
    """A running count of each key; whoever takes counts writes down how many came of which group, and when."""
    groups = KeyGroups(DEFAULT_GROUPS, 1)

    def note(batch: pa.RecordBatch) -> None:
        made = np.zeros(1, NOTE)
        made["at"] = time.monotonic()
        made["rows"] = np.bincount(groups.of(key_ids(batch, ["key"])), minlength=DEFAULT_GROUPS)
        with seen.open("ab") as file:
            file.write(made.tobytes())

    flow = Flow("rescale", parallelism=WORKERS)
    read = flow.source(Paced(keys, WORKERS, ROWS_A_SECOND, time.time()), batch_rows=BATCH_ROWS, name="read")
    made = read.key_by("key").aggregate(n=count(), emit="updates", name="count", parallelism=FEW)
    made.shuffle().sink(Callback(note), name="out", parallelism=1)
    return flow.dataflow()


def notes_of(seen: Path) -> np.ndarray[Any, Any]:
    """What was written down so far; a note that is being written is left out."""
    data = seen.read_bytes()
    return np.frombuffer(data[: len(data) // NOTE.itemsize * NOTE.itemsize], NOTE)


class Turn(NamedTuple):
    """One change of the numbers."""

    way: str
    how: Rescaling
    asked: float
    done: float
    expected: int
    """Bytes of the states of groups that got another owner."""
    pauses: np.ndarray[Any, Any]
    """float64[groups]: the longest time without rows of each group around the change, in seconds."""
    calm: np.ndarray[Any, Any]
    """The same in a time as long before it."""
    moved: np.ndarray[Any, Any]
    """bool[groups]"""
    rows: int
    before: float
    """Rows while it lasted, and rows a second before."""


def longest_gaps(
    notes: np.ndarray[Any, Any], begin: float, end: float, together: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The longest time without rows of each group, or of one that has the same number in `together`.

    One group alone has rows so seldom that the time between two of them would say more of the rate than of a pause.
    """
    inside = notes[(notes["at"] >= begin) & (notes["at"] <= end)]
    found = np.empty(DEFAULT_GROUPS)
    for number in np.unique(together):
        some = together == number
        times = np.concatenate([[begin], inside["at"][inside["rows"][:, some].sum(axis=1) > 0], [end]])
        found[some] = np.diff(times).max()
    return found


def until(found: Callable[[], Any], what: str) -> Any:
    """What is found, as soon as it is; RescaleError where that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not (got := found()):
        if time.monotonic() > deadline:
            raise RescaleError(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(0.002)
    return got


@contextmanager
def running(job: Job) -> Iterator[None]:
    """The job beside what is done here, and stopped behind it."""
    thread = threading.Thread(target=job.run, name="rescale", daemon=True)
    thread.start()
    try:
        yield
    finally:
        job.stop()
        thread.join(PATIENCE)


def turn(job: Job, seen: Path, way: str, wanted: int, keys: int) -> Turn:
    """Change the number of instances in one way, with a calm time before it and behind it."""
    known = len(job.outcome.rescalings)
    before = KeyGroups(DEFAULT_GROUPS, FEW + MANY - wanted)
    time.sleep(CALM_SECONDS)
    asked = time.monotonic()
    job.rescale({"count": wanted}, in_place=way == IN_PLACE)
    until(lambda: len(job.outcome.rescalings) > known, f"{wanted} instances {way}")
    how, done = job.outcome.rescalings[-1], time.monotonic()
    if how.in_place != (way == IN_PLACE):
        raise RescaleError(f"it was to be {way}: {how}")
    until(lambda: notes_of(seen)["at"][-1] > done, "rows behind it")
    time.sleep(CALM_SECONDS)
    now = KeyGroups(DEFAULT_GROUPS, wanted)
    notes, moved, together = notes_of(seen), before.owner != now.owner, before.owner * DEFAULT_GROUPS + now.owner
    of_group = np.bincount(
        before.of(key_ids(pa.record_batch({"key": np.arange(keys)}), ["key"])), minlength=DEFAULT_GROUPS
    )
    totals, times = notes["rows"].sum(axis=1), notes["at"]
    calm = (times >= asked - CALM_SECONDS) & (times < asked)
    return Turn(
        way,
        how,
        asked,
        done,
        int(of_group[moved].sum()) * KEY_BYTES,
        longest_gaps(notes, asked - CALM_SECONDS / 2, done + CALM_SECONDS / 2, together),
        longest_gaps(notes, asked - CALM_SECONDS, asked, together),
        moved,
        int(totals[(times >= asked) & (times <= done)].sum()),
        float(totals[calm].sum()) / CALM_SECONDS,
    )


def turns_of(scratch: Path, keys: int, turns: int, progress: Any) -> list[Turn]:
    """All turns of one job: in place and by restarts, to more and to fewer instances."""
    seen = scratch / "seen"
    seen.touch()
    dataflow = counting(seen, keys)
    job = Job(
        dataflow,
        Placement.spread(dataflow, WORKERS),
        ProcessLauncher(),
        Settings(str(scratch / "store"), heartbeat=0.1),
    )
    plan = [(way, number) for _ in range(turns // 2) for way in (IN_PLACE, RESTART) for number in (MANY, FEW)]
    with running(job):
        until(lambda: notes_of(seen)["rows"].sum() > keys, "every key")
        return [turn(job, seen, way, number, keys) for way, number in progress.track(plan, "turns")]


@experiment("rescale", title="Other numbers of instances, in place and by a restart")
def rescale(run: Run) -> Result:
    """Pause of key groups that stay, rows a second meanwhile, and bytes that went, beside stopping for a snapshot."""
    keys, turns = (QUICK_KEYS, QUICK_TURNS) if run.quick else (KEYS, TURNS)
    with tempfile.TemporaryDirectory(prefix="rescale-") as scratch:
        found = turns_of(Path(scratch), keys, turns, run.progress)
    return result_of(found, keys)


def throughput(found: Sequence[Turn]) -> float:
    """Rows a second while numbers changed, over rows a second before."""
    return sum(one.rows for one in found) / sum((one.done - one.asked) * one.before for one in found)


def result_of(found: Sequence[Turn], keys: int) -> Result:
    """Medians over turns of the longest pause of any group."""
    ways = {way: [one for one in found if one.way == way] for way in (IN_PLACE, RESTART)}
    stayed = {way: statistics.median(1000 * one.pauses[~one.moved].max() for one in some) for way, some in ways.items()}
    went = {way: statistics.median(1000 * one.pauses[one.moved].max() for one in some) for way, some in ways.items()}
    calm = statistics.median(1000 * one.calm.max() for one in found)
    took = {way: statistics.median(1000 * (one.done - one.asked) for one in some) for way, some in ways.items()}
    rows: list[list[Cell]] = [
        [way, took[way], stayed[way], went[way], throughput(some), statistics.median(one.how.bytes for one in some)]
        for way, some in ways.items()
    ]
    moved, expected = (
        sum(values) for values in zip(*((one.how.bytes, one.expected) for one in ways[IN_PLACE]), strict=True)
    )
    return Result(
        parameters={
            "workers": WORKERS,
            "instances": f"{FEW} and {MANY}",
            "keys": keys,
            "rows_per_second": ROWS_A_SECOND,
            "turns": len(ways[IN_PLACE]),
        },
        metrics={
            "unmoved_pause_vs_restart": stayed[IN_PLACE] / stayed[RESTART],
            "unmoved_pause_ms": stayed[IN_PLACE],
            "restart_pause_ms": stayed[RESTART],
            "calm_pause_ms": calm,
            "throughput_during": throughput(ways[IN_PLACE]),
            "bytes_beside_state": abs(moved - expected) / expected,
            "bytes_moved": moved / len(ways[IN_PLACE]),
        },
        tables=[
            Table(
                "medians, in milliseconds",
                ("way", "took", "pause of groups that stay", "of groups that go", "throughput", "bytes moved"),
                rows,
            )
        ],
        targets=[
            Target("unmoved_pause_vs_restart", at_most=0.1),
            Target("throughput_during", at_least=0.7),
            Target("bytes_beside_state", at_most=0.0),
        ],
        notes=[
            "A pause is the longest time around a change without results of the key groups that one instance keeps, or "
            f"that go from one to another, where it was longest; where nothing changes it is {calm:.0f} ms. Both ways "
            "take turns in one job of two processes.",
            "Bytes are those of keys and counts of groups that got another owner; nothing else went.",
        ],
    )


@rescale.picture
def _picture(figure: charts.Figure, result: Result) -> None:
    shown = {
        "in place": result.metrics["unmoved_pause_ms"],
        "stop and restart": result.metrics["restart_pause_ms"],
        "nothing changes": result.metrics["calm_pause_ms"],
    }
    title = "Longest pause of key groups that stay"
    charts.bars(figure.add_subplot(), shown, title=title, x="milliseconds", y="other numbers of instances")
