"""What policies came to on setups of the papers, beside what is printed there: tables, claims and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steelyard.bench import Claim, Result, Run, Table, charts, mean
from steelyard.bench.placement.contest import Outcome, known, outcome, seeds_of
from steelyard.bench.placement.published import ACTOR, BAND, DEFAULT, DQN, EXTRA, MODEL, PUBLISHED, SOURCE, reduction
from steelyard.bench.result import Published

Outcomes = Mapping[tuple[str, str], Sequence[Outcome]]
"""By setup and policy, one for each seed."""
NOTE = (
    "Simulated on the fast level, whose constants were fitted to the default scheduler's published times alone. Times "
    "are means over the applications of a cluster, when what the deployment stirred up has settled; 95 % intervals are "
    "Student's over the seeds, each with a training of its own."
)
GUIDED, SEARCH = "guided", "local_search"
ALONE = (DEFAULT, MODEL, SEARCH, DQN, ACTOR, GUIDED)
SEVERAL = (DEFAULT, MODEL, SEARCH, EXTRA, GUIDED)
_WHY_OFF = (
    "gains follow from how much hops and crowded machines cost in the simulated cluster, whose constants know the "
    "default's times only"
)
_WHY_ORDER = (
    "rewards of many threads differ little from one placement to the next, so that a search of a model goes further "
    "than what is learnt from rewards alone"
)


def contest(run: Run, setups: Sequence[str], policies: Sequence[str], title: str) -> Outcomes:
    """Every policy on every setup with every seed."""
    cases = [(setup, policy, seed) for setup in setups for seed in seeds_of(run) for policy in known(policies)]
    found: dict[tuple[str, str], list[Outcome]] = {}
    for setup, policy, seed in run.progress.track(cases, title):
        found.setdefault((setup, policy), []).append(outcome(run, setup, policy, seed))
    return found


def reductions(outcomes: Outcomes, setup: str, ours: str, theirs: str) -> list[float]:
    """Percent by which one policy's times are below another's, seed by seed."""
    pairs = zip(outcomes[setup, ours], outcomes[setup, theirs], strict=True)
    return [100 * (1 - one.stable / other.stable) for one, other in pairs]


def claims_of(outcomes: Outcomes, setup: str, ours: str) -> list[Claim]:
    """Reductions within the band, and the order of policies."""
    printed, found = PUBLISHED[setup], []
    for theirs in (DEFAULT, MODEL):
        if (setup, theirs) in outcomes:
            wanted = reduction(setup, ours, theirs)
            found.append(
                Claim(
                    f"{setup}: percent that {ours} is below {theirs}",
                    f"{wanted:.1f} ({printed.figure})",
                    reductions(outcomes, setup, ours, theirs),
                    wanted - BAND,
                    wanted + BAND,
                    _WHY_OFF,
                )
            )
    for first, second in ((MODEL, DEFAULT), (ours, MODEL), (ours, DQN)):
        if (setup, first) in outcomes and (setup, second) in outcomes:
            found.append(
                Claim(
                    f"{setup}: {first} is faster than {second}",
                    f"{reduction(setup, first, second):.1f} % ({printed.figure})",
                    reductions(outcomes, setup, first, second),
                    at_least=0.0,
                    reason=_WHY_ORDER,
                )
            )
    return found


def times_table(outcomes: Outcomes) -> Table:
    """What each policy came to."""
    rows = []
    for (setup, policy), each in outcomes.items():
        stable = np.array([one.stable for one in each])
        printed = PUBLISHED[setup].times.get(policy) if setup in PUBLISHED else None
        rows.append(
            (
                setup, policy, printed, round(float(stable.mean()), 3), round(float(stable.min()), 3),
                round(float(stable.max()), 3), round(mean(one.start for one in each), 3),
                round(mean(one.machines for one in each), 1), round(mean(one.threads for one in each), 1),
                round(mean(one.moved for one in each), 1), round(mean(one.samples for one in each)),
                round(mean(one.training for one in each), 1), round(1000 * mean(one.deciding for one in each), 1),
            )
        )  # fmt: skip
    columns = (
        "setup", "policy", "published ms", "ms, mean of seeds", "least", "most", "ms at the start", "machines",
        "threads", "moved", "placements measured", "seconds of training", "ms to decide",
    )  # fmt: skip
    return Table("times and what they took", columns, rows)


def result_of(outcomes: Outcomes, ours: str, setups: Sequence[str], run: Run) -> Result:
    """Tables, claims and the averages over the setups."""
    metrics: dict[str, float] = {}
    for theirs, called in ((DEFAULT, "default"), (MODEL, "model"), (SEARCH, "local_search"), (GUIDED, "guided")):
        if all((setup, theirs) in outcomes for setup in setups):
            short = "ac" if ours == ACTOR else "extra"
            values = [mean(reductions(outcomes, setup, ours, theirs)) for setup in setups]
            metrics[f"{short}_vs_{called}"] = round(mean(values), 2)
    published = [
        Published(round(reduction(setup, ours, theirs), 1), f"{SOURCE}, {PUBLISHED[setup].figure}: {setup}, {theirs}")
        for setup in setups
        for theirs in (DEFAULT, MODEL)
    ]
    missing = [one for one in (MODEL,) if not known([one])]
    return Result(
        {"setups": list(setups), "seeds": len(seeds_of(run)), "quick": run.quick},
        metrics,
        tables=[times_table(outcomes)],
        claims=[claim for setup in setups for claim in claims_of(outcomes, setup, ours)],
        published=published,
        kind="simulated",
        notes=[NOTE, *(f"This installation has no policy {one!r}: claims about it are left out." for one in missing)],
    )


def draw_times(figure: charts.Figure, result: Result) -> None:
    """Times by policy and setup, the published ones beside ours."""
    rows = result.table("times").records()
    setups = list(dict.fromkeys(row["setup"] for row in rows))
    for axes, setup in zip(charts.panels(figure, len(setups), (4.0 * len(setups) + 1, 4.0)), setups, strict=True):
        own = [row for row in rows if row["setup"] == setup]
        names = [row["policy"].replace("_", "\n") for row in own]
        groups = {
            "published": [row["published ms"] or 0.0 for row in own],
            "simulated": [row["ms, mean of seeds"] for row in own],
        }
        charts.grouped(axes, names, groups, title=setup, x="", y="mean tuple time, ms")
        axes.legend(frameon=False, fontsize=8)
