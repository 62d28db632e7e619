"""Trainings from their beginning to a file of weights: on a user's own key counts, or as the shipped one was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts
from steelyard.core.counts import Ints
from steelyard.learning import Curve, Trained, generator
from steelyard.partition.learned import inference
from steelyard.partition.learned.learner import as_numpy
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.own_counts import read_counts
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.training import Progress, Trainer
from steelyard.partition.learned.weights import POLICY, SHIPPED, Weights, load, packed, shapes
from steelyard.partition.prompt import Prompt

Report = Callable[[Progress], None]
HELD_OUT = 0.2
"""Of a user's batches: not learnt from, and what the result is judged by."""
DRAWN = 200
"""Batches that training anew is judged by; it does not see them."""
UPDATES = 100_000
"""More than anybody waits for: minutes end training on a file."""
SAVE_SECONDS = 60.0
"""Between two savings of a training that runs."""
ANEW = Training(batches=256, imitated=200, entropy=0.0005, seed=1)
"""What the network in the package was trained with."""
ANEW_UPDATES = 2_350


@dataclass(frozen=True)
class Judged:
    """What training brought: the mean of MPI over Prompt's."""

    batches: int
    unseen: bool
    """Whether it was judged on batches that it did not learn from. Of one batch alone there are none."""
    before: float
    """With the weights of the package."""
    after: float
    kept: bool
    """Whether the new weights were written: those that were there before stay where they are the better ones."""
    curve: Curve


def train_on(
    path: Path, out: Path, blocks: int, minutes: float, seed: int, report: Report, resume: bool = False
) -> Judged:
    """Train the shipped network further on a file's counts, and write the weights that serve them better."""
    counts = read_counts(path)
    unseen = max(1, int(HELD_OUT * len(counts))) if len(counts) > 1 else 0
    learnt, judged = (counts[:-unseen], counts[-unseen:]) if unseen else (counts, counts)
    start = load(SHIPPED)
    before = against_prompt(start, judged, blocks)
    most = max(len(one) for one in learnt)
    options = Training(
        bootstrap="none", keys=min(150, most), blocks=blocks, batches=128, rate=1e-4, seed=seed, entropy=0.0
    )
    samples = Samples(options.keys, blocks, own=learnt, fewest_blocks=max(2, blocks // 2))
    trainer = Trainer(options, samples, start)
    found = follow(trainer, out, UPDATES, minutes, report, resume)
    after = against_prompt(found, judged, blocks)
    kept = after <= before
    Trained(
        POLICY,
        packed(found if kept else start),
        shapes(options.actions),
        {"batches": len(counts), "most_keys": most, "blocks": blocks},
        options.to_dict(),
        {"updates": trainer.update, "mpi_vs_prompt": min(after, before)},
        seed,
    ).save(out)
    return Judged(len(judged), bool(unseen), before, after, kept, trainer.curve)


def train_anew(
    out: Path,
    report: Report,
    seed: int = ANEW.seed,
    minutes: float = np.inf,
    updates: int = ANEW_UPDATES,
    resume: bool = False,
    options: Training = ANEW,
) -> Judged:
    """Train a network from nothing, as the one in the package was: the same options, distributions and updates."""
    options = replace(options, seed=seed)
    judged, blocks = held_out(options)
    before = against_prompt(load(SHIPPED), judged, blocks)
    trainer = Trainer(options)
    found = follow(trainer, out, updates, minutes, report, resume)
    after = against_prompt(found, judged, blocks)
    drawn = Samples(options.keys, options.blocks)
    Trained(
        POLICY,
        packed(found),
        shapes(options.actions),
        {
            "blocks": f"{drawn.fewest_blocks} to {drawn.blocks}",
            "keys": f"{drawn.fewest_keys} to {drawn.keys}, log-uniform",
            "rows_a_key": f"2 to {drawn.rows:g}",
            "shapes": "Zipf of exponents 0 to 2, equal, exponential, two crowds",
        },
        options.to_dict(),
        {"updates": trainer.update, "minutes": trainer.seconds / 60, "mpi_vs_prompt": after},
        seed,
    ).save(out)
    return Judged(len(judged), True, before, after, True, trainer.curve)


def held_out(options: Training) -> tuple[list[Ints], list[int]]:
    """Counts and blocks of drawn batches that no training sees."""
    drawn = Samples(options.keys, options.blocks).draw(DRAWN, generator(0, "held out"))
    counts = [rows[: int(keys)] for rows, keys in zip(drawn.rows, drawn.keys, strict=True)]
    return counts, drawn.blocks.tolist()


def half_of(out: Path) -> Path:
    """Where a training that is to be gone on with is saved."""
    return out.with_suffix(".half.npz")


def follow(trainer: Trainer, out: Path, updates: int, minutes: float, report: Report, resume: bool) -> Weights:
    """Train to the end; saved every minute, at Ctrl-C and at the end, to be gone on with.

    What an earlier training left to be gone on with is deleted, unless this one does.
    """
    half = half_of(out)
    if resume:
        trainer.resume(half)
    else:
        half.unlink(missing_ok=True)
    saved = time.monotonic()
    try:
        for step in trainer.run(updates, minutes):
            report(step)
            if time.monotonic() - saved >= SAVE_SECONDS:
                trainer.save(half)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if trainer.update and trainer.finite:
            trainer.save(half)
        raise
    if trainer.update:
        trainer.save(half)
    assert trainer.weights is not None
    return as_numpy(trainer.weights)


def against_prompt(
    weights: Weights, counts: Sequence[Ints], blocks: int | Sequence[int], mode: inference.Mode = "auto"
) -> float:
    """The mean of the plans' MPI over the mean of Prompt's; `blocks` are those of each batch, or of all."""
    own, other = [], []
    for one, into in zip(counts, np.broadcast_to(blocks, len(counts)).tolist(), strict=True):
        batch = KeyCounts(pa.array(np.arange(len(one))), one)
        own.append(inference.plan(weights, batch, into, mode, POLICY).mpi_normalised())
        other.append(Prompt().plan(batch, into).mpi_normalised())
    total = float(np.sum(other))
    return float(np.sum(own)) / total if total else 1.0
