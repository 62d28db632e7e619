"""What a plan of PartLy's takes as keys grow, and the rates that a cluster sustains with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from steelyard.bench import Claim, Published, Result, Run, Target, charts, experiment, mean
from steelyard.bench.claims import seeds_note
from steelyard.bench.prompt.cluster_model import measure_costs, sustainable, through
from steelyard.bench.prompt.metrics import INSERTION
from steelyard.bench.prompt.policies import CAM, HASH, PROMPT, SHUFFLE, longest_batch
from steelyard.bench.prompt.rate import costs_in_us
from steelyard.bench.prompt.shapes import GRID_POINTS, LEAST_SHARE, Stream, shape_of
from steelyard.bench.tables import Series, Table
from steelyard.bench.timing import in_turns
from steelyard.core import BlockPlan, KeyCounts, Partitioner
from steelyard.partition import Hash, HashAllocator, Prompt, PromptAllocator, Shuffle
from steelyard.partition.affinity import Affinity
from steelyard.partition.early_release import MOST_SLACK
from steelyard.partition.partly import PartLy
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.ranks import rank_table

ONE_PASS, KEY_BY_KEY, CHECKED = "partly", "partly, key by key", "partly with its net"
KEYS, QUICK_KEYS = (1_000, 10_000, 100_000), (1_000, 10_000)
SEQUENTIAL_KEYS = 10_000
"""Key by key no larger batch is timed: it takes ten times as long."""
ROWS_A_KEY, EXPONENT, BLOCKS = 10, 1.0, 32
TURNS, QUICK_TURNS = 9, 3
CAM_CHOICES = 5
SOURCE = "Abdelhamid 2021, Fig 4.8b and section 4.6"
SOURCE_RATE = "Abdelhamid 2021, Fig 4.9"
INTERVALS = (1.0, 2.0, 3.0)
EXPONENTS, QUICK_EXPONENTS = (0.6, 1.0, 1.4), (1.0,)
RATE_KEYS, SLOTS = 10_000, 24


def batch(keys: int, seed: int) -> tuple[KeyCounts, Stream]:
    """Counts of exactly so many keys, in no order, and the rows behind them."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -EXPONENT
    random = np.random.default_rng([seed, keys])
    rows = 1 + random.multinomial((ROWS_A_KEY - 1) * keys, weights / weights.sum())
    random.shuffle(rows)
    stream = Stream(np.repeat(np.arange(keys, dtype=np.int32), rows), keys, BLOCKS)
    random.shuffle(stream.keys)
    return KeyCounts(pa.array(np.arange(keys)), rows), stream


def times_of(keys: int, seed: int, turns: int) -> dict[str, float]:
    """Median seconds of each way to cut one batch; cAM's routes its rows, which is what it takes instead of a plan."""
    counts, stream = batch(keys, seed)
    prompt, one_pass = Prompt(), PartLy(mode="one_shot", net=False)
    checked, by_key = PartLy(mode="one_shot"), PartLy(mode="sequential", net=False)
    ids, when = stream.ids[stream.keys], np.zeros(len(stream.keys), np.int64)
    ways: dict[str, Callable[[], object]] = {
        PROMPT: lambda: prompt.plan(counts, BLOCKS),
        ONE_PASS: lambda: one_pass.plan(counts, BLOCKS),
        CHECKED: lambda: checked.plan(counts, BLOCKS),
        CAM: lambda: Affinity(choices=CAM_CHOICES).router(BLOCKS).route(ids, when),
    }
    if keys <= SEQUENTIAL_KEYS:
        ways[KEY_BY_KEY] = lambda: by_key.plan(counts, BLOCKS)
    for way in ways.values():
        way()
    return {name: float(np.median(taken)) for name, taken in in_turns(ways, turns).items()}


