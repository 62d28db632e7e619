"""Profiles: constants of a cluster, each with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from steelyard.core.errors import OptionError
from steelyard.sim.hardware import Machine, Network
from steelyard.sim.microbatch import BatchCosts

HARDWARE = {
    "machines": "machines that work",
    "cores": "cores of a machine",
    "memory_gb": "memory of a machine",
    "bytes_per_second": "of a machine's line",
    "latency": "seconds from machine to machine",
    "local_latency": "seconds between instances on one machine",
    "serialise": "core seconds of a tuple that changes machines, at each end",
}
COSTS = (
    "map_task",
    "map_row",
    "map_key",
    "reduce_task",
    "reduce_record",
    "reduce_key",
    "driver",
    "driver_task",
    "local",
    "convert",
    "convert_row",
    "cut_row",
    "cut_key",
)
KNOWN = (*HARDWARE, *COSTS)


@dataclass(frozen=True)
class Figure:
    """A number, and the document or the measurement that it is from."""

    value: float
    source: str


@dataclass(frozen=True)
class Profile:
    """What is known of a cluster; what is not stays at the simulator's defaults.

    Parameters
    ----------
    name, about
        How it is called, and one line on what it is.
    figures
        Constants by name: `machines`, `cores`, `memory_gb`, `bytes_per_second`, `latency`, `local_latency`,
        `serialise`, and the fields of `BatchCosts`. Seconds, bytes and gigabytes.

    Examples
    --------
    >>> blades = profile("storm-blades")
    >>> len(blades.machines()), blades.machines()[0]
    (10, Machine(cores=4, speed=1.0, memory_gb=4))
    >>> blades.figures["bytes_per_second"].source
    'Li 2018, section 2.3.1: 1 Gbps'
    """

    name: str
    about: str
    figures: Mapping[str, Figure]

    def __post_init__(self) -> None:
        for name, figure in self.figures.items():
            if name not in KNOWN:
                raise OptionError.unknown(f"constant of profile {self.name!r}", name, KNOWN)
            if not (figure.value >= 0 and figure.source.strip()):
                raise OptionError(f"{name} of profile {self.name!r} needs a value of 0 or more and a source: {figure}")

    def machines(self, count: int = 0) -> tuple[Machine, ...]:
        """So many machines of the profile; 0 stands for all that it has."""
        number = count or int(self._value("machines", 1))
        return number * (Machine(cores=self._value("cores", 1), memory_gb=self._value("memory_gb", 4)),)

    def network(self) -> Network:
        """The network between them."""
        names = ("latency", "local_latency", "bytes_per_second", "serialise")
        return Network(**{name: self._value(name, 0.0) for name in names})

    def batch_costs(self) -> BatchCosts:
        """What tasks and scheduling of micro-batches take."""
        return BatchCosts(**{name: self.figures[name].value for name in COSTS if name in self.figures})

    def write(self, path: Path) -> None:
        """As JSON, which `read_profile` reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {name: asdict(figure) for name, figure in self.figures.items()}
        path.write_text(json.dumps({"name": self.name, "about": self.about, "figures": figures}, indent=2) + "\n")

    def _value(self, name: str, default: float) -> float:
        return self.figures[name].value if name in self.figures else default


def read_profile(path: Path | str) -> Profile:
    """A profile from a file that `write` or `steelyard sim calibrate` wrote."""
    try:
        found = json.loads(Path(path).read_text())
        figures = {name: Figure(float(one["value"]), str(one["source"])) for name, one in found["figures"].items()}
        return Profile(str(found["name"]), str(found["about"]), figures)
    except (OSError, json.JSONDecodeError, KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, OptionError):
            raise
        raise OptionError(
            f"{path} is no profile ({type(problem).__name__}: {problem}): write one with `steelyard sim calibrate`"
        ) from None


def profile(name: str) -> Profile:
    """A built-in profile by name."""
    if name not in PROFILES:
        raise OptionError.unknown("profile", name, PROFILES)
    return PROFILES[name]


def _built_in(name: str, about: str, **figures: tuple[float, str]) -> Profile:
    return Profile(name, about, {constant: Figure(*given) for constant, given in figures.items()})


_LI, _LI_B = "Li 2018, section 2.3.1", "Li 2018, section 3.3.1"
_FIT = "fitted to published latencies of several schedulers together: a place to begin, nothing to judge them by"
_SIACHAMIS = "Siachamis 2025, section 4.6.1"
PROFILES: dict[str, Profile] = {
    one.name: one
    for one in (
        _built_in(
            "storm-blades",
            "10 IBM blades with Storm 0.9.2",
            machines=(10, f"{_LI_B}: 11 blades, one of them for Nimbus"),
            cores=(4, f"{_LI_B}: Intel Xeon quad-core, 2.0 GHz"),
            memory_gb=(4, f"{_LI_B}: 4 GB"),
            bytes_per_second=(125e6, f"{_LI}: 1 Gbps"),
            latency=(0.39e-3, _FIT),
            local_latency=(0.2e-3, _FIT),
            serialise=(0.05e-3, _FIT),
        ),
        _built_in(
            "prompt-ec2",
            "20 EC2 nodes with Spark 2.0.0",
            machines=(20, "Abdelhamid 2021, section 2.6.1: 20 nodes"),
            cores=(16, "Abdelhamid 2021, section 2.6.1: 16 cores"),
            memory_gb=(32, "Abdelhamid 2021, section 2.6.1: 32 GB"),
            bytes_per_second=(1.25e9, "Abdelhamid 2021, section 2.6.1: 10 Gbps Ethernet"),
        ),
        _built_in(
            "partly",
            "5 nodes with Spark 2.0.0, for learned partitioning",
            machines=(5, "Abdelhamid 2021, section 4.7.1: 5 nodes"),
            cores=(8, "Abdelhamid 2021, section 4.7.1: 8 cores"),
        ),
        _built_in(
            "dalton",
            "4 workers with Flink 1.12",
            machines=(4, "Zapridou and others 2022, section 5: 5 servers, one of them the master"),
            cores=(16, "Zapridou and others 2022, section 5: two Xeon E5-2660 of 8 cores"),
            memory_gb=(128, "Zapridou and others 2022, section 5: 128 GB"),
        ),
        _built_in(
            "osg-azure",
            "Azure machines with Storm, one worker each",
            cores=(4, "Rivetti and others 2016, section 5.3: Standard A4, 4 cores"),
            memory_gb=(7, "Rivetti and others 2016, section 5.3: Standard A4, 7 GB"),
        ),
        _built_in(
            "flink-70",
            "70 task managers of one operator instance each",
            machines=(70, f"{_SIACHAMIS}: at most 70"),
            cores=(1, f"{_SIACHAMIS}: 1 CPU"),
            memory_gb=(4, f"{_SIACHAMIS}: 4 GB"),
        ),
    )
}
