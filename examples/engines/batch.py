"""One batch of words, cut into blocks by Prompt, written for a program of another engine.

    python examples/engines/batch.py out/engines

leaves `rows.csv` (word, value, block; a row without a word ends the batch of its block) and `expected.csv` (word,
total), which is what plain Python adds up.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from steelyard.core import KeyCounts
from steelyard.partition import Prompt
from steelyard.workloads import Zipf

ROWS, BLOCKS = 20_000, 4


def main(folder: Path) -> None:
    """Write the files, and say how even the blocks are."""
    drawn = Zipf(exponent=1.5, keys=500, seed=7).rows(0, ROWS, np.zeros(ROWS, np.int64))
    words = [f"w{key}" for key in drawn.column("key").to_pylist()]
    values = [round(1000 * value) for value in drawn.column("value").to_pylist()]
    plan = Prompt().plan(KeyCounts.of(Counter(words)), BLOCKS)

    # which block the next row of a word goes to: the fragments of the word, one after the other
    names = plan.counts.keys.to_pylist()
    left: dict[str, list[list[int]]] = {name: [] for name in names}
    for key, block, rows in zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True):
        left[names[key]].append([block, rows])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        for word, value in zip(words, values, strict=True):
            fragment = left[word][0]
            fragment[1] -= 1
            if not fragment[1]:
                left[word].pop(0)
            writer.writerow([word, value, fragment[0]])
        writer.writerows(["", 0, block] for block in range(BLOCKS))
    totals: Counter[str] = Counter()
    for word, value in zip(words, values, strict=True):
        totals[word] += value
    with open(folder / "expected.csv", "w", newline="") as file:
        csv.writer(file).writerows(sorted(totals.items()))
    print(f"{ROWS} rows in {BLOCKS} blocks: {plan.sizes.tolist()}; words that are cut: {plan.split.sum()}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/engines"))
