"""What policies came to on setups of the papers, beside what is printed there: tables, claims and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from steelyard.bench import Claim, Result, Run, Series, Table, Target, charts, mean
from steelyard.bench.claims import Interval
from steelyard.bench.placement.contest import Outcome, Outcomes, contestants, seeds_of
from steelyard.bench.placement.published import (
    ACTOR,
    AVERAGES,
    BAND,
    CHAPTER3,
    CHAPTER4,
    DEFAULT,
    DQN,
    EXTRA,
    GUIDED,
    MODEL,
    PUBLISHED,
    SEARCH,
    SOURCE,
    ordered,
    reduction,
)
from steelyard.bench.result import Published
from steelyard.bench.tables import Cell

HOW = (
    "Simulated tuple by tuple, on a cluster whose constants were fitted to the default scheduler's published times "
    "alone, then frozen (sim/placed/frozen.json). Several applications: the mean of their times."
)
NOTE = (
    f"{HOW} Times are those of the placement that a policy came to, all threads warm; at the start, of the first ten "
    "seconds, all threads cold. Learners measured formulas (the fast level) while they learnt, models learnt from "
    "recorded tuples. 95 % intervals are Student's over the seeds, each with a training of its own."
)
NUMBERS_NOTE = (
    "Where several applications share the cluster, extra and guided change the numbers of threads; model_based, "
    "local_search and the default do not."
)
PAIRS = ((MODEL, DEFAULT), (DQN, DEFAULT), (ACTOR, DEFAULT), (ACTOR, MODEL), (EXTRA, DEFAULT), (EXTRA, MODEL))
"""Whose reductions are published."""
ORDERS = ((ACTOR, MODEL, DEFAULT), (EXTRA, MODEL, DEFAULT), (ACTOR, DQN))
"""From the fastest on."""
SCALES = {ACTOR: ("cq-small", "cq-large"), EXTRA: ("3x-cq-small", "3x-cq-large")}
"""By policy: the smallest and the largest setup of the same application."""
NEAR, WORSE = ("cq-small", "cq-medium"), ("cq-large", "lsp-large", "wc-large")
"""Where DQN is near the model, and where it is slower (section 3.5)."""
SHORT = {ACTOR: "ac", EXTRA: "extra"}
_WHY_OFF = (
    "gains follow from how much hops and crowded machines cost in the simulated cluster, whose constants know the "
    "default's times only"
)
_WHY_ORDER = (
    "rewards of many threads differ little from one placement to the next, so that a search of a model goes further "
    "than what is learnt from rewards alone"
)
_WHY_SCALE = (
    "what there is to gain in the simulated cluster is hops, and small setups save as many of them as large ones"
)


def stable(outcomes: Outcomes, setup: str, who: str) -> list[float]:
    """Milliseconds, seed by seed."""
    return [one.stable for one in outcomes[setup, who]]


def reductions(outcomes: Outcomes, setup: str, ours: str, theirs: str) -> list[float]:
    """Percent by which one policy's times are below another's, seed by seed."""
    pairs = zip(stable(outcomes, setup, ours), stable(outcomes, setup, theirs), strict=True)
    return [100 * (1 - one / other) for one, other in pairs]


def setups_of(outcomes: Outcomes) -> list[str]:
    """In the order in which they ran."""
    return list(dict.fromkeys(setup for setup, _ in outcomes))


def reduction_claims(outcomes: Outcomes) -> list[Claim]:
    """One's time below another's by as many percent as published, within eight points; where both took part."""
    found = []
    for setup in setups_of(outcomes):
        for ours, theirs in PAIRS:
            known = PUBLISHED[setup].times if setup in PUBLISHED else {}
            if {ours, theirs} <= known.keys() and (setup, ours) in outcomes and (setup, theirs) in outcomes:
                said = reduction(setup, ours, theirs)
                found.append(
                    Claim(
                        f"{setup}: percent that {ours} is below {theirs}",
                        f"{said:.1f} ({PUBLISHED[setup].figure})",
                        reductions(outcomes, setup, ours, theirs),
                        said - BAND,
                        said + BAND,
                        _WHY_OFF,
                    )
                )
    return found


def order_claims(outcomes: Outcomes) -> list[Claim]:
    """Each of a row of policies is faster than the next, as far as they took part and their order is published."""
    found = []
    for setup in setups_of(outcomes):
        there = [[who for who in order if (setup, who) in outcomes and who in ordered(setup)] for order in ORDERS]
        rows = [one for one in there if not any(set(one) < set(other) for other in there)]
        for row in dict.fromkeys(map(tuple, rows)):
            for ours, theirs in pairwise(row):
                found.append(
                    Claim(
                        f"{setup}: {ours} is faster than {theirs} (percent)",
                        " < ".join(row),
                        reductions(outcomes, setup, ours, theirs),
                        at_least=0.0,
                        reason=_WHY_ORDER,
                    )
                )
    return found


def dqn_claims(outcomes: Outcomes) -> list[Claim]:
    """DQN is near the model where there are few threads, and slower where there are many."""
    found = []
    for setup in setups_of(outcomes):
        if (setup, DQN) not in outcomes or (setup, MODEL) not in outcomes:
            continue
        more = [-one for one in reductions(outcomes, setup, DQN, MODEL)]
        said = f"{-reduction(setup, DQN, MODEL):+.1f} ({PUBLISHED[setup].figure})"
        if setup in NEAR:
            claim = f"{setup}: percent that {DQN} is above {MODEL}, near it"
            found.append(Claim(claim, said, more, -BAND, BAND, reason=_WHY_ORDER))
        elif setup in WORSE:
            claim = f"{setup}: percent that {DQN} is above {MODEL}, slower"
            found.append(Claim(claim, said, more, at_least=0.0, reason="the search of the model went astray there"))
    return found


def growth_claims(outcomes: Outcomes) -> list[Claim]:
    """What is learnt gains more where there are more threads."""
    found = []
    for ours, (small, large) in SCALES.items():
        for theirs in (DEFAULT, MODEL):
            if all((setup, who) in outcomes for setup in (small, large) for who in (ours, theirs)):
                few, many = (reductions(outcomes, setup, ours, theirs) for setup in (small, large))
                said = [reduction(setup, ours, theirs) for setup in (small, large)]
                found.append(
                    Claim(
                        f"{ours} is further below {theirs} on {large} than on {small} (points)",
                        f"{said[1] - said[0]:+.1f} ({said[0]:.1f} and {said[1]:.1f} %)",
                        [one - other for one, other in zip(many, few, strict=True)],
                        at_least=0.0,
                        reason=_WHY_SCALE,
                    )
                )
    return found


def averages(outcomes: Outcomes, ours: str, setups: Sequence[str]) -> dict[str, list[float]]:
    """By metric: percent that a policy is below others, mean over the setups, seed by seed."""
    found = {}
    for theirs, called in ((DEFAULT, "default"), (MODEL, "model"), (SEARCH, SEARCH), (GUIDED, GUIDED)):
        each = [reductions(outcomes, setup, ours, theirs) for setup in setups]
        found[f"{SHORT[ours]}_vs_{called}"] = [mean(values) for values in zip(*each, strict=True)]
    return found


def times_table(outcomes: Outcomes) -> Table:
    """Published beside ours, for each setup and policy."""
    rows: list[Sequence[Cell]] = []
    for (setup, who), each in outcomes.items():
        known = PUBLISHED.get(setup)
        versus = (setup, DEFAULT) in outcomes and who != DEFAULT
        printed = known.times.get(who) if known else None
        rows.append(
            (
                setup, who, printed, str(Interval.of([one.stable for one in each])),
                known.starts.get(who) if known else None, round(mean(one.start for one in each), 3),
                round(reduction(setup, who, DEFAULT), 1) if versus and printed else None,
                str(Interval.of(reductions(outcomes, setup, who, DEFAULT))) if versus else None,
                *_effort(each),
            )
        )  # fmt: skip
    columns = (
        "setup", "policy", "published, ms", "ours, ms", "published at the start, ms", "ours at the start, ms",
        "published below the default, %", "ours below the default, %", "machines", "threads", "moved",
        "placements measured", "core seconds of training", "core ms to decide",
    )  # fmt: skip
    return Table("mean tuple times, and what they took", columns, rows)


def _effort(each: Sequence[Outcome]) -> tuple[Cell, ...]:
    return (
        round(mean(one.machines for one in each), 1),
        round(mean(one.threads for one in each), 1),
        round(mean(one.moved for one in each), 1),
        round(mean(one.samples for one in each)),
        round(mean(one.training for one in each), 1),
        round(1000 * mean(one.deciding for one in each), 1),
    )


def result_of(outcomes: Outcomes, run: Run, series: Sequence[Series] = ()) -> Result:
    """Times and verdicts of some setups."""
    metrics: dict[str, float] = {}
    published = []
    for (setup, who), each in outcomes.items():
        name = f"{setup.replace('-', '_')}_{who}_ms"
        metrics[name] = round(mean(one.stable for one in each), 4)
        known = PUBLISHED.get(setup)
        if known and who in known.times:
            published.append(Published(known.times[who], f"{SOURCE}, {known.figure}, in ms", name))
    setups = setups_of(outcomes)
    return Result(
        {"setups": setups, "seeds": len(seeds_of(run)), "policies": _who(setups)},
        metrics,
        tables=[times_table(outcomes)],
        series=series,
        published=published,
        claims=claims_of(outcomes),
        kind="simulated",
        notes=_notes(setups),
    )


def claims_of(outcomes: Outcomes) -> list[Claim]:
    """All that is published of setups and policies that are there."""
    makers = (growth_claims, dqn_claims, reduction_claims, order_claims)
    return [claim for make in makers for claim in make(outcomes)]


def average_result(outcomes: Outcomes, ours: str, run: Run) -> Result:
    """The averages over the setups of a chapter, and all that is said of single ones."""
    setups = setups_of(outcomes)
    found = averages(outcomes, ours, setups)
    printed = {name: AVERAGES[name] for name in found if name in AVERAGES}
    claims = [
        Claim(
            f"{name}: percent, mean over {len(setups)} setups",
            f"{value} (over {len(CHAPTER3 if ours == ACTOR else CHAPTER4)})",
            found[name],
            value - BAND,
            value + BAND,
            _WHY_OFF,
        )
        for name, value in printed.items()
    ]
    return Result(
        {"setups": setups, "seeds": len(seeds_of(run)), "policies": _who(setups)},
        {name: round(mean(values), 2) for name, values in found.items()},
        tables=[times_table(outcomes)],
        published=[
            *(Published(value, f"{SOURCE}: mean over the setups, percent", name) for name, value in printed.items()),
            *(
                Published(round(reduction(setup, ours, theirs), 1), f"{SOURCE}, {PUBLISHED[setup].figure}: {theirs}")
                for setup in setups
                for theirs in (DEFAULT, MODEL)
            ),
        ],
        targets=[
            Target(name, at_least=round(value - BAND, 1), explanation=_WHY_OFF) for name, value in printed.items()
        ],
        claims=[*claims, *claims_of(outcomes)],
        kind="simulated",
        notes=_notes(setups),
    )


def _who(setups: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(who for setup in setups for who in contestants(setup)))


def _notes(setups: Sequence[str]) -> list[str]:
    return [NOTE, NUMBERS_NOTE] if set(setups) & set(CHAPTER4) else [NOTE]


def draw_times(figure: charts.Figure, result: Result) -> None:
    """Times by policy and setup, the published ones beside ours."""
    rows = result.table("mean tuple times").records()
    setups = list(dict.fromkeys(row["setup"] for row in rows))
    for axes, setup in zip(charts.panels(figure, len(setups), (4.0 * len(setups) + 1, 4.0)), setups, strict=True):
        own = [row for row in rows if row["setup"] == setup]
        names = [row["policy"].replace("_", "\n") for row in own]
        groups = {
            "published": [row["published, ms"] or 0.0 for row in own],
            "simulated": [float(row["ours, ms"].split()[0]) for row in own],
        }
        charts.grouped(axes, names, groups, title=setup, x="", y="mean tuple time, ms")
        axes.legend(frameon=False, fontsize=8)
