"""Two partitioners: rivals that work alone beside Dalton's that learn together (Zapridou et al. 2022, Fig 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.dalton.cooperation import ALONE, COOPERATIVE, shared, warm_up_together
from steelyard.bench.dalton.policies import RIVALS, Throughput, of_trace, warm_up
from steelyard.bench.dalton.stage_model import ENGINES, MICRO, Costs, Engine, mean_stages, measured_costs, window_ends
from steelyard.bench.dalton.streams import LONG_SLIDE, UNIFORM, WINDOW, ZIPF_15
from steelyard.core.counts import Ints

SLOTS = 64
ROWS = 100_000
"""Rows of a source."""
WINDOWS = 2
MIXED, SKEWED = "uniform + zipf 1.5", "zipf 1.5 + zipf 1.5"
SCENARIOS = (MIXED, SKEWED)
NAMES = (*RIVALS, ALONE, COOPERATIVE)

Rates = Mapping[tuple[str, str], Sequence[Throughput]]
"""By scenario and policy: one for each seed."""


def sources_of(scenario: str, rows: int, seed: int) -> list[Ints]:
    """Two sources; where both are skewed, other keys are hot in each."""
    first = UNIFORM if scenario == MIXED else ZIPF_15
    return [first.draw(rows, 2 * seed), ZIPF_15.draw(rows, 2 * seed + 1)]


def rates_of(seeds: Sequence[int], costs: Costs, rows: int = ROWS) -> Rates:
    """Every policy with two partitioners on both scenarios."""
    found: dict[tuple[str, str], list[Throughput]] = {}
    for seed in seeds:
        for scenario in SCENARIOS:
            sources = sources_of(scenario, rows, seed)
            for name, one in shared().items():
                trace = one.trace(sources, SLOTS, seed)
                ends = window_ends(2 * rows, WINDOW, LONG_SLIDE, WINDOWS)
                found.setdefault((scenario, name), []).append(of_trace(trace, one, one.plan(SLOTS), costs, ends))
    return found


def ratio(found: Rates, scenario: str, name: str, others: Sequence[str], engine: Engine = "windows") -> list[float]:
    """Rate over that of the best of others, one for each seed."""
    rates = {one: np.array([each.rate(engine) for each in found[scenario, one]]) for one in (name, *others)}
    return [float(value) for value in rates[name] / np.max([rates[other] for other in others], axis=0)]


def claims_of(found: Rates) -> list[Claim]:
    """What Fig 13's text says, beside what was found."""
    claims = []
    for scenario in SCENARIOS:
        for engine in ENGINES:
            leader = max(RIVALS, key=lambda name: np.mean([one.rate(engine) for one in found[scenario, name]]))
            claims.append(
                Claim(
                    f"cooperating Dalton ahead of every rival: {scenario} ({engine})",
                    "1.4x to 3.4x",
                    ratio(found, scenario, COOPERATIVE, RIVALS, engine),
                    1.0,
                    reason=_beside(found, scenario, leader, engine),
                )
            )
        claims.append(
            Claim(
                f"cooperating partitioners ahead of independent ones: {scenario} (windows)",
                "1.4x to 3.4x over replicated partitioners (section 1)",
                ratio(found, scenario, COOPERATIVE, [ALONE]),
                1.0,
                reason=_why(found, scenario),
            )
        )
    claims.append(
        Claim(
            "hash beats DAGreedy with one uniform source (windows)",
            "yes",
            ratio(found, MIXED, "hash", ["dagreedy"]),
            1.0,
            reason=_beside(found, MIXED, "dagreedy", "windows", "hash"),
        )
    )
    claims.append(
        Claim(
            "DAGreedy beats hash with two skewed sources (windows)",
            "yes",
            ratio(found, SKEWED, "dagreedy", ["hash"]),
            1.0,
        )
    )
    return claims


def _beside(found: Rates, scenario: str, rival: str, engine: Engine, name: str = COOPERATIVE) -> str:
    """What a row takes in the slowest stage of both, and how full their fullest combiners are."""
    parts = []
    for one in (rival, name):
        share = mean(each.largest_share for each in found[scenario, one])
        us = MICRO / _mean(found, scenario, one, engine)
        parts.append(
            f"{one} takes {us:.2g} us per row in its slowest stage, its fullest combiner has {share:.1%} of the rows"
        )
    return f"best rival {parts[0]}; {parts[1]}" if name == COOPERATIVE else "; ".join(parts)


