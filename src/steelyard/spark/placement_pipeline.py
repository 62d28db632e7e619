"""Records of tuples to features of latencies, on Spark: for more of them than one machine's memory holds.

Parquet comes in as `steelyard.placement.records` writes it. What comes out is, row by row, what
`steelyard.placement.features` makes of the same: one row per tuple, windows of 30 s, weights of 10 minutes, feature
tables. Cross-validation is spread over kernels and parameters, samples for learners over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.placement.features import HISTORY, PROCESSING, TRANSFER, WINDOW
from steelyard.placement.learnt import training_rows
from steelyard.placement.records import SCHEMAS, batches_of
from steelyard.placement.regression import FOLDS, Parameters, cross_validated, grid

_ID = ["app_id", "tuple_id"]
_KEY = ["app_id", "schedule_id", "window"]
_END = ("machine_cpu", "machine_mem_gb", "thread_workload", "machine_workload")
_PAIR = ["edge", "src_exec", "dst_exec", "src_machine", "dst_machine"]
_SCORES = "name string, kernel string, C double, epsilon double, gamma double, accuracy double, rows long"
SAMPLES = "seed long, assignment array<long>, times array<double>"
"""A placement that was drawn, and the time of each application under it."""

Sampler = Callable[[int], tuple[Ints, Floats]]
"""From a seed to int64[B, threads] and float64[B, applications]; it is pickled and called in tasks."""


@dataclass(frozen=True)
class Pipeline:
    """Records of a folder, as Spark sees them.

    Parameters
    ----------
    spark
        A session.
    folder
        Where `Collected.write` put them, in a place that all executors see.
    """

    spark: SparkSession
    folder: str

    def __post_init__(self) -> None:
        if not batches_of(self.folder):
            raise OptionError(f"{self.folder} has no records: write some with Collected.write(folder)")

    @property
    def share(self) -> float:
        """Share of the sources' tuples that were followed."""
        shares = set()
        for batch in batches_of(self.folder):
            path = Path(self.folder) / "schedule" / f"batch={batch}" / "part.parquet"
            shares.add(float((pq.read_schema(path).metadata or {}).get(b"share", b"1.0")))
        if len(shares) != 1:
            raise OptionError(f"records that follow {sorted(shares)} of the tuples cannot be joined: give one share")
        return shares.pop()

    def table(self, name: str) -> DataFrame:
        """One kind of records; machines and schedules once each."""
        if name not in SCHEMAS:
            raise OptionError.unknown("kind of records", name, SCHEMAS)
        found = self.spark.read.parquet(f"{self.folder}/{name}").drop("batch")
        return found.distinct() if name in ("machine", "schedule") else found

    def per_tuple(self) -> DataFrame:
        """One row for each tuple, from fragments in any order and perhaps twice."""

        def first(table: DataFrame, names: Sequence[str]) -> DataFrame:
            return table.groupBy(*_ID).agg(*(F.first(name, ignorenulls=True).alias(name) for name in names))

        ways = first(self.table("transfer"), ["root_id", "schedule_id", *_PAIR, "t_sent", "t_recv"])
        names = ["root_id", "schedule_id", "component", "exec", "machine", "t_start", "t_end"]
        work = first(self.table("process"), names)
        work = work.withColumnsRenamed({"root_id": "root_of_work", "schedule_id": "schedule_of_work"})
        return (
            ways.join(work, _ID, "full")
            .withColumns(
                {
                    "root_id": F.coalesce("root_id", "root_of_work"),
                    "schedule_id": F.coalesce("schedule_id", "schedule_of_work"),
                    "transfer_seconds": F.col("t_recv") - F.col("t_sent"),
                    "processing_seconds": F.col("t_end") - F.col("t_start"),
                }
            )
            .drop("root_of_work", "schedule_of_work")
        )

    def weights(self, now: float | None = None, history: float = HISTORY) -> tuple[DataFrame, DataFrame]:
        """w(i, j) of instances and w(i, j, k) of pairs, over so many seconds before `now` or the last tuple."""
        tuples = self.per_tuple()
        if now is None:
            last = tuples.agg(F.greatest(F.max("t_end"), F.max("t_recv"))).first()
            now = last[0] if last is not None else 0.0

        def shares(by: str, of: str, who: list[str]) -> DataFrame:
            among = Window.partitionBy("app_id", of)
            recent = tuples.where((F.col(by) > F.lit(now - history)) & (F.col(by) <= F.lit(now)))
            found = recent.groupBy("app_id", of, *who).agg(F.count("*").alias("tuples"))
            return found.withColumn("weight", F.col("tuples") / F.sum("tuples").over(among))

        return shares("t_end", "component", ["exec"]), shares("t_recv", "edge", ["src_exec", "dst_exec"])

    def features(self) -> tuple[DataFrame, DataFrame]:
        """Feature tables of processing and of transfer latencies, a row for each window and thread, or pair."""
        tuples, schedule = self.per_tuple(), self.table("schedule")
        work, ways = _windowed(tuples, "t_end", schedule), _windowed(tuples, "t_recv", schedule)
        where = ["component", "exec", "machine"]
        done = work.groupBy(*_KEY, *where).agg(
            F.count("*").alias("tuples"), F.avg("processing_seconds").alias("seconds")
        )
        sent = ways.groupBy(*_KEY, *_PAIR).agg(F.count("*").alias("tuples"), F.avg("transfer_seconds").alias("seconds"))
        ends = self._ends(done, ways, schedule)
        own = ends.select(*_KEY, "exec", *_END, "colocated_threads")
        processing = done.join(own, [*_KEY, "exec"])
        transfer = sent
        for who, suffix in (("src_exec", "_u"), ("dst_exec", "_d")):
            chosen = ends.select(*_KEY, F.col("exec").alias(who), *(F.col(name).alias(name + suffix) for name in _END))
            transfer = transfer.join(chosen, [*_KEY, who])
        transfer = transfer.withColumn("colocation", (F.col("src_machine") == F.col("dst_machine")).cast("double"))
        return (
            processing.select(*_KEY, *where, *PROCESSING, "tuples", "seconds"),
            transfer.select(*_KEY, *_PAIR, *TRANSFER, "tuples", "seconds"),
        )

    def _ends(self, done: DataFrame, ways: DataFrame, schedule: DataFrame) -> DataFrame:
        """Features of each thread's end; sources work on what they give."""
        receives = ways.select("app_id", F.col("dst_exec").alias("src_exec")).distinct()
        at = schedule.select("app_id", "schedule_id", "exec", "machine").distinct()
        given = (
            ways.join(receives, ["app_id", "src_exec"], "left_anti")
            .groupBy(*_KEY, F.col("src_exec").alias("exec"))
            .agg(F.countDistinct("root_id").alias("tuples"))
            .join(at, ["app_id", "schedule_id", "exec"])
        )
        names = [*_KEY, "exec", "machine"]
        threads = done.select(*names, "tuples").unionByName(given.select(*names, "tuples"))
        threads = threads.select(*names, (F.col("tuples") / F.lit(self.share)).alias("thread_workload"))
        loads = threads.groupBy("window", "machine").agg(F.sum("thread_workload").alias("machine_workload"))
        hosted = at.groupBy("schedule_id", "machine").agg(F.count("*").cast("double").alias("colocated_threads"))
        machines = self.table("machine").select(
            F.col("id").alias("machine"), F.col("cores").alias("machine_cpu"), F.col("mem_gb").alias("machine_mem_gb")
        )
        found = threads.join(loads, ["window", "machine"]).join(hosted, ["schedule_id", "machine"])
        return found.join(F.broadcast(machines), "machine")

    def scores(self, parameters: Sequence[Parameters] = (), folds: int = FOLDS) -> pd.DataFrame:
        """Accuracy of every kernel and set of parameters, for each component and each stream.

        One task for each of them: `name`, `kernel`, `C`, `epsilon`, `gamma`, `accuracy`, `rows`.
        """
        tried = pd.DataFrame([asdict(one) for one in (parameters or grid())])
        among = self.spark.createDataFrame(tried.reset_index(names="number"))
        found: list[pd.DataFrame] = []
        for kind, table in zip(("processing", "transfer"), self.features(), strict=True):
            of = "component" if kind == "processing" else "edge"
            spread = table.withColumn("name", F.col(of)).crossJoin(F.broadcast(among)).groupBy("name", "number")
            found.append(spread.applyInPandas(_scored(kind, folds), _SCORES).toPandas())
        columns = ["name", "kernel", "C", "epsilon", "gamma"]
        return pd.concat(found, ignore_index=True).sort_values(columns).reset_index(drop=True)


