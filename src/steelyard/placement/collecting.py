"""Records of a cluster, as it runs one placement after the other: what the predictor is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import measured
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import Measured, Reading, Recorded
from steelyard.core.placing import Setup
from steelyard.placement.clocks import EXCHANGE, clocks, corrected
from steelyard.placement.features import WINDOW
from steelyard.placement.records import ACK, MACHINE, PROCESS, SCHEDULE, TRANSFER, Collected

EXCHANGES = 8
"""Two-way exchanges with each machine, before and after each placement."""


@dataclass(frozen=True, eq=False)
class Deployed:
    """A placement that was in force, and from when to when it was recorded."""

    number: int
    """Its deployment, as records call it."""
    assignment: Ints
    begin: float
    end: float


def collected(setup: Setup, records: measured.Records, deployed: Iterable[Deployed], share: float = 1.0) -> Collected:
    """Arrays that a cluster recorded, as tables; threads are numbered as in an assignment.

    Tuples of deployments that are not named here are left out.
    """
    schedules = list(deployed)
    known = np.array([one.number for one in schedules])
    apps = pa.array(setup.applications)
    application = np.append(setup.application_of, 0)
    names, edges = [one.name for one in setup.operators], [str(edge) for edge in setup.edges]
    transfer, process, ack = (one[np.isin(one["schedule"], known)] for one in records)

    def app_of(numbers: Any) -> pa.Array:
        return apps.take(pa.array(numbers))

    sender_of = setup.links[:, 0] if len(setup.links) else np.zeros(1, np.int64)
    return Collected(
        transfer=pa.table(
            {
                "tuple_id": transfer["tuple_id"],
                "root_id": transfer["root_id"],
                "app_id": app_of(application[sender_of[transfer["edge"]]]),
                "edge": pa.array(edges or [""]).take(pa.array(transfer["edge"])),
                "src_exec": transfer["sender"],
                "dst_exec": transfer["receiver"],
                "src_machine": transfer["sender_machine"],
                "dst_machine": transfer["receiver_machine"],
                "t_sent": transfer["sent"],
                "t_recv": transfer["received"],
                "schedule_id": _text(transfer["schedule"]),
            },
            schema=TRANSFER,
        ),
        process=pa.table(
            {
                "tuple_id": process["tuple_id"],
                "root_id": process["root_id"],
                "app_id": app_of(application[process["component"]]),
                "component": pa.array(names).take(pa.array(process["component"])),
                "exec": process["thread"],
                "machine": process["machine"],
                "t_start": process["began"],
                "t_end": process["ended"],
                "schedule_id": _text(process["schedule"]),
            },
            schema=PROCESS,
        ),
        ack=pa.table(
            {
                "root_id": ack["root_id"],
                "app_id": app_of(ack["application"]),
                "t_emit": ack["emitted"],
                "t_ack": ack["acked"],
            },
            schema=ACK,
        ),
        machine=machines_of(setup),
        schedule=schedules_of(setup, schedules),
        share=share,
    )


def _text(numbers: Any) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def machines_of(setup: Setup) -> pa.Table:
    """The machines of a setup as records."""
    rows = [
        {"id": at, "cores": float(host.cores), "mem_gb": float(host.memory_gb), "slots": host.slots}
        for at, host in enumerate(setup.hosts)
    ]
    return pa.Table.from_pylist(rows, schema=MACHINE)


def schedules_of(setup: Setup, deployed: Sequence[Deployed]) -> pa.Table:
    """Placements as records: a row for each thread that ran."""
    rows = [
        {
            "schedule_id": str(one.number),
            "app_id": setup.applications[int(setup.application_of[setup.component_of[thread]])],
            "exec": thread,
            "component": setup.operators[int(setup.component_of[thread])].name,
            "machine": int(one.assignment[thread]),
            "t_from": one.begin,
            "t_to": one.end,
        }
        for one in deployed
        for thread in np.flatnonzero(one.assignment >= 0).tolist()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEDULE)


def exchanged(cluster: Recorded, times: int = EXCHANGES) -> pa.Table:
    """So many two-way exchanges with each machine, now."""
    found = []
    for machine in range(cluster.setup.machines):
        each = cluster.exchange(machine, times)
        own = {"machine": pa.array([machine] * times, pa.int32())}
        found.append(pa.table(own | {name: each[:, at] for at, name in enumerate(("t1", "t2", "t3", "t4"))}))
    return pa.concat_tables(found).cast(EXCHANGE)


@dataclass(frozen=True, eq=False)
class Watched:
    """A placement that a cluster ran, with the records of its tuples and what was measured beside them."""

    deployed: Deployed
    records: Collected
    reading: Reading


def require_recorded(cluster: Measured) -> Recorded:
    """The cluster, where it records single tuples; OptionError otherwise."""
    wanted = ("record", "records", "exchange")
    if not all(hasattr(cluster, verb) for verb in wanted):
        raise OptionError(
            f"times are learnt from records of single tuples, and {type(cluster).__name__} has none: train it on the "
            "tuple-exact level"
        )
    made: Any = cluster
    recorded: Recorded = made
    return recorded


def watched(cluster: Recorded, assignment: Ints, seconds: float, share: float, settle: float = 0.0) -> Watched:
    """Deploy a placement, let it settle, and record it until so many seconds have passed.

    Recording begins with a window, so that none is lost. Clocks are set right by exchanges before and after.
    """
    cluster.deploy(assignment)
    wait = settle + (-(cluster.now + settle)) % WINDOW
    if wait > 0:
        cluster.run(wait)
    before = exchanged(cluster)
    begin = cluster.now
    cluster.records()
    cluster.record(share)
    reading = cluster.measure(seconds)
    end = cluster.now
    found = cluster.records()
    cluster.record(0)
    known = clocks(pa.concat_tables([before, exchanged(cluster)]))
    number = _newest(found)
    deployed = Deployed(number, cluster.assignment.copy(), begin - 1e-6, end + 1e-6)
    records = collected(cluster.setup, found, [deployed], share)
    return Watched(deployed, corrected(records, known), reading)


def _newest(records: measured.Records) -> int:
    """The deployment of the newest tuples."""
    return max((int(one["schedule"].max()) for one in records if len(one)), default=0)
