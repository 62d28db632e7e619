"""What messages, notes, logs and checkpoints take: measured on a machine, and kept in `measured.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from steelyard.checkpoint import Beside
from steelyard.core import OptionError

FILE = Path(__file__).with_name("measured.json")
ALIGNMENT = 8
"""Notes are as long as a multiple of this on the wire."""


@dataclass(frozen=True)
class NoteCosts:
    """Seconds to make a note and to decide by it and learn from it: for each, and for each of its bytes."""

    make: float = 0.0
    make_byte: float = 0.0
    read: float = 0.0
    read_byte: float = 0.0


@dataclass(frozen=True)
class ProtocolCosts:
    """Seconds and bytes of everything that the simulation does beside the work of operators.

    Parameters
    ----------
    make_message, make_byte, read_message, read_byte
        To serialise and send a message, and to receive one.
    frame_bytes
        Of a message beside its payload; a marker has nothing else.
    note_byte
        To send and receive a byte of a note.
    notes
        What halves of protocols take to make notes and to read them, by the name of their class.
    log_message, log_byte
        To append a message to the sender's log.
    snapshot, snapshot_byte
        To copy a state: nobody works meanwhile.
    write, write_byte
        To make it durable: work goes on.
    load, load_byte
        To read it after a failure.
    replay_wire, replay_message, replay_byte
        To find what was under way on a channel in its log, and to read it.
    line_wire
        To find a recovery line, for each channel.
    report_bytes, report_wire_bytes
        What an instance tells of a checkpoint, and for each of its channels.
    delay, bytes_per_second
        Of the network.
    """

    make_message: float = 0.0
    make_byte: float = 0.0
    read_message: float = 0.0
    read_byte: float = 0.0
    frame_bytes: float = 38.0
    note_byte: float = 0.0
    notes: Mapping[str, NoteCosts] = field(default_factory=dict)
    log_message: float = 0.0
    log_byte: float = 0.0
    snapshot: float = 0.0
    snapshot_byte: float = 0.0
    write: float = 0.0
    write_byte: float = 0.0
    load: float = 0.0
    load_byte: float = 0.0
    replay_wire: float = 0.0
    replay_message: float = 0.0
    replay_byte: float = 0.0
    line_wire: float = 0.0
    report_bytes: float = 40.0
    report_wire_bytes: float = 12.0
    delay: float = 0.0005
    bytes_per_second: float = 1.25e9

    def of_notes(self, half: Beside) -> NoteCosts:
        """What notes of a half take, or of the class that it is made from; OptionError where nobody has measured it."""
        for kind in type(half).__mro__:
            if kind.__name__ in self.notes:
                return self.notes[kind.__name__]
        raise OptionError.unknown("half of a protocol whose notes were measured", type(half).__name__, self.notes)

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> ProtocolCosts:
        """From what JSON holds."""
        notes = {name: NoteCosts(**one) for name, one in found["notes"].items()}
        return cls(**{**found, "notes": notes})


def padded(note: bytes) -> int:
    """The bytes of a note on the wire.

    >>> padded(b"123")
    8
    """
    return -(-len(note) // ALIGNMENT) * ALIGNMENT


@lru_cache(maxsize=1)
def measured() -> dict[str, Any]:
    """What `measured.json` holds: when and how it was measured, `costs`, and `operators` of the queries."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def measured_costs() -> ProtocolCosts:
    """Those of `measured.json`."""
    return ProtocolCosts.read(measured()["costs"])
