"""How placements are learnt: curves, more load, and what each part of the learners is good for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard.bench import Claim, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.placement.contest import Outcome, code_of, kept, outcome, seeds_of, trained
from steelyard.bench.placement.published import ACTOR, DEFAULT, DQN, EXTRA, MODEL, STEP
from steelyard.bench.placement.verdicts import HOW, NOTE, times_table
from steelyard.core.measured import EVERY
from steelyard.core.plans import Floats
from steelyard.learning import Curve
from steelyard.sim.placed import ExactCluster, deployed

LAST = 200
"""Epochs at the end of which the document gives the mean."""
DQN_END = 0.44
"""Section 3.5: the mean normalised reward of DQN at the end, continuous queries in 100 threads."""
CURVES = ("cq-large", "lsp-large", "wc-large")
STEP_AT, END, MORE = 1200.0, 2400.0, 1.5
"""Seconds: half as many tuples more come from minute 20 on."""
_SHOWN = 100
"""Points of a curve in a picture."""


def smoothed(values: Floats) -> Floats:
    """Forward and backward through a low-pass filter, as the document does (Gustafsson's ends; order 2, at 0.02)."""
    from scipy.signal import butter, filtfilt  # noqa: PLC0415 - slow to import

    if len(values) < 3:
        return values
    numerator, denominator = butter(2, 0.02)
    found: Floats = filtfilt(numerator, denominator, values, method="gust")
    return found


def _points(name: str, values: Floats) -> Series:
    places = np.unique(np.linspace(0, len(values) - 1, _SHOWN).astype(int))
    return Series(name, places.tolist(), np.round(values[places], 4).tolist(), "simulated")


@experiment(
    "placement-learning", title="Rewards of DQN, and of actor and critic, epoch by epoch", figure="Figs. 3.4, 3.6, 3.8"
)
def learning(run: Run) -> Result:
    """Normalised between the least and the largest reward of both, smoothed for the picture only."""
    setups = run.pick(CURVES, ("cq-small",))
    series, rows = [], []
    ends: dict[tuple[str, str], list[float]] = {}
    for setup in setups:
        for seed in run.progress.track(seeds_of(run), f"placement-learning, {setup}"):
            both = [outcome(run, setup, name, seed) for name in (DQN, ACTOR)]
            curves = [Curve(name, np.array(one.curve)) for name, one in zip((DQN, ACTOR), both, strict=True)]
            low = min(float(one.values.min()) for one in curves)
            high = max(float(one.values.max()) for one in curves)
            for one in curves:
                normal = one.normalised(low, high)
                ends.setdefault((setup, one.name), []).append(normal.last(LAST))
                rows.append((setup, one.name, seed, round(one.last(LAST), 4), round(normal.last(LAST), 4)))
                if seed == seeds_of(run)[0]:
                    series.append(_points(f"{setup}: {one.name}", smoothed(normal.values)))
    claims = [
        Claim(
            f"{setup}: at the end actor and critic are rewarded more than DQN, normalised",
            f"DQN ends at {DQN_END}" if setup == "cq-large" else "above DQN",
            [one - other for one, other in zip(ends[setup, ACTOR], ends[setup, DQN], strict=True)],
            at_least=0.0,
            reason="the actor tries placements that overload a machine now and then, also at the end",
        )
        for setup in setups
    ]
    metrics = {
        f"{name}_end_{setup.replace('-', '_')}": round(mean(values), 3) for (setup, name), values in ends.items()
    }
    columns = ("setup", "policy", "seed", f"reward, last {LAST}", f"normalised, last {LAST}")
    notes = [
        "Rewards are of formulas (the simulated cluster's fast level), whose constants were fitted to the default "
        "scheduler's published times alone.",
        "Rewards are normalised by the least and the largest of both policies with the same seed.",
    ]
    return Result(
        {"seeds": len(seeds_of(run))},
        metrics,
        tables=[Table("ends of curves", columns, rows)],
        series=series,
        claims=claims,
        kind="simulated",
        notes=notes,
    )


@learning.picture
def _draw_learning(figure: charts.Figure, result: Result) -> None:
    setups = list(dict.fromkeys(one.name.partition(":")[0] for one in result.series))
    panels = charts.panels(figure, len(setups), (4.0 * len(setups) + 1, 3.6))
    for axes, setup in zip(panels, setups, strict=True):
        charts.lines(
            axes, result.panel(setup), title=setup, x="epoch", y="normalised reward", legend=axes is panels[-1]
        )


@experiment("placement-workload", title="Half as many tuples more from minute 20 on", figure="Figs. 3.10 and 4.6")
def workload(run: Run) -> Result:
    """Each policy is asked at the start, and once more when the load has grown."""
    cases = run.pick(
        (("cq-large", ACTOR), ("cq-large", MODEL), ("lsp-large", ACTOR), ("wc-large", ACTOR), ("3x-cq-large", EXTRA),
         ("hybrid", EXTRA)),
        (("cq-small", ACTOR),),
    )  # fmt: skip
    series, rows = [], []
    rises: dict[tuple[str, str], list[float]] = {}
    wanted = [(setup, name, seed) for setup, name in cases for seed in seeds_of(run)]
    for setup, name, seed in run.progress.track(wanted, "placement-workload"):
        named = name if name == MODEL else f"{name}?most_load={MORE}"
        looks = _looks(run, named, setup, seed)
        minutes, times = np.array(looks).T
        before, after = (float(np.mean(times[(minutes > low) & (minutes <= low + 5)])) for low in (15, 35))
        spike = float(times[minutes > STEP_AT / 60].max())
        rises.setdefault((setup, name), []).append(100 * (after / before - 1))
        rows.append((setup, name, seed, round(before, 3), round(spike, 3), round(after, 3)))
        if seed == seeds_of(run)[0]:
            series.append(Series(f"{setup}, {name}", minutes.tolist(), np.round(times, 4).tolist(), "simulated"))
    claims = [
        Claim(
            f"{setup}, {name}: percent more time, when stable again",
            _printed(setup, name),
            values,
            at_most=5.0,
            reason="queues grow faster than the load where placements are near what machines can do",
        )
        for (setup, name), values in rises.items()
    ]
    columns = ("setup", "policy", "seed", "ms before", "highest ms after", "ms when stable again")
    return Result(
        {"seeds": len(seeds_of(run)), "more": MORE},
        {f"rise_{setup.replace('-', '_')}_{name}": round(mean(values), 2) for (setup, name), values in rises.items()},
        tables=[Table("before and after", columns, rows)],
        series=series,
        claims=claims,
        kind="simulated",
        notes=[HOW, f"Learners are trained with loads from 1 to {MORE} times the first one."],
    )


def _looks(run: Run, named: str, setup: str, seed: int) -> list[list[float]]:
    def make() -> Any:
        policy, _ = trained(run, setup, named, seed)
        return np.transpose(grown(policy, setup, seed)).tolist()

    told = (named, setup, seed, run.quick, code_of(inspect.getsource(grown)), STEP_AT, END, MORE)
    found: list[list[float]] = kept(run, f"workload-{setup}-{seed}", told, make)
    return found


def grown(policy: Any, setup: str, seed: int) -> tuple[Floats, Floats]:
    """Minutes, and milliseconds of tuples, from a deployment until long after the load has grown."""
    cluster = ExactCluster(deployed(setup), seed=seed + 1000)
    minutes, times = [], []
    for step in range(int(END / EVERY)):
        seen = cluster.measure(EVERY)
        minutes.append(cluster.now / 60)
        times.append(1000 * float(seen.times.mean()))
        if cluster.now == STEP_AT:
            cluster.scale_rates(MORE)
        if step == 0 or cluster.now == STEP_AT + 2 * EVERY:
            cluster.deploy(cluster.setup.assignment(policy.place(cluster.setup, seen), cluster.assignment))
    return np.array(minutes), np.array(times)


def _printed(setup: str, name: str) -> str:
    if (setup, name) not in STEP:
        return "similar to the others"
    before, after = STEP[setup, name]
    return f"{100 * (after / before - 1):.1f} ({before} to {after} ms)"


@workload.picture
def _draw_workload(figure: charts.Figure, result: Result) -> None:
    figure.set_size_inches(9, 4.5)
    charts.lines(figure.add_subplot(), result.series, title=workload.name, x="minute", y="mean tuple time, ms")


VARIANTS = {
    "as it is": ACTOR,
    "K = 1": f"{ACTOR}?nearest=1",
    "K = 5": f"{ACTOR}?nearest=5",
    "K = 32": f"{ACTOR}?nearest=32",
    "K = 100": f"{ACTOR}?nearest=100",
    "literal samples": f"{ACTOR}?sampling=literal",
    "gamma = 0": f"{ACTOR}?gamma=0",
    "gamma = 0.5": f"{ACTOR}?gamma=0.5",
    "plain gradients": f"{ACTOR}?invert=false",
    "noise by scale": f"{ACTOR}?explore=scale",
    "rewards not cut": f"{ACTOR}?reward_clip=1000",
}
OF_EXTRA = {"EXTRA": EXTRA, "EXTRA, fixed threads": f"{EXTRA}?fixed=true", "EXTRA, gamma = 0": f"{EXTRA}?gamma=0"}


@experiment("placement-ablation", title="What each part of the learners is good for")
def ablation(run: Run) -> Result:
    """One thing changed at a time, on the large setup of continuous queries, and three small ones for EXTRA."""
    seeds = seeds_of(run)
    one, three = run.pick("cq-large", "cq-small"), "3x-cq-small"
    found: dict[tuple[str, str], Sequence[Outcome]] = {}
    cases = [(one, label, named) for label, named in {"default": DEFAULT, **VARIANTS}.items()]
    cases += [(three, label, named) for label, named in {"default": DEFAULT, **OF_EXTRA}.items()]
    for setup, label, named in run.progress.track(cases, "placement-ablation"):
        found[setup, label] = [outcome(run, setup, named, seed) for seed in seeds]
    metrics = {
        f"{label} vs default, {setup}": round(mean(100 * (1 - own.stable / base.stable) for own, base in pairs), 2)
        for (setup, label), each in found.items()
        if label != "default"
        for pairs in [list(zip(each, found[setup, "default"], strict=True))]
    }
    return Result(
        {"seeds": len(seeds), "setups": [one, three]},
        metrics,
        tables=[times_table(found)],
        kind="simulated",
        notes=[NOTE, "Metrics are percent of the default's time that are saved, means over the seeds."],
    )


@ablation.picture
def _draw_ablation(figure: charts.Figure, result: Result) -> None:
    figure.set_size_inches(8, 5)
    charts.bars(
        figure.add_subplot(), result.metrics, title=ablation.name, x="percent of the default's time saved", y=""
    )
