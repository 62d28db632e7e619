"""guided beside all others: how good, with how many samples, and how far what it learnt carries."""

from __future__ import annotations

from typing import Any

from steelyard.bench import Claim, Result, Run, Table, charts, experiment, mean
from steelyard.bench.placement.contest import contest, kept, placed, policy_of, seeds_of
from steelyard.bench.placement.contest import stable as stable_reading
from steelyard.bench.placement.published import CHAPTER3, CHAPTER4, GUIDED
from steelyard.bench.placement.verdicts import NOTE, NUMBERS_NOTE, setups_of, stable, times_table
from steelyard.bench.result import Target
from steelyard.sim.placed import FastCluster, deployed

ACTORS_SAMPLES = 10_000 + 1_500
"""Placements that actor_critic measures: random ones, and those that it tries."""
NOISE, SHARE, GAP = 1.02, 0.1, 0.1
"""What is allowed over the best of all others, of the actor's samples, and over a policy of the application's own."""
FAMILY = {"cq-medium": "queries", "lsp-large": "logs", "wc-large": "words"}
"""One setup of each application: two teach, the third was never seen."""
FEW, MANY = 4, 10
"""Machines."""


@experiment("placement-guided", title="A model that proposes, and a learner that corrects it, beside all others")
def guided(run: Run) -> Result:
    """Every setup of chapters 3 and 4, and what was learnt on four machines used on ten."""
    found = contest(run, run.pick((*CHAPTER3, *CHAPTER4), (CHAPTER3[0], CHAPTER4[0])), "placement-guided")
    over, rows = {}, []
    for setup in setups_of(found):
        others = {who: mean(stable(found, setup, who)) for at, who in found if at == setup and who != GUIDED}
        best = min(others, key=others.__getitem__)
        pairs = zip(stable(found, setup, GUIDED), stable(found, setup, best), strict=True)
        over[setup] = [one / other for one, other in pairs]
        own = mean(stable(found, setup, GUIDED))
        rows.append((setup, round(own, 3), best, round(others[best], 3), round(own / others[best], 4)))
    share = max(one.samples for (_, name), each in found.items() if name == GUIDED for one in each) / ACTORS_SAMPLES
    gaps = transfer(run)
    worst = max(row[-1] for row in rows)
    metrics = {
        "guided_vs_best": worst,
        "guided_samples_share": round(share, 4),
        "transfer_gap": round(max(mean(values) for values in gaps.values()), 4),
    }
    claims = [
        Claim(f"{setup}: guided over the best of all others", "not published", values, at_most=NOISE, reason=_WHY)
        for setup, values in over.items()
    ]
    claims += [
        Claim(f"{what}: over guided of its own, less 1", "not published", values, at_most=GAP, reason=_WHY_FAR)
        for what, values in gaps.items()
    ]
    return Result(
        {"seeds": len(seeds_of(run))},
        metrics,
        tables=[
            Table("guided and the best of all others", ("setup", "guided, ms", "best", "its ms", "ratio"), rows),
            times_table(found),
        ],
        targets=[
            Target("guided_vs_best", at_most=NOISE, explanation=_WHY),
            Target("guided_samples_share", at_most=SHARE),
            Target("transfer_gap", at_most=GAP, explanation=_WHY_FAR),
        ],
        claims=claims,
        kind="simulated",
        notes=[
            NOTE,
            NUMBERS_NOTE,
            f"Samples are over the {ACTORS_SAMPLES:,} that actor_critic measures; those that its model learnt from are "
            "among them. Transfer is without a model but the guess from the graph.",
        ],
    )


_WHY = "its thousand samples are spent near the best placements that it knows, and another region may be better"
_WHY_FAR = "what corrects the model for one application may be wrong for another, which was never measured"


def transfer(run: Run) -> dict[str, list[float]]:
    """Times with what was learnt elsewhere over those with what was learnt here, less 1, seed by seed.

    Learnt on four machines with two applications, used on ten for the third; and on four for itself, used on ten. No
    model of the third is there but the guess from its graph, and of its measurements only those of the default.
    """
    gaps: dict[str, list[float]] = {}
    for setup in run.pick(tuple(FAMILY), ("wc-large",)):
        others = [one for one in FAMILY if one != setup]
        for seed in run.progress.track(seeds_of(run), f"transfer, {setup}"):
            own = _taught(run, [setup], MANY, setup, seed)
            far = _taught(run, others, FEW, setup, seed)
            wider = _taught(run, [setup], FEW, setup, seed)
            gaps.setdefault(f"{FAMILY[setup]}, never seen", []).append(far / own - 1)
            gaps.setdefault(f"{FAMILY[setup]}, seen on {FEW} machines", []).append(wider / own - 1)
    return gaps


def _taught(run: Run, setups: list[str], machines: int, used: str, seed: int) -> float:
    """Seconds of a tuple where what was learnt on some setups is used on another, tuple by tuple."""

    def make() -> float:
        policy: Any = policy_of(GUIDED, run)
        policy.train_on([FastCluster(deployed(one, machines=machines), seed=seed) for one in setups], seed)
        made = deployed(used, machines=MANY)
        wanted, _ = placed(policy, made, seed + 1000)
        return float(stable_reading(made, wanted, seed + 1000).times.mean())

    return float(kept(run, f"transfer-{used}-{seed}", (setups, machines, used, seed, run.quick), make))


@guided.picture
def _draw(figure: charts.Figure, result: Result) -> None:
    ratios = {f"{row['setup']}, over {row['best']}": row["ratio"] for row in result.table("guided and").records()}
    figure.set_size_inches(8, 1.2 + 0.4 * len(ratios))
    charts.bars(figure.add_subplot(), ratios, title=guided.name, x="time over the best of all others", y="")
