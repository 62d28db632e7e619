"""How fast formulas are, how long nearest placements take, and a whole training."""

from __future__ import annotations

import statistics
import time

import numpy as np

from steelyard.bench import Result, Run, Table, Target, charts, experiment
from steelyard.bench.placement.contest import policy_of
from steelyard.bench.placement.published import ACTOR
from steelyard.bench.timing import processor_seconds
from steelyard.core.placing import Setup
from steelyard.kernels.nearest import nearest_assignments, nearest_counts
from steelyard.learning import generator
from steelyard.placement.actor_critic import ActorCritic
from steelyard.placement.draws import drawn
from steelyard.sim.placed import ExactCluster, FastCluster, deployed

SETUP, SEVERAL = "cq-large", "3x-cq-large"
PLACEMENTS, QUICK_PLACEMENTS = 200_000, 20_000
WIDTHS = (1, 10, 32, 100)
"""K."""
PER_SECOND, NEAREST_MS, COUNTS_MS, TRAINING_S = 20_000, 0.2, 2.0, 60.0
_BUSY = "other processes had the machine's cores meanwhile, or it is a slow one"


def levels(run: Run) -> dict[str, float]:
    """Placements per second of the formulas, and events per second tuple by tuple."""
    setup = deployed(SETUP)
    fast, many = FastCluster(setup), drawn(setup.setup, run.pick(PLACEMENTS, QUICK_PLACEMENTS), run.seed)
    fast.times(many[:10])  # compiles
    speeds = []
    for _ in range(5):
        clock = time.process_time()
        fast.times(many)
        speeds.append(len(many) / (time.process_time() - clock))
    cluster = ExactCluster(setup, seed=run.seed, warm=True)
    cluster.run(0.1)
    clock, before = time.process_time(), cluster.events
    cluster.run(run.pick(60.0, 10.0))
    exact = (cluster.events - before) / (time.process_time() - clock)
    return {"placements_per_second": statistics.median(speeds), "events_per_second": exact}


def nearest(setup: Setup, several: Setup, repeats: int, seed: int) -> list[tuple[int, float, float]]:
    """By K: milliseconds of the nearest assignments, and of the nearest counts of three applications."""
    random = generator(seed, "wishes")
    wish = random.random((setup.threads, setup.machines))
    counts = random.random((len(several.operators), several.machines)) * several.most[:, None] / several.machines * 2
    rows = []
    for most in WIDTHS:
        one = 1000 * processor_seconds(lambda most=most: nearest_assignments(wish, most), repeats)  # type: ignore[misc]
        two = 1000 * processor_seconds(lambda most=most: nearest_counts(counts, several.most, False, most), repeats)  # type: ignore[misc]
        rows.append((most, round(one, 4), round(two, 4)))
    return rows


def training(policy: ActorCritic, seed: int) -> float:
    """Seconds that pass in a training when all is compiled: the second of two that are alike."""
    for _ in range(2):
        begun = time.perf_counter()
        policy.train(FastCluster(deployed(SETUP), seed=seed), seed)
        seconds = time.perf_counter() - begun
    return seconds


@experiment("placement-speed", title="Formulas, nearest placements, and a whole training of actor and critic")
def speed(run: Run) -> Result:
    """100 threads on 10 machines, and three applications of 100; a quick run trains with few steps."""
    setup, several = deployed(SETUP).setup, deployed(SEVERAL).setup
    found = levels(run)
    rows = nearest(setup, several, run.pick(200, 50), run.seed)
    by = {most: (one, two) for most, one, two in rows}
    policy = policy_of(ACTOR, run)
    assert isinstance(policy, ActorCritic)
    seconds, steps = training(policy, run.seed), policy.pretraining + policy.epochs
    return Result(
        {"threads": setup.threads, "machines": setup.machines, "steps": steps},
        {
            **found,
            "nearest_10_ms": by[10][0],
            "nearest_counts_10_ms": by[10][1],
            "training_s": round(seconds, 1),
            "ms_per_step": round(1000 * seconds / steps, 2),
        },
        tables=[Table("milliseconds of the K nearest", ("K", "assignments", "counts of three applications"), rows)],
        targets=[
            Target("placements_per_second", at_least=PER_SECOND, explanation=_BUSY),
            Target("nearest_10_ms", at_most=NEAREST_MS, explanation=_BUSY),
            Target("nearest_counts_10_ms", at_most=COUNTS_MS, explanation=_BUSY),
            Target("training_s", at_most=TRAINING_S, explanation=_BUSY),
        ],
        notes=[
            "Placements and events per second: processor time of one core, the median of five. Nearest placements: "
            "processor time, the median of seven. Training: seconds that pass, with 10,000 samples in it; the "
            "second of two, so that all was compiled before."
        ],
    )


@speed.picture
def _draw(figure: charts.Figure, result: Result) -> None:
    rows = np.array([list(row) for row in result.tables[0].rows], dtype=float)
    names = ("assignments", "counts")
    values = {f"{names[at]}, K = {int(row[0])}": float(row[at + 1]) for at in range(2) for row in rows}
    left, right = charts.panels(figure, 2, (11, 3.6))
    charts.dots(left, values, title="Nearest placements", x="milliseconds", y="")
    per_second = {"formulas": result.metrics["placements_per_second"]}
    charts.bars(right, per_second, title="Placements per second, one core", x="per second", y="")
