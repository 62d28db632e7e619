"""Memory of a similarity join: what all Python workers have at most while they join, beside the bytes of the data."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steelyard.bench import Result, Run, Table, Target, WrongAnswerError, charts, experiment, spark_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS, FILES = 2, 4
TEXTS, QUICK_TEXTS = 12_000, 4_000
WORDS, VOCABULARY = 800, 20_000
"""Words of a text, about 5 kB, and words that there are: two texts that are no copies share few."""
CHANGED = 0.15
"""Share of a copy's words that are others: of Jaccard similarity 0.5 and more to its original, by far."""
VECTORS, QUICK_VECTORS, DIMENSION = 40_000, 20_000, 128
WIDE, NARROW = 0.38, 0.02
"""Angles: within twice the first are all vectors of all; within the second only copies."""
COPIES = 4
"""Every so many records one is a copy."""
NOISE = 1e-3
AIM = 10.0
EVERY = 0.02
"""Seconds between two looks at the memory."""
BLOCK = 1_000


@dataclass(frozen=True)
class Case:
    """A join whose pairs are known."""

    title: str
    column: pa.Array
    options: Mapping[str, Any]
    pairs: int

    @property
    def data_mib(self) -> float:
        """What is joined: characters of texts, numbers of vectors."""
        if pa.types.is_large_string(self.column.type):
            return float(pc.sum(pc.binary_length(self.column)).as_py()) / 2**20
        return float(self.column.flatten().nbytes) / 2**20


@dataclass(frozen=True)
class Measured:
    """What a case took."""

    case: Case
    base: float
    peak: float

    @property
    def above(self) -> float:
        """MiB that joining took beyond what idle workers have."""
        return max(0.0, self.peak - self.base)

    @property
    def vs_data(self) -> float:
        """The same over the data."""
        return self.above / self.case.data_mib


def texts(count: int, seed: int) -> pa.Array:
    """Texts of which every fourth is an edited copy of the one before it, and of no other."""
    draws = np.random.default_rng(seed)
    words = np.array([f"{number:06x}"[-5:] for number in draws.permutation(VOCABULARY) + (1 << 18)])
    chosen = draws.integers(VOCABULARY, size=(count, WORDS))
    copies = np.arange(COPIES - 1, count, COPIES)
    kept = draws.random((len(copies), WORDS)) >= CHANGED
    chosen[copies] = np.where(kept, chosen[copies - 1], chosen[copies])
    return pa.array([" ".join(words[row]) for row in chosen], pa.large_string())


def vectors(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Vectors in all directions, of which every fourth is the one before it, nearly."""
    draws = np.random.default_rng(seed)
    made = draws.normal(size=(count, DIMENSION))
    copies = np.arange(COPIES - 1, count, COPIES)
    made[copies] = made[copies - 1] + NOISE * draws.normal(size=(len(copies), DIMENSION))
    return made


def pairs_within(points: np.ndarray[Any, np.dtype[np.float64]], angle: float) -> int:
    """How many pairs of vectors have at most this angle, as a share of half a turn: by products of all with all.

    >>> pairs_within(np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]]), 0.1)
    1
    """
    units = points / np.linalg.norm(points, axis=1)[:, None]
    least, found = np.cos(np.pi * angle), 0
    for start in range(0, len(units), BLOCK):
        near = units[start : start + BLOCK] @ units[start:].T >= least
        found += int(np.triu(near, 1).sum())
    return found


def cases(run: Run) -> list[Case]:
    """Texts and vectors that are all near to each other, and vectors of which few are."""
    some = texts(QUICK_TEXTS if run.quick else TEXTS, run.seed)
    points = vectors(QUICK_VECTORS if run.quick else VECTORS, run.seed)
    column = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), DIMENSION).cast(pa.list_(pa.float64()))
    return [
        Case("texts, Jaccard 0.5", some, {"metric": "jaccard", "similarity": 0.5}, len(some) // COPIES),
        Case(f"vectors, angle {WIDE}", column, {"threshold": WIDE}, pairs_within(points, WIDE)),
        Case(f"vectors, angle {NARROW}", column, {"threshold": NARROW}, pairs_within(points, NARROW)),
    ]


def held_mib(parent: int) -> float:
    """Memory of all processes below one, in MiB; what several share counts once."""
    held = 0
    for process in below(parent):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
            continue
        held += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return held / 1024


def below(parent: int) -> Iterator[int]:
    """The processes that a process started, and those that they did."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, found):
            yield child
            yield from below(child)


