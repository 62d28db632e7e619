"""Speed of the similarity join on Spark, beside a cross join, ClusterJoin and a broadcast join of the same input."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.s3j.baselines import ANGULAR, CELLS, FORMS, broadcast_join, cluster_join, cross_join
from steelyard.similarity import metric
from steelyard.workloads.vectors import Vectors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from steelyard.similarity.protocol import Floats

SLOTS = 2
FILES = 4
ROWS = 50_000
"""Of a window."""
WINDOWS, QUICK_WINDOWS = 6, 3
"""That follow each other in one input: what a Spark job takes to begin is then a small part of all, as in a stream."""
WINDOW_SECONDS = 60
SELECTIVITY, WIDE_SELECTIVITY = 1e-3, 1e-4
WIDE, WIDE_ROWS, QUICK_WIDE_ROWS = 128, 10_000, 4_000
TOPICS = 1024
"""Of the wide vectors: as of embeddings, a record has some near ones, and most are far from each other."""
SAMPLES, QUICK_SAMPLES = (2_000, 20_000), (2_000, 12_000)
"""Rows of the two samples from which the time of a cross join is extrapolated; answers are compared on the first."""
WIDE_SAMPLES, QUICK_WIDE_SAMPLES = (400, 2_000), (200, 800)
REPETITIONS, QUICK_REPETITIONS = 5, 3
PATIENCE = 900.0
"""Seconds up to which a full run measures a cross join of the whole window."""
BORDER = 1e-9
"""Pairs so near to the threshold are not compared: Spark's arc cosine rounds in its own way."""
KERNEL_ROWS = 4_096
FEW_CELLS = 32
"""Virtual partitions of a ClusterJoin for as few slots as there are here; its own paper has 500, for a cluster."""
OURS, CLUSTER, BROADCAST, CROSS = "s3j", "clusterjoin", "broadcast join", "cross join"
FEW_CLUSTER = f"clusterjoin, {FEW_CELLS} cells"

Ways = Mapping[str, Callable[["DataFrame"], "DataFrame"]]


@dataclass(frozen=True)
class Case:
    """Windows of records, each joined with itself."""

    title: str
    """What it is called."""
    vectors: Floats
    """The records, window after window."""
    windows: int
    """How many windows of equal size they are."""
    t: float
    """Threshold distance."""
    samples: tuple[int, int]
    """Rows of the samples for cross joins."""
    quick: bool = False
    """Try one form of the cross join only, the one that proved best."""

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return int(self.vectors.shape[1])

    def ways(self) -> Ways:
        """The joins that are timed over all windows in one call."""
        return {
            OURS: self.ours,
            CLUSTER: lambda rows: cluster_join(rows, None, self.t, self.dimension, tasks=SLOTS),
            FEW_CLUSTER: lambda rows: cluster_join(rows, None, self.t, self.dimension, tasks=SLOTS, cells=FEW_CELLS),
            BROADCAST: lambda rows: broadcast_join(rows, None, self.t, self.dimension),
        }

    def crosses(self) -> Ways:
        """The forms of the cross join that are tried."""
        forms = ("unrolled", "zip_with") if self.dimension <= 8 else ("float_first", "zip_with")
        return {form: self._cross(form) for form in forms[: 1 if self.quick else None]}

    def ours(self, rows: DataFrame) -> DataFrame:
        """The join that is measured."""
        import steelyard as sy  # noqa: PLC0415 - loads Spark

        window = f"{WINDOW_SECONDS} seconds"
        join = sy.similarity_join(rows, on="vector", id="id", threshold=self.t, workers=SLOTS, time="at", window=window)
        return join.to_df()

    def _cross(self, form: str) -> Callable[[DataFrame], DataFrame]:
        # Without the column `window`: Spark would look it up in a hash table for every pair.
        return lambda rows: cross_join(rows.select("id", "vector"), None, self.t, self.dimension, form)


