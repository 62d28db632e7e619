"""Training on a user's own key counts: the file, what is learnt from it, and whether that was worth it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from steelyard.core import KeyCounts, OptionError
from steelyard.core.counts import Ints
from steelyard.learning import Trained
from steelyard.partition.learned import inference
from steelyard.partition.learned.learner import as_numpy
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.training import Progress, Trainer
from steelyard.partition.learned.weights import POLICY, SHIPPED, Weights, load, packed, shapes
from steelyard.partition.prompt import Prompt

BATCH, KEY, ROWS = "batch", "key", "rows"
HELD_OUT = 0.2
"""Of the batches: not learnt from, and what the result is judged by."""
UPDATES = 100_000
"""More than anybody waits for: minutes end training."""


def read_counts(path: Path) -> list[Ints]:
    """The counts of each batch of a file: columns `key` and `rows`, and `batch` where there are several.

    OptionError, with the remedy, for another kind of file, a column that is missing, and counts that are none.
    """
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        elif path.suffix == ".csv":
            table = pyarrow.csv.read_csv(path)
        else:
            raise OptionError(f"key counts are read from .parquet or .csv, got {path.name!r}")
    except (OSError, pa.ArrowInvalid) as error:
        raise OptionError(f"no key counts can be read from {path}: {error}") from error
    for column in (KEY, ROWS):
        if column not in table.column_names:
            raise OptionError(f"{path} has no column {column!r}: it needs {KEY!r} and {ROWS!r}, and may have {BATCH!r}")
    rows = table[ROWS]
    if not (pa.types.is_integer(rows.type) or pa.types.is_floating(rows.type) or pa.types.is_null(rows.type)):
        raise OptionError(f"column {ROWS!r} of {path} must be numbers, and is {rows.type}")
    numbers = np.asarray(pc.cast(rows, pa.float64()).to_numpy(zero_copy_only=False))
    wrong = ~(np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2**53))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise OptionError(
            f"column {ROWS!r} of {path} has {numbers[at]} in line {at}, which is no count: whole numbers of 0 or more"
        )
    whole = numbers.astype(np.int64)
    of = np.zeros(len(whole), np.int64)
    if BATCH in table.column_names:
        codes = pc.dictionary_encode(table[BATCH].combine_chunks(), null_encoding="encode").indices
        of = np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
    batches = [whole[(of == one) & (whole > 0)] for one in range(int(of.max(initial=-1)) + 1)]
    found = [one for one in batches if len(one)]
    if not found:
        raise OptionError(f"{path} has no key with rows: there is nothing to learn from")
    return found


@dataclass(frozen=True)
class Judged:
    """What training brought, on batches that it did not see where there were enough: the mean of MPI over Prompt's."""

    batches: int
    before: float
    after: float
    kept: bool
    """Whether the new weights were written: those that were there before stay where they are the better ones."""


def train_on(
    path: Path, out: Path, blocks: int, minutes: float, seed: int, report: Callable[[Progress], None]
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
    for step in trainer.run(UPDATES, minutes):
        report(step)
    assert trainer.weights is not None
    found = as_numpy(trainer.weights)
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
    return Judged(len(judged), before, after, kept)


def against_prompt(weights: Weights, counts: Sequence[Ints], blocks: int, mode: inference.Mode = "auto") -> float:
    """The mean of the plans' MPI over the mean of Prompt's."""
    own, other = [], []
    for one in counts:
        batch = KeyCounts(pa.array(np.arange(len(one))), one)
        own.append(inference.plan(weights, batch, blocks, mode, POLICY).mpi_normalised())
        other.append(Prompt().plan(batch, blocks).mpi_normalised())
    total = float(np.sum(other))
    return float(np.sum(own)) / total if total else 1.0
