"""How a job on workers that stay is watched over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.checkpoint import PROTOCOLS, CheckpointProtocol, NoCheckpoints, StopTheWorld
from steelyard.checkpoint import protocol as named
from steelyard.core import OptionError
from steelyard.core.weights import Weights
from steelyard.resident.delivery import Deliver

DEFAULT_PROTOCOL = "unaligned"
"""How snapshots are taken where nobody says otherwise."""


@dataclass(frozen=True)
class Settings:
    """How a job is watched over.

    Parameters
    ----------
    store
        A folder for snapshots that the driver and all workers see; None keeps none.
    interval
        Seconds between two snapshots; None takes one only in the end.
    protocol
        How snapshots are taken while rows come: a checkpoint protocol, or its name, with parameters behind a question
        mark. Its interval is that of these settings.
    heartbeat
        Seconds between two reports of a worker, and between two signs of life on every connection.
    silence
        Seconds without a sign of life after which a connection counts as dead, and with it this generation.
    join
        Seconds that workers have to come.
    restarts
        How many generations may fail before the job does.
    note
        Kept in every commit, for the one who starts the job.
    deliver
        Called with each epoch that is committed and gave anything, and the batches of memory sinks; without it they are
        kept. They are part of the commit: where the driver ended before they were handed on, the next start does it.
    weights
        By sender and receiver of an edge whose rows are dealt out in turn: one whole number per receiving instance, in
        proportion to which they are, as in `{("read", "work"): (3, 1)}`. `Job.set_weights` changes them.
    """

    store: str | None = None
    interval: float | None = None
    heartbeat: float = 0.5
    silence: float = 30.0
    join: float = 120.0
    restarts: int = 3
    note: str = ""
    deliver: Deliver | None = None
    protocol: str | CheckpointProtocol = DEFAULT_PROTOCOL
    weights: Weights = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live_protocol()
        if self.interval is not None and self.store is None:
            raise OptionError(f"interval={self.interval} needs a folder for the snapshots: give store= too")
        if self.deliver is not None and self.store is None:
            raise OptionError("deliver= hands results on when they are in a snapshot: give a folder for it, store= too")
        if self.interval is not None and self.interval <= 0:
            raise OptionError(f"interval must be above 0 seconds, got {self.interval}")
        if not 0 < self.heartbeat < self.silence:
            raise OptionError(
                f"heartbeat must be above 0 and below silence, got heartbeat={self.heartbeat}, silence={self.silence}"
            )
        if self.restarts < 0:
            raise OptionError(f"restarts must be 0 or more, got {self.restarts}")

    def live_protocol(self) -> CheckpointProtocol | None:
        """The protocol by which checkpoints are taken while rows come; None where all stop for them, or none is."""
        chosen: Any = named(self.protocol)
        if chosen.name not in PROTOCOLS.entries:
            raise OptionError(f"{chosen!r} is none of the protocols that workers know by name: {PROTOCOLS.names()}")
        if self.interval is None or isinstance(chosen, NoCheckpoints):
            return None
        if chosen.interval not in (self.interval, type(chosen).interval):
            raise OptionError(
                f"protocol={self.protocol!r}: its interval is that of the job, {self.interval:g} s here; leave it out"
            )
        if isinstance(chosen, StopTheWorld):
            return None
        timed: CheckpointProtocol = replace(chosen, interval=self.interval)
        return timed

    def with_checkpoints(
        self, interval: float | None = None, protocol: str | CheckpointProtocol | None = None
    ) -> Settings:
        """The same with another interval, or another protocol; OptionError where that cannot be."""
        if self.store is None:
            raise OptionError("checkpoints need a folder that the driver and all workers see: give Settings(store=...)")
        kept: Any = named(self.protocol)
        if protocol is None and getattr(kept, "interval", None) == getattr(type(kept), "interval", None):
            protocol = self.protocol
        elif protocol is None:
            protocol = replace(kept, interval=self.interval if interval is None else interval)
        return replace(self, protocol=protocol, interval=self.interval if interval is None else interval)

    @property
    def way(self) -> CheckpointProtocol | None:
        """How checkpoints are taken before the end, whatever the interval is; None where none are."""
        chosen: Any = named(self.protocol)
        if self.interval is None or isinstance(chosen, NoCheckpoints):
            return None
        same: CheckpointProtocol = replace(chosen, interval=1.0)
        return same

    @property
    def stop_every(self) -> float | None:
        """Seconds between two moments at which all stop for a snapshot; None where they never do but in the end."""
        return self.interval if isinstance(named(self.protocol), StopTheWorld) else None
