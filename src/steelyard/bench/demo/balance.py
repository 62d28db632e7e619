"""The picture of what balancing does: the blocks of one batch by hash and by Prompt.

`python -m steelyard.bench.demo.balance docs/images/balance.png` draws it; no Spark is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.bench import charts
from steelyard.bench.prompt.planning import zipf_counts
from steelyard.bench.registry import DEFAULT_SEED
from steelyard.core.plans import BlockPlan
from steelyard.partition import partitioner

ROWS, KEYS, EXPONENT, BLOCKS = 40_000, 1_000, 1.3, 8
HOTTEST = 3
"""Keys that get a colour of their own."""
REST = "#cbd5e1"
LABELS = ("hottest key", "second", "third")


def hottest_rows(plan: BlockPlan, hottest: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64[hottest + 1, blocks]: rows of each of the hottest keys in each block, then of all others.

    >>> from steelyard.core import KeyCounts
    >>> plan = BlockPlan.of(KeyCounts.of({"a": 2, "b": 5}), 2, key=[0, 1, 1], block=[0, 0, 1], rows=[2, 1, 4])
    >>> hottest_rows(plan, 1).tolist()
    [[1, 4], [2, 0]]
    """
    order = np.argsort(-plan.counts.rows, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    rows = np.zeros((hottest + 1, plan.blocks), np.int64)
    np.add.at(rows, (np.minimum(rank[plan.key], hottest), plan.block), plan.rows)
    return rows


def draw(figure: charts.Figure, seed: int = DEFAULT_SEED) -> None:
    """The blocks of one batch by both policies, side by side on one scale."""
    counts = zipf_counts(KEYS, ROWS, EXPONENT, seed)
    panels = charts.panels(figure, 2, (9, 4), sharey=True)
    for axes, (policy, title) in zip(panels, (("hash", "by hash"), ("prompt", "by Prompt")), strict=True):
        plan = partitioner(policy).plan(counts, BLOCKS)
        _blocks(axes, hottest_rows(plan, HOTTEST), f"{title}: the largest has {plan.largest_over_mean:.2f} x the mean")
    charts.thousands(panels[0].yaxis)
    charts.legend_below(figure, *panels)
    figure.suptitle(
        f"One batch of {ROWS:,} rows with {KEYS:,} skewed keys, cut into {BLOCKS} blocks",
        x=0.01,
        ha="left",
        fontsize=12,
        color=charts.INK,
    )


def _blocks(axes: charts.Axes, rows: np.ndarray[Any, np.dtype[np.int64]], title: str) -> None:
    places = range(1, rows.shape[1] + 1)
    below = np.zeros(rows.shape[1])
    colours = (charts.COLOURS[1], charts.COLOURS[4], charts.COLOURS[2], REST)
    for key, colour, label in zip(rows, colours, (*LABELS, f"the other {KEYS - HOTTEST:,}"), strict=True):
        axes.bar(places, key, bottom=below, color=colour, width=0.75, label=label)
        below += key
    axes.axhline(rows.sum() / rows.shape[1], color=charts.INK, linestyle=":", linewidth=1.4, label="mean")
    axes.set_xticks(places)
    charts.finish(axes, title=title, x="block", y="rows of the block")
    axes.grid(visible=False, axis="x")


if __name__ == "__main__":
    charts.save(draw, Path(sys.argv[1]))
