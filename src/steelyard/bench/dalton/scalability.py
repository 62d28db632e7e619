"""How far each policy scales, on even and on skewed keys (Zapridou et al. 2022, Fig 7 and 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from steelyard.bench import Cell, Claim, Number, Published, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.dalton.batches import BATCH, BATCH_POLICIES, LEADERS, batch_rate, batch_stages
from steelyard.bench.dalton.charts import policy_lines
from steelyard.bench.dalton.policies import (
    ALL,
    DALTON,
    HASH_FAMILY,
    RIVALS,
    SPLIT_FAMILY,
    UNCAPPED,
    Throughput,
    contenders,
    evaluate,
    warm_up,
)
from steelyard.bench.dalton.stage_model import (
    ENGINES,
    Costs,
    Engine,
    OperatorCosts,
    Plan,
    Stages,
    mean_stages,
    measured_costs,
)
from steelyard.bench.dalton.streams import STREAMS, UNIFORM, WINDOW, ZIPF_1, ZIPF_15, Stream

SLOTS = (8, 16, 32, 64)
MOST = SLOTS[-1]
ROWS = 120_000
"""The first window warms up; figures are means over windows of the second."""
WINDOWS = 2
BATCHES = 30
LEVEL = 0.85
"""A plan with reducers has 7/8 of the slots that hashing has; so much of its rate is "hash's level"."""

EXACT = "dagreedy, exact forwarding"

Rates = Mapping[tuple[str, int, str], Sequence[Throughput]]
"""By stream, slots and policy: one for each seed."""
Batches = Mapping[tuple[str, str], Sequence[Stages]]
"""By stream and policy: mean cost of a batch's stages, one for each seed."""


