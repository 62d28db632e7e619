"""Contestants of the placement experiments: each is defined once, trained once, and judged tuple by tuple.

Who predicts is trained on recorded tuples of the exact level; who learns by trying does that on the fast level. The
placements that they come to are judged on the exact level alone: a search that lives on errors of the formulas must not
win. What a policy came to on a setup with a seed is kept beside the results, so that all experiments share it; other
code, another constant or another option trains anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import steelyard
from steelyard.bench.placement.predicted import FILLED, learnt
from steelyard.bench.placement.published import (
    ACTOR,
    CHAPTER3,
    CHAPTER4,
    DEFAULT,
    DQN,
    EXTRA,
    GUIDED,
    MODEL,
    SEARCH,
)
from steelyard.bench.registry import Run
from steelyard.core.counts import Ints
from steelyard.core.measured import EVERY, READINGS, PlacementPolicy, Reading, together
from steelyard.core.plans import Floats
from steelyard.placement import placement
from steelyard.placement.learnt import Learnt
from steelyard.placement.predicting import Predicting
from steelyard.sim.placed import Deployed, ExactCluster, FastCluster, deployed
from steelyard.sim.placed.frozen import FILE

SEEDS, QUICK_SEEDS = 5, 2
MINUTES, QUICK_MINUTES = 20.0, 1.0
"""Of a curve."""
QUICK = {
    "dqn": "samples=200&pretraining=100&epochs=30",
    "actor_critic": "samples=200&pretraining=100&epochs=30",
    "extra": "samples=200&pretraining=100&epochs=30",
    "guided": "samples=40&candidates=40",
    "model_based": "schedules=8",
    "local_search": "schedules=8&draws=40",
}
"""What policies are told in a quick run; in a full one they are as they are."""
NUMBERS = f"{GUIDED}?numbers=true"
"""Where the document's policy may change the numbers of threads, guided may too."""
CODE = (
    "placement/*.py",
    "learning/*.py",
    "sim/placed/*.py",
    "kernels/placed_*.py",
    "kernels/nearest.py",
    "kernels/event_heap.py",
    "kernels/mixing.py",
    "core/placing.py",
    "core/measured.py",
    "core/counts.py",
    "bench/placement/contest.py",
    "bench/placement/predicted.py",
)
"""What an outcome depends on."""
_PACKAGE = Path(steelyard.__file__).parent
_SECONDS = "seconds of training"
_JUDGED = 1000
"""Distance between the seed that a policy learns with, and that of the cluster on which it is judged."""


def seeds_of(run: Run) -> list[int]:
    """Five, or two of a quick run."""
    return run.seeds(SEEDS, QUICK_SEEDS)


def contestants(setup: str) -> dict[str, str]:
    """Who takes part in a setup, and what it is told: those of the document's chapter, and ours.

    >>> list(contestants("cq-31")), contestants("hybrid")["guided"]
    (['default', 'model_based', 'local_search', 'guided'], 'guided?numbers=true')
    """
    theirs = {CHAPTER3: (DQN, ACTOR), CHAPTER4: (EXTRA,)}
    own = next((who for chapter, who in theirs.items() if setup in chapter), ())
    names = (DEFAULT, MODEL, *own, SEARCH, GUIDED)
    return {name: NUMBERS if name == GUIDED and setup in CHAPTER4 else name for name in names}


@dataclass(frozen=True)
class Outcome:
    """What became of a policy on a setup with a seed."""

    stable: float
    """Milliseconds: mean tuple time of the applications, tuple by tuple, all threads warm."""
    start: float
    """The same in the first ten seconds after the deployment, all threads cold."""
    moved: int
    """Threads that were moved, begun or ended from round robin on."""
    machines: int
    """Machines with a thread."""
    threads: int
    """Threads that run."""
    samples: int = 0
    """Placements that were measured in training, by its model too."""
    training: float = 0.0
    """Seconds of one core that training took, with that of its model."""
    deciding: float = 0.0
    """Seconds of one core for the decision."""
    curve: tuple[float, ...] = ()
    """Rewards while it tried."""
    throughput: tuple[float, ...] = ()
    """Tuples per second, by application."""
    arrivals: tuple[float, ...] = ()
    assignment: tuple[int, ...] = ()
    """By thread, its machine."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Outcome:
        """From what its file has."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()})  # type: ignore[arg-type]


# ---- what is kept


def kept(run: Run, begin: str, told: tuple[object, ...], make: Callable[[], Any]) -> Any:
    """What is known from before of the same constants, code and options; else it is made, and kept as JSON."""
    path = _path(run, begin, told).with_suffix(".json")
    if not path.exists():
        _written(path, lambda new: new.write_text(json.dumps(make()), encoding="utf-8"))
    return json.loads(path.read_text(encoding="utf-8"))


def _path(run: Run, begin: str, told: tuple[object, ...]) -> Path:
    key = hashlib.sha256(repr((FILE.read_text(encoding="utf-8"), sources(), *told)).encode()).hexdigest()[:16]
    folder = run.out / "placement-outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{begin}-{key}"


def _written(path: Path, write: Callable[[Path], object]) -> None:
    """All of a file or nothing, also where the process is ended meanwhile."""
    new = path.with_name(f"new-{path.name}")
    write(new)
    new.replace(path)


@cache
def sources() -> str:
    """A hash of the code that outcomes depend on."""
    files = sorted({one for pattern in CODE for one in _PACKAGE.glob(pattern)})
    return hashlib.sha256("".join(code_of(one.read_text(encoding="utf-8")) for one in files).encode()).hexdigest()


