"""How much task times differ from batch to batch: time-based blocks beside Prompt's, over many batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.bench import Cell, Claim, Published, Result, Run, Series, Table, Target, charts, experiment, mean
from steelyard.bench.claims import seeds_note
from steelyard.bench.prompt.cluster_model import Shape, measure_costs, sustainable, through
from steelyard.bench.prompt.policies import AMPLITUDE, PROMPT, SLOTS, TIME, Wave, longest_batch
from steelyard.bench.prompt.rate import costs_in_us
from steelyard.bench.prompt.shapes import Stream, shape_of
from steelyard.core import KeyCounts
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition import Prompt, PromptAllocator
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.vocabulary import MANDELBROT_EXPONENT, MANDELBROT_SHIFT

INTERVAL = 1.0
PERIOD = 20
"""Of the wave, in batches."""
WORDS = 100_000
BATCHES, QUICK_BATCHES = 200, 60
"""For each seed: thousands of batches in a full run."""
LOAD = 0.8
"""Of the rate that Prompt sustains at the top of the wave where tasks have no noise: the slowest of 32 needs room."""
TASK_NOISE = 0.05
"""Standard deviation of the logarithm of a task's time."""
OPERATOR = "histogram"
BOTH = (TIME, PROMPT)
SOURCE = "Abdelhamid 2021, Fig 2.8, text"
PROCESSING = "processing time"
"""A panel of the picture."""
QUANTILES = np.linspace(0, 1, 201)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Task times of one seed's batches, in seconds, for one policy."""

    mean_reduce: Floats
    """float64[batches]: mean over the reduce tasks of a batch."""
    slowest_reduce: Floats
    processing: Floats

    @property
    def std(self) -> float:
        """Standard deviation of the mean reduce time."""
        return float(self.mean_reduce.std())

    @property
    def spread(self) -> float:
        """99th less 1st percentile of the mean reduce time."""
        high, low = np.percentile(self.mean_reduce, [99, 1])
        return float(high - low)

    @property
    def violations(self) -> float:
        """Share of the batches that took longer than the interval."""
        return mean(self.processing > INTERVAL)


def blocks_by_arrival(rows: Ints, home: Ints, weights: Floats, draws: np.random.Generator) -> Shape:
    """A batch with `rows` of each key, cut by arrival into blocks of these shares.

    A key of c rows is in a block of share w with probability 1 - (1 - w)^c. Keys of one bucket and one count are
    alike, so their number in blocks is drawn at once, from the normal law of the same mean and variance.
    """
    slots = len(weights)
    counts, which = np.unique(rows, return_inverse=True)
    there = 1.0 - np.exp(np.outer(counts, np.log1p(-weights)))  # [counts, blocks]
    alike = np.bincount(which, minlength=len(counts))
    keys = _drawn(alike @ there, alike @ (there * (1 - there)), draws)
    by_bucket = np.bincount(home * len(counts) + which, minlength=slots * len(counts)).reshape(slots, -1)
    records = _drawn(by_bucket @ there.sum(axis=1), by_bucket @ (there * (1 - there)).sum(axis=1), draws)
    return Shape(draws.multinomial(int(rows.sum()), weights), keys, records, by_bucket.sum(axis=1))


def _drawn(mean: Floats, variance: Floats, draws: np.random.Generator) -> Floats:
    return np.maximum(0.0, draws.normal(mean, np.sqrt(variance)))


def noisy(shape: Shape, costs: TaskCosts, noise: Floats) -> tuple[Floats, Floats]:
    """Seconds of the map and of the reduce tasks, each a little off; noise is [2, slots]."""
    return (
        costs.map_seconds(shape.rows, shape.keys) * noise[0],
        costs.reduce_seconds(shape.records, shape.bucket_keys) * noise[1],
    )


def prompt_limit(costs: TaskCosts, words: int, slots: int, seed: int) -> float:
    """Rows of the largest batch that Prompt has done within the interval."""
    rows = longest_batch({OPERATOR: costs}, slots, INTERVAL)
    stream = Stream.drawn(MANDELBROT_EXPONENT, words, rows, slots, seed, MANDELBROT_SHIFT)
    shape, _ = stream.planned(Prompt(), PromptAllocator())
    return sustainable(through(stream.grid, shape.seconds(costs)), INTERVAL, rows)


