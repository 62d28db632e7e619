"""Clusters for which theory has an answer, and what it says: what the simulator is held against.

All services take a millisecond on average, unless it says otherwise. Formulas are in `queueing.py`, chains
in `markov.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from steelyard.bench.simulator.markov import blocked_tandem_time, shortest_queue_time
from steelyard.bench.simulator.queueing import (
    blocked_pair_throughput,
    fork_join_time,
    jackson_tuples,
    md1_wait,
    mg1_wait,
    mm1_wait,
    mmc_all_busy,
    mmc_wait,
    processor_sharing_time,
)
from steelyard.core.plans import Floats
from steelyard.sim import (
    Edge,
    Exactly,
    Exponential,
    Machine,
    Operator,
    PerItem,
    Samples,
    Scenario,
    SimulationResult,
    Source,
)
from steelyard.workloads import Zipf

SERVICES = 1000.0
SERVICE = 1 / SERVICES
BIMODAL = np.array([0.4] * 9 + [6.4]) * SERVICE
"""Nine short ones for each that takes 16 times as long."""
LOG_NORMAL_SPREAD = 0.8
LOG_NORMAL_TIMES = 100_000
PRODUCT_FORM = ((0.0, 0.5, 0.5), (0.3, 0.0, 0.7), (0.0, 0.2, 0.0))
"""Branches of three queues: what is missing to 1 leaves."""

Measure = Callable[[SimulationResult, float], float]


@dataclass(frozen=True)
class Figure:
    """One figure of a cluster."""

    name: str
    """What it is, with its unit."""
    theory: float
    """What it should be."""
    found: Measure
    """What a run found in the time after its warm-up, which it is told."""
    within: float = 0.0
    """0 where theory is exact; otherwise the share by which an approximation may be off."""


@dataclass(frozen=True)
class Case:
    """A cluster, whose formula it is, and the figures that it gives."""

    name: str
    by: str
    scenario: Scenario
    figures: tuple[Figure, ...]
    trace: bool = False


def cases() -> list[Case]:
    """All of them."""
    return [*_single_queues(), *_several_servers(), *_full_queues(), *_networks(), *_shared_cores()]


def _poisson(rate: float, keys: Zipf | None = None) -> Source:
    return Source("log", rate=rate, arrivals="poisson", keys=keys)


def _wait(operator: str = "map", of: str = "mean wait") -> tuple[str, Measure]:
    return f"{of}, ms", lambda result, after: 1000 * result.total(operator, after).mean_wait


def _age(of: str = "mean time") -> tuple[str, Measure]:
    return f"{of}, ms", lambda result, after: 1000 * result.latency(after=after).mean


def _throughput(operator: str = "map") -> tuple[str, Measure]:
    return "tuples/s", lambda result, after: result.total(operator, after).throughput


def _figure(what: tuple[str, Measure], theory: float, within: float = 0.0) -> Figure:
    name, found = what
    return Figure(name, 1000 * theory if name.endswith(", ms") else theory, found, within)


def log_normal_times() -> Floats:
    """Quantiles of the log-normal law with a mean of `SERVICE`, at equal distances."""
    normal = NormalDist(-(LOG_NORMAL_SPREAD**2) / 2, LOG_NORMAL_SPREAD)
    chances = (np.arange(LOG_NORMAL_TIMES) + 0.5) / LOG_NORMAL_TIMES
    return SERVICE * np.exp([normal.inv_cdf(chance) for chance in chances])


def _single_queues() -> Iterator[Case]:
    for load in (0.3, 0.7):
        arrivals = load * SERVICES
        scenario = Scenario.chain(_poisson(arrivals), Operator("map", Exponential(SERVICE)))
        waits = _figure(_wait(), mm1_wait(arrivals, SERVICES))
        ages = _figure(_age(), 1 / (SERVICES - arrivals))
        yield Case(f"M/M/1, load {load}", "formula", scenario, (waits, ages))
    scenario = Scenario.chain(_poisson(700), Operator("map", Exactly(SERVICE)))
    yield Case("M/D/1, load 0.7", "formula", scenario, (_figure(_wait(), md1_wait(700, SERVICES)),))
    table = np.linspace(0.1, 6.4, 64) / 3.25 * SERVICE
    spread = np.exp(LOG_NORMAL_SPREAD**2) - 1
    laws = (
        ("a table of items", PerItem(table), table.mean(), table.var(), Zipf(exponent=0.0, keys=64, seed=5)),
        ("bimodal", Samples(BIMODAL), BIMODAL.mean(), BIMODAL.var(), None),
        ("log-normal", Samples(log_normal_times()), SERVICE, spread * SERVICE**2, None),
    )
    for name, law, mean, variance, keys in laws:
        scenario = Scenario.chain(_poisson(600, keys), Operator("map", law))
        waits = _figure(_wait(), mg1_wait(600, float(mean), float(variance)))
        yield Case(f"M/G/1, {name}, load 0.6", "Pollaczek and Khinchine", scenario, (waits,))


def _several_servers() -> Iterator[Case]:
    for servers in (2, 5):
        scenario = Scenario.chain(_poisson(700), Operator("map", Exponential(servers * SERVICE), threads=servers))
        waits = _figure(_wait(), mmc_wait(700, SERVICES / servers, servers))
        yield Case(f"M/M/{servers}, load 0.7", "Erlang", scenario, (waits,))
    spread = _poisson(2100, Zipf(exponent=0.0, keys=100_000, seed=2))
    scenario = Scenario.chain(spread, Operator("map", Exponential(SERVICE), parallelism=3), grouping="hash")
    yield Case("three M/M/1 behind a hash", "formula", scenario, (_figure(_wait(), mm1_wait(700, SERVICES)),))
    scenario = Scenario.chain(_poisson(1600), Operator("map", Exponential(SERVICE), parallelism=2), grouping="shortest")
    ages = _figure(_age(), shortest_queue_time(1600, SERVICES))
    yield Case("join the shortest of 2 queues, load 0.8", "Markov chain", scenario, (ages,))
    for servers in (2, 4):
        copies = Operator("map", Exponential(SERVICE), parallelism=servers)
        scenario = Scenario.chain(_poisson(600), copies, grouping="broadcast")
        last = "time until all copies are done, ms", _until_all_are_done
        theory = fork_join_time(600, SERVICES, servers)
        by = "Nelson and Tantawi" if servers == 2 else "Nelson and Tantawi's approximation"
        joined = _figure(last, theory, within=0.0 if servers == 2 else 0.05)
        yield Case(f"fork and join, {servers} servers, load 0.6", by, scenario, (joined,), trace=True)


def _until_all_are_done(result: SimulationResult, after: float) -> float:
    """Mean age, in ms, at which the last copy of a row is done. A row's item is its number."""
    assert result.trace is not None
    item, born, done = (result.trace[name].to_numpy() for name in ("item", "born", "done"))
    last, came = np.zeros(item.max() + 1), np.full(item.max() + 1, -1.0)
    copies = np.bincount(item, minlength=len(last))
    np.maximum.at(last, item, done)
    came[item] = born
    counted = (came >= after) & (copies == result.scenario.operator("map").parallelism)
    return float(1000 * (last - came)[counted].mean())