def _windowed(tuples: DataFrame, by: str, schedule: DataFrame) -> DataFrame:
    """Tuples with their window; only windows that lie in a time of their schedule."""
    spans = schedule.select("app_id", "schedule_id", "t_from", "t_to").distinct()
    known = tuples.where(F.col(by).isNotNull()).withColumn("window", F.floor(F.col(by) / WINDOW))
    whole = (
        known.select(*_KEY)
        .distinct()
        .join(F.broadcast(spans), ["app_id", "schedule_id"])
        .where((F.col("window") * WINDOW >= F.col("t_from")) & (F.col("window") * WINDOW + WINDOW <= F.col("t_to")))
        .select(*_KEY)
        .distinct()
    )
    return known.join(whole, _KEY)


def _scored(kind: str, folds: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def score(table: pd.DataFrame) -> pd.DataFrame:
        one = table.iloc[0]
        used = Parameters(str(one["kernel"]), float(one["C"]), float(one["epsilon"]), float(one["gamma"]))
        ordered = table.sort_values(["app_id", "schedule_id", "window"])
        rows, seconds, groups = training_rows(ordered, kind)
        found = {"name": one["name"], **asdict(used)}
        found |= {"accuracy": cross_validated(rows, seconds, groups, used, folds), "rows": len(rows)}
        return pd.DataFrame([found])

    return score


def samples(spark: SparkSession, sampler: Sampler, seeds: Sequence[int], tasks: int = 0) -> DataFrame:
    """Placements with their times, drawn in tasks: a row for each, of the columns of `SAMPLES`.

    Each seed is drawn by one task, and gives the same rows wherever that runs.

    Parameters
    ----------
    spark
        A session.
    sampler
        Draws placements from a seed and gives their times.
    seeds
        One call of the sampler for each.
    tasks
        How many; 0, as many as the session has slots.
    """
    if not len(seeds):
        raise OptionError("samples need at least one seed")
    slices = tasks or spark.sparkContext.defaultParallelism

    def drawn(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in parts:
            for seed in part["seed"].tolist():
                assignments, times = sampler(int(seed))
                yield pd.DataFrame({"seed": seed, "assignment": list(assignments), "times": list(np.asarray(times))})

    given = spark.createDataFrame(pd.DataFrame({"seed": np.asarray(seeds, dtype=np.int64)}))
    return given.repartition(slices, "seed").mapInPandas(drawn, SAMPLES)
