"""Records of single tuples, as a collector writes them: how long each was under way, and how long it was worked on.

They come from the simulator and from resident workers alike, and go to Parquet, where Spark reads them
(`steelyard.spark.placement_pipeline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.core.errors import OptionError, StateError
from steelyard.core.shown import Shown

TRANSFER = pa.schema(
    [
        ("tuple_id", pa.int64()),
        ("root_id", pa.int64()),
        ("app_id", pa.string()),
        ("edge", pa.string()),
        ("src_exec", pa.int32()),
        ("dst_exec", pa.int32()),
        ("src_machine", pa.int32()),
        ("dst_machine", pa.int32()),
        ("t_sent", pa.float64()),
        ("t_recv", pa.float64()),
        ("schedule_id", pa.string()),
    ]
)
"""A tuple on its way over an edge, from when its sender gave it until its receiver began with it: time in both queues
is part of it (Li 2018, section 2.2.2). `t_sent` is of the sender's clock, `t_recv` of the receiver's."""
PROCESS = pa.schema(
    [
        ("tuple_id", pa.int64()),
        ("root_id", pa.int64()),
        ("app_id", pa.string()),
        ("component", pa.string()),
        ("exec", pa.int32()),
        ("machine", pa.int32()),
        ("t_start", pa.float64()),
        ("t_end", pa.float64()),
        ("schedule_id", pa.string()),
    ]
)
"""The same tuple at work in its receiver. `exec` is the number of an instance among those of its application."""
ACK = pa.schema([("root_id", pa.int64()), ("app_id", pa.string()), ("t_emit", pa.float64()), ("t_ack", pa.float64())])
"""A tuple of a source, from when it was given until all that became of it was worked off."""
MACHINE = pa.schema([("id", pa.int32()), ("cores", pa.float64()), ("mem_gb", pa.float64()), ("slots", pa.int32())])
SCHEDULE = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("app_id", pa.string()),
        ("exec", pa.int32()),
        ("component", pa.string()),
        ("machine", pa.int32()),
        ("t_from", pa.float64()),
        ("t_to", pa.float64()),
    ]
)
"""Which machine had which instance, and from when to when that was measured."""
SCHEMAS: Mapping[str, pa.Schema] = {
    "transfer": TRANSFER,
    "process": PROCESS,
    "ack": ACK,
    "machine": MACHINE,
    "schedule": SCHEDULE,
}
_PART = "part.parquet"


@dataclass(frozen=True, repr=False)
class Collected(Shown):
    """Everything that was collected in a while.

    Parameters
    ----------
    transfer, process, ack, machine, schedule
        Tables of the schemas of this module.
    share
        Share of the sources' tuples that were followed: counts of tuples are divided by it.

    Examples
    --------
    >>> Collected().process.num_rows
    0
    >>> Collected(ack=pa.table({"root": [1]}))
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: records of 'ack' have the columns root_id, app_id, t_emit, t_ack, got root
    """

    transfer: pa.Table = field(default_factory=TRANSFER.empty_table)
    process: pa.Table = field(default_factory=PROCESS.empty_table)
    ack: pa.Table = field(default_factory=ACK.empty_table)
    machine: pa.Table = field(default_factory=MACHINE.empty_table)
    schedule: pa.Table = field(default_factory=SCHEDULE.empty_table)
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise OptionError(f"share of the tuples that were followed is above 0 and at most 1, got {self.share!r}")
        for name, table in self.tables():
            schema = SCHEMAS[name]
            if set(table.column_names) != set(schema.names):
                wanted, found = ", ".join(schema.names), ", ".join(table.column_names)
                raise OptionError(f"records of {name!r} have the columns {wanted}, got {found}")
            object.__setattr__(self, name, table.select(schema.names).cast(schema))

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Each table with its name."""
        for name in SCHEMAS:
            yield name, getattr(self, name)

    def write(self, folder: Path | str, batch: int = 0) -> None:
        """As Parquet: a folder for each table, in it one for each batch (of 20 minutes, say)."""
        for name, table in self.tables():
            part = Path(folder) / name / f"batch={batch}"
            part.mkdir(parents=True, exist_ok=True)
            marked = table.replace_schema_metadata({b"share": repr(self.share).encode()})
            pq.write_table(marked, part / _PART)

    @classmethod
    def read(cls, folder: Path | str) -> Collected:
        """All batches of a folder, in their order."""
        found: list[Collected] = []
        for batch in batches_of(folder):
            tables = {name: _read(Path(folder) / name / f"batch={batch}" / _PART, name) for name in SCHEMAS}
            share = float((tables["schedule"].schema.metadata or {}).get(b"share", b"1.0"))
            found.append(cls(**{name: table.replace_schema_metadata() for name, table in tables.items()}, share=share))
        if not found:
            raise OptionError(f"{folder} has no records: write some with Collected.write(folder)")
        return together(found)

    def _facts(self) -> Mapping[str, object]:
        return {name: f"{table.num_rows:,} rows" for name, table in self.tables()} | {"share": self.share}


def together(many: Sequence[Collected]) -> Collected:
    """Several collections as one, each machine once; schedules that say the same of a thread are one."""
    shares = {one.share for one in many}
    if len(shares) != 1:
        raise OptionError(
            f"records that follow {sorted(shares)} of the tuples cannot be joined: join those of one share"
        )
    tables = {name: pa.concat_tables([getattr(one, name) for one in many]) for name in SCHEMAS}
    for name in ("machine", "schedule"):
        names = tables[name].column_names
        tables[name] = tables[name].group_by(names, use_threads=False).aggregate([]).select(names)
    return Collected(**tables, share=shares.pop())


def batches_of(folder: Path | str) -> list[int]:
    """Numbers of the batches that a folder has."""
    return sorted(int(path.name.partition("=")[2]) for path in (Path(folder) / "schedule").glob("batch=*"))


def _read(path: Path, name: str) -> pa.Table:
    try:
        return pq.read_table(path, schema=None, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise StateError(f"records of {name!r} in {path} cannot be read ({error}): leave this batch out") from error


class Collector:
    """Keeps records in memory, and hands them out every so often, as the document's does (Li 2018, section 2.2.1).

    Parameters
    ----------
    every
        Seconds after which what was collected is handed out.

    Examples
    --------
    >>> collector = Collector(every=1200)
    >>> collector.add(Collected())
    >>> collector.handed_out(now=600) is None, collector.handed_out(now=1200) is None
    (True, False)
    """

    def __init__(self, every: float = 1200.0) -> None:
        if not every > 0:
            raise OptionError(f"every must be above 0 seconds, got {every!r}")
        self.every, self._due, self._kept = every, every, list[Collected]()

    def add(self, records: Collected) -> None:
        """More of them."""
        self._kept.append(records)

    def handed_out(self, now: float) -> Collected | None:
        """All since the last time, where it is time for it and there are some."""
        if now < self._due or not self._kept:
            return None
        self._due = now + self.every
        kept, self._kept = self._kept, []
        return together(kept)