def _full_queues() -> Iterator[Case]:
    """Nothing is lost: who finds a queue full waits in the log, so ages are those of a queue without a bound."""
    arrivals, servers, places = 800.0, 2, 4
    rest = arrivals, SERVICES / servers, servers
    scenario = Scenario.chain(
        _poisson(arrivals), Operator("map", Exponential(servers * SERVICE), threads=servers, capacity=places)
    )
    queue = sum(mmc_all_busy(*rest, waiting=waiting) for waiting in range(1, places + 1))
    figures = (
        _figure(_age(), mmc_wait(*rest) + servers * SERVICE),
        _figure(("mean queue", lambda result, after: result.total("map", after).mean_queue), queue),
        _figure(
            ("source held back, share of time", lambda result, after: result.total("log", after).backpressured),
            mmc_all_busy(*rest, waiting=places + 1),
        ),
    )
    yield Case("M/M/2 with 4 places and back-pressure, load 0.8", "Erlang", scenario, figures)
    for places in (1, 3):
        scenario = Scenario.chain(
            Source("log", rate=2 * SERVICES, service=Exponential(SERVICE)),
            Operator("map", Exponential(SERVICE), capacity=places),
        )
        through = _figure(_throughput(), blocked_pair_throughput(SERVICES, places))
        yield Case(f"two servers that never lack work, {places} between", "Hunt", scenario, (through,))
    scenario = Scenario.chain(
        _poisson(500), Operator("first", Exponential(SERVICE)), Operator("second", Exponential(SERVICE), capacity=1)
    )
    ages = _figure(_age(), blocked_tandem_time(500, SERVICES, places=1))
    yield Case("two servers with 1 place between, blocking after service", "Markov chain", scenario, (ages,))


