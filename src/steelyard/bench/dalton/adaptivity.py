"""What policies do when the hot keys change (Zapridou et al. 2022, Fig 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steelyard.bench import Cell, Claim, Interval, Published, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.dalton.batches import BATCH, BATCH_POLICIES, LEADERS, batch_rate, batch_stages
from steelyard.bench.dalton.charts import policy_lines
from steelyard.bench.dalton.clustering import clustering_costs, clustering_stages
from steelyard.bench.dalton.policies import ALL, DALTON, RIVALS, UNCAPPED, Timeline, contenders, timeline, warm_up
from steelyard.bench.dalton.stage_model import Costs, Plan, Trace, mean_stages, measured_costs
from steelyard.bench.dalton.streams import LONG_SLIDE, SLIDE, WINDOW, alternating, random_zipf

SLOTS = 64
PHASES = 4
PHASE, QUICK_PHASE = 120_000, 60_000
EVERY = 5_000
"""Rows of a point in time: 89 a combiner."""
BATCH_PHASE = 24
"""Batches of a phase in the micro-batch model."""
WITHIN = 2
"""Statistics windows within which we ask Dalton to have recovered from a shift; the paper gives no number."""
QUICKLY = "adapts quickly, without a number"
SETTLED = 1.25
"""A fullest block that is at most so much fuller than later in the phase has settled."""
DETECTED = "detected"
IN_TURN, RANDOM = "uniform and Zipf 1.5 in turn", "random exponents from 0.5 to 1.5"
"""Panels of the picture."""
SOURCE = "Zapridou et al. 2022, section 5.2, text"
SPREADING = ("shuffle", "pk2")
NO_DROP = (
    "it spreads skewed keys as evenly as others, and a window of skewed keys has fewer different ones, so that there "
    "is less to merge than before"
)

Lines = Mapping[str, Sequence[Timeline]]
"""By policy: one for each seed."""


def recovery(trace: Trace, shift: int, end: int, interval: int) -> int:
    """Statistics windows after row `shift` until the fullest block is as full as later in the phase.

    That is: its share of the rows of a window is at most 1.25 times the median of those of the second half of the
    phase, in this window and in the next. The window in which the shift comes is number 1.
    """
    block = trace.block[shift:end]
    windows = block[: len(block) // interval * interval].reshape(-1, interval)
    share = np.array([np.bincount(window).max() / interval for window in windows])
    steady = share[len(share) // 2 :]
    good = share <= SETTLED * np.median(steady)
    both = good[:-1] & good[1:]
    return int(np.argmax(both)) + 1 if both.any() else len(share)


def detection(trace: Trace, shift: int, end: int, interval: int) -> float:
    """Statistics windows after row `shift` until the key that is then the most frequent is first split."""
    keys = trace.keys[shift:end]
    top = np.bincount(keys).argmax()
    marked = np.flatnonzero((keys == top) & trace.split[shift:end])
    return (int(marked[0]) if len(marked) else end - shift) / interval


def lines_of(streams: Sequence[np.ndarray], seeds: Sequence[int], costs: Costs) -> Lines:
    """Every policy on every stream, the i-th with the i-th seed."""
    return {
        name: [timeline(one, keys, SLOTS, costs, EVERY, seed) for keys, seed in zip(streams, seeds, strict=True)]
        for name, one in contenders().items()
    }


def skewed(phase: int) -> list[int]:
    """The stretches of the phases with Zipf 1.5, without the first after each shift."""
    each = phase // EVERY
    return [i for i in range(PHASES * each) if (i // each) % 2 == 1 and i % each]


def ratios(lines: Lines, name: str, rival: str, chosen: Sequence[int] | None = None) -> list[float]:
    """Throughput of one policy over that of another, one for each seed."""
    pairs = zip(lines[name], lines[rival], strict=True)
    return [ours.throughput(chosen) / other.throughput(chosen) for ours, other in pairs]


def over_best(lines: Lines, name: str, chosen: Sequence[int] | None = None) -> list[float]:
    """Throughput over that of the best rival, one for each seed."""
    return [min(each) for each in zip(*(ratios(lines, name, rival, chosen) for rival in RIVALS), strict=True)]


def batch_ratios(phase: int, seeds: Sequence[int], costs: Costs) -> dict[str, list[float]]:
    """Fig 9b: throughput in the skewed phases of the micro-batch model, one for each seed."""
    found: dict[str, list[float]] = {name: [] for name in BATCH_POLICIES}
    chosen = [i for i in range(PHASES * phase) if (i // phase) % 2 == 1 and i % phase]
    for seed in seeds:
        keys = alternating(phase * BATCH, PHASES, seed)
        for name in BATCH_POLICIES:
            stages = batch_stages(name, keys, Plan.of(SLOTS), costs["panes"], seed)
            found[name].append(batch_rate(mean_stages([stages[i] for i in chosen])))
    return found


def clustering_rates(phase: int, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Fig 9c: rates of Correlation Clustering at the end of the last phase, which is skewed, one for each seed."""
    costs = clustering_costs()
    found: dict[str, list[float]] = {name: [] for name in ALL}
    for seed in seeds:
        keys = alternating(phase, PHASES, seed)
        for name, contender in contenders(ALL, WINDOW, LONG_SLIDE).items():
            plan = contender.plan(SLOTS)
            block, split = contender.router(plan.combiners, seed=seed).route(keys, np.arange(len(keys)))
            window = Trace(keys, block, split, plan.combiners, 0.0).window(len(keys), WINDOW, LONG_SLIDE)
            found[name].append(clustering_stages(window, plan.reducers, costs).rate)
    return found


