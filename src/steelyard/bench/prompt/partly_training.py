"""How fast PartLy learns, by bootstrapping and level of actions; a known optimum; steps per second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Target, charts, experiment, mean
from steelyard.bench.claims import seeds_note
from steelyard.bench.prompt.partly_optimum import beside_optimum
from steelyard.bench.tables import Cell, Series, Table
from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import Floats
from steelyard.learning import generator, libraries
from steelyard.partition.learned import inference
from steelyard.partition.learned.courses import ANEW, ANEW_UPDATES, against_prompt, held_out
from steelyard.partition.learned.learner import as_jax, as_numpy, drawn, learner, rollout
from steelyard.partition.learned.options import Bootstrap, Training
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.training import Trainer
from steelyard.partition.learned.weights import SHIPPED, Weights, load
from steelyard.partition.prompt import Prompt

SMALL = Training(actions=1, keys=24, blocks=8, batches=128, imitated=15, rate=1e-3)
SHAPES = Samples(SMALL.keys, SMALL.blocks, fewest_keys=12)
UPDATES, QUICK_UPDATES = 150, 30
WINDOW = 5
"""Updates that a mean is taken over before it is compared."""
NEAR = 1.1
"""Learnt is what comes within a tenth of Prompt's cost on the same batches."""
BOOTSTRAPS: tuple[Bootstrap, ...] = ("none", "rewards", "imitation")
TOY = Training(actions=3, keys=8, blocks=3, batches=128, imitated=60, rate=1e-3)
TOY_UPDATES, QUICK_TOY_UPDATES = 1500, 200
CASES, QUICK_CASES = 200, 30
SPEED = Training(actions=3, keys=200, blocks=24, batches=128, epochs=2)
MINUTES, QUICK_MINUTES = 12.0, 0.5
"""Of training anew, at most."""
JUDGED_EVERY = 50
"""Updates between two looks at its quality."""
SHIPPED_QUALITY = 1.02
"""As good as the network in the package is what comes within 2 % of its ratio to Prompt."""
SOURCE = "Abdelhamid 2021, Fig 4.8a and section 4.6"


@lru_cache(maxsize=1)
def prompts_cost() -> float:
    """Mean of log(1 + cost in mean keys) of Prompt's plans of batches as the small agents see them."""
    batches = SHAPES.draw(400, generator(0, "judged"))
    found = []
    for number in range(400):
        rows = batches.rows[number, : batches.keys[number]]
        plan = Prompt().plan(KeyCounts.of(dict(enumerate(rows.tolist()))), int(batches.blocks[number]))
        found.append(np.log1p(plan.mpi_normalised() * len(rows) / batches.blocks[number]))
    return mean(found)


def learnt(options: Training, updates: int) -> tuple[list[float], float]:
    """Costs of every update, and episodes until the last ones were near Prompt's; all if they never were."""
    trainer = Trainer(options, SHAPES)
    until = float(updates * options.batches)
    for at in trainer.run(updates):
        if at.update >= WINDOW and np.mean(trainer.costs[-WINDOW:]) <= NEAR * prompts_cost():
            until = min(until, float(at.episodes))
            break
    return trainer.costs, until


def toy(seed: int, updates: int, cases: int) -> tuple[Floats, Floats, Weights]:
    """An agent that is trained on handfuls of keys: MPI of its plans, and the least there is."""
    trainer = Trainer(replace(TOY, seed=seed), Samples(TOY.keys, TOY.blocks, rows=25.0, fewest_keys=3))
    for _ in trainer.run(updates):
        pass
    assert trainer.weights is not None
    weights = as_numpy(trainer.weights)
    own, least = beside_optimum(lambda counts, blocks: _planned(weights, counts, blocks), cases, seed)
    return own, least, weights


def _planned(weights: Weights, counts: KeyCounts, blocks: int) -> BlockPlan:
    return inference.plan(weights, counts, blocks, "sequential", "partly")


