"""How often partitioners should synchronise, and Dalton's way to find out (Zapridou et al. 2022, Fig 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.dalton.cooperation import SECOND, syncing, warm_up_together
from steelyard.bench.dalton.policies import Timeline, stretch, warm_up
from steelyard.bench.dalton.stage_model import Costs, mean_stages, measured_costs
from steelyard.bench.dalton.streams import LONG_SLIDE, WINDOW, ZIPF_15, alternating
from steelyard.partition.cooperation import CooperativeDalton
from steelyard.partition.qtable_reducer import Feedback

SLOTS = 64
NEVER = -1
INTERVALS = (1, 2, 5, 10, 20, 40, NEVER)
"""Seconds between rounds; -1 is never."""
BEST = 10
"""The interval that Fig 14a finds best."""
PHASE, QUICK_PHASE, PHASES = 60_000, 40_000, 4
"""Rows of a source in a phase."""
EVERY = 10_000
MILLIS = 1_000
START = 20
"""Seconds between rounds at the start of Fig 14b."""
SCRIPT = ((0.0, 1), (5_000.0, 2), (10_000.0, 4), (15_000.0, 1))
"""From when on the reducer takes how many times as long, in seconds (Fig 14b)."""
LENGTH = 20_000.0
SERVICE = 6.0
"""Seconds that the reducer takes, before the delays. The paper gives no figure; 5 to 10 s settle at its intervals."""
SETTLED = (10, 20, 40, 10)
"""Where Fig 14b settles in each part of the script."""

Sweep = Mapping[int, Sequence[Timeline]]


def label(seconds: int) -> str:
    """How tables call an interval."""
    return "never" if seconds == NEVER else f"{seconds} s"


def sweep_of(seeds: Sequence[int], costs: Costs, phase: int) -> Sweep:
    """Fig 14a: two sources that alternate between uniform and Zipf 1.5, with every interval."""
    found: dict[int, list[Timeline]] = {seconds: [] for seconds in INTERVALS}
    for seed in seeds:
        sources = [alternating(phase, PHASES, 2 * seed + number) for number in range(2)]
        for seconds in INTERVALS:
            one = syncing(seconds * SECOND if seconds > 0 else NEVER)
            trace, plan = one.trace(sources, SLOTS, seed), one.plan(SLOTS)
            ends = range(WINDOW, len(trace.keys) + 1, EVERY)
            found[seconds].append(Timeline(trace, [stretch(trace, one, plan, costs, end, EVERY) for end in ends]))
    return found


class Round(NamedTuple):
    """An answer of the reducer: when it came, and the time between rounds from then on, in seconds."""

    at: float
    interval: float


def trajectory(scale: float, seed: int, rows_a_second: int = 2) -> list[Round]:
    """Fig 14b on a simulated clock: partitioners and reducer are the real ones, time and delays are a script.

    Parameters
    ----------
    scale
        Length of the script's parts, as a share of the paper's 5,000 s.
    seed
        Of the keys, which do not matter here.
    rows_a_second
        Of each partitioner.
    """
    policy = CooperativeDalton(window=60 * MILLIS, slide=20 * MILLIS, sync_every=START * MILLIS, sync="adaptive")
    routers, reducer = [policy.router(4, number) for number in range(2)], policy.reducer(4, 2)
    keys = ZIPF_15.draw(int(LENGTH * scale) * rows_a_second, seed)
    rounds: list[Round] = []
    serving: tuple[float, Feedback] | None = None
    for second in range(int(LENGTH * scale)):
        part = keys[second * rows_a_second : (second + 1) * rows_a_second]
        times = second * MILLIS + np.arange(rows_a_second) * (MILLIS // rows_a_second)
        if serving is not None and serving[0] <= second:
            for router in routers:
                router.receive(serving[1])
            rounds.append(Round(serving[0], serving[1].sync_every / MILLIS))
            serving = None
        for router in routers:
            router.route(part, times)
            for message in router.take_messages():
                reducer.receive(message, at=float(second))
        if serving is None and reducer.ready:
            processing = SERVICE * [times for begin, times in SCRIPT if begin * scale <= second][-1]
            serving = (second + processing, reducer.merge(processing=processing, at=second + processing))
    return rounds


def settled(rounds: Sequence[Round], scale: float) -> list[float]:
    """The time between rounds at the end of each part of the script."""
    ends = [begin * scale for begin, _ in SCRIPT[1:]] + [LENGTH * scale]
    return [[one.interval for one in rounds if one.at <= end][-1] for end in ends]


def claims_of(sweep: Sweep, found: Sequence[Sequence[float]]) -> list[Claim]:
    """What Fig 14's text says, beside what was found."""
    rates = {seconds: np.array([one.throughput() for one in ones]) for seconds, ones in sweep.items()}
    syncs = [seconds for seconds in INTERVALS if seconds != NEVER]
    worst = np.min([rates[seconds] for seconds in syncs], axis=0)
    others = np.max([rates[seconds] for seconds in syncs if seconds != BEST], axis=0)
    alone, together = (mean_stages([stages for one in sweep[s] for stages in one.stages]) for s in (NEVER, BEST))
    last = min(syncs, key=lambda seconds: float(rates[seconds].mean()))
    best = max(syncs, key=lambda seconds: float(rates[seconds].mean()))
    return [
        Claim(
            "never to synchronise is worst (rate of never over the worst interval)",
            "low throughput",
            list(rates[NEVER] / worst),
            at_most=1.0,
            reason=f"worst on average was {last} s; intervals beyond a slide cannot forward either: reducers take "
            f"{alone.reducer:.2g} us per row with never and {together.reducer:.2g} us with 10 s",
        ),
        Claim("synchronising every 10 s is ahead of never", "better", list(rates[BEST] / rates[NEVER]), 1.0),
        Claim(
            "10 s is the best interval (over the best of the others)",
            "improves until about 10 s",
            list(rates[BEST] / others),
            1.0,
            reason=f"best on average was {best} s; seeds differ by more than the two intervals do",
        ),
        Claim(
            "too frequent rounds cost (rate of 1 s over that of 10 s)",
            "too frequent costs",
            list(rates[1] / rates[BEST]),
            at_most=1.0,
        ),
        Claim(
            "adaptive interval goes 20, 10, 20, 40, 10 s as the reducer is slowed down (share of runs)",
            "20 -> 10 -> 20 -> 40 -> 10",
            [float(tuple(one) == SETTLED) for one in found],
            1.0,
            reason=f"settled at {', '.join(f'{value:g}' for value in found[0])} s with a service time of {SERVICE:g} s",
        ),
    ]