@experiment(
    "dalton-adaptivity",
    title="Hot keys that change: what each policy loses, and for how long",
    figure="Zapridou et al. 2022, Fig 9",
)
def adaptivity(run: Run) -> Result:
    """Rates over time while uniform and skewed keys alternate, and while the exponent of Zipf's law jumps."""
    seeds = run.seeds()
    phase = run.pick(PHASE, QUICK_PHASE)
    run.progress.say("measuring operators")
    costs = measured_costs()
    warm_up()
    run.progress.say("alternating")
    lines = lines_of([alternating(phase, PHASES, seed) for seed in seeds], seeds, costs)
    run.progress.say("random exponents")
    drifting = lines_of([random_zipf(phase, PHASES, seed) for seed in seeds], seeds, costs)
    run.progress.say("micro-batches and clustering")
    batches = batch_ratios(run.pick(BATCH_PHASE, BATCH_PHASE // 2), seeds, costs)
    clusters = clustering_rates(phase, seeds)
    recovered: dict[str, list[float]] = {
        name: [max(recovery(one.trace, (p + 1) * phase, (p + 2) * phase, SLIDE) for p in (0, 2)) for one in lines[name]]
        for name in (DALTON, UNCAPPED, "dagreedy")
    }
    recovered[DETECTED] = [
        max(detection(one.trace, (p + 1) * phase, (p + 2) * phase, SLIDE) for p in (0, 2)) for one in lines[DALTON]
    ]
    return result_of(phase, lines, drifting, batches, clusters, recovered, len(seeds))


def claims_of(
    phase: int,
    lines: Lines,
    drifting: Lines,
    batches: Mapping[str, Sequence[float]],
    clusters: Mapping[str, Sequence[float]],
    recovered: Mapping[str, Sequence[float]],
) -> list[Claim]:
    """What Fig 9's text says, beside what was found."""
    return [
        *_claims_of_shifts(phase, lines, recovered),
        *_claims_beside_rivals(batches, clusters),
        Claim("Dalton ahead of every rival with random exponents", "1.1x to 1.3x", over_best(drifting, DALTON), 1.0),
    ]


def _claims_of_shifts(phase: int, lines: Lines, recovered: Mapping[str, Sequence[float]]) -> list[Claim]:
    """When keys turn skewed, tuple by tuple."""
    chosen = skewed(phase)
    each = phase // EVERY
    claims = [
        Claim(
            f"{name} recovers within {WITHIN} statistics windows of a shift to skew (slowest shift of a seed)",
            QUICKLY,
            [float(value) for value in recovered[name]],
            at_most=WITHIN,
            reason=f"the new top key is split after {np.mean(recovered[DETECTED]):.2g} statistics windows, but loads "
            "from before the shift count as long as they are in the window, 60 of them",
        )
        for name in (DALTON, UNCAPPED)
    ]
    claims.append(
        Claim(
            f"Dalton splits the new top key within {WITHIN} statistics windows",
            QUICKLY,
            recovered[DETECTED],
            at_most=WITHIN,
        )
    )
    for name in (DALTON, UNCAPPED):
        found = {rival: Interval.of(ratios(lines, name, rival, chosen)).mean for rival in RIVALS}
        reason = "over " + ", ".join(f"{rival} {value:.2g}x" for rival, value in found.items())
        claims.append(
            Claim(
                f"{name} ahead of every rival while keys are skewed",
                "1.3x to 6x",
                over_best(lines, name, chosen),
                1.0,
                reason=reason,
            )
        )
    for name in ALL:
        drops = [one.rates()[each] / np.mean(one.rates(each // 2, each)) for one in lines[name]]
        claims.append(
            Claim(
                f"{name} drops when keys turn skewed (rate just after over before)",
                "every algorithm drops",
                [float(d) for d in drops],
                at_most=1.0,
                reason=NO_DROP if name in SPREADING else "",
            )
        )
    return claims


def _claims_beside_rivals(
    batches: Mapping[str, Sequence[float]], clusters: Mapping[str, Sequence[float]]
) -> list[Claim]:
    """In micro-batches, and in Correlation Clustering."""
    claims = []
    best = np.max([batches[name] for name in BATCH_POLICIES if name != DALTON], axis=0)
    leader = max(BATCH_POLICIES, key=lambda name: mean(batches[name]))
    claims.append(
        Claim(
            "Dalton ahead of every rival in micro-batches while keys are skewed",
            "1.1x to 1.8x",
            list(batches[DALTON] / best),
            1.0,
            reason=f"fastest was {leader}: {LEADERS.get(leader, 'see the table')}",
        )
    )
    best = np.max([clusters[name] for name in RIVALS], axis=0)
    leader = max(ALL, key=lambda name: mean(clusters[name]))
    claims.append(
        Claim(
            "Dalton ahead of every rival in Correlation Clustering while keys are skewed",
            "1.1x to 1.8x",
            list(clusters[DALTON] / best),
            1.0,
            reason=f"fastest was {leader}; GREEDY compares all pairs of a split block again in one reducer",
        )
    )
    return claims


def result_of(
    phase: int,
    lines: Lines,
    drifting: Lines,
    batches: Mapping[str, Sequence[float]],
    clusters: Mapping[str, Sequence[float]],
    recovered: Mapping[str, Sequence[float]],
    seeds: int,
) -> Result:
    """Figures, tables and verdicts."""
    chosen = skewed(phase)
    metrics: dict[str, float] = {
        "recovery_windows_dalton": mean(recovered[DALTON]),
        "recovery_windows_dalton_cap_n": mean(recovered[UNCAPPED]),
        "recovery_windows_dagreedy": mean(recovered["dagreedy"]),
        "detection_windows_dalton": mean(recovered[DETECTED]),
        "skewed_dalton_vs_hash": mean(ratios(lines, DALTON, "hash", chosen)),
        "skewed_dalton_vs_dagreedy": mean(ratios(lines, DALTON, "dagreedy", chosen)),
        "whole_run_dalton_vs_best_rival": mean(over_best(lines, DALTON)),
        "random_zipf_dalton_vs_best_rival": mean(over_best(drifting, DALTON)),
        "random_zipf_dalton_vs_hash": mean(ratios(drifting, DALTON, "hash")),
        "skewed_dalton_vs_shuffle": mean(ratios(lines, DALTON, "shuffle", chosen)),
        "random_zipf_dalton_vs_dagreedy": mean(ratios(drifting, DALTON, "dagreedy")),
    }
    return Result(
        parameters={
            "slots": SLOTS,
            "phases": PHASES,
            "rows_a_phase": phase,
            "window": WINDOW,
            "slide": SLIDE,
            "stats_window": SLIDE,
            "seeds": seeds,
        },
        metrics=metrics,
        kind="simulated",
        kinds={name: "measured" for name in metrics if "_windows_" in name},
        tables=[_phases(phase, lines), _others(drifting, batches, clusters)],
        claims=claims_of(phase, lines, drifting, batches, clusters, recovered),
        series=[*_series("", lines), *_series(f"{RANDOM}: ", drifting)],
        published=[
            Published("1.3x to 6x", f"{SOURCE} (Fig 9a)", "skewed_dalton_vs_hash"),
            Published("1.1x to 1.3x", f"{SOURCE} (Fig 9d)", "random_zipf_dalton_vs_best_rival"),
            Published("1.1x to 1.8x in micro-batches and in Correlation Clustering", f"{SOURCE} (Fig 9b, 9c)"),
        ],
        notes=[
            "Rates are simulated from traces and measured costs, see dalton-scalability (windows). Recovery is "
            "measured on "
            "the traces: statistics windows of one slide until the fullest combiner is as full as later in the phase.",
            "Phases are shorter than the paper's (1,000 s in Fig 9d): one or two windows each.",
            "Correlation Clustering: VOTE in combiners and GREEDY in reducers cost the square of a block's "
            "records; both "
            "constants were measured on Steelyard's own operators, pairs are counted in the traces.",
        ],
    )


def _phases(phase: int, lines: Lines) -> Table:
    each = phase // EVERY
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            *(mean(one.throughput(range(p * each + 1, (p + 1) * each)) for one in ones) for p in range(PHASES)),
        )
        for name, ones in lines.items()
    ]
    names = [f"phase {p + 1}, {'zipf 1.5' if p % 2 else 'uniform'}" for p in range(PHASES)]
    return Table("rows per second in each phase, the first stretch of it left out", ("policy", *names), rows)


def _others(drifting: Lines, batches: Mapping[str, Sequence[float]], clusters: Mapping[str, Sequence[float]]) -> Table:
    rows = [
        (
            name,
            mean(one.throughput() for one in drifting[name]) if name in drifting else None,
            mean(batches[name]) if name in batches else None,
            mean(clusters[name]) if name in clusters else None,
        )
        for name in dict.fromkeys((*ALL, *BATCH_POLICIES))
    ]
    return Table("rows per second", ("policy", "random exponents", "micro-batches, skewed", "clustering, skewed"), rows)


def _series(begin: str, lines: Lines) -> list[Series]:
    return [
        Series(
            f"{begin}{name}",
            [EVERY * (i + 1) for i in range(len(ones[0].stages))],
            np.mean([one.rates() for one in ones], axis=0).tolist(),
            "simulated",
        )
        for name, ones in lines.items()
    ]


@adaptivity.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates over time, where the skew comes and goes and where its exponent is random."""
    shown = ("hash", "pk2", "dagreedy", DALTON, UNCAPPED)
    lines = {IN_TURN: result.panel(), RANDOM: result.panel(RANDOM)}
    saved = {title: found for title, found in lines.items() if found}
    panels = charts.panels(figure, len(saved), (13, 5), sharey=True)
    for axes, (title, found) in zip(panels, saved.items(), strict=True):
        policy_lines(axes, [one for one in found if one.name in shown], small=True)
        charts.logarithmic(axes, "y")
        axes.tick_params(labelleft=True, which="both")
        charts.thousands(axes.xaxis)
        charts.finish(axes, title=title, x="rows so far", y="rows per second, simulated")
    charts.legend_below(figure, *panels)
