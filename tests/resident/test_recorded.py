"""Records of single rows, against what each row's own notes say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.placing import Component, Host, Setup, Stream
from steelyard.core.topology import Instance, Placement
from steelyard.placement.records import PROCESS, TRANSFER
from steelyard.resident.operator import InstanceContext
from steelyard.resident.recorded import Recorded, collected, noted

SOURCE, CHAIN = ("read", 2), (("map", 3), ("wait", 2))
SETUP = Setup(
    (Component(*SOURCE, source=True), *(Component(*one) for one in CHAIN)),
    (Stream("read", "map"), Stream("map", "wait")),
    2 * (Host(),),
)


@settings(deadline=None)
@given(machines=st.lists(st.integers(0, 1), min_size=7, max_size=7), rows=st.integers(1, 9), seed=st.integers(0, 999))
def test_every_row_has_a_record_of_each_step_that_it_went_through(machines: list[int], rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    columns: dict[str, object] = {
        "id": random.permutation(rows),
        "due": random.random(rows),
        "source": random.integers(0, SOURCE[1], rows).astype(np.int32),
    }
    for name, count in CHAIN:
        notes = (random.integers(0, count, rows).astype(np.int32), random.random(rows), random.random(rows))
        columns |= dict(zip((f"{name} {what}" for what in ("instance", "began", "ended")), notes, strict=True))
    table, where = pa.table(columns), dict(zip(SETUP.possible, machines, strict=True))
    got = collected(SETUP, table, ("read", "map", "wait"), Placement(where, 2), 4, (0.0, 1.0))
    executor = {one: at for at, one in enumerate(SETUP.possible)}
    transfers, processes = [], []
    for row in table.to_pylist():
        at, sent = Instance("read", row["source"]), row["due"]
        for step, (name, _) in enumerate(CHAIN):
            to = Instance(name, row[f"{name} instance"])
            began, ended = row[f"{name} began"], row[f"{name} ended"]
            ids = (row["id"] * 3 + step, row["id"])
            edge = f"{at.operator} -> {name}"
            transfers.append((*ids, edge, executor[at], executor[to], where[at], where[to], sent, began))
            processes.append((*ids, name, executor[to], where[to], began, ended))
            at, sent = to, ended
    found = [
        tuple(one[key] for key in TRANSFER.names if key not in ("app_id", "schedule_id"))
        for one in got.transfer.to_pylist()
    ]
    assert sorted(found) == sorted(transfers)
    assert {*got.transfer["schedule_id"].to_pylist(), *got.process["schedule_id"].to_pylist()} == {"4"}
    done = [
        tuple(one[key] for key in PROCESS.names if key not in ("app_id", "schedule_id"))
        for one in got.process.to_pylist()
    ]
    assert sorted(done) == sorted(processes)
    acks = [(one["root_id"], one["t_emit"], one["t_ack"]) for one in got.ack.to_pylist()]
    assert sorted(acks) == sorted((row["id"], row["due"], row["wait ended"]) for row in table.to_pylist())


def test_a_step_notes_who_worked_on_a_row_and_when() -> None:
    rows = pa.record_batch({"id": [7, 8]})
    context = InstanceContext(Instance("map", 2), 3, [rows.schema], noted(rows.schema, "map"))
    (made,) = Recorded(lambda batch: batch)(context).process(0, rows)
    assert made.schema == noted(pa.schema({"id": pa.int64()}), "map")
    assert made["map instance"].to_pylist() == [2, 2]
    assert all(row["map began"] <= row["map ended"] for row in made.to_pylist())