@experiment(
    "dalton-sync",
    title="How often partitioners synchronise: fixed, never, and adapting to a reducer that slows down",
    figure="Zapridou et al. 2022, Fig 14",
)
def sync(run: Run) -> Result:
    """Rates by the time between rounds, and how the adaptive time follows a scripted slow reducer."""
    seeds = run.seeds()
    scale = run.pick(1.0, 0.1)
    costs = measured_costs()
    warm_up(["dalton"])
    warm_up_together()
    sweep = sweep_of(seeds, costs, run.pick(PHASE, QUICK_PHASE))
    runs = [trajectory(scale, seed) for seed in seeds[:3]]
    return result_of(sweep, runs, scale, len(seeds))


def result_of(sweep: Sweep, runs: Sequence[Sequence[Round]], scale: float, seeds: int) -> Result:
    """Figures, tables and verdicts."""
    found = [settled(rounds, scale) for rounds in runs]
    rates = {seconds: mean(one.throughput() for one in ones) for seconds, ones in sweep.items()}
    metrics = {
        "sync_10s_vs_never": rates[BEST] / rates[NEVER],
        "sync_10s_vs_1s": rates[BEST] / rates[1],
        "sync_10s_vs_40s": rates[BEST] / rates[40],
        **{f"settled_s_part_{i + 1}": value for i, value in enumerate(found[0])},
    }
    rows = []
    for seconds, ones in sweep.items():
        stages = mean_stages([stages for one in ones for stages in one.stages])
        rows.append((label(seconds), rates[seconds], *stages, stages.slowest))
    source = "Zapridou et al. 2022, section 5.4, text"
    return Result(
        parameters={
            "slots": SLOTS,
            "partitioners": 2,
            "window": WINDOW,
            "slide": LONG_SLIDE,
            "seeds": seeds,
            "script_scale": scale,
            "service_s": SERVICE,
        },
        metrics=metrics,
        kind="simulated",
        claims=claims_of(sweep, found),
        tables=[
            Table(
                "rate by interval",
                ("interval", "rows/s", "partitioner us", "combiner us", "reducer us", "slowest"),
                rows,
            ),
            Table("changes of the adaptive interval", ("second", "interval, s"), _changes(runs[0])),
        ],
        series=[
            Series("adaptive interval, s", [one.at for one in runs[0]], [one.interval for one in runs[0]], "simulated")
        ],
        published=[
            Published(
                "never: throughput is low; more often is better, until rounds cost too much around 10 s",
                f"{source} (Fig 14a)",
                "sync_10s_vs_never",
            ),
            *(Published(value, f"{source} (Fig 14b)", f"settled_s_part_{i + 1}") for i, value in enumerate(SETTLED)),
        ],
        notes=[
            "Rates are simulated from traces and measured costs (windows), see dalton-scalability; the CPU time "
            "of rounds is "
            "in the partitioner's cost. Rounds that are longer than a slide of 20 s forbid forwarding (section 4.2).",
            "The adaptive interval is that of the real partitioners and reducer on a simulated clock. The paper "
            "does not give "
            "the reducer's service time; the trajectory is that of any time between 5 and 10 s.",
        ],
    )


def _changes(rounds: Sequence[Round]) -> list[tuple[float, float]]:
    found = [(0.0, float(START))]
    for one in rounds:
        if one.interval != found[-1][1]:
            found.append((one.at, one.interval))
    return found


@sync.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates by interval beside the adaptive interval over time."""
    left, right = charts.panels(figure, 2, (12, 4.2))
    rates = {one["interval"]: one["rows/s"] / 1e6 for one in result.tables[1].records()}
    x = "million rows per second, simulated"
    charts.bars(left, rates, title="Rate by the time between rounds", x=x, y="time between rounds")
    adaptive = result.series[0]
    right.step([0, *adaptive.x], [START, *adaptive.y], where="post", color=charts.COLOURS[0])
    for begin, slower in SCRIPT:
        at = begin * result.parameters["script_scale"]
        right.axvline(at, linestyle=":", color=charts.GREY)
        right.annotate(
            f"service x{slower}", (at, 42), color=charts.GREY, fontsize=9, xytext=(3, 0), textcoords="offset points"
        )
    right.set_ylim(0, 46)
    title = "The adaptive time between rounds"
    charts.finish(right, title=title, x="simulated time, s", y="time between rounds, s")
