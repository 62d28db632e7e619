"""OSG by the number of instances (Rivetti et al. 2016, Fig 9)."""

from __future__ import annotations

from steelyard.bench import charts
from steelyard.bench.claims import Claim
from steelyard.bench.osg.results import sweep_drawing, sweep_result
from steelyard.bench.osg.settings import FULL_KNOWLEDGE, OSG, POLICIES, SOURCE, Setting, Sweep, streams_of, sweep
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Published, Result

INSTANCES = (2, 3, 4, 5, 8, 11, 12, 16, 20)
WITHOUT = "OSG without resync"
COMPARED = {**POLICIES, WITHOUT: "osg?resync=0"}
TEXT = f"{SOURCE}, section 5.2, text on Fig 9"


@benchmark(
    "osg-instances",
    title="Speed-up over round robin by the number of instances",
    figure="Rivetti et al. 2016, Fig 9",
)
def instances(run: Run) -> Result:
    """Speed-up of OSG and of Full Knowledge with 2 to 20 instances."""
    seeds = streams_of(run.seed, quick=run.quick)
    settings = {count: Setting(instances=count) for count in INSTANCES}
    return result_of(sweep(settings, COMPARED, seeds, run.progress, "instances"), seeds)


def claims_of(found: Sweep[int]) -> list[Claim]:
    """What the text on Fig 9 says, beside what was found."""

    def ratio(policy: str, many: int, few: int) -> list[float]:
        return [a / b for a, b in zip(found.speedups(many, policy), found.speedups(few, policy), strict=True)]

    return [
        *(
            Claim(f"OSG is ahead with {count} instances", value, found.speedups(count, OSG), 1.0)
            for count, value in ((2, "1.14"), (5, "1.23"), (12, "1.09"), (20, "1.06"))
        ),
        Claim("it gains from 2 to 5 instances (5 over 2)", "grows", ratio(OSG, 5, 2), 1.0),
        Claim("it loses from 5 to 12 (12 over 5)", "falls", ratio(OSG, 12, 5), at_most=1.0),
        Claim("it loses from 12 to 20 (20 over 12)", "falls", ratio(OSG, 20, 12), at_most=1.0),
        Claim(
            "Full Knowledge falls from 11 to 20 (20 over 11)",
            "4.0 at 11, 2.7 at 20",
            ratio(FULL_KNOWLEDGE, 20, 11),
            at_most=1.0,
            reason="in theory more instances leave more to gain; 20 busily waiting threads may not have had 20 cores",
        ),
    ]


def result_of(found: Sweep[int], seeds: list[int]) -> Result:
    """Figures, tables and verdicts."""
    metrics = {f"speedup_{count}": found.speedup(count, OSG) for count in (2, 5, 12, 20)}
    metrics |= {f"full_knowledge_{count}": found.speedup(count, FULL_KNOWLEDGE) for count in (11, 20)}
    return sweep_result(
        found,
        seeds,
        claims_of(found),
        metrics,
        COMPARED,
        what="instances",
        published=[
            Published(1.14, TEXT, "speedup_2"),
            Published(1.23, TEXT, "speedup_5"),
            Published(1.09, TEXT, "speedup_12"),
            Published(1.06, TEXT, "speedup_20"),
            Published(4.0, TEXT, "full_knowledge_11"),
            Published(2.7, TEXT, "full_knowledge_20"),
        ],
    )


charts.drawing("osg-instances")(sweep_drawing("instances"))