def _networks() -> Iterator[Case]:
    second = 0.8 * SERVICE
    scenario = Scenario.chain(
        _poisson(600), Operator("first", Exponential(SERVICE)), Operator("second", Exponential(second))
    )
    figures = (
        _figure(_wait("first", "mean wait, first"), mm1_wait(600, SERVICES)),
        _figure(_wait("second", "mean wait, second"), mm1_wait(600, 1 / second)),
    )
    yield Case("two queues in a row", "Jackson", scenario, figures)
    out = Operator("out", Exactly(0.0))
    for again in (0.3, 0.6):
        arrivals = 0.7 * (1 - again) * SERVICES
        scenario = Scenario(
            (_poisson(arrivals), Operator("map", Exponential(SERVICE)), out),
            (Edge("log", "map"), Edge("map", "map", share=again, feedback=True), Edge("map", "out", share=1 - again)),
        )
        (through,), (tuples,) = jackson_tuples([arrivals], [SERVICES], [[again]])
        figures = (_figure(_throughput(), through), _figure(_age(), tuples / arrivals))
        yield Case(f"{again} of the tuples come round", "Jackson", scenario, figures)
    yield three_queues(PRODUCT_FORM)


def three_queues(branches: tuple[tuple[float, ...], ...]) -> Case:
    """Queues a, b and c: from each, a tuple takes one of its branches; what leaves c goes out."""
    arrivals, services = 450.0, (1000.0, 800.0, 1100.0)
    names = "abc"
    edges = [Edge("log", "a")]
    for sender, row in zip(names, branches, strict=True):
        for receiver, share in zip((*names, "out"), (*row, 1 - sum(row)), strict=True):
            if share > 1e-9:
                edges.append(Edge(sender, receiver, share=share, feedback=receiver <= sender))
    queues = [Operator(name, Exponential(1 / rate)) for name, rate in zip(names, services, strict=True)]
    scenario = Scenario((_poisson(arrivals), *queues, Operator("out", Exactly(0.0))), tuple(edges))
    through, tuples = jackson_tuples([arrivals, 0, 0], services, branches)
    figures = [_figure(_age(), sum(tuples) / arrivals)]
    for name, rate, mean, service in zip(names, through, tuples, services, strict=True):
        figures.append(_figure(_wait(name, f"mean wait, {name}"), mean / rate - 1 / service))
    return Case("three queues with branches and feedback", "Jackson", scenario, tuple(figures))


def _shared_cores() -> Iterator[Case]:
    laws = (
        ("exponential", Exponential(SERVICE)),
        ("constant", Exactly(SERVICE)),
        ("bimodal", Samples([0.1 * SERVICE, 1.9 * SERVICE])),
    )
    for name, law in laws:
        scenario = Scenario.chain(_poisson(700), Operator("map", law, threads=200), machines=(Machine(cores=1),))
        ages = _figure(_age(), processor_sharing_time(700, SERVICES))
        yield Case(f"a shared core, {name} work, load 0.7", "processor sharing", scenario, (ages,))
    both = [Operator(name, Exponential(SERVICE), threads=200) for name in "ab"]
    edges = (Edge("log", "a"), Edge("log", "b"))
    scenario = Scenario((_poisson(700), *both), edges, (Machine(cores=1, speed=2.0),))
    used = _figure(("share of the core", _cpu), 0.7)
    yield Case("two operators on a core of speed 2", "work that comes", scenario, (used,))


def _cpu(result: SimulationResult, after: float) -> float:
    table = result.machines
    counted = table["time"].to_numpy() > after + 1e-9
    return float(table["cpu"].to_numpy()[counted].mean())
