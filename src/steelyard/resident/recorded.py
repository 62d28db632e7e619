"""Records of single rows on resident workers: operators that note when each row came to them and when it was done.

Notes go with the rows, as columns, to whoever gets the results: no channel of their own is needed, and none of the
engine's code is in between. They become the records that placements are predicted from (`steelyard.placement.records`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.core.placing import Setup
from steelyard.core.topology import Instance, Placement
from steelyard.placement.collecting import Deployed, machines_of, schedules_of
from steelyard.placement.records import ACK, PROCESS, TRANSFER, Collected
from steelyard.resident.operator import Batches, InstanceContext, Step
from steelyard.resident.stateless import BatchFunction

_NOTES = (("instance", pa.int32()), ("began", pa.float64()), ("ended", pa.float64()))


def noted(schema: pa.Schema, operator: str) -> pa.Schema:
    """The columns of rows that an operator has noted its times in.

    >>> noted(pa.schema({"id": pa.int64()}), "map").names
    ['id', 'map instance', 'map began', 'map ended']
    """
    return pa.schema([*schema, *(pa.field(f"{operator} {name}", kind) for name, kind in _NOTES)])


@dataclass(frozen=True)
class Recorded:
    """Makes a step of an operator that applies a function to each batch and notes its times; for `Stream.process`.

    Parameters
    ----------
    function
        Gives as many rows as it gets, in the same order, with all columns that were noted before.
    """

    function: BatchFunction

    def __call__(self, context: InstanceContext) -> Step:
        """Called in the worker of each instance."""
        return _RecordedStep(self.function, context.instance)


class _RecordedStep(Step):
    def __init__(self, function: BatchFunction, instance: Instance) -> None:
        self._function, self._instance = function, instance

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """The rows with three columns more; rows of a batch are worked on and handed on together."""
        began = time.time()
        made = self._function(batch)
        if made.num_rows != batch.num_rows:
            raise OptionError(f"the function of {self._instance.operator!r} changed the number of rows: it must not")
        values = (self._instance.number, began, time.time())
        columns = [
            pa.array(np.full(made.num_rows, value), kind) for value, (_, kind) in zip(values, _NOTES, strict=True)
        ]
        schema = noted(made.schema, self._instance.operator)
        return (pa.RecordBatch.from_arrays([*made.columns, *columns], schema=schema),)


def collected(
    setup: Setup, rows: pa.Table, chain: Sequence[str], placement: Placement, number: int, span: tuple[float, float]
) -> Collected:
    """Records of rows that went through a chain of recorded operators.

    Parameters
    ----------
    setup
        The application as a placement policy sees it; its components are the source and the chain.
    rows
        What came out, with the notes of all operators, and of the source `id`, `due` (when the row was there to be
        read) and `source` (the number of the instance that read it).
    chain
        The source's name, and those of the recorded operators behind it.
    placement
        Where instances were.
    number
        Of the deployment.
    span
        From when to when it counts, by the same clock.
    """
    ids, due = rows["id"].to_numpy(), rows["due"].to_numpy()
    app = pa.array([setup.applications[0]] * rows.num_rows)
    schedule = pa.array([str(number)] * rows.num_rows)
    step = _place(setup, placement, chain[0], rows["source"].to_numpy())
    sent, transfers, processes = due, [], []
    for at, (before, name) in enumerate(pairwise(chain)):
        notes = {what: rows[f"{name} {what}"].to_numpy() for what, _ in _NOTES}
        sender, step = step, _place(setup, placement, name, notes["instance"])
        shared: Mapping[str, object] = {
            "tuple_id": ids * len(chain) + at,
            "root_id": ids,
            "app_id": app,
            "schedule_id": schedule,
        }
        transfers.append(_transfers(shared, f"{before} -> {name}", (sender, step), (sent, notes["began"])))
        processes.append(_processes(shared, name, step, (notes["began"], notes["ended"])))
        sent = notes["ended"]
    assignment = setup.located({str(one): placement.worker_of[one] for one in setup.possible})
    return Collected(
        transfer=pa.concat_tables(transfers),
        process=pa.concat_tables(processes),
        ack=pa.table({"root_id": ids, "app_id": app, "t_emit": due, "t_ack": sent}).cast(ACK),
        machine=machines_of(setup),
        schedule=schedules_of(setup, [Deployed(number, assignment, *span)]),
    )


@dataclass(frozen=True)
class _Place:
    """Where each row was: the executor, by its number in the setup, and its machine."""

    executor: np.ndarray
    machine: np.ndarray


def _place(setup: Setup, placement: Placement, operator: str, instance: np.ndarray) -> _Place:
    first = setup.first[[one.name for one in setup.operators].index(operator)]
    return _Place(instance + int(first), np.array(placement.of(operator))[instance])


def _transfers(
    shared: Mapping[str, object], edge: str, ends: tuple[_Place, _Place], times: tuple[np.ndarray, np.ndarray]
) -> pa.Table:
    source, target = ends
    made = {
        **shared,
        "edge": pa.array([edge] * len(times[0])),
        "src_exec": source.executor,
        "dst_exec": target.executor,
        "src_machine": source.machine,
        "dst_machine": target.machine,
        "t_sent": times[0],
        "t_recv": times[1],
    }
    return pa.table(made).select(TRANSFER.names).cast(TRANSFER)


def _processes(
    shared: Mapping[str, object], component: str, place: _Place, times: tuple[np.ndarray, np.ndarray]
) -> pa.Table:
    made = {
        **shared,
        "component": pa.array([component] * len(times[0])),
        "exec": place.executor,
        "machine": place.machine,
        "t_start": times[0],
        "t_end": times[1],
    }
    return pa.table(made).select(PROCESS.names).cast(PROCESS)