class Watch:
    """The most that the processes below one have had since it began."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self.peak = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look now and then, in a thread, while something else runs."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(EVERY):
                self.peak = max(self.peak, held_mib(self._parent))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def joined(spark: SparkSession, folder: Path, case: Case, rows: int) -> int:
    """How many pairs the join of the first rows finds."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    for part, index in enumerate(np.array_split(np.arange(rows), FILES)):
        table = pa.table({"id": pa.array(index), "item": case.column.take(pa.array(index))})
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"{part}.parquet")
    frame = spark.read.schema(_schema(case)).parquet(str(folder))
    return sy.similarity_join(frame, on="item", id="id", workers=SLOTS, **case.options).to_df().count()


def _schema(case: Case) -> str:
    return f"id bigint, item {'string' if pa.types.is_large_string(case.column.type) else 'array<double>'}"


@experiment("join-memory", title="Memory of the Python workers of a similarity join, beside the bytes of the data")
def join_memory(run: Run) -> Result:
    """Peak memory of all Python workers while they join, above what they have when idle, over the data's bytes."""

    if not Path("/proc/self/smaps_rollup").exists():
        raise OSError("join-memory reads /proc/PID/smaps_rollup, which only Linux has: run it there")
    wanted = cases(run)
    found = []
    with spark_for("join-memory", SLOTS, {"spark.driver.memory": "2g"}) as (spark, scratch):
        java = spark.sparkContext._jvm
        assert java is not None, "a driver has a JVM"
        parent = int(java.java.lang.ProcessHandle.current().pid())
        for number, case in enumerate(wanted):  # whatever is imported and compiled is there before the clock runs
            joined(spark, scratch / f"warm{number}", case, 200)
        base = held_mib(parent)
        if base == 0:
            raise OSError("join-memory sees no Python worker of Spark in /proc: run it where /proc tells children")
        for number, case in run.progress.track(list(enumerate(wanted)), "join-memory"):
            watch = Watch(parent)
            with watch.running():
                pairs = joined(spark, scratch / str(number), case, len(case.column))
            if pairs != case.pairs:
                raise WrongAnswerError(f"{case.title}: {pairs} pairs, and there are {case.pairs}")
            found.append(Measured(case, base, watch.peak))
    return result_of(found)


def result_of(found: Sequence[Measured]) -> Result:
    """Figures, table and target."""
    worst = max(found, key=lambda one: one.vs_data)
    names = ("texts", "wide", "narrow")
    return Result(
        parameters={"slots": SLOTS, "records": [len(one.case.column) for one in found], "dimension": DIMENSION},
        metrics={
            "memory_vs_data": worst.vs_data,
            **{f"memory_vs_data_{name}": one.vs_data for name, one in zip(names, found, strict=True)},
            "idle_mib": found[0].base,
        },
        tables=[
            Table.of(
                "memory",
                [
                    {
                        "join": one.case.title,
                        "records": len(one.case.column),
                        "data MiB": round(one.case.data_mib, 1),
                        "pairs": one.case.pairs,
                        "idle workers MiB": round(one.base),
                        "peak MiB": round(one.peak),
                        "above idle MiB": round(one.above),
                        "over data": round(one.vs_data, 2),
                    }
                    for one in found
                ],
            )
        ],
        targets=[
            Target("memory_vs_data", at_most=AIM, explanation=f"{worst.case.title}: {worst.above:.0f} MiB above idle")
        ],
        notes=[
            "Memory is that of all Python workers of Spark together, pages that they share counted once (PSS), looked "
            f"at every {EVERY * 1000:.0f} ms. Idle workers have done a join of 200 records of each kind before.",
            "Cases follow each other in one session, and workers give memory back between them: a later peak can be "
            "the lower one.",
            "Pairs are counted by Spark, and are as many as there must be: the copies that were made of texts, and for "
            "vectors products of all with all in NumPy.",
        ],
    )


@join_memory.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Data, and what joining it took, side by side."""
    (axes,) = charts.panels(figure, 1, (8, 4.5))
    rows = list(result.tables[0].records())
    groups = {
        "data": [one["data MiB"] for one in rows],
        "Python workers, above idle ones": [one["above idle MiB"] for one in rows],
    }
    title, colours = "Memory of a similarity join at its peak", (charts.COLOURS[1], charts.COLOURS[0])
    names = [one["join"] for one in rows]
    charts.grouped(axes, names, groups, title=title, x="what is joined", y="MiB", colours=colours)
    charts.legend_below(figure, axes)
