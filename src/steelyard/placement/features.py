"""From records of tuples to what the predictor learns from: one row per tuple, windows of 30 s, features and weights.

This is the plain form, for what fits into memory; `steelyard.spark.placement_pipeline` does the same on Spark, and
tests compare the two row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from steelyard.core.errors import OptionError
from steelyard.core.shown import Shown
from steelyard.placement.records import Collected

WINDOW = 30.0
"""Seconds over which loads and latencies are averaged (Li 2018, section 2.2.3)."""
HISTORY = 600.0
"""Seconds of which the weights are (the same, section 2.2.2)."""
_END = ("machine_cpu", "machine_mem_gb", "thread_workload", "machine_workload")
PROCESSING = (*_END, "colocated_threads")
"""The 5 features of a processing latency."""
TRANSFER = (*(f"{name}_u" for name in _END), *(f"{name}_d" for name in _END), "colocation")
"""The 9 features of a transfer latency: those of the sender's end, of the receiver's, and whether these are one."""
_OF_TUPLE = {
    "edge": "first",
    "src_exec": "first",
    "dst_exec": "first",
    "src_machine": "first",
    "dst_machine": "first",
    "t_sent": "first",
    "t_recv": "first",
}
_OF_WORK = {"component": "first", "exec": "first", "machine": "first", "t_start": "first", "t_end": "first"}
_ID = ["app_id", "tuple_id"]


@dataclass(frozen=True, eq=False, repr=False)
class Features(Shown):
    """What latencies are learnt from.

    Parameters
    ----------
    processing
        A row for each window and instance that worked: `app_id`, `schedule_id`, `window`, `component`, `exec`,
        `machine`, the 5 features, `tuples`, and `seconds`, the mean processing latency.
    transfer
        The same for each window and pair of instances: `edge`, `src_exec`, `dst_exec`, their machines, the 9 features,
        `tuples` and `seconds`, the mean transfer latency.
    """

    processing: pd.DataFrame
    transfer: pd.DataFrame

    def joined(self, others: Features) -> Features:
        """These and those behind them."""
        both = (
            pd.concat(pair, ignore_index=True)
            for pair in ((self.processing, others.processing), (self.transfer, others.transfer))
        )
        return Features(*both)

    def _facts(self) -> Mapping[str, object]:
        return {"processing": f"{len(self.processing):,} rows", "transfer": f"{len(self.transfer):,} rows"}


@dataclass(frozen=True, eq=False)
class Weights:
    """How an application's tuples went in the last ten minutes.

    Parameters
    ----------
    instance
        `component`, `exec`, `tuples` and `weight`: w(i, j), the share of the component's tuples that the instance got.
    pair
        `edge`, `src_exec`, `dst_exec`, `tuples` and `weight`: w(i, j, k), the share of the edge's tuples.
    """

    instance: pd.DataFrame
    pair: pd.DataFrame


def per_tuple(records: Collected) -> pd.DataFrame:
    """One row for each tuple, with its way and its work, from fragments in any order and perhaps twice.

    A tuple of which only one half came has nothing in the columns of the other.
    """
    transfer, process = records.transfer.to_pandas(), records.process.to_pandas()
    shared = {"root_id": "first", "schedule_id": "first"}
    ways = transfer.groupby(_ID, sort=False).agg({**shared, **_OF_TUPLE})
    work = process.groupby(_ID, sort=False).agg({**shared, **_OF_WORK})
    tuples = ways.join(work, how="outer", rsuffix="_work")
    for name in shared:
        tuples[name] = tuples[name].fillna(tuples.pop(f"{name}_work"))
    tuples["transfer_seconds"] = tuples["t_recv"] - tuples["t_sent"]
    tuples["processing_seconds"] = tuples["t_end"] - tuples["t_start"]
    found: pd.DataFrame = tuples.reset_index()
    return found


def features(records: Collected, window: float = WINDOW) -> Features:
    """Windows of 30 s, or as many as given, with the features of each instance and pair in them.

    Windows count that lie in the time of their schedule as a whole. An instance's load is what it worked off, of a
    source what it gave. A machine's load is that of all of its instances, of whatever application.
    """
    tuples = per_tuple(records)
    schedule, machine = records.schedule.to_pandas(), records.machine.to_pandas().set_index("id")
    _require_known(schedule, machine)
    work, ways = (_windowed(tuples, by, schedule, window) for by in ("t_end", "t_recv"))
    done = _grouped(work, ["component", "exec", "machine"], "processing_seconds")
    sent = _grouped(ways, ["edge", "src_exec", "dst_exec", "src_machine", "dst_machine"], "transfer_seconds")
    threads = _threads(done, _given(ways, schedule), records.share)
    ends = _ends(threads, schedule, machine)
    processing = _with(done, ends, "exec", "").drop(columns=["machine_of"])
    transfer = _with(_with(sent, ends, "src_exec", "_u"), ends, "dst_exec", "_d")
    transfer["colocation"] = (transfer["src_machine"] == transfer["dst_machine"]).astype(float)
    key, where = ["app_id", "schedule_id", "window"], ["component", "exec", "machine"]
    pair = ["edge", "src_exec", "dst_exec", "src_machine", "dst_machine"]
    return Features(
        _ordered(processing, [*key, *where, *PROCESSING, "tuples", "seconds"]),
        _ordered(transfer, [*key, *pair, *TRANSFER, "tuples", "seconds"]),
    )


def weights(records: Collected, now: float | None = None, history: float = HISTORY) -> Weights:
    """Shares of instances and pairs, of all tuples in so many seconds before `now`; by default before the last one."""
    tuples = per_tuple(records)
    if now is None:
        now = float(np.nanmax([tuples["t_end"].max(), tuples["t_recv"].max()]))
    work = tuples[(tuples["t_end"] > now - history) & (tuples["t_end"] <= now)]
    ways = tuples[(tuples["t_recv"] > now - history) & (tuples["t_recv"] <= now)]
    return Weights(_shares(work, "component", ["exec"]), _shares(ways, "edge", ["src_exec", "dst_exec"]))


def _shares(tuples: pd.DataFrame, of: str, who: list[str]) -> pd.DataFrame:
    found = tuples.groupby(["app_id", of, *who]).size().rename("tuples").reset_index()
    found["weight"] = found["tuples"] / found.groupby(["app_id", of])["tuples"].transform("sum")
    found[who] = found[who].astype("int64")
    return found


def _require_known(schedule: pd.DataFrame, machine: pd.DataFrame) -> None:
    unknown = set(schedule["machine"]) - set(machine.index)
    if unknown:
        raise OptionError(f"a schedule names machine {min(unknown)}, of which there is no record: add it to `machine`")


def _windowed(tuples: pd.DataFrame, by: str, schedule: pd.DataFrame, window: float) -> pd.DataFrame:
    """Tuples that have this time, with their window; only windows that lie in a time of their schedule."""
    known = tuples[tuples[by].notna()]
    known = known.assign(window=np.floor(known[by] / window).astype("int64"))
    spans = schedule[["app_id", "schedule_id", "t_from", "t_to"]].drop_duplicates()
    asked = known[["app_id", "schedule_id", "window"]].drop_duplicates().merge(spans, on=["app_id", "schedule_id"])
    begin = asked["window"] * window
    whole = asked[(begin >= asked["t_from"]) & (begin + window <= asked["t_to"])]
    keys = ["app_id", "schedule_id", "window"]
    return known.merge(whole[keys].drop_duplicates(), on=keys)


def _grouped(tuples: pd.DataFrame, by: list[str], latency: str) -> pd.DataFrame:
    keys = ["app_id", "schedule_id", "window", *by]
    found = tuples.groupby(keys)[latency].agg(tuples="size", seconds="mean").reset_index()
    numbers = [name for name in by if name not in ("component", "edge")]
    found[numbers] = found[numbers].astype("int64")
    return found


def _given(ways: pd.DataFrame, schedule: pd.DataFrame) -> pd.DataFrame:
    """What instances of sources gave: tuples of theirs, however many edges each went over."""
    receives = set(zip(ways["app_id"], ways["dst_exec"], strict=True))
    from_source = [pair not in receives for pair in zip(ways["app_id"], ways["src_exec"], strict=True)]
    keys = ["app_id", "schedule_id", "window", "src_exec"]
    found = ways[from_source].groupby(keys)["root_id"].nunique().rename("tuples").reset_index()
    found = found.rename(columns={"src_exec": "exec"})
    found["exec"] = found["exec"].astype("int64")
    where = schedule[["app_id", "schedule_id", "exec", "machine"]].drop_duplicates()
    return found.merge(where, on=["app_id", "schedule_id", "exec"])


def _threads(done: pd.DataFrame, given: pd.DataFrame, share: float) -> pd.DataFrame:
    """The load of each instance in each window."""
    columns = ["app_id", "schedule_id", "window", "exec", "machine", "tuples"]
    both = pd.concat([done[columns], given[columns]], ignore_index=True)
    both["thread_workload"] = both.pop("tuples") / share
    return both


def _ends(threads: pd.DataFrame, schedule: pd.DataFrame, machine: pd.DataFrame) -> pd.DataFrame:
    """The features of each instance's end; instances of several applications on a machine are there together."""
    keys = ["window", "machine"]
    loads = threads.groupby(keys)["thread_workload"].sum().rename("machine_workload").reset_index()
    there = schedule[["app_id", "schedule_id", "exec", "machine"]].drop_duplicates()
    # schedules of several applications at once have the same name
    hosted = there.groupby(["schedule_id", "machine"]).size().rename("colocated_threads").reset_index()
    ends = threads.merge(loads, on=keys).merge(hosted, on=["schedule_id", "machine"])
    ends["machine_cpu"] = machine["cores"].reindex(ends["machine"]).to_numpy()
    ends["machine_mem_gb"] = machine["mem_gb"].reindex(ends["machine"]).to_numpy()
    ends["colocated_threads"] = ends["colocated_threads"].astype(float)
    return ends.rename(columns={"machine": "machine_of"})


def _with(rows: pd.DataFrame, ends: pd.DataFrame, who: str, suffix: str) -> pd.DataFrame:
    names = [*_END, *(("colocated_threads", "machine_of") if not suffix else ())]
    chosen = ends[["app_id", "schedule_id", "window", "exec", *names]]
    chosen = chosen.rename(columns={"exec": who, **{name: f"{name}{suffix}" for name in names if suffix}})
    return rows.merge(chosen, on=["app_id", "schedule_id", "window", who])


def _ordered(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return rows[columns].sort_values(columns[:6]).reset_index(drop=True)