def batch_rates(streams: Sequence[Stream], seeds: Sequence[int], cost: OperatorCosts, slots: int) -> Batches:
    """Every policy of the micro-batch model on every stream; the first third of the batches warms up."""
    found: dict[tuple[str, str], list[Stages]] = {}
    for seed in seeds:
        for stream in streams:
            keys = stream.draw(BATCH * BATCHES, seed)
            for name in BATCH_POLICIES:
                stages = batch_stages(name, keys, Plan.of(slots), cost, seed)[BATCHES // 3 :]
                found.setdefault((stream.name, name), []).append(mean_stages(stages))
    return found


def tuple_rates(streams: Sequence[Stream], seeds: Sequence[int], few: int, costs: Costs, track: Iterable[int]) -> Rates:
    """Every policy on every stream, with one seed after the other; fewer than 64 slots only for `few` seeds."""
    found: dict[tuple[str, int, str], list[Throughput]] = {}
    for number in track:
        for stream in streams:
            keys = stream.draw(ROWS, seeds[number])
            for slots in SLOTS:
                if slots != MOST and number >= few:
                    continue
                for name, contender in contenders().items():
                    one = evaluate(contender, keys, slots, costs, WINDOWS, seeds[number])
                    found.setdefault((stream.name, slots, name), []).append(one)
            exact = replace(contenders()["dagreedy"], exact=True)
            one = evaluate(exact, keys, MOST, costs, WINDOWS, seeds[number])
            found.setdefault((stream.name, MOST, EXACT), []).append(one)
    return found


def over_best(found: Rates, stream: str, names: Sequence[str], rivals: Sequence[str], engine: Engine) -> list[float]:
    """For each seed the best rate of `names` over the best of `rivals`, at 64 slots."""
    rate = {name: [one.rate(engine) for one in found[stream, MOST, name]] for name in (*names, *rivals)}
    best = np.max([rate[name] for name in names], axis=0) / np.max([rate[name] for name in rivals], axis=0)
    return [float(value) for value in best]


def claims_of(found: Rates, batches: Batches) -> list[Claim]:
    """The claims of Fig 7 and 8 beside what was found."""
    return [*_ahead(found), *_families(found), *_in_batches(batches)]


def _ahead(found: Rates) -> list[Claim]:
    claims = []
    for engine in ENGINES:
        ratios = over_best(found, UNIFORM.name, [DALTON], ["hash"], engine)
        claim = f"Dalton at hash's level on uniform keys ({engine})"
        reason = "its reducers have one slot in eight, and hashing none"
        claims.append(Claim(claim, "like hashing", ratios, LEVEL, reason=reason))
        for stream in (ZIPF_1, ZIPF_15):
            for name in (DALTON, UNCAPPED):
                ratios = over_best(found, stream.name, [name], RIVALS, engine)
                claim = f"{name} ahead of every rival on {stream.name} ({engine})"
                reason = _who_leads(found, stream.name, name, RIVALS, engine)
                claims.append(Claim(claim, "1.5x to 6.7x on Zipf", ratios, 1.0, reason=reason))
    for stream in (ZIPF_1, ZIPF_15):
        ratios = over_best(found, stream.name, [DALTON], ["hash"], "windows")
        claims.append(Claim(f"Dalton ahead of hash on {stream.name} (windows)", "up to 6.7x", ratios, 1.0))
        for engine in ENGINES[:2]:
            ratios = over_best(found, stream.name, [DALTON], [EXACT], engine)
            claim = f"Dalton ahead of DAGreedy on {stream.name} if that forwarded all keys that are whole ({engine})"
            reason = _who_leads(found, stream.name, DALTON, [EXACT], engine)
            claims.append(Claim(claim, "not published", ratios, 1.0, reason=reason))
    return claims


def _families(found: Rates) -> list[Claim]:
    claims = [
        _scaling(found, UNIFORM.name, DALTON, "scales about linearly", at_least=0.8),
        _scaling(found, ZIPF_15.name, DALTON, "scales about linearly", at_least=0.8),
        _scaling(found, ZIPF_15.name, UNCAPPED, "scales about linearly", at_least=0.8),
        *(_scaling(found, ZIPF_15.name, name, "does not scale on skew", at_most=0.5) for name in HASH_FAMILY),
    ]
    for name in SPLIT_FAMILY:
        worse = over_best(found, UNIFORM.name, [name], ["hash"], "windows")
        claim = f"{name} behind hash on uniform keys (windows)"
        claims.append(Claim(claim, "splitting does not scale on uniform", worse, at_most=1.0))
    return claims


def _in_batches(batches: Batches) -> list[Claim]:
    claims = []
    for stream in (ZIPF_1, ZIPF_15):
        rates = {name: np.array([batch_rate(one) for one in batches[stream.name, name]]) for name in BATCH_POLICIES}
        ratios = rates[DALTON] / np.max([rates[name] for name in BATCH_POLICIES if name != DALTON], axis=0)
        means = {name: float(rate.mean()) for name, rate in rates.items()}
        leader = max(means, key=lambda name: means[name])
        claim = f"Dalton ahead of every rival in micro-batches on {stream.name}"
        why = "a batch is short, and what is learnt in it comes late"
        claims.append(
            Claim(
                claim, "1.6x to 2.1x", ratios.tolist(), 1.0, reason=f"fastest was {leader}: {LEADERS.get(leader, why)}"
            )
        )
    return claims


def _who_leads(found: Rates, stream: str, name: str, rivals: Sequence[str], engine: Engine) -> str:
    rate = {rival: mean(one.rate(engine) for one in found[stream, MOST, rival]) for rival in rivals}
    rival = max(rate, key=lambda one: rate[one])
    own, other = found[stream, MOST, name][0], found[stream, MOST, rival][0]
    return (
        f"best rival {rival}; slowest stage: {own.stages[engine].slowest} of {name}, "
        f"{other.stages[engine].slowest} of {rival}; fullest combiner has {_share(own, engine):.1%} and "
        f"{_share(other, engine):.1%}"
    )


def _share(one: Throughput, engine: Engine) -> float:
    """The fullest combiner's share of the rows, of a window or, with short queues, of those at a time."""
    at_a_time = engine == "queues"
    return one.largest_share * (one.stages[engine].combiner / one.stages["windows"].combiner if at_a_time else 1)


def _scaling(
    found: Rates, stream: str, name: str, says: str, at_least: float = -np.inf, at_most: float = np.inf
) -> Claim:
    """Rate of 64 slots over that of 8, as a share of the eight times that would be linear."""
    pairs = zip(found[stream, MOST, name], found[stream, SLOTS[0], name], strict=False)
    values = [large.rate() / small.rate() / (MOST / SLOTS[0]) for large, small in pairs]
    share = mean(one.largest_share for one in found[stream, MOST, name])
    reason = f"with {MOST} slots the fullest combiner has {share:.1%} of the rows, an even share is {1 / MOST:.1%}"
    text = f"{name} {says}: {stream} (windows), 64 over 8 slots as a share of linear"
    return Claim(text, says, values, at_least, at_most, reason)


def break_even(found: Rates, stream: str, name: str) -> float:
    """How many times as much DAGreedy's routing would have to cost before its partitioner is what limits it more."""
    ours = np.mean([max(one.stages["windows"][1:]) for one in found[stream, MOST, name]])
    return float(ours / np.mean([one.route_us for one in found[stream, MOST, "dagreedy"]]))


@experiment(
    "dalton-scalability",
    title="What 8 to 64 slots sustain: Dalton and its rivals on even and skewed keys",
    figure="Zapridou et al. 2022, Fig 7 and 8",
)
def scalability(run: Run) -> Result:
    """Rates of a stage model with measured costs, for seven policies, five streams and 8 to 64 slots."""
    seeds = run.seeds()
    run.progress.say("measuring operators")
    costs = measured_costs()
    warm_up()
    few = 1 if run.quick else len(seeds)
    found = tuple_rates(STREAMS, seeds, few, costs, run.progress.track(range(len(seeds)), "tuple model"))
    run.progress.say("micro-batches")
    batches = batch_rates(STREAMS, seeds, costs["panes"], MOST)
    return result_of(found, batches, costs, seeds)


def result_of(found: Rates, batches: Batches, costs: Costs, seeds: Sequence[int]) -> Result:
    """Figures, tables and verdicts."""
    metrics: dict[str, Number] = {}
    for stream, label in ((UNIFORM, "uniform"), (ZIPF_1, "zipf_1"), (ZIPF_15, "zipf_15")):
        for rival in ("hash", "dagreedy"):
            metrics[f"dalton_vs_{rival}_{label}"] = float(
                np.mean(over_best(found, stream.name, [DALTON], [rival], "windows"))
            )
        metrics[f"dalton_vs_best_rival_{label}"] = float(
            np.mean(over_best(found, stream.name, [DALTON], RIVALS, "windows"))
        )
        metrics[f"dalton_cap_n_vs_best_rival_{label}"] = float(
            np.mean(over_best(found, stream.name, [UNCAPPED], RIVALS, "windows"))
        )
        metrics[f"queues_dalton_vs_best_rival_{label}"] = float(
            np.mean(over_best(found, stream.name, [DALTON], RIVALS, "queues"))
        )
        metrics[f"panes_dalton_cap_n_vs_best_rival_{label}"] = float(
            np.mean(over_best(found, stream.name, [UNCAPPED], RIVALS, "panes"))
        )
        metrics[f"dalton_vs_dagreedy_exact_{label}"] = float(
            np.mean(over_best(found, stream.name, [DALTON], [EXACT], "windows"))
        )
    metrics["dagreedy_routing_break_even"] = break_even(found, ZIPF_15.name, UNCAPPED)
    measured: dict[str, Number] = {
        f"{engine}_{part}_us": getattr(cost, part)
        for engine, cost in costs.items()
        if engine != "queues"
        for part in ("row", "group", "merge")
    }
    for name in ("hash", "dagreedy", DALTON):
        measured[f"{name}_route_ns"] = 1e3 * min(one.route_us for one in found[ZIPF_15.name, MOST, name])
    source = "Zapridou et al. 2022, section 5.1"
    return Result(
        parameters={
            "slots": SLOTS,
            "rows": ROWS,
            "window": WINDOW,
            "slide": 1000,
            "batch": BATCH,
            "seeds": len(seeds),
            "streams": [s.name for s in STREAMS],
        },
        metrics={**metrics, **measured},
        kind="simulated",
        kinds=dict.fromkeys(measured, "measured"),
        tables=[*_rate_tables(found), _stage_table(found), _batch_table(batches)],
        claims=claims_of(found, batches),
        series=_series(found, ZIPF_15.name),
        published=[
            Published(
                "1.5x to 6.7x", f"{source} (Fig 7, text): on Zipf, over existing approaches", "dalton_vs_hash_zipf_15"
            ),
            Published("like hashing", f"{source} (Fig 7, text)", "dalton_vs_hash_uniform"),
            Published("1.6x to 2.1x in micro-batches", f"{source} (Fig 8, text)"),
        ],
        notes=NOTES,
    )


NOTES = (
    "Rates are simulated: where rows go is what each policy did, what a row costs was measured in this process, and "
    "the rate is that of the slowest task of the slowest stage.",
    "windows: each row is added to all 60 windows that it is in, by plain Python a row at a time, and each window "
    "sends all partials, as in Flink 1.12. queues: the same where queues hold 5,000 rows only. panes: a row is "
    "added once, by Steelyard's own map task, and slides "
    "are merged.",
    "Hash and cAM have no reducers and use all slots; Dalton and DAGreedy forward partials of keys that they did not "
    "split. DAGreedy takes a key for hot from 1/(100 n) of a slide on: with slides of 1,000 rows and 56 combiners that "
    "is every key, so it forwards none, as in the authors' program.",
    "Intervals are over seeds. On a busy machine the costs of an engine, relative to each other, move by a tenth from "
    "run to run, and with them the ratios of policies whose slowest stages differ: a verdict close to its bound "
    "may flip.",
    "'dalton' stops splitting at 6 combiners, as the authors' program does on Flink; 'dalton, cap n' at all of them.",
    "dagreedy_routing_break_even: so many times slower DAGreedy's routing would have to be, all else equal, for Dalton "
    "with cap n to be level on Zipf 1.5. In the authors' program routing and operators are both Java; here routing is "
    "compiled and operators are Python, so that the partitioner hardly ever limits.",
)


def _rate_tables(found: Rates) -> list[Table]:
    tables = []
    for engine in ENGINES:
        rows: list[tuple[Cell, ...]] = [
            (
                stream.name,
                slots,
                *(mean(one.rate(engine) for one in found[stream.name, slots, name]) for name in ALL),
            )
            for stream in STREAMS
            for slots in SLOTS
        ]
        tables.append(Table(f"rows per second, {engine}", ("stream", "slots", *ALL), rows))
    return tables


def _stage_table(found: Rates) -> Table:
    rows = []
    for stream in STREAMS:
        for name in ALL:
            ones = found[stream.name, MOST, name]
            stages = mean_stages([one.stages["windows"] for one in ones])
            share = mean(one.largest_share for one in ones)
            rows.append((stream.name, name, *stages, stages.slowest, share))
    columns = ("stream", "policy", "partitioner us", "combiner us", "reducer us", "slowest", "fullest combiner's share")
    return Table("microseconds per row in the busiest task of each stage, 64 slots, windows", columns, rows)


def _batch_table(batches: Batches) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (stream, name), ones in batches.items():
        stages = mean_stages(ones)
        rows.append((stream, name, batch_rate(stages), *(value / 1e3 for value in stages)))
    return Table(
        f"micro-batches of {BATCH} rows, 64 slots",
        ("stream", "policy", "rows/s", "partition ms", "combine ms", "reduce ms"),
        rows,
    )


def _series(found: Rates, stream: str) -> list[Series]:
    return [
        Series(
            name,
            SLOTS,
            [mean(one.rate() for one in found[stream, slots, name]) for slots in SLOTS],
            "simulated",
        )
        for name in ALL
    ]


@scalability.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates by slots, a panel for each stream of Fig 7 that tells policies apart."""
    panels = charts.panels(figure, 3, (13, 4.8))
    for axes, stream in zip(panels, (UNIFORM, ZIPF_1, ZIPF_15), strict=True):
        rows = [one for one in result.tables[1].records() if one["stream"] == stream.name]
        slots = [one["slots"] for one in rows]
        policy_lines(axes, [Series(name, slots, [one[name] for one in rows], "simulated") for name in ALL])
        charts.logarithmic(axes, "xy")
        charts.only_ticks(axes.xaxis, slots)
        charts.finish(axes, title=f"{stream.name} keys", x="slots", y="rows per second, simulated")
    charts.legend_below(figure, *panels)