def minutes_anew(most: float, options: Training = ANEW, every: int = JUDGED_EVERY) -> tuple[float, float]:
    """Minutes of training anew until plans are as good as Prompt's, and as the shipped network's; NaN for never.

    Judged by MPI on batches that no training sees; the time of judging is in it.
    """
    batches = held_out(options)
    goals = [1.0, SHIPPED_QUALITY * against_prompt(load(SHIPPED), *batches)]
    reached = [float("nan"), float("nan")]
    trainer = Trainer(options)
    for at in trainer.run(ANEW_UPDATES, most):
        if at.update % every:
            continue
        assert trainer.weights is not None
        ratio = against_prompt(as_numpy(trainer.weights), *batches)
        reached = [
            at.seconds / 60 if np.isnan(r) and ratio <= goal else r for r, goal in zip(reached, goals, strict=True)
        ]
        if not np.isnan(reached).any():
            break
    return reached[0], reached[1]


def steps_per_second(turns: int) -> tuple[float, float]:
    """Decisions per second with learning, and without: of batches of 200 keys and 24 blocks, all of the same length."""
    jax = libraries().jax
    batches = as_jax(
        Samples(SPEED.keys, SPEED.blocks, fewest_keys=SPEED.keys, fewest_blocks=SPEED.blocks).draw(
            SPEED.batches, generator(0, "speed")
        )
    )
    weights, key = drawn(SPEED), jax.random.PRNGKey(0)
    init, update = learner(SPEED)
    kept, run = init(weights), jax.jit(lambda *given: rollout(SPEED, False)(*given)[1].alive.sum())
    found: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        begun = time.perf_counter()
        steps = int(run(weights, batches, key))
        middle = time.perf_counter()
        learning = int(update(weights, kept, batches, key)[2][-1])
        if turn:  # the first compiles
            found[0].append(learning / (time.perf_counter() - middle))
            found[1].append(steps / (middle - begun))
    return float(np.median(found[0])), float(np.median(found[1]))


@experiment("partly-training", title="How fast PartLy learns, and how near it comes to the optimum", figure=SOURCE)
def partly_training(run: Run) -> Result:
    """Episodes until learnt, by bootstrapping and level of actions; a toy beside its optimum; steps per second."""
    seeds, updates = run.seeds(), run.pick(UPDATES, QUICK_UPDATES)
    cases = [replace(SMALL, bootstrap=bootstrap) for bootstrap in BOOTSTRAPS]
    cases += [replace(SMALL, bootstrap="rewards", actions=number) for number in (0, 2)]
    names = [*BOOTSTRAPS, "rewards, level 0", "rewards, level 2"]
    found: dict[str, list[tuple[list[float], float]]] = {}
    for name, options in run.progress.track(list(zip(names, cases, strict=True)), "partly-training"):
        run.progress.say(name)
        found[name] = [learnt(replace(options, seed=seed), updates) for seed in seeds]
    run.progress.say("a toy with a known optimum")
    own, least, _ = toy(run.seed, run.pick(TOY_UPDATES, QUICK_TOY_UPDATES), run.pick(CASES, QUICK_CASES))
    shipped = load(SHIPPED)
    shipped_own, shipped_least = beside_optimum(
        lambda counts, blocks: _planned(shipped, counts, blocks), run.pick(CASES, QUICK_CASES), run.seed
    )
    run.progress.say("steps per second")
    with_learning, without = steps_per_second(run.pick(7, 2))
    run.progress.say("training anew")
    minutes, minutes_to_shipped = minutes_anew(run.pick(MINUTES, QUICK_MINUTES))
    over_optimum = float(np.mean((own + 1) / (least + 1)))
    metrics = {
        "bootstrapping_saves": mean(_saved(found, "rewards")),
        "imitation_saves": mean(_saved(found, "imitation")),
        "partly_vs_optimal": over_optimum,
        "shipped_vs_optimal": float(np.mean((shipped_own + 1) / (shipped_least + 1))),
        "mpi_above_optimal": float(np.mean(own - least)),
        "shipped_mpi_above_optimal": float(np.mean(shipped_own - shipped_least)),
        "least_mpi": float(np.mean(least)),
        "training_steps_per_second": with_learning,
        "rollout_steps_per_second": without,
        "training_minutes": minutes,
        "training_minutes_to_shipped": minutes_to_shipped,
    }
    return result_of(found, metrics, updates, run.quick)


