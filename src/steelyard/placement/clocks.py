"""Clocks of machines that do not agree: their offsets from two-way exchanges, and times that are set right.

How long a tuple was under way is the difference of two machines' clocks. As with IEEE 1588, a master sends at t1, a
machine receives at t2 and answers at t3, and the master has the answer at t4: where both ways take equally long, the
machine's clock is ((t2 - t1) - (t4 - t3)) / 2 ahead (Li 2018, section 2.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.placement.records import Collected

EXCHANGE = pa.schema([("machine", pa.int32()), *((name, pa.float64()) for name in ("t1", "t2", "t3", "t4"))])
"""One message there and one back: t1 and t4 are of the master's clock, t2 and t3 of the machine's."""
TOLERANCE = 1.1
"""Exchanges that took longer than the fastest by this factor waited somewhere, on one way more than on the other."""


@dataclass(frozen=True)
class Clock:
    """How a machine's clock goes: it shows t + offset + drift * t at the master's t.

    >>> Clock(offset=0.5).master(10.5)
    10.0
    """

    offset: float = 0.0
    drift: float = 0.0

    def master(self, shown: Floats | float) -> Floats | float:
        """The master's time, when this clock shows that."""
        return (shown - self.offset) / (1.0 + self.drift)


def clocks(exchanges: pa.Table) -> dict[int, Clock]:
    """The clock of each machine, from its exchanges: the line through their offsets; of one, its offset alone.

    Exchanges that took longer than others are left out, since their two ways will not have been equally long.

    >>> row = {"machine": 1, "t1": 0.0, "t2": 0.75, "t3": 0.75, "t4": 0.5}
    >>> clocks(pa.Table.from_pylist([row], schema=EXCHANGE))
    {1: Clock(offset=0.5, drift=0.0)}
    """
    missing = set(EXCHANGE.names) - set(exchanges.column_names)
    if missing:
        raise OptionError(f"exchanges have the columns {', '.join(EXCHANGE.names)}; {min(missing)!r} is missing")
    machine, t1, t2, t3, t4 = (exchanges[name].to_numpy() for name in EXCHANGE.names)
    if not np.isfinite([t1, t2, t3, t4]).all() or (delays := (t2 - t1) + (t4 - t3)).min(initial=0) < 0:
        raise OptionError("exchanges need four finite times each, and an answer cannot come before it was asked for")
    offsets, middle = ((t2 - t1) - (t4 - t3)) / 2, (t1 + t4) / 2
    found: dict[int, Clock] = {}
    for one in np.unique(machine):
        own = machine == one
        own &= delays <= TOLERANCE * delays[own].min()
        found[int(one)] = _line(middle[own], offsets[own])
    return found


def _line(at: Floats, offsets: Floats) -> Clock:
    """Least squares; in the middle of the times, where rounding does the least."""
    centre = float(at.mean())
    spread = float(((at - centre) ** 2).sum())
    drift = float(((at - centre) * (offsets - offsets.mean())).sum()) / spread if spread else 0.0
    return Clock(float(offsets.mean()) - drift * centre, drift)


def corrected(records: Collected, known: Mapping[int, Clock]) -> Collected:
    """The same records with all times of tuples as the master's clock shows them.

    Times of acks are not changed: a source's clock takes both. Machines without a clock here have the master's.
    """
    transfer = _set_right(records.transfer, {"t_sent": "src_machine", "t_recv": "dst_machine"}, known)
    process = _set_right(records.process, {"t_start": "machine", "t_end": "machine"}, known)
    made = dict(records.tables()) | {"transfer": transfer, "process": process}
    return Collected(**made, share=records.share)


def _set_right(table: pa.Table, columns: Mapping[str, str], known: Mapping[int, Clock]) -> pa.Table:
    for name, of in columns.items():
        machines, shown = table[of].to_numpy(), table[name].to_numpy()
        most = int(machines.max(initial=-1)) + 1
        offset, drift = np.zeros(most), np.zeros(most)
        for machine, clock in known.items():
            if machine < most:
                offset[machine], drift[machine] = clock.offset, clock.drift
        right = (shown - offset[machines]) / (1.0 + drift[machines])
        table = table.set_column(table.column_names.index(name), name, pa.array(right))
    return table
