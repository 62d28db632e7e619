"""How long learners of placements take: nearest placements, and a whole training."""

from __future__ import annotations

import time

import numpy as np

from steelyard.bench import Result, Run, Table, charts, experiment
from steelyard.bench.placement.contest import policy_of
from steelyard.bench.placement.published import ACTOR
from steelyard.bench.result import Target
from steelyard.bench.timing import processor_seconds
from steelyard.core.placing import Setup
from steelyard.kernels.nearest import nearest_assignments, nearest_counts
from steelyard.learning import generator
from steelyard.placement.actor_critic import ActorCritic
from steelyard.sim.placed import FastCluster, deployed

SETUP, SEVERAL = "cq-large", "3x-cq-large"
WIDTHS = (1, 10, 32, 100)
"""K."""
NEAREST_MS, COUNTS_MS, TRAINING_S = 0.2, 2.0, 60.0
_BUSY = "other processes had the machine's cores meanwhile, or it is a slow one"


def _times(setup: Setup, several: Setup, repeats: int, seed: int) -> list[tuple[int, float, float]]:
    random = generator(seed, "wishes")
    wish = random.random((setup.threads, setup.machines))
    counts = random.random((len(several.operators), several.machines)) * several.most[:, None] / several.machines * 2
    rows = []
    for most in WIDTHS:
        one = 1000 * processor_seconds(lambda most=most: nearest_assignments(wish, most), repeats)  # type: ignore[misc]
        two = 1000 * processor_seconds(lambda most=most: nearest_counts(counts, several.most, False, most), repeats)  # type: ignore[misc]
        rows.append((most, round(one, 4), round(two, 4)))
    return rows


@experiment("placement-learners-speed", title="Nearest placements, and a whole training of actor and critic")
def speed(run: Run) -> Result:
    """On 100 threads and 10 machines, and on three applications of 100; a quick run trains with few steps."""
    setup, several = deployed(SETUP).setup, deployed(SEVERAL).setup
    rows = _times(setup, several, run.pick(200, 50), run.seed)
    policy = policy_of(ACTOR, run)
    assert isinstance(policy, ActorCritic)
    begun = time.perf_counter()
    policy.train(FastCluster(deployed(SETUP), seed=run.seed), run.seed)
    seconds = time.perf_counter() - begun
    by = {most: (one, two) for most, one, two in rows}
    return Result(
        {"threads": setup.threads, "machines": setup.machines, "steps": policy.pretraining + policy.epochs},
        {
            "nearest_10_ms": by[10][0],
            "nearest_counts_10_ms": by[10][1],
            "training_s": round(seconds, 1),
            "ms_per_step": round(1000 * seconds / (policy.pretraining + policy.epochs), 2),
        },
        tables=[Table("milliseconds of the K nearest", ("K", "assignments", "counts of three applications"), rows)],
        targets=[
            Target("nearest_10_ms", at_most=NEAREST_MS, explanation=_BUSY),
            Target("nearest_counts_10_ms", at_most=COUNTS_MS, explanation=_BUSY),
            Target("training_s", at_most=TRAINING_S, explanation=_BUSY),
        ],
        notes=[
            "Nearest placements: processor time, the median of seven. Training: seconds that pass, with compilation "
            "and 10,000 samples in it."
        ],
    )


@speed.picture
def _draw(figure: charts.Figure, result: Result) -> None:
    rows = np.array([list(row) for row in result.tables[0].rows], dtype=float)
    names = ("assignments", "counts")
    values = {f"{names[at]}, K = {int(row[0])}": float(row[at + 1]) for at in range(2) for row in rows}
    charts.dots(figure.add_subplot(), values, title=speed.name, x="milliseconds", y="")
