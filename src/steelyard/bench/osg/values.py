"""OSG by the number of different execution times (Rivetti et al. 2016, Fig 8)."""

from __future__ import annotations

import numpy as np

from steelyard.bench import charts
from steelyard.bench.claims import Claim
from steelyard.bench.osg.results import sweep_drawing, sweep_result
from steelyard.bench.osg.settings import OSG, POLICIES, ROUND_ROBIN, SOURCE, Setting, Sweep, streams_of, sweep
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Published, Result

VALUES = (2, 4, 8, 16, 32, 64, 128)
TEXT = f"{SOURCE}, section 5.2, text on Fig 8"


@benchmark(
    "osg-values",
    title="Completion time by the number of different execution times",
    figure="Rivetti et al. 2016, Fig 8",
)
def values(run: Run) -> Result:
    """Completion times of OSG, round robin and Full Knowledge with 2 to 128 different costs from 0.1 to 6.4 ms."""
    seeds = streams_of(run.seed, quick=run.quick)
    settings = {count: Setting(values=count, shortest=0.1, longest=6.4) for count in VALUES}
    return result_of(sweep(settings, POLICIES, seeds, run.progress, "values"), seeds)


def claims_of(found: Sweep[int]) -> list[Claim]:
    """What the text on Fig 8 says, beside what was found."""
    completions = found.completions
    falls = [few / many for few, many in zip(completions[2, OSG], completions[64, OSG], strict=True)]
    flat = [float(np.mean(completions[16, OSG]) / np.mean(completions[64, OSG]))]
    variance = [float(np.std(completions[2, ROUND_ROBIN]) / np.std(completions[64, ROUND_ROBIN]))]
    gains = [found.speedup(count, OSG) for count in VALUES]
    return [
        Claim("completion times fall with n(w) (2 values over 64)", "fall", falls, 1.0),
        Claim("their variance falls (round robin, 2 values over 64)", "falls", variance, 1.0),
        Claim("nearly flat from 16 values on (16 over 64)", "slight changes", flat, 0.9, 1.15),
        *(Claim(f"OSG is ahead with {count} values", "19 %", found.speedups(count, OSG), 1.0) for count in (2, 16, 64)),
        Claim(
            "the gain hardly depends on n(w) (largest mean over smallest)",
            "mostly unaffected",
            [max(gains) / min(gains)],
            at_most=1.15,
        ),
    ]


def result_of(found: Sweep[int], seeds: list[int]) -> Result:
    """Figures, tables and verdicts."""
    metrics = {f"speedup_{count}": found.speedup(count, OSG) for count in (2, 16, 64)}
    metrics["mean_speedup"] = float(np.mean([found.speedup(count, OSG) for count in VALUES]))
    return sweep_result(
        found,
        seeds,
        claims_of(found),
        metrics,
        POLICIES,
        what="n(w)",
        published=[Published("19 % on average", TEXT, "mean_speedup")],
    )


charts.drawing("osg-values")(sweep_drawing("distinct execution times, n(w)", log="x"))