@experiment("partly-overhead", title="What a plan of PartLy's takes as keys grow", figure=SOURCE)
def partly_overhead(run: Run) -> Result:
    """Plans of 1,000 to 100,000 keys into 32 blocks: PartLy in one pass, key by key and with its net; Prompt; cAM."""
    seeds, sizes = run.seeds(), run.pick(KEYS, QUICK_KEYS)
    taken = {}
    for keys in run.progress.track(sizes, "partly-overhead"):
        taken[keys] = [times_of(keys, seed, run.pick(TURNS, QUICK_TURNS)) for seed in seeds]
    largest = taken[sizes[-1]]
    ratio = [one[PROMPT] / one[ONE_PASS] for one in largest]
    rows = [
        (keys, name, mean(one[name] for one in found) * 1e3, mean(one[PROMPT] / one[name] for one in found))
        for keys, found in taken.items()
        for name in found[0]
    ]
    reason = "the network's share of the time is larger than what Prompt's phases take"
    return Result(
        parameters={"keys": list(sizes), "blocks": BLOCKS, "rows_a_key": ROWS_A_KEY, "zipf_exponent": EXPONENT},
        metrics={
            "partly_vs_prompt_plan": mean(ratio),
            "partly_vs_cam": mean(one[CAM] / one[ONE_PASS] for one in largest),
            "partly_plan_ms": mean(one[ONE_PASS] for one in largest) * 1e3,
            "prompt_plan_ms": mean(one[PROMPT] for one in largest) * 1e3,
            "checked_plan_ms": mean(one[CHECKED] for one in largest) * 1e3,
        },
        tables=[Table("wall-clock of a plan", ("keys", "policy", "ms", "Prompt's over it"), rows)],
        claims=[
            Claim(
                f"a plan of {sizes[-1]:,} keys takes no longer than Prompt's (Prompt's time over it)",
                f"may beat cAM and Prompt as keys grow ({SOURCE}, L6)",
                ratio,
                at_least=1.0,
                reason=reason,
            ),
            Claim(
                f"nor than cAM's routing of the rows, {sizes[-1]:,} keys",
                f"may beat cAM and Prompt as keys grow ({SOURCE}, L6)",
                [one[CAM] / one[ONE_PASS] for one in largest],
                at_least=1.0,
                reason=reason,
            ),
        ],
        series=[
            Series(
                name,
                [float(keys) for keys in sizes if name in taken[keys][0]],
                [mean(one[name] for one in taken[keys]) * 1e3 for keys in sizes if name in taken[keys][0]],
            )
            for name in (ONE_PASS, PROMPT, CAM, CHECKED, KEY_BY_KEY)
        ],
        published=[
            Published("scales better in keys than cAM and Prompt (figure only)", SOURCE, "partly_vs_prompt_plan")
        ],
        targets=[Target("partly_vs_prompt_plan", at_least=1.0, explanation=reason)],
        notes=[
            "Median wall-clock of a call, ways in turns; sorting the counts is part of both plans. cAM with five "
            "choices routes every row and has no plan; its time grows with rows, ten a key here.",
            seeds_note(run.quick),
        ],
    )


@partly_overhead.picture
def draw_overhead(figure: charts.Figure, result: Result) -> None:
    """Milliseconds against keys, both on logarithmic axes."""
    axes = figure.add_subplot()
    charts.lines(axes, result.series, title="a plan for 32 blocks", x="keys", y="milliseconds")
    axes.set_xscale("log")
    axes.set_yscale("log")