def timelines(costs: TaskCosts, largest: float, batches: int, words: int, slots: int, seed: int) -> dict[str, Timeline]:
    """Both policies over the same batches: the wave's rows, drawn keys, and the same noise of tasks."""
    draws = np.random.default_rng([seed, words])
    shares = rank_table(MANDELBROT_EXPONENT, words, MANDELBROT_SHIFT).shares
    ids = Stream(np.empty(0, np.int32), words, slots, first_name=seed * words).ids
    wave = Wave(INTERVAL, PERIOD * INTERVAL)
    parts = wave.batches(slots)
    found: dict[str, list[tuple[float, float, float]]] = {policy: [] for policy in BOTH}
    for number in range(batches):
        part = parts[number % len(parts)]
        counts = draws.multinomial(draws.poisson(largest / wave.peak * part.sum()), shares)
        there = np.flatnonzero(counts)
        rows = counts[there]
        noise = draws.lognormal(0.0, TASK_NOISE, (2, slots))
        plan = Prompt().plan(KeyCounts(pa.array(there), rows), slots)
        shapes = {
            TIME: blocks_by_arrival(rows, np.mod(ids[there], slots), part / part.sum(), draws),
            PROMPT: shape_of(plan, ids[there], PromptAllocator()),
        }
        for policy, shape in shapes.items():
            maps, reduces = noisy(shape, costs, noise)
            found[policy].append((float(reduces.mean()), float(reduces.max()), float(maps.max() + reduces.max())))
    return {policy: Timeline(*np.array(each).T) for policy, each in found.items()}


@experiment(
    "prompt-latency",
    title="Spread of reduce times from batch to batch: time-based blocks beside Prompt's",
    figure="Abdelhamid 2021, Fig 2.8",
)
def prompt_latency(run: Run) -> Result:
    """Standard deviation, percentiles and violations of simulated batches at one and the same rate."""
    run.progress.say("timing tasks")
    costs = measure_costs(OPERATOR)
    largest = LOAD * prompt_limit(costs, WORDS, SLOTS, run.seed)
    batches = run.pick(BATCHES, QUICK_BATCHES)
    found = [
        timelines(costs, largest, batches, WORDS, SLOTS, seed)
        for seed in run.progress.track(run.seeds(), "prompt-latency")
    ]
    return result_of(found, costs, largest, run.quick)


def result_of(found: Sequence[Mapping[str, Timeline]], costs: TaskCosts, largest: float, quick: bool) -> Result:
    """Means over the seeds, and the claims."""
    metrics: dict[str, float] = {}
    for policy in BOTH:
        of = [one[policy] for one in found]
        metrics[f"{policy}_reduce_std_ms"] = mean(one.std for one in of) * 1e3
        metrics[f"{policy}_reduce_p99_p1_ms"] = mean(one.spread for one in of) * 1e3
        metrics[f"{policy}_violations"] = mean(one.violations for one in of)
    metrics["std_time_over_prompt"] = metrics["time_reduce_std_ms"] / metrics["prompt_reduce_std_ms"]
    metrics["p99_p1_time_over_prompt"] = metrics["time_reduce_p99_p1_ms"] / metrics["prompt_reduce_p99_p1_ms"]
    batches = len(found[0][PROMPT].processing)
    return Result(
        parameters={
            "batches": batches * len(found),
            "slots": SLOTS,
            "words": WORDS,
            "interval_s": INTERVAL,
            "period_batches": PERIOD,
            "amplitude": AMPLITUDE,
            "load": LOAD,
            "largest_batch_rows": int(largest),
            "task_noise": TASK_NOISE,
            "operator": OPERATOR,
            "costs_us": costs_in_us(costs),
        },
        metrics=metrics,
        tables=[_table(found)],
        claims=claims_of(found),
        series=_series(found),
        published=[Published("time-based widely spread, Prompt a narrow band within the bound", SOURCE)],
        targets=[
            Target("std_time_over_prompt", at_least=1.0, explanation="Prompt's reduce times spread more"),
            Target("prompt_violations", at_most=0.01, explanation="batches of Prompt's own load took too long"),
        ],
        kind="simulated",
        notes=[
            "Simulated from measured task costs; both policies get the same batches, at four fifths of the rate that "
            "Prompt sustains at the top of the wave, and the same noise of tasks. That Prompt stays within the bound, "
            "as the text says, is so by this choice, and no claim here.",
            "The text says that mean and largest latency increase under Prompt, which its figure's other words "
            "contradict; spread and violations are reported instead of a direction.",
            seeds_note(quick),
        ],
    )