@dataclass(frozen=True)
class Timed:
    """What was found over one case."""

    title: str
    rows: int
    windows: int
    t: float
    pairs: int
    """Which case, its records, in how many windows, the threshold distance, and the matches."""
    seconds: Mapping[str, Sequence[float]]
    """Of each run of each way, over all windows."""
    samples: Mapping[str, Mapping[int, float]]
    """Of each form of the cross join: seconds by rows."""
    whole: float | None
    """Seconds of the best cross join over one window after the other; None where it was not run."""

    @property
    def form(self) -> str:
        """The form of the cross join that would be the first to end."""
        return min(self.samples, key=self.scaled)

    def scaled(self, form: str) -> float:
        """Seconds of a form of the cross join over every window, by its samples."""
        return self.windows * extrapolated(self.samples[form], self.rows // self.windows)

    @property
    def cross_seconds(self) -> float:
        """Of the best cross join over every window."""
        return self.whole if self.whole is not None else self.scaled(self.form)

    def median(self, way: str) -> float:
        """Seconds of one of our ways."""
        return self.cross_seconds if way == CROSS else statistics.median(self.seconds[way])

    def against(self, way: str) -> float:
        """Our speed over that of another way."""
        return self.median(way) / self.median(OURS)


def extrapolated(samples: Mapping[int, float], rows: int) -> float:
    """Seconds of one cross join of `rows`, from two samples: what does not grow with the pairs is counted once.

    >>> extrapolated({10: 2.0, 20: 5.0}, 40)
    17.0
    """
    small, large = sorted(samples)
    slope = max(samples[large] - samples[small], 0.0) / (large**2 - small**2)
    return samples[large] + slope * (rows**2 - large**2)


def uniform_case(rows: int, windows: int, samples: tuple[int, int], seed: int, quick: bool = False) -> Case:
    """Two-dimensional vectors, uniform in a square, as in the published experiments; `rows` of them a window."""
    vectors = drawn(Vectors(seed=seed), windows * rows)
    return Case("2-d", vectors, windows, threshold(vectors, SELECTIVITY), samples, quick)


def topics_case(rows: int, samples: tuple[int, int], seed: int, quick: bool = False) -> Case:
    """One window of vectors of 128 dimensions around many directions."""
    law = Vectors(distribution="topics", dimension=WIDE, topics=TOPICS, exponent=0.0, seed=seed)
    vectors = drawn(law, rows)
    return Case(f"{WIDE}-d", vectors, 1, threshold(vectors, WIDE_SELECTIVITY), samples, quick)


def drawn(law: Vectors, rows: int) -> Floats:
    """float64[rows, dimension]: the first vectors of a workload."""
    column = law.rows(0, rows, np.zeros(rows, dtype=np.int64)).column("vector")
    return np.array(column.flatten()).reshape(rows, -1)


def threshold(vectors: Floats, selectivity: float, sample: int = 3_000) -> float:
    """The distance that this share of the pairs does not exceed, by a sample of the records."""
    some = vectors[: min(sample, len(vectors))]
    distances = metric(ANGULAR).pairwise(some, some)
    return float(np.quantile(distances[np.triu_indices(len(some), 1)], selectivity))


def write_vectors(folder: Path, vectors: Floats, window: int = 0, files: int = FILES) -> Path:
    """The records of one window, in a few Parquet files; ids differ from those of other windows."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(vectors)), files)):
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors[rows].ravel()), vectors.shape[1])
        at = pa.array(np.full(len(rows), window * WINDOW_SECONDS * 1_000_000), pa.timestamp("us", tz="UTC"))
        table = pa.table(
            {
                "id": pa.array(rows + window * len(vectors)),
                "window": pa.array(np.full(len(rows), window)),
                "at": at,
                "vector": column.cast(pa.list_(pa.float64())),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def pairs_of(answer: pa.Table, t: float) -> set[tuple[int, int]]:
    """The pairs of an answer, but for those at the border of the threshold; WrongAnswerError where one is twice."""
    inside = np.asarray(answer.column("distance").to_numpy()) <= t - BORDER
    ids = np.column_stack([answer.column(name).to_numpy() for name in ("left_id", "right_id")])[inside]
    found = set(map(tuple, np.sort(ids, axis=1).tolist()))
    if len(found) != len(ids):
        raise WrongAnswerError(f"{len(ids) - len(found)} pairs were given twice")
    return found


def compare(case: Case, rows: DataFrame) -> int:
    """Let every way join a sample, and compare their pairs; gives how many there are. Also warms all of them up."""
    right: set[tuple[int, int]] | None = None
    for name, join in {**case.ways(), **case.crosses()}.items():
        found = pairs_of(join(rows).toArrow(), case.t)  # one window
        right = found if right is None else right
        if found != right:
            raise WrongAnswerError(f"{name} gave {len(found ^ right)} other pairs than {OURS} over {case.title}")
    assert right is not None
    return len(right)


def seconds_of(join: Callable[[DataFrame], DataFrame], rows: DataFrame) -> float:
    """From the call to the last pair; pairs go nowhere."""
    clock = time.perf_counter()
    join(rows).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - clock


def timed(spark: SparkSession, folder: Path, case: Case, repetitions: int, patience: float, run: Run) -> Timed:
    """Time every way over a case; those over all windows in one call take turns."""
    small, large = (
        spark.read.parquet(str(write_vectors(folder / f"sample-{n}", case.vectors[:n]))) for n in case.samples
    )
    folders = [
        str(write_vectors(folder / f"window={number}", vectors, number))
        for number, vectors in enumerate(np.split(case.vectors, case.windows))
    ]
    everything = spark.read.parquet(*folders)
    compare(case, small)
    samples = {
        # The small one is nearly all fixed cost, and a slow moment there would tilt the line: the better of two.
        form: {
            case.samples[0]: min(seconds_of(join, small) for _ in range(2)),
            case.samples[1]: seconds_of(join, large),
        }
        for form, join in case.crosses().items()
    }
    for join in case.ways().values():
        seconds_of(join, everything)  # compiled code of Spark's gets faster with what it has seen
    seconds: dict[str, list[float]] = {name: [] for name in case.ways()}
    for turn in run.progress.track(range(repetitions), f"{case.title}, {len(case.vectors)} rows"):
        for name, join in list(case.ways().items())[:: 1 if turn % 2 == 0 else -1]:
            seconds[name].append(seconds_of(join, everything))
    counts = {name: join(everything).count() for name, join in case.ways().items()}
    pairs = counts[OURS]
    # The ways compute with the same kernels, so that not even the border of the threshold is excused.
    if set(counts.values()) != {pairs}:
        raise WrongAnswerError(f"numbers of pairs over all windows differ: {counts}")
    found = Timed(case.title, len(case.vectors), case.windows, case.t, pairs, seconds, samples, None)
    if found.cross_seconds > patience:
        return found
    join = case.crosses()[found.form]
    crossed = sum(seconds_of(join, spark.read.parquet(one)) for one in run.progress.track(folders, "cross join"))
    return replace(found, whole=crossed)


def kernel_speeds(seed: int, rows: int = KERNEL_ROWS, repetitions: int = 5) -> dict[str, float]:
    """Speed of the distance kernel over that of one matrix product of its input, for both precisions."""
    measure, found = metric(ANGULAR), {}
    for name, precision in (("kernel_vs_matmul", np.float64), ("kernel_vs_matmul_float32", np.float32)):
        vectors = drawn(Vectors(dimension=WIDE, seed=seed), 2 * rows)
        t = threshold(vectors, WIDE_SELECTIVITY, 1_000)
        left, right = vectors[:rows].astype(precision), vectors[rows:].astype(precision)
        measure.within(left[:256], right, t)  # compiled, and loaded
        ratios = []
        for _ in range(repetitions):  # in turns, so that a slow moment of the machine hits both
            clock = time.perf_counter()
            np.matmul(left, right.T)
            product = time.perf_counter()
            measure.within(left, right, t)
            ratios.append((product - clock) / (time.perf_counter() - product))
        found[name] = statistics.median(ratios)
    return found


@experiment("s3j-speed", title="Similarity join on Spark beside a cross join, ClusterJoin and a broadcast join")
def s3j_speed(run: Run) -> Result:
    """Records per second of windows joined with themselves, by every way, in one run."""

    kernels = kernel_speeds(run.seed, repetitions=run.pick(9, 3))
    repetitions = run.pick(REPETITIONS, QUICK_REPETITIONS)
    samples, wide = run.pick((SAMPLES, WIDE_SAMPLES), (QUICK_SAMPLES, QUICK_WIDE_SAMPLES))
    cases = [
        uniform_case(ROWS, run.pick(WINDOWS, QUICK_WINDOWS), samples, run.seed, run.quick),
        topics_case(run.pick(WIDE_ROWS, QUICK_WIDE_ROWS), wide, run.seed, run.quick),
    ]
    with spark_for("s3j-speed", SLOTS, {"spark.driver.memory": "2g"}) as (spark, scratch):
        patience = run.pick(PATIENCE, 0.0)
        found = [timed(spark, scratch / one.title, one, repetitions, patience, run) for one in cases]
    return result_of(found, kernels, repetitions)


def result_of(found: Sequence[Timed], kernels: Mapping[str, float], repetitions: int) -> Result:
    """Our speed over that of each other way."""
    plain, wide = found
    metrics: dict[str, float] = {
        "vs_cross_join": plain.against(CROSS),
        "vs_clusterjoin": plain.against(CLUSTER),
        "vs_clusterjoin_few_cells": plain.against(FEW_CLUSTER),
        "vs_broadcast_join": plain.against(BROADCAST),
        "vs_cross_join_128d": wide.against(CROSS),
        "vs_clusterjoin_128d": wide.against(CLUSTER),
        "vs_clusterjoin_128d_few_cells": wide.against(FEW_CLUSTER),
        "vs_broadcast_join_128d": wide.against(BROADCAST),
        **kernels,
        "records_per_s": plain.rows / plain.median(OURS),
        "records_per_s_128d": wide.rows / wide.median(OURS),
    }
    for name, one in (("vs_cross_join", plain), ("vs_cross_join_128d", wide)):
        for form in one.samples.keys() - {one.form}:
            metrics[f"{name}_{form}"] = one.scaled(form) / one.median(OURS)
    scaled = [name for name, one in (("vs_cross_join", plain), ("vs_cross_join_128d", wide)) if one.whole is None]
    scaled += [name for name in metrics if name.endswith(FORMS)]
    slow = "what a Spark job takes before it computes counts on our side, and little does on the other"
    even = (
        f"both shuffle once and give the same {plain.pairs} pairs to Spark, which is most of the time; the {CELLS} "
        "distances of a record to ClusterJoin's centroids and its larger cells do not outweigh that"
    )
    return Result(
        parameters={
            "slots": SLOTS,
            "rows": plain.rows,
            "windows": plain.windows,
            "rows_128d": wide.rows,
            "t": plain.t,
            "t_128d": wide.t,
            "cells": CELLS,
            "repetitions": repetitions,
        },
        metrics=metrics,
        tables=[_table(found), _samples(found)],
        series=[
            Series(
                one.title,
                sorted(one.samples[one.form]),
                [one.samples[one.form][n] for n in sorted(one.samples[one.form])],
            )
            for one in found
        ],
        targets=[
            Target("vs_cross_join", at_least=20.0, explanation=slow),
            Target("vs_clusterjoin", at_least=2.0, explanation=even),
            Target("vs_cross_join_128d", at_least=5.0, explanation=slow),
            Target("kernel_vs_matmul", at_least=0.5, explanation="another program had the cores, or the cache"),
        ],
        kinds=dict.fromkeys(scaled, "simulated"),
        notes=_notes(found, scaled),
    )


def _notes(found: Sequence[Timed], scaled: Sequence[str]) -> list[str]:
    plain, wide = found
    notes = [
        "Every way reads the same Parquet files and gives its pairs to nowhere; the clock runs from the call to the "
        "last pair. Ways take turns and the median counts.",
        f"{plain.windows} windows of {plain.rows // plain.windows} uniform vectors of 2 dimensions, {plain.pairs} "
        "pairs: all in one call, but for the cross join, which has one window after the other and so begins a job for "
        "each.",
        f"vs_clusterjoin is over the {CELLS} virtual partitions of ClusterJoin's own paper; _few_cells is over "
        f"{FEW_CELLS}, which suits so few slots better. The broadcast join compares all with all by our kernels: where "
        "one side fits into every task, nothing beats it by much.",
        f"One window of {wide.rows} vectors of {WIDE} dimensions around {TOPICS} directions, {wide.pairs} pairs. "
        "Thresholds are quantiles of the distances in a sample.",
        f"The cross join is the fastest form of those in the table: {plain.form} for 2 dimensions, {wide.form} "
        f"for {WIDE}. All ways gave the same pairs over the smaller sample, and would have stopped the run otherwise.",
    ]
    if scaled:
        notes.append(
            f"{' and '.join(scaled)}: the cross join was not run over the whole window. Its time is extrapolated from "
            "two samples, by the number of pairs; what does not grow with them is counted once per window."
        )
    return notes


def _table(found: Sequence[Timed]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for one in found:
        for way, seconds in one.seconds.items():
            rows.append(
                (one.title, way, one.rows, one.median(way), min(seconds), max(seconds), one.rows / one.median(way))
            )
        cross, how = one.cross_seconds, "" if one.whole is not None else ", extrapolated"
        rows.append((one.title, f"{CROSS} ({one.form}{how})", one.rows, cross, cross, cross, one.rows / cross))
    return Table("joins", ("vectors", "way", "rows", "median s", "fastest s", "slowest s", "records a second"), rows)


def _samples(found: Sequence[Timed]) -> Table:
    rows = [
        (one.title, form, n, seconds[n], n * (n - 1) // 2 / seconds[n])
        for one in found
        for form, seconds in one.samples.items()
        for n in sorted(seconds)
    ]
    return Table("cross joins of samples", ("vectors", "form", "rows", "seconds", "pairs a second"), rows)


@s3j_speed.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Records per second of every way, a panel for each kind of vectors."""
    joins = result.tables[0].records()
    kinds = list(dict.fromkeys(one["vectors"] for one in joins))
    for axes, kind in zip(charts.panels(figure, len(kinds), (13, 4.0)), kinds, strict=True):
        own = [one for one in joins if one["vectors"] == kind]
        rates = {one["way"]: one["records a second"] for one in own}
        title = f"{kind}, {own[0]['rows']:,} records"
        charts.dots(axes, rates, title=title, x="records per second", y="way", ours=(OURS,))
