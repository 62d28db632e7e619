"""Rates that a simulated cluster sustains as keys become more skewed, under Prompt and its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.bench import Cell, Claim, Published, Result, Run, Series, Table, Target, charts, experiment, mean
from steelyard.bench.claims import seeds_note
from steelyard.bench.prompt.policies import (
    CAM,
    HASH,
    PK2,
    PK5,
    PROMPT,
    PUBLISHED_RIVALS,
    RIVALS,
    SHUFFLE,
    SLOTS,
    TIME,
    Wave,
    all_costs,
    chosen_cam,
    longest_batch,
    rates_of,
    ratios,
    shapes_of,
)
from steelyard.bench.prompt.rate import Rates, costs_in_us, operator_title
from steelyard.bench.prompt.shapes import Stream
from steelyard.partition.affinity import Affinity
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.ranks import rank_table

INTERVAL = 3.0
KEYS = 200_000
EXPONENTS, QUICK_EXPONENTS = (0.1, 0.5, 1.0, 1.5, 2.0), (0.1, 1.0, 2.0)
QUICK_SLOTS = 8
"""A quarter of the slots need a quarter of the rows."""
FLAT = 0.9
"""A rate counts as flat where its lowest is at least this share of its highest."""
SOURCE = "Abdelhamid 2021, Fig 2.7d, text"
HEADLINE = "sum"


@dataclass(frozen=True)
class RatesBySkew:
    """Rates by operator and exponent, and what was chosen for cAM."""

    rates: Mapping[tuple[str, float], Rates]
    cams: Mapping[float, Affinity]
    costs: Mapping[str, TaskCosts]
    rows: int
    keys: int
    slots: int

    @property
    def exponents(self) -> list[float]:
        """Skews, from none to much."""
        return sorted({exponent for _, exponent in self.rates})


def simulate(
    run: Run,
    costs: Mapping[str, TaskCosts],
    keys: int = KEYS,
    slots: int = SLOTS,
    exponents: Sequence[float] | None = None,
) -> RatesBySkew:
    """Draw a stream for each skew and seed, shape its batches under every policy, and find the rates."""
    rows = longest_batch(costs, slots, INTERVAL)
    exponents = exponents or (QUICK_EXPONENTS if run.quick else EXPONENTS)
    steady = Wave(INTERVAL, INTERVAL, amplitude=0.0)
    rates: dict[tuple[str, float], Rates] = {(name, exponent): [] for name in costs for exponent in exponents}
    cams: dict[float, Affinity] = {}
    cases = [(exponent, seed) for exponent in exponents for seed in run.seeds()]
    for exponent, seed in run.progress.track(cases, "prompt-skew"):
        stream = Stream.drawn(exponent, keys, rows, slots, seed)
        if exponent not in cams:  # chosen once for a workload, as its protocol says
            cams[exponent] = chosen_cam(stream, costs[HEADLINE])
        shapes, plans = shapes_of(stream, cams[exponent])
        for operator, each in costs.items():
            rates[operator, exponent].append(rates_of(stream, shapes, plans, each, steady))
    return RatesBySkew(rates, cams, costs, rows, keys, slots)


@experiment(
    "prompt-skew",
    title="Sustainable rate as keys become more skewed: Prompt beside its rivals",
    figure="Abdelhamid 2021, Fig 2.7d",
)
def prompt_skew(run: Run) -> Result:
    """Largest rate without queueing of a simulated cluster against the Zipf exponent, for T = 3 s."""
    run.progress.say("timing the tasks of two operators")
    slots = QUICK_SLOTS if run.quick else SLOTS
    return result_of(simulate(run, all_costs(), slots=slots), run.quick)


def result_of(found: RatesBySkew, quick: bool) -> Result:
    """Ratios at the largest skew, and the claims over all."""
    most = found.exponents[-1]
    metrics: dict[str, float] = {}
    for operator in found.costs:
        rates = found.rates[operator, most]
        ending = "" if operator == HEADLINE else f"_{operator}"
        metrics |= {f"prompt_vs_{rival}{ending}": mean(ratios(rates, rival)) for rival in RIVALS}
        metrics[f"prompt_flatness{ending}"] = mean(_flatness(found, operator))
    reason = f"at Zipf {most:g}; see the claims"
    return Result(
        parameters={
            "slots": found.slots,
            "keys": found.keys,
            "interval_s": INTERVAL,
            "longest_batch": found.rows,
            "exponents": found.exponents,
            "headline": f"operator {HEADLINE}, Zipf {most:g}",
            "cam": {exponent: f"{cam.mode} d={cam.choices}" for exponent, cam in found.cams.items()},
            **{f"{operator}_costs_us": costs_in_us(costs) for operator, costs in found.costs.items()},
        },
        metrics=metrics,
        tables=[_table(found)],
        claims=claims_of(found),
        series=series_of(found, HEADLINE),
        published=[
            Published("2x to 5x", SOURCE, "prompt_vs_hash"),
            Published("the highest throughput, also where keys are highly skewed", SOURCE, "prompt_flatness"),
        ],
        targets=[
            Target("prompt_vs_hash", at_least=2.0, explanation=reason),
            Target("prompt_vs_cam", at_least=2.0, explanation=reason),
            Target("prompt_flatness", at_least=FLAT, explanation="keys cost more where there are more of them"),
        ],
        kind="simulated",
        notes=[
            "Measured: task costs, and sizes and keys of all blocks and buckets. Simulated: the rates (Eq 2.1), at a "
            "constant input rate; no driver, no network. prompt_flatness is the lowest rate over the highest.",
            f"The dissertation's streams have up to ten million keys, these {found.keys:,}.",
            seeds_note(quick),
        ],
    )


def claims_of(found: RatesBySkew) -> list[Claim]:
    """What the text of section 2.6.2 says of Fig 2.7d."""
    claims = []
    most = found.exponents[-1]
    for operator in found.costs:
        every = [found.rates[operator, exponent] for exponent in found.exponents]
        least = np.min([ratios(rates, rival) for rates in every for rival in PUBLISHED_RIVALS], axis=0)
        closest = min(
            ((mean(ratios(rates, rival)), rival) for rates in every for rival in PUBLISHED_RIVALS),
            key=lambda pair: pair[0],
        )
        text = f"{operator}: Prompt's rate is the highest at every skew"
        reason = f"ahead or level somewhere: {closest[1]}, with Prompt at {closest[0]:.4g}x of it"
        claims.append(Claim(text, SOURCE, least.tolist(), at_least=1.0, reason=reason))
        for rival in (TIME, SHUFFLE, HASH, CAM, PK2, PK5):
            best = np.max([ratios(rates, rival) for rates in every], axis=0)
            text = f"{operator}: Prompt sustains 2x the rate of {rival}, at its best over the skews"
            reason = _why(found, operator, rival)
            claims.append(Claim(text, f"2x to 5x ({SOURCE})", best.tolist(), at_least=2.0, reason=reason))
        text = f"{operator}: Prompt's rate is flat (lowest over highest)"
        reason = f"without skew there are more keys, and keys cost: it rises towards Zipf {most:g}"
        flat = "not published: the text says that it stays the highest"
        claims.append(Claim(text, flat, _flatness(found, operator), at_least=FLAT, reason=reason))
    return claims


def _why(found: RatesBySkew, operator: str, rival: str) -> str:
    """How far ahead Prompt gets, and what the rival has to do with the hottest key."""
    best, exponent = max(
        (mean(ratios(found.rates[operator, exponent], rival)), exponent) for exponent in found.exponents
    )
    ahead = f"{best:.2f}x at most, at Zipf {exponent:g}"
    if rival in (TIME, SHUFFLE):
        return f"{ahead}: its blocks are equal at a constant rate, so only its many fragments cost it anything"
    hottest = rank_table(found.exponents[-1], found.keys).shares[0]
    return (
        f"{ahead}; the hottest key has {hottest:.0%} of the rows at Zipf {found.exponents[-1]:g}, "
        f"and a slot's share is {1 / found.slots:.1%}"
    )


def _flatness(found: RatesBySkew, operator: str) -> list[float]:
    rates = np.array([[one[PROMPT] for one in found.rates[operator, exponent]] for exponent in found.exponents])
    return [float(share) for share in rates.min(axis=0) / rates.max(axis=0)]


def _table(found: RatesBySkew) -> Table:
    policies = (*RIVALS, PROMPT)
    rows: list[Sequence[Cell]] = [
        (operator, exponent, *(mean(one[policy] for one in rates) / 1e6 for policy in policies))
        for (operator, exponent), rates in found.rates.items()
    ]
    return Table("mean rate, million rows per second (simulated)", ("operator", "Zipf", *policies), rows)


def series_of(found: RatesBySkew, operator: str) -> list[Series]:
    """A line for each policy: million rows per second against the exponent."""
    return [
        Series(
            policy,
            found.exponents,
            [mean(one[policy] for one in found.rates[operator, exponent]) / 1e6 for exponent in found.exponents],
            kind="simulated",
        )
        for policy in (PROMPT, *PUBLISHED_RIVALS)
    ]


@prompt_skew.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates of all policies by skew, a panel for each operator."""
    rows = result.tables[1].records()
    operators = list(dict.fromkeys(one["operator"] for one in rows))
    panels = charts.panels(figure, len(operators), (12, 4.8))
    for axes, operator in zip(panels, operators, strict=True):
        own = [one for one in rows if one["operator"] == operator]
        skews = [one["Zipf"] for one in own]
        lines = [Series(policy, skews, [one[policy] for one in own]) for policy in (PROMPT, *PUBLISHED_RIVALS)]
        title = operator_title(operator, result.parameters)
        y = "million rows per second, simulated"
        charts.lines(axes, lines, title=title, x="Zipf exponent", y=y, legend=False)
        for place, line in enumerate(axes.lines):
            line.set_linestyle("--" if line.get_label() == TIME else "-")
            line.set_zorder(4 if line.get_label() == TIME else 3)  # time lies on shuffle
            line.set_linewidth(2.6 if place == 0 else 1.4)
            if place >= len(charts.COLOURS):
                line.set_color(charts.GREY)
    charts.legend_below(figure, *panels)
    given = result.parameters
    title = f"Sustainable rate, {given['slots']} slots, {given['keys']:,} keys, T = {given['interval_s']:g} s"
    figure.suptitle(title, fontsize=11, color=charts.INK)