def claims_of(found: Sequence[Mapping[str, Timeline]]) -> list[Claim]:
    """What the text says of Fig 2.8."""
    std = [one[TIME].std / one[PROMPT].std for one in found]
    spread = [one[TIME].spread / one[PROMPT].spread for one in found]
    relative = [
        (one[TIME].std / one[TIME].mean_reduce.mean()) / (one[PROMPT].std / one[PROMPT].mean_reduce.mean())
        for one in found
    ]
    same = "both follow the wave of the input rate in proportion, so a spread beside its mean differs little"
    return [
        Claim("reduce times spread more under time-based (std over Prompt's)", SOURCE, std, at_least=1.0, reason=same),
        Claim("the same with p99 less p1", SOURCE, spread, at_least=1.0, reason=same),
        Claim(
            "the same where each spread is divided by its mean", "not published", relative, at_least=1.0, reason=same
        ),
        Claim(
            "time-based goes beyond the bound at a rate that Prompt sustains (share of batches beyond T)",
            "not published",
            [one[TIME].violations for one in found],
            at_least=0.01,
            reason="its batches fit at this rate",
        ),
    ]


def _table(found: Sequence[Mapping[str, Timeline]]) -> Table:
    rows: list[Sequence[Cell]] = []
    for policy in BOTH:
        of = [one[policy] for one in found]
        means = np.concatenate([one.mean_reduce for one in of]) * 1e3
        slowest = np.concatenate([one.slowest_reduce for one in of]) * 1e3
        processing = np.concatenate([one.processing for one in of]) * 1e3
        low, middle, high = np.percentile(means, [1, 50, 99])
        rows.append(
            (policy, means.mean(), means.std(), low, middle, high, slowest.mean(), processing.mean(), processing.max())
        )
    columns = ("policy", "mean", "std", "p1", "median", "p99", "slowest task", "processing", "longest processing")
    return Table("reduce time of a batch, mean over its tasks, ms (simulated)", columns, rows)


def _series(found: Sequence[Mapping[str, Timeline]]) -> list[Series]:
    """Reduce times of one stream, and how processing times of all are distributed."""
    number = list(range(len(found[0][TIME].mean_reduce)))
    reduces = {policy: (found[0][policy].mean_reduce * 1e3).tolist() for policy in BOTH}
    processing = {
        policy: np.quantile(np.concatenate([one[policy].processing for one in found]), QUANTILES).tolist()
        for policy in BOTH
    }
    return [
        *(Series(policy, number, reduces[policy], kind="simulated") for policy in BOTH),
        *(Series(f"{PROCESSING}: {policy}", processing[policy], QUANTILES.tolist(), "simulated") for policy in BOTH),
    ]


@prompt_latency.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """How reduce times spread over the batches of one stream, and what batches take."""
    colours = dict(zip(BOTH, (charts.COLOURS[1], charts.COLOURS[0]), strict=True))
    processing = result.panel(PROCESSING)
    panels = charts.panels(figure, 2 + bool(processing), (14, 4.8))
    reduces = result.panel()
    every = np.concatenate([one.y for one in reduces])
    bins = np.linspace(every.min(), every.max(), 41).tolist()
    for one in reduces:
        panels[0].hist(one.y, bins=bins, color=colours[one.name], alpha=0.75, label=one.name)
    title = "Reduce time, batches of one stream"
    charts.finish(panels[0], title=title, x="mean time of a batch's reduce tasks, ms, simulated", y="batches")
    times = {
        f"{one['policy']}, {what}": one[column] / 1000
        for one in result.tables[1].records()
        for what, column in (("mean", "processing"), ("longest", "longest processing"))
    }
    x, title = "processing time of a batch, s, simulated", f"Processing time, {LOAD:.0%} load"
    charts.bars(panels[1], times, title=title, x=x, y="policy")
    for one in processing:
        panels[2].plot(one.x, one.y, color=colours[one.name], label=one.name)
        charts.finish(panels[2], title="The same, batch by batch", x=x, y="share of batches up to this time")
    for axes in panels[1:]:
        charts.bound(axes, INTERVAL, "interval", along="x", legend=False)
    charts.legend_below(figure, *panels)
