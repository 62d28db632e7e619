"""OSG by the distribution of items: completion times (Rivetti et al. 2016, Fig 4) and throughput (Fig 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steelyard.bench import charts
from steelyard.bench.dalton_claims import Claim, claims_table, tally
from steelyard.bench.osg_settings import (
    AS_PRINTED,
    FULL_KNOWLEDGE,
    NOTE,
    OSG,
    POLICIES,
    PRINTED,
    ROUND_ROBIN,
    SOURCE,
    TRACKING,
    Setting,
    Sweep,
    parameters,
    streams_of,
    sweep,
)
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Published, Result, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
COMPARED = {**POLICIES, "OSG without resync": "osg?resync=0", **PRINTED}
SAME = 0.02
"""Throughputs that differ by less are the same."""


@benchmark(
    "osg-distributions",
    title="Completion time and throughput by skew, OSG beside round robin and Full Knowledge",
    figure="Rivetti et al. 2016, Fig 4 and 5",
)
def distributions(run: Run) -> Result:
    """Mean completion time over streams of uniform items and of Zipf 0.5 to 3.0."""
    seeds = streams_of(run.seed, quick=run.quick)
    found = sweep({one: Setting(exponent=one) for one in EXPONENTS}, COMPARED, seeds, run.progress, "distributions")
    return result_of(found, seeds)


def claims_of(found: Sweep[float]) -> list[Claim]:
    """What the text on Fig 4 and 5 says, beside what was found."""
    order = [Claim(f"OSG is ahead of round robin, {label(x)}", gain, found.speedups(x, OSG), 1.0) for x, gain in GAINS]
    ahead = [
        Claim(f"Full Knowledge is ahead of OSG, {label(x)}", "always", _over(found, x, OSG, FULL_KNOWLEDGE), 1.0)
        for x in EXPONENTS
    ]
    worst, best = max(found.completions[1.5, OSG]), min(found.completions[1.5, ROUND_ROBIN])
    matches = _over(found, 2.0, FULL_KNOWLEDGE, OSG)
    return [
        *order,
        *ahead,
        Claim(
            "OSG as printed is ahead of round robin, uniform", "4 %", found.speedups(0.0, AS_PRINTED), 1.0, reason=CLOCK
        ),
        Claim(
            "worst OSG is about the best round robin, Zipf-1.5 (best over worst)",
            "almost smaller",
            [best / worst],
            0.95,
            reason="streams differ more in their mean cost than groupings do; over one stream OSG is ahead",
        ),
        Claim(
            "OSG matches Full Knowledge, Zipf-2.0 (its completion over OSG's)",
            "matches",
            matches,
            0.95,
            reason="at exactly 100 % the backlog of the first tuples, which go round robin, never drains",
        ),
        *(
            Claim(
                f"throughput is that of round robin, {label(x)}",
                "same for all",
                _throughput(found, x),
                1 - SAME,
                1 + SAME,
            )
            for x in (0.0, 1.0, 3.0)
        ),
    ]


GAINS = [(0.0, "4 %"), (0.5, "4 %"), (1.0, "20 %"), (1.5, "more"), (2.0, "more"), (2.5, "more"), (3.0, "more")]
CLOCK = "summed execution times repay imbalance whose queues drained long ago"


def label(exponent: float) -> str:
    """How the paper calls a distribution.

    >>> label(0.0), label(1.5)
    ('uniform', 'Zipf-1.5')
    """
    return f"Zipf-{exponent}" if exponent else "uniform"


def _over(found: Sweep[float], x: float, one: str, other: str) -> list[float]:
    pairs = zip(found.completions[x, one], found.completions[x, other], strict=True)
    return [mine / theirs for mine, theirs in pairs]


def _throughput(found: Sweep[float], x: float) -> list[float]:
    pairs = zip(found.throughputs[x, OSG], found.throughputs[x, ROUND_ROBIN], strict=True)
    return [ours / plain for ours, plain in pairs]


def result_of(found: Sweep[float], seeds: list[int]) -> Result:
    """Figures, tables and verdicts."""
    claims = claims_of(found)
    metrics = {
        "worst_speedup": min(found.speedup(x, OSG) for x in EXPONENTS),
        "speedup_uniform": found.speedup(0.0, OSG),
        "speedup_zipf_1": found.speedup(1.0, OSG),
        "speedup_zipf_2": found.speedup(2.0, OSG),
        "worst_speedup_tracking": min(found.speedup(x, TRACKING) for x in EXPONENTS),
        "worst_speedup_as_printed": min(found.speedup(x, AS_PRINTED) for x in EXPONENTS),
        "throughput_tuples_per_s": float(np.mean(found.throughputs[1.0, OSG])),
    }
    source = f"{SOURCE}, section 5.2, text on Fig 4"
    return Result(
        parameters=parameters(Setting(), seeds, COMPARED, exponents=EXPONENTS),
        metrics={**metrics, **tally(claims)},
        kind="simulated",
        tables=[claims_table(claims, len(seeds)), found.table("exponent")],
        series=found.series(),
        published=[
            Published("about 4 % for uniform and Zipf-0.5", source, "speedup_uniform"),
            Published("20 %", source, "speedup_zipf_1"),
            Published("as Full Knowledge", source, "speedup_zipf_2"),
        ],
        targets=[Target("worst_speedup", at_least=1.0, explanation="see the claims")],
        notes=[NOTE],
    )


@charts.drawing("osg-distributions")
def draw(figure: Figure, result: Result) -> None:
    """Mean completion times, and speed-ups."""
    figure.set_size_inches(12, 5)
    left, right = figure.subplots(1, 2)
    rows = result.tables[1].records()
    for number, name in enumerate((ROUND_ROBIN, *(one.name for one in result.series))):
        own = [one for one in rows if one["grouping"] == name]
        colour = charts.COLOURS[number - 1] if number else charts.GREY  # as in the picture beside it
        exponents, means = [one["exponent"] for one in own], [one["mean completion, ms"] for one in own]
        left.plot(exponents, means, "--", marker="o", markersize=5, color=colour, label=name)
    left.set_ylim(bottom=0)
    x = "exponent of Zipf's law"
    charts.finish(left, title="Mean completion time", x=x, y="time, ms, simulated")
    title = "Speed-up over round robin"
    charts.lines(right, result.series, title=title, x=x, y="speed-up, simulated", legend=False)
    charts.bound(right, 1.0, "no speed-up", legend=False)
    charts.legend_below(figure, left, right)
