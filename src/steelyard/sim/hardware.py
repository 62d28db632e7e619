"""Machines and the network between them."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from steelyard.core.errors import OptionError


def is_number(value: object) -> bool:
    """Whether it is one, of any kind."""
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Machine:
    """A machine whose cores are shared alike by the instances that work at a moment.

    Parameters
    ----------
    cores
        While no more instances work than there are cores, each has one; beyond that all run slower, alike.
    speed
        Of a core: 2 does twice the work a second. Service times are for speed 1.
    memory_gb
        For tuples that wait on it or travel to it (`tuple_bytes` of their edge) and for what its instances keep
        (`bytes_per_kept` of `Growing`, `bytes_per_key` of `Window`), in gigabytes of 10^9. One that needs more fails.

    Examples
    --------
    >>> 3 * (Machine(cores=4),)
    (Machine(cores=4, speed=1.0, memory_gb=4.0), ...)
    """

    cores: float = 1
    speed: float = 1.0
    memory_gb: float = 4.0

    def __post_init__(self) -> None:
        for name in ("cores", "speed", "memory_gb"):
            if not is_number(getattr(self, name)) or not getattr(self, name) > 0:
                raise OptionError(f"{name} of a machine must be a number above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Network:
    """What it costs to send a tuple.

    Parameters
    ----------
    latency
        Seconds from one machine to another.
    local_latency
        Seconds between instances on one machine.
    bytes_per_second
        Of a machine's line: tuples that leave it follow each other. 0 stands for a line that is never full.
    local_bytes_per_second
        Between instances on one machine, all of which share it. 0 has no bound.
    serialise
        Seconds of a core that a tuple which changes machines costs at each end. At the sender they are added to
        the service of the next tuple, at the receiver to that of the tuple itself.
    """

    latency: float = 0.0
    local_latency: float = 0.0
    bytes_per_second: float = 0.0
    serialise: float = 0.0
    local_bytes_per_second: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "local_latency", "bytes_per_second", "serialise", "local_bytes_per_second"):
            if not is_number(getattr(self, name)) or not getattr(self, name) >= 0:
                raise OptionError(f"{name} of a network must be a number of 0 or more, got {getattr(self, name)!r}")
