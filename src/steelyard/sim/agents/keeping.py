"""Trained agents as files: one for the scheduler, one for a partitioner that any receiver can have."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from steelyard.learning import Trained
from steelyard.partition.learned import cutting
from steelyard.scaling.learned import looks
from steelyard.scaling.scheduler import Scheduler
from steelyard.sim.agents import plans
from steelyard.sim.agents.options import Training
from steelyard.sim.agents.orchestration import TrainedTeam, judge
from steelyard.sim.agents.receivers import NOISE, SLOTS

SCHEDULER, PARTITIONER = "scheduler.npz", "agent.npz"


def keep(found: TrainedTeam, options: Training, folder: str | Path) -> tuple[Path, Path]:
    """Write `scheduler.npz` and `agent.npz`, for `scheduler?weights=...` and `agent?weights=...`.

    Of several partitioners the one with the best rewards is kept, on queries that training did not see.
    """
    rewards = judge(found.team, replace(options, seed=options.seed + 1))
    best = int(rewards[1:].argmax())
    told = {name: value for name, value in asdict(options).items() if name != "seed"}
    distribution = {
        "exponents": list(plans.EXPONENTS), "sizes": [list(size) for size in plans.SIZES], "slots": SLOTS,
        "noise": NOISE,
    }  # fmt: skip
    kept = []
    for name, policy, actor, version, reward in (
        (SCHEDULER, Scheduler.name, found.team.scheduler, looks.VERSION, rewards[0]),
        (PARTITIONER, cutting.POLICY, found.team.partitioners[best], cutting.VERSION, rewards[1 + best]),
    ):
        metrics = {"reward": float(reward), "seconds": found.seconds}
        shapes = {"features": version}
        made = Trained(policy, actor.arrays("actor"), shapes, distribution, told, metrics, options.seed)
        kept.append(made.save(Path(folder) / name))
    return kept[0], kept[1]