def code_of(text: str) -> str:
    """What a module does: its tree without comments, docstrings and where anything stands.

    >>> code_of("x = 1  # one") == code_of("x = 1") != code_of("x = 2")
    True
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# ---- training


def policy_of(named: str, run: Run) -> PlacementPolicy:
    """A policy as it is in this run: with less training where that is quick."""
    name, _, given = named.partition("?")
    told = "&".join(one for one in (given, run.pick({}, QUICK).get(name, "")) if one)
    return placement(f"{name}?{told}" if told else name)


def trained(run: Run, setup: str, named: str, seed: int) -> tuple[Any, float]:
    """A policy that was trained on a setup, if it learns at all; the processor's seconds that took, its model's too."""
    policy: Any = policy_of(named, run)
    if isinstance(policy, Predicting):
        policy.learnt, seconds = modelled(run, policy, setup, seed)
        return policy, seconds
    before = 0.0
    if policy.name == GUIDED:
        model, before = trained(run, setup, MODEL, seed)
        policy.by(model)
    begun = time.process_time()
    if hasattr(policy, "train"):
        policy.train(FastCluster(deployed(setup), seed=seed), seed)
    return policy, before + time.process_time() - begun


def modelled(run: Run, policy: Predicting, setup: str, seed: int) -> tuple[Learnt, float]:
    """What a predicting policy learnt: once for all that want the same."""
    told = (policy.schedules, policy.dwell, policy.parameters, policy.pooled, policy.diversified)
    path = _path(run, f"model-{setup}-{seed}", (setup, seed, *told)).with_suffix(".npz")
    if not path.exists():
        found, seconds = learnt(policy, deployed(setup), seed)
        _written(path, lambda new: np.savez(new, **dict(found.state()) | {_SECONDS: np.array(seconds)}))
    with np.load(path) as opened:
        state: dict[str, Any] = {name: opened[name] for name in opened.files}
    seconds = float(state.pop(_SECONDS))
    return Learnt.of(state), seconds


def samples_of(policy: Any) -> int:
    """Placements that it measured to learn what it knows, those of its model among them."""
    if isinstance(policy, Predicting):
        return policy.schedules
    own = getattr(policy, "trained", None)
    model = getattr(policy, "model", None)
    return (int(own.metrics["samples"]) if own is not None else 0) + (samples_of(model) if model is not None else 0)


# ---- judging


def stable(setup: Deployed, assignment: Ints, seed: int) -> Reading:
    """Five readings, tuple by tuple, of a placement that is in force for long already."""
    cluster = ExactCluster(setup, assignment, seed=seed, warm=True)
    cluster.run(FILLED)
    return together([cluster.measure(EVERY) for _ in range(READINGS)])


def placed(policy: Any, setup: Deployed, seed: int) -> tuple[Ints, float]:
    """Where a policy would have threads that are dealt in turn now, and the processor's seconds to say so."""
    seen = stable(setup, setup.setup.round_robin(), seed)
    begun = time.process_time()
    action = policy.place(setup.setup, seen)
    return setup.setup.assignment(action, seen.assignment), time.process_time() - begun


def outcome(run: Run, setup: str, named: str, seed: int) -> Outcome:
    """Train, place, judge; or what is known of the same from before."""
    policy = policy_of(named, run)
    told = (repr(policy), setup, seed, run.quick)
    return Outcome.of(kept(run, f"{policy.name}-{setup}-{seed}", told, lambda: _outcome(run, setup, named, seed)))


def _outcome(run: Run, setup: str, named: str, seed: int) -> dict[str, Any]:
    policy, training = trained(run, setup, named, seed)
    made = deployed(setup)
    wanted, deciding = placed(policy, made, seed + _JUDGED)
    cold = ExactCluster(made, wanted, seed=seed + _JUDGED)
    settled = stable(made, wanted, seed + _JUDGED)
    rewards = policy.trained.arrays["rewards"] if getattr(policy, "trained", None) is not None else ()
    found = Outcome(
        stable=1000 * float(settled.times.mean()),
        start=1000 * float(cold.measure(EVERY).times.mean()),
        moved=made.setup.moved(made.setup.round_robin(), wanted),
        machines=len(np.unique(wanted[wanted >= 0])),
        threads=int((wanted >= 0).sum()),
        samples=samples_of(policy),
        training=training,
        deciding=deciding,
        curve=tuple(np.asarray(rewards, dtype=float).tolist()),
        throughput=tuple(settled.throughput.tolist()),
        arrivals=tuple(settled.arrivals.tolist()),
        assignment=tuple(wanted.tolist()),
    )
    return asdict(found)


Outcomes = Mapping[tuple[str, str], Sequence[Outcome]]
"""By setup and policy, one for each seed."""


def contest(run: Run, setups: Sequence[str], title: str) -> Outcomes:
    """Everybody who takes part, on each setup, with every seed."""
    cases = [(setup, *who, seed) for setup in setups for who in contestants(setup).items() for seed in seeds_of(run)]
    found: dict[tuple[str, str], list[Outcome]] = {}
    for setup, name, named, seed in run.progress.track(cases, title):
        found.setdefault((setup, name), []).append(outcome(run, setup, named, seed))
    return found


def curve(run: Run, setup: str, one: Outcome, seed: int) -> tuple[Floats, Floats]:
    """Minutes, and milliseconds of tuples, from a cold deployment of what somebody came to, every ten seconds."""
    minutes = run.pick(MINUTES, QUICK_MINUTES)

    def look() -> list[list[float]]:
        cluster = ExactCluster(deployed(setup), np.array(one.assignment), seed=seed + _JUDGED)
        seen = [cluster.measure(EVERY) for _ in range(round(60 * minutes / EVERY))]
        return [[reading.time / 60, 1000 * float(reading.times.mean())] for reading in seen]

    readings = np.array(kept(run, f"curve-{setup}-{seed}", (setup, one.assignment, seed, minutes), look))
    return readings[:, 0], readings[:, 1]