@experiment("partly-throughput", title="Rates that a cluster sustains with PartLy's blocks", figure=SOURCE_RATE)
def partly_throughput(run: Run) -> Result:
    """Constant rate that is sustained, by skew and by batch interval: measured costs, simulated cluster."""
    costs = measure_costs("sum")
    seeds, exponents = run.seeds(), run.pick(EXPONENTS, QUICK_EXPONENTS)
    cases = [(interval, exponents[len(exponents) // 2]) for interval in INTERVALS]
    cases += [(INTERVALS[-1], exponent) for exponent in exponents if exponent != cases[0][1]]
    found: dict[tuple[float, float], list[dict[str, float]]] = {}
    for case in run.progress.track(cases, "partly-throughput"):
        found[case] = [_rates(*case, seed, costs) for seed in seeds]
    ratio = [mean(one) for one in zip(*([a[ONE_PASS] / a[PROMPT] for a in of] for of in found.values()), strict=True)]
    names = list(next(iter(found.values()))[0])
    rows: list[Sequence[str | float]] = [
        (f"{interval:g} s", exponent, *(mean(one[name] for one in of) / 1e6 for name in names))
        for (interval, exponent), of in found.items()
    ]
    return Result(
        parameters={"slots": SLOTS, "keys": RATE_KEYS, "costs_us": costs_in_us(costs), "exponents": list(exponents)},
        metrics={"rate_vs_prompt": mean(ratio), "least_rate_vs_prompt": min(ratio)},
        tables=[Table("million rows per second (simulated)", ("interval", "Zipf", *names), rows)],
        claims=[
            Claim(
                "PartLy's rate is at least 98 % of Prompt's, mean over intervals and skews",
                f"competitive across data distribution and batch interval ({SOURCE_RATE}, L5)",
                ratio,
                at_least=0.98,
                reason="its blocks are less even",
            )
        ],
        series=[
            Series(
                name, list(INTERVALS), [mean(one[name] for one in found[case]) / 1e6 for case in cases[:3]], "simulated"
            )
            for name in names
        ],
        published=[Published("competitive (figure only)", SOURCE_RATE, "rate_vs_prompt")],
        kind="simulated",
        notes=[
            "Measured: task costs, and rows and keys of all blocks and buckets. Simulated: the rates (Eq 2.1). "
            "Plans are made in the slack before the heartbeat, and what does not fit is added. Policies that route "
            "row by row are in prompt-rate and prompt-skew, beside Prompt.",
            seeds_note(run.quick),
        ],
    )


def _rates(interval: float, exponent: float, seed: int, costs: TaskCosts) -> dict[str, float]:
    """Rows per second that each policy sustains at a constant rate: a batch takes no longer than the interval."""
    from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - compiled

    most = longest_batch({"sum": costs}, SLOTS, interval)
    grid = np.geomspace(LEAST_SHARE * most, most, GRID_POINTS).astype(np.int64)
    shares = rank_table(exponent, RATE_KEYS).shares
    random = np.random.default_rng([seed, round(1000 * exponent)])
    names = pa.array(np.arange(RATE_KEYS) + seed * RATE_KEYS)
    ids = np.asarray(spark_hash(names))
    policies: dict[str, tuple[Partitioner, PromptAllocator | HashAllocator]] = {
        HASH: (Hash(), HashAllocator()),
        SHUFFLE: (Shuffle(), HashAllocator()),
        PROMPT: (Prompt(), PromptAllocator()),
        INSERTION: (Prompt(residual_order="insertion"), PromptAllocator()),
        ONE_PASS: (PartLy(mode="one_shot", net=False), PromptAllocator()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    for rows in grid.tolist():
        drawn = random.multinomial(rows, shares)
        there = np.flatnonzero(drawn)
        counts = KeyCounts(names.take(pa.array(there)), drawn[there])
        for name, (policy, allocator) in policies.items():
            begun = time.process_time()
            plan = policy.plan(counts, SLOTS)
            over = max(0.0, time.process_time() - begun - MOST_SLACK * interval)
            if name == SHUFFLE:
                plan = _even(counts)
            seconds[name].append(float(shape_of(plan, ids[there], allocator).seconds(costs)) + over)
    return {
        name: sustainable(through(grid, np.array(taken)), interval, float(most)) / interval
        for name, taken in seconds.items()
    }


def _even(counts: KeyCounts) -> BlockPlan:
    """Round robin as it comes out: each key in as many blocks as it has rows, in turn."""
    parts = np.minimum(counts.rows, SLOTS)
    key = np.repeat(np.arange(len(counts)), parts)
    turn = np.arange(len(key)) - np.repeat(np.cumsum(parts) - parts, parts)
    rows = counts.rows[key] // parts[key] + (turn < counts.rows[key] % parts[key])
    first = np.repeat(np.cumsum(counts.rows) - counts.rows, parts)
    return BlockPlan.of(counts, SLOTS, key=key, block=(first + turn) % SLOTS, rows=rows, policy=SHUFFLE)


@partly_throughput.picture
def draw_throughput(figure: charts.Figure, result: Result) -> None:
    """Rates against the interval of batches."""
    axes = figure.add_subplot()
    charts.lines(axes, result.series, title="simulated rates", x="batch interval, s", y="million rows per second")