def _why(found: Rates, scenario: str) -> str:
    ours, alone = (
        mean_stages([one.stages["windows"] for one in found[scenario, name]]) for name in (COOPERATIVE, ALONE)
    )
    shares = [mean(one.largest_share for one in found[scenario, name]) for name in (COOPERATIVE, ALONE)]
    return (
        f"reducers of {ours.reducer:.2g} against {alone.reducer:.2g} us per row, since only partitioners that "
        f"cooperate can forward; fullest combiner {shares[0]:.1%} against {shares[1]:.1%}"
    )


@experiment(
    "dalton-partitioners",
    title="Two partitioners: independent copies of each policy, and Dalton's that cooperate",
    figure="Zapridou et al. 2022, Fig 13",
)
def partitioners(run: Run) -> Result:
    """Rates with two partitioners whose sources differ."""
    seeds = run.seeds()
    costs = measured_costs()
    warm_up()
    warm_up_together()
    return result_of(rates_of(seeds, costs), len(seeds))


def result_of(found: Rates, seeds: int) -> Result:
    """Figures, tables and verdicts."""
    metrics = {
        f"cooperative_vs_{label}_{which}": mean(ratio(found, scenario, COOPERATIVE, others))
        for scenario, which in ((MIXED, "one_skewed"), (SKEWED, "both_skewed"))
        for label, others in (
            ("best_rival", RIVALS),
            ("independent", [ALONE]),
            ("hash", ["hash"]),
            ("dagreedy", ["dagreedy"]),
        )
    }
    source = "Zapridou et al. 2022, section 5.4, text (Fig 13): over the others"
    return Result(
        parameters={
            "slots": SLOTS,
            "partitioners": 2,
            "rows": 2 * ROWS,
            "window": WINDOW,
            "slide": LONG_SLIDE,
            "seeds": seeds,
        },
        metrics=metrics,
        kind="simulated",
        tables=[_table(found)],
        claims=claims_of(found),
        series=[
            Series(name, [0, 1], [_mean(found, scenario, name) for scenario in SCENARIOS], "simulated")
            for name in NAMES
        ],
        published=[
            Published("1.4x to 3.4x", source, f"cooperative_vs_best_rival_{which}")
            for which in ("one_skewed", "both_skewed")
        ],
        notes=[
            "Rates are simulated from traces and measured costs, see dalton-scalability.",
            "Copies that do not know of each other may put one key in several combiners, so all their partials "
            "go through "
            "reducers; hashing has no reducers. Cooperating partitioners synchronise once per slide and forward.",
        ],
    )


def _mean(found: Rates, scenario: str, name: str, engine: Engine = "windows") -> float:
    return mean(one.rate(engine) for one in found[scenario, name])


def _table(found: Rates) -> Table:
    rows = []
    for scenario in SCENARIOS:
        for name in NAMES:
            ones = found[scenario, name]
            stages = mean_stages([one.stages["windows"] for one in ones])
            share = mean(one.largest_share for one in ones)
            rows.append(
                (
                    scenario,
                    name,
                    _mean(found, scenario, name),
                    _mean(found, scenario, name, "queues"),
                    _mean(found, scenario, name, "panes"),
                    *stages,
                    share,
                )
            )
    columns = (
        "sources",
        "policy",
        "rows/s, windows",
        "rows/s, queues",
        "rows/s, panes",
        "partitioner us",
        "combiner us",
        "reducer us",
        "fullest combiner's share",
    )
    return Table("two partitioners", columns, rows)


@partitioners.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A bar for each policy, a panel for each pair of sources."""
    for axes, scenario in zip(charts.panels(figure, 2, (12, 4.2)), SCENARIOS, strict=True):
        rates = {
            one["policy"]: one["rows/s, windows"] / 1e6
            for one in result.tables[1].records()
            if one["sources"] == scenario
        }
        x = "million rows per second, simulated"
        charts.bars(axes, rates, title=scenario, x=x, y="policy", ours=(COOPERATIVE, ALONE))
