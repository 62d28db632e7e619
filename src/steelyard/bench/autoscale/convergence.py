"""Steps: do numbers of instances settle, after how many actions and how long?"""

from __future__ import annotations

from steelyard.bench import Cell, Claim, Published, Result, Run, Table, Target, charts, experiment, mean
from steelyard.bench.autoscale.contest import (
    CONTESTANTS,
    CPU,
    DHALION,
    DS2,
    EXACT,
    FORESIGHT,
    HOW,
    LATENCY,
    SEEDS,
    SOURCE,
    VARGA,
    each_of,
    parameters,
)
from steelyard.bench.autoscale.outcome import QUIET
from steelyard.bench.autoscale.patterns import MINUTE, STEP_TENS, STEPS
from steelyard.bench.autoscale.report import draw_runs, seeds_of, series_of, table_of
from steelyard.bench.autoscale.verdicts import Found, Runs

NAMES = ("Map", "SWA")
MINUTES = 10 * sum(STEP_TENS)
HIGH, MEDIUM = "high", "medium"
SPANS = {HIGH: (600.0, 3000.0), MEDIUM: (3000.0, 5400.0)}
"""Seconds."""
ACTIONS = {DS2: 2, EXACT: 3, CPU: 2}
"""Published, on the medium step of Map."""
JUDGED = (DHALION, DS2, CPU, VARGA)
DRAWN = (DHALION, DS2, EXACT, CPU, VARGA, FORESIGHT)


@experiment("autoscale-convergence", title="Do numbers of instances settle after a step?", figure=f"{SOURCE}, steps")
def convergence(run: Run) -> Result:
    """Ten minutes of nothing, forty at 2.0 M and forty at 1.0 M rows per second."""
    whom = run.pick(tuple(CONTESTANTS), DRAWN)
    found: dict[tuple[str, str], list[Runs]] = {}
    seeds = run.seeds(SEEDS, 1)
    points = [(query, STEPS, who, seed, float(MINUTES)) for query in NAMES for seed in seeds for who in whom]
    outcomes = iter(each_of(points, run.progress))
    for query in NAMES:
        found[query, STEPS] = [{who: next(outcomes) for who in whom} for _ in seeds]
    return result_of(found)


def result_of(found: Found) -> Result:
    """Whether numbers settle, T21, tables and series."""
    metrics = {
        f"actions_{who.lower().replace(', ', '_').replace(' ', '_').replace('-', '_')}": mean(_actions(found, who))
        for who in ACTIONS
    }
    metrics["converged_steps"] = float(sum(all(one) for one in _ours(found)))
    return Result(
        parameters=parameters(minutes=MINUTES, spans_s=SPANS, quiet_s=QUIET),
        metrics=metrics,
        kind="simulated",
        targets=[Target("converged_steps", at_least=float(len(NAMES) * len(SPANS)), explanation=REASONS[FORESIGHT])],
        tables=[_table(found), table_of(found)],
        claims=claims_of(found),
        series=series_of(found, DRAWN),
        published=[
            Published(ACTIONS[who], f"{SOURCE}, text: {who}, medium step of Map", metric)
            for who, metric in zip(ACTIONS, metrics, strict=False)
        ],
        notes=[
            HOW,
            LATENCY,
            f"Numbers settle in a step where none changes in its last {QUIET / MINUTE:g} minutes and latency does not "
            "grow in them.",
            seeds_of(found),
        ],
    )


def _actions(found: Found, who: str, query: str = "Map", step: str = MEDIUM) -> list[float]:
    """Of a step, for each seed."""
    return [float(runs[who].converges(*SPANS[step])[1]) for runs in found[query, STEPS]]


def _settles(found: Found, who: str, query: str, step: str) -> list[float]:
    return [float(runs[who].converges(*SPANS[step])[0]) for runs in found[query, STEPS]]


def _ours(found: Found) -> list[list[float]]:
    """For each query and step, whether Foresight settles: one for each seed."""
    return [_settles(found, FORESIGHT, query, step) for query in NAMES for step in SPANS]


def _table(found: Found) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (query, _), seeds in found.items():
        for step, span in SPANS.items():
            for who in seeds[0]:
                each = [runs[who].converges(*span) for runs in seeds]
                rows.append(
                    (
                        query,
                        step,
                        who,
                        f"{sum(settled for settled, _, _ in each)} of {len(each)}",
                        mean(actions for _, actions, _ in each),
                        mean(seconds for _, _, seconds in each) / MINUTE,
                    )
                )
    columns = ("query", "step", "autoscaler", "seeds that settle", "actions", "last action, minutes after the step")
    return Table("steps, simulated", columns, rows)


def claims_of(found: Found) -> list[Claim]:
    """T21, and who settles where."""
    claims = [
        Claim(
            f"T21: {who}: actions on the medium step of Map",
            str(count),
            _actions(found, who),
            count - 1,
            count + 1,
            REASONS.get(who, ""),
        )
        for who, count in ACTIONS.items()
    ]
    settle: list[tuple[str, str, str, bool]] = [
        (DS2, "Map", MEDIUM, True),
        (CPU, "Map", MEDIUM, True),
        (DHALION, "Map", MEDIUM, False),
        (VARGA, "Map", MEDIUM, False),
        (EXACT, "Map", MEDIUM, False),
        *((who, "SWA", step, False) for who in JUDGED for step in SPANS),
    ]
    for who, query, step, settles in settle:
        claims.append(
            Claim(
                f"{who}: {'settles' if settles else 'does not settle'} on the {step} step of {query} (share of seeds)",
                "settles" if settles else ("settles for a while, then swings" if who == EXACT else "none"),
                _settles(found, who, query, step),
                0.5 if settles else -float("inf"),
                float("inf") if settles else 0.5,
                REASONS.get(who, ""),
            )
        )
    each = [float(sum(one)) for one in zip(*_ours(found), strict=True)]
    steps = len(NAMES) * len(SPANS)
    claims.append(
        Claim(
            f"Steps on which Foresight settles, of {steps}",
            "nobody settles on SWA",
            each,
            float(steps),
            reason=REASONS[FORESIGHT],
        )
    )
    return claims


REASONS: dict[str, str] = {
    EXACT: "costs of a row hardly vary here, so that its numbers are right at once",
    CPU: "what is behind keeps it high for a quarter of an hour; then noise moves its numbers by one, again and again",
    FORESIGHT: "on the medium step of SWA it gives workers back once, when the errors that steps made have faded: late",
    VARGA: "it stays at the cap, since what is behind keeps everybody at work until the end",
}
"""Why a claim does not hold, as far as the figures tell."""


@convergence.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A column for each query."""
    draw_runs(figure, result)
