"""OSG by the longest execution time (Rivetti et al. 2016, Fig 7)."""

from __future__ import annotations

from steelyard.bench import charts
from steelyard.bench.claims import Claim
from steelyard.bench.osg.results import sweep_drawing, sweep_result
from steelyard.bench.osg.settings import FULL_KNOWLEDGE, OSG, POLICIES, SOURCE, Setting, Sweep, streams_of, sweep
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Published, Result

SHORTEST = 0.1
LONGEST = (0.1, 0.2, 0.4, 0.8, 1.6, 6.4, 25.6, 102.4, 204.8)
TEXT = f"{SOURCE}, section 5.2, text on Fig 7"


@benchmark(
    "osg-max-time",
    title="Speed-up over round robin by the longest execution time, the shortest being 0.1 ms",
    figure="Rivetti et al. 2016, Fig 7",
)
def max_time(run: Run) -> Result:
    """Speed-up of OSG and of Full Knowledge with costs from 0.1 ms to max_w."""
    seeds = streams_of(run.seed, quick=run.quick)
    settings = {longest: Setting(shortest=SHORTEST, longest=longest) for longest in LONGEST}
    return result_of(sweep(settings, POLICIES, seeds, run.progress, "max-time"), seeds)


SPREAD = "the mean is within the bounds; streams differ so much that their interval is not"


def claims_of(found: Sweep[float]) -> list[Claim]:
    """What the text on Fig 7 says, beside what was found."""
    last = [b / a for a, b in zip(found.speedups(102.4, OSG), found.speedups(204.8, OSG), strict=True)]
    return [
        Claim(
            "all are equal where all tuples take as long",
            "equal",
            found.speedups(0.1, OSG),
            0.99,
            1.01,
            reason="0.17 ms, not 0.10: the tuples of an epoch go to instances in order, free or not, and at exactly "
            "100 % a wait of one tuple never drains",
        ),
        Claim("OSG gains from 0.2 ms on", "grows", found.speedups(0.2, OSG), 1.0),
        Claim("OSG gains at 6.4 ms", "grows", found.speedups(6.4, OSG), 1.1),
        Claim("an asymptote from 102.4 ms on (204.8 over 102.4)", "asymptote", last, 0.97, 1.03, SPREAD),
        Claim("OSG gains 1.25 at 102.4 ms, within a tenth", "1.25", found.speedups(102.4, OSG), 1.125, 1.375, SPREAD),
        Claim(
            "Full Knowledge gains 3.4 at 102.4 ms, within a fifth",
            "3.4",
            found.speedups(102.4, FULL_KNOWLEDGE),
            2.7,
            4.1,
            reason="at exactly 100 % most of the wait is the stream's own ups and downs; at 101 % we have 3.9",
        ),
    ]


def result_of(found: Sweep[float], seeds: list[int]) -> Result:
    """Figures, tables and verdicts."""
    return sweep_result(
        found,
        seeds,
        claims_of(found),
        {
            "speedup_01": found.speedup(0.1, OSG),
            "speedup_1024": found.speedup(102.4, OSG),
            "full_knowledge_1024": found.speedup(102.4, FULL_KNOWLEDGE),
        },
        POLICIES,
        what="max_w, ms",
        published=[Published(1.25, TEXT, "speedup_1024"), Published(3.4, TEXT, "full_knowledge_1024")],
    )


charts.drawing("osg-max-time")(sweep_drawing("longest execution time, max_w, ms", log="x"))
