"""What protocols and operators cost on this machine: the figures that the simulated contest runs on.

    python -m steelyard.bench.checkmate.calibration

measures the resident engine's own functions, alone on one core, and writes them to `sim/checkpoints/measured.json`.
Processor time, and time by the clock where a disk is waited for.
"""

from __future__ import annotations

import json
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench.checkmate.nested import NestedHmnr
from steelyard.bench.checkmate.operators import operators
from steelyard.bench.environment import machine, versions
from steelyard.bench.timing import line_of, processor_seconds
from steelyard.checkpoint import Checkpoint, History, Place, Wire, recovery_line
from steelyard.checkpoint.communication_induced import Bcs, Hmnr
from steelyard.core.durable import written
from steelyard.resident.snapshot import packed, unpacked
from steelyard.resident.wire import HEADER, Kind, batch_bytes, batch_from, encoded, frame, head
from steelyard.sim.checkpoints.costs import FILE
from steelyard.workloads import Nexmark

REPETITIONS = 7
COMMAND = "python -m steelyard.bench.checkmate.calibration"
FEW_ROWS, MANY_ROWS = 1, 1_000
FEW_INSTANCES, MANY_INSTANCES = 30, 500
NETWORK = {"delay": 0.0002, "bytes_per_second": 1.25e9}
"""Not measured, there being one machine: 10 Gbit/s, and 0.2 ms one way."""


def calibrate() -> dict[str, Any]:
    """Everything, with when and how it was measured."""
    costs = {
        **_messages(),
        **_logs(),
        **_states(),
        "notes": {"Hmnr": _growing(Hmnr), "NestedHmnr": _growing(NestedHmnr), "Bcs": _bcs()},
        "line_wire": _line(),
        "frame_bytes": float(HEADER),
        **NETWORK,
    }
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": COMMAND,
        "machine": machine(),
        "versions": versions(),
        "not_measured": {"network": "10 Gbit/s and 0.2 ms one way, assumed"},
        "costs": costs,
        "operators": operators(),
    }


def _bids(rows: int) -> Any:
    return Nexmark("bids", seed=1).rows(0, rows, np.zeros(rows, np.int64))


def _messages() -> dict[str, float]:
    """Bids over a local socket: serialised, framed, sent; received, checked, read."""
    here, there = socket.socketpair()
    with here, there:
        for one in (here, there):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        sizes, makes, reads = [], [], []
        for rows in (FEW_ROWS, 100):
            batch = _bids(rows)
            sizes.append(len(batch_bytes(batch)))
            made, read = _both_ends(batch, here, there)
            makes.append(made)
            reads.append(read)
    make, make_byte = line_of(sizes, makes)
    read, read_byte = line_of(sizes, reads)
    return {
        "make_message": make,
        "make_byte": make_byte,
        "read_message": read,
        "read_byte": read_byte,
        "note_byte": _note_byte(),
    }


def _both_ends(batch: Any, here: socket.socket, there: socket.socket, times: int = 2_000) -> tuple[float, float]:
    """Processor seconds of a message at its sender, and at its receiver; medians."""
    makes, reads = [], []
    room = bytearray(1 << 20)
    for number in range(times):
        begun = time.perf_counter()
        payload = batch_bytes(batch)
        here.sendall(encoded(Kind.DATA, 1, number, payload) + payload.to_pybytes())
        sent = time.perf_counter()
        size = there.recv_into(room)
        view = memoryview(room)[:size]
        batch_from(frame(head(view[:HEADER]), view[HEADER:]).payload, batch.schema)
        reads.append(time.perf_counter() - sent)
        makes.append(sent - begun)
    return statistics.median(makes), statistics.median(reads)


def _note_byte() -> float:
    """To frame a byte of a note, and to check it at the other end."""
    payload = batch_bytes(_bids(1)).to_pybytes()

    def through(note: bytes) -> Callable[[], object]:
        def call() -> object:
            start = encoded(Kind.DATA, 1, 1, payload, note)
            return frame(head(start[:HEADER]), start[HEADER:] + payload)

        return call

    sizes = (8, 8_000)
    return max(line_of(sizes, [processor_seconds(through(bytes(size)), 2_000) for size in sizes])[1], 0.0)


