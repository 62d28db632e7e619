"""Policies of placement on the setups of the papers: trained, deployed from round robin, measured when all is stable.

All times are simulated, on the fast level. What a policy came to with a seed is kept beside the results, so that
experiments that need the same training share it; another constant or option trains anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import steelyard
from steelyard.bench.registry import Run
from steelyard.core.measured import EVERY, PlacementPolicy, settled
from steelyard.placement import placement, placement_names
from steelyard.placement.predicting import Predicting
from steelyard.sim.placed.exact import ExactCluster
from steelyard.sim.placed.fast import FastCluster
from steelyard.sim.placed.frozen import FILE, deployed

SEEDS, QUICK_SEEDS = 5, 2
QUICK = {
    "dqn": "samples=200&pretraining=100&epochs=30",
    "actor_critic": "samples=200&pretraining=100&epochs=30",
    "extra": "samples=200&pretraining=100&epochs=30",
    "guided": "samples=40&candidates=40",
    "model_based": "schedules=6",
    "local_search": "schedules=6&draws=40",
}
"""What policies are told in a quick run."""
FULL = {"model_based": "schedules=20", "local_search": "schedules=20"}
"""What policies are told in a full run: models are trained on 20 placements, each recorded for 30 s when it has settled
for 300."""
MODELS = ("model_based", "local_search")
"""Policies that predict, and are trained on recorded tuples."""
CODE = ("placement/*.py", "sim/placed/*.py", "kernels/placed_*.py")
"""What an outcome depends on, beside this module."""
_PACKAGE = Path(steelyard.__file__).parent
_SECONDS = "seconds of training"
_WATCH_SEEDS = 1000
"""Distance between the seed of the cluster that a policy learns on, and of the one that it is measured on."""


@dataclass(frozen=True)
class Outcome:
    """What became of a policy on a setup with a seed."""

    stable: float
    """Milliseconds: mean tuple time of the applications when what deploying stirred up has settled."""
    start: float
    """The same right after the deployment."""
    moved: int
    """Threads that were moved, begun or ended from round robin on."""
    machines: int
    """Machines with a thread."""
    threads: int
    """Threads that run."""
    samples: int = 0
    """Placements that were measured in training."""
    training: float = 0.0
    """Seconds of this machine that training took."""
    deciding: float = 0.0
    """Seconds of this machine for the decision."""
    curve: tuple[float, ...] = field(default=(), repr=False)
    """Rewards while it tried."""


def seeds_of(run: Run) -> list[int]:
    """Five, or two of a quick run."""
    return run.seeds(SEEDS, QUICK_SEEDS)


def policy_of(named: str, run: Run) -> PlacementPolicy:
    """A policy as it is in this run: with less training where that is quick."""
    name, _, given = named.partition("?")
    told = "&".join(one for one in (given, run.pick(FULL, QUICK).get(name, "")) if one)
    return placement(f"{name}?{told}" if told else name)


def known(names: Sequence[str]) -> list[str]:
    """Those of the policies that this installation has."""
    return [one for one in names if one.partition("?")[0] in placement_names()]


def outcome(run: Run, setup: str, named: str, seed: int, machines: int = 10) -> Outcome:
    """Train, deploy, measure; or what is known of the same from before."""
    policy = policy_of(named, run)
    kept = _kept(run, f"{policy.name}-{setup}-{seed}", (repr(policy), setup, seed, machines, run.quick))
    if kept.exists():
        return outcome_from(kept)
    found = watched(policy, setup, seed, run, machines)
    kept.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def _kept(run: Run, begin: str, told: tuple[object, ...]) -> Path:
    """Where something is kept that depends on the frozen constants, on the code, and on what it was told."""
    key = hashlib.sha256(repr((FILE.read_text(encoding="utf-8"), sources(), *told)).encode()).hexdigest()[:16]
    folder = run.out / "placement-outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{begin}-{key}.json"


@cache
def sources() -> str:
    """A hash of the code of the policies, of the clusters, and of this module."""
    files = [Path(__file__), *(one for pattern in CODE for one in sorted(_PACKAGE.glob(pattern)))]
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()


def outcome_from(kept: Path) -> Outcome:
    """As `outcome` wrote it."""
    found = json.loads(kept.read_text(encoding="utf-8"))
    return Outcome(**{**found, "curve": tuple(found["curve"])})


def trained(policy: Any, setup: str, seed: int, run: Run, machines: int = 10) -> float:
    """Train a policy on a setup, if it learns at all; the seconds that took, its model's included."""
    if policy.name in MODELS:
        return _modelled(policy, setup, seed, run, machines)
    before = 0.0
    if policy.name == "guided":
        names = known(MODELS)
        if names:
            model: Any = policy_of(names[-1], run)
            before = trained(model, setup, seed, run, machines)
            policy.by(model)
    begun = time.perf_counter()
    if hasattr(policy, "train"):
        policy.train(FastCluster(deployed(setup, machines=machines), seed=seed), seed)
    return before + time.perf_counter() - begun


def _modelled(policy: Any, setup: str, seed: int, run: Run, machines: int) -> float:
    """Train a policy that predicts, or take the model that another one with the same options was trained to have.

    The seconds are those of the training in both cases.
    """
    told = [getattr(policy, one.name) for one in fields(Predicting) if one.init]
    kept = _kept(run, f"model-{setup}", (setup, seed, machines, told)).with_suffix(".npz")
    if kept.exists():
        with np.load(kept) as opened:
            state: dict[str, Any] = {name: opened[name] for name in opened.files}
        seconds = float(state.pop(_SECONDS))
        policy.restore(state)
        return seconds
    begun = time.perf_counter()
    policy.train(ExactCluster(deployed(setup, machines=machines), seed=seed), seed)
    seconds = time.perf_counter() - begun
    state = dict(policy.state()) | {_SECONDS: np.array(seconds)}
    np.savez(kept, **state)
    return seconds


def watched(policy: Any, setup: str, seed: int, run: Run, machines: int = 10) -> Outcome:
    """A policy, from its training to stable times."""
    training = trained(policy, setup, seed, run, machines)
    cluster = FastCluster(deployed(setup, machines=machines), seed=seed + _WATCH_SEEDS)
    seen = settled(cluster, cluster.setup.round_robin())
    begun = time.perf_counter()
    action = policy.place(cluster.setup, seen)
    deciding = time.perf_counter() - begun
    wanted = cluster.setup.assignment(action, cluster.assignment)
    moved = cluster.deploy(wanted)
    start = cluster.measure(EVERY)
    stable = settled(cluster, wanted)
    learnt = getattr(policy, "trained", None)
    metrics: Mapping[str, float] = learnt.metrics if learnt is not None else {}
    return Outcome(
        stable=1000 * float(stable.times.mean()),
        start=1000 * float(start.times.mean()),
        moved=moved,
        machines=len(np.unique(wanted[wanted >= 0])),
        threads=int((wanted >= 0).sum()),
        samples=int(metrics.get("samples", 0)),
        training=training,
        deciding=deciding,
        curve=tuple(np.asarray(learnt.arrays["rewards"], dtype=float).tolist()) if learnt is not None else (),
    )