def _saved(found: dict[str, list[tuple[list[float], float]]], name: str) -> list[float]:
    """By how much fewer episodes it was learnt than without bootstrapping, seed by seed."""
    return [1 - one / none for (_, one), (_, none) in zip(found[name], found["none"], strict=True)]


def result_of(
    found: dict[str, list[tuple[list[float], float]]], metrics: dict[str, float], updates: int, quick: bool
) -> Result:
    """Figures, with curves and episodes behind them."""
    most = updates * SMALL.batches
    table: list[Sequence[Cell]] = [
        (name, mean(until for _, until in of), sum(until < most for _, until in of), len(of))
        for name, of in found.items()
    ]
    shared = "the machine's two cores are shared with other work"
    return Result(
        parameters={
            "small": SMALL.to_dict(),
            "toy": TOY.to_dict(),
            "speed": SPEED.to_dict(),
            "updates": updates,
            "near": NEAR,
        },
        metrics=metrics,
        tables=[Table("episodes until learnt", ("training", "episodes", "seeds that got there", "seeds"), table)],
        claims=claims_of(found),
        series=[
            Series(
                name,
                [float((n + 1) * SMALL.batches) for n in range(min(len(one) for one, _ in of))],
                np.mean([one[: min(len(two) for two, _ in of)] for one, _ in of], axis=0).tolist(),
            )
            for name, of in found.items()
        ],
        published=[Published("up to 70 %", f"{SOURCE}, L2", "bootstrapping_saves")],
        targets=[
            Target(
                "partly_vs_optimal", at_most=1.02, explanation="more updates, or a wider network, would come nearer"
            ),
            Target("training_steps_per_second", at_least=60_000, explanation=shared),
            Target("rollout_steps_per_second", at_least=300_000, explanation=shared),
            Target("training_minutes", at_most=30, explanation=shared),
        ],
        notes=[
            "Learnt is: the mean cost of five updates is within a tenth of Prompt's on batches drawn alike. Curves "
            "end where the first seed has learnt.",
            "partly_vs_optimal is the mean of (1 + MPI) over the least (1 + MPI): each of the three terms counts "
            "from its best, 1. The least is solved exactly, of up to 8 keys in up to 3 blocks; shipped_vs_optimal "
            "is of the network in the package, which was trained for larger batches. mpi_above_optimal is the plain "
            "difference of MPI to the least (least_mpi on average): 1 + MPI makes a ratio look smaller.",
            "training_minutes: as `steelyard train partly --anew` trains, until plans of drawn batches that it does "
            "not see have no more MPI than Prompt's, which is the published quality; training_minutes_to_shipped: "
            f"until they are within 2 % of the shipped network's. Null: not within {MINUTES:g} minutes (the quick "
            f"form waits {QUICK_MINUTES:g}).",
            seeds_note(quick),
        ],
    )


def claims_of(found: dict[str, list[tuple[list[float], float]]]) -> list[Claim]:
    """L2, and what imitation brings."""
    more = [
        two / zero for (_, two), (_, zero) in zip(found["rewards, level 2"], found["rewards, level 0"], strict=True)
    ]
    return [
        Claim(
            "dense rewards save training (share of episodes)",
            f"up to 70 % ({SOURCE}, L2)",
            _saved(found, "rewards"),
            at_least=0.01,
            reason="the constraints of each step say little of the whole, which is judged by MPI",
        ),
        Claim(
            "dense rewards save 70 % of the episodes",
            f"up to 70 % ({SOURCE}, L2)",
            _saved(found, "rewards"),
            at_least=0.7,
            reason="the constraints of each step say little of the whole, which is judged by MPI",
        ),
        Claim(
            "imitation of a heuristic saves 70 % of the episodes",
            "not published",
            _saved(found, "imitation"),
            at_least=0.7,
            reason="where an agent alone never gets there, this is the least that is saved",
        ),
        Claim(
            "nine kinds of actions need more episodes than two (ratio)",
            f"richer needs more ({SOURCE}, L2)",
            more,
            at_least=1.01,
            reason="with more kinds good plans are nearer",
        ),
    ]


@partly_training.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Curves of costs."""
    axes = figure.add_subplot()
    charts.lines(axes, result.series, title="learning curves", x="episodes", y="log(1 + cost in mean keys)")