def _logs() -> dict[str, float]:
    """Messages appended to a file, one for a channel, and found in it again."""
    found: dict[str, list[float]] = {"append": [], "find": []}
    sizes = (500, 50_000)
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path, message = Path(folder, str(size)), bytes(size)
            with path.open("ab") as file:

                def append() -> None:
                    file.write(message)  # noqa: B023 - called at once
                    file.flush()

                found["append"].append(processor_seconds(append, 400))
            with path.open("rb") as written_file:

                def find() -> bytes:
                    written_file.seek(100 * size)  # noqa: B023
                    return written_file.read(size)  # noqa: B023

                found["find"].append(processor_seconds(find, 400))

        def opened() -> None:
            with Path(folder, "500").open("rb") as file:
                file.read(1)

        wire = processor_seconds(opened, 400)
    log, log_byte = line_of(sizes, found["append"])
    replay, replay_byte = line_of(sizes, found["find"])
    return {
        "log_message": log,
        "log_byte": log_byte,
        "replay_wire": wire,
        "replay_message": replay,
        "replay_byte": replay_byte,
    }


def _states() -> dict[str, float]:
    """The state of a join: copied and packed, written and forced to disk, read and unpacked."""
    sizes: list[float] = []
    found: dict[str, list[float]] = {"snapshot": [], "write": [], "load": []}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for rows in (10, 50_000):
            table = pa.Table.from_batches([Nexmark("auctions", seed=1).rows(0, rows, np.zeros(rows, np.int64))])
            state = {"left": table, "right": table, "offset": 7}
            data = packed(state)
            path = Path(folder, str(rows))
            sizes.append(len(data))
            found["snapshot"].append(processor_seconds(lambda: packed(state), 20))  # noqa: B023
            found["write"].append(_by_the_clock(lambda: written(path, lambda file: file.write(data))))  # noqa: B023
            found["load"].append(_by_the_clock(lambda: unpacked(path.read_bytes())))  # noqa: B023
    costs = {}
    for name, seconds in found.items():
        costs[name], costs[f"{name}_byte"] = line_of(sizes, seconds)
    return costs


def _by_the_clock(call: Callable[[], object], times: int = 7) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _halves(kind: type[Hmnr] | type[Bcs], instances: int) -> tuple[Hmnr | Bcs, Hmnr | Bcs]:
    names = tuple(f"a#{number}" for number in range(instances))
    wire = Wire(0, names[0], names[1])
    return kind(Place(names[0], names, (), (wire,)), 5.0), kind(Place(names[1], names, (wire,), ()), 5.0)


def _growing(kind: type[Hmnr]) -> dict[str, float]:
    """Notes that grow with the instances."""
    sizes, makes, reads = [], [], []
    for count in (FEW_INSTANCES, MANY_INSTANCES):
        sender, receiver = _halves(kind, count)
        note = sender.note(0)
        sizes.append(len(note))
        makes.append(processor_seconds(lambda: sender.note(0), 500))  # noqa: B023

        def learn() -> None:
            receiver.before_message(0, note)  # noqa: B023
            receiver.learn(0, note)  # noqa: B023

        reads.append(processor_seconds(learn, 500))
    make, read = line_of(sizes, makes), line_of(sizes, reads)
    return {"make": make.start, "make_byte": make.slope, "read": read.start, "read_byte": read.slope}


def _bcs() -> dict[str, float]:
    """Notes of four bytes."""
    sender, receiver = _halves(Bcs, 3)
    note = sender.note(0)

    def learn() -> None:
        receiver.before_message(0, note)
        receiver.learn(0, note)

    make, read = (processor_seconds(call, 2_000) for call in (lambda: sender.note(0), learn))
    return {"make": make, "make_byte": 0.0, "read": read, "read_byte": 0.0}


def _line(workers: int = 30, checkpoints: int = 3) -> float:
    """To find a recovery line, for each channel of a shuffle."""
    names = [f"{one}#{number}" for one in "ab" for number in range(workers)]
    wires = [Wire(a * workers + b, f"a#{a}", f"b#{b}") for a in range(workers) for b in range(workers)]
    history = History(names, wires)
    for number in range(1, checkpoints + 1):
        for name in names:
            own = {wire.number: number * 100 + len(name) for wire in wires if name in (wire.sender, wire.receiver)}
            sent, received = (own, {}) if name.startswith("a") else ({}, own)
            history.add(Checkpoint(name, number, sent, received))
    return processor_seconds(lambda: recovery_line(history), 5) / len(wires)


def main() -> None:
    """Measure, and write the file."""
    FILE.write_text(json.dumps(calibrate(), indent=1) + "\n", encoding="utf-8")
    print(FILE)  # noqa: T201 - a command that a person types


if __name__ == "__main__":
    main()
