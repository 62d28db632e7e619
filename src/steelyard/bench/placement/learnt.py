"""Placements learnt without a model, beside those of a model and the default: the averages of the document."""

from __future__ import annotations

from steelyard.bench import Result, Run, experiment
from steelyard.bench.placement.published import ACTOR, CHAPTER3, CHAPTER4, EXTRA
from steelyard.bench.placement.verdicts import ALONE, SEVERAL, contest, draw_times, result_of


@experiment("placement-average", title="Actor and critic over the five setups of chapter 3", figure="section 3.5")
def average(run: Run) -> Result:
    """`ac_vs_default` and `ac_vs_model`, on the fast level; a quick run has one of the setups."""
    setups = run.pick(CHAPTER3, CHAPTER3[:1])
    return result_of(contest(run, setups, ALONE, "placement-average"), ACTOR, setups, run)


@experiment("extra-average", title="EXTRA over the six setups of chapter 4", figure="section 4.4")
def extra_average(run: Run) -> Result:
    """`extra_vs_default` and `extra_vs_model`, on the fast level; a quick run has one of the setups."""
    setups = run.pick(CHAPTER4, CHAPTER4[:1])
    return result_of(contest(run, setups, SEVERAL, "extra-average"), EXTRA, setups, run)


for _one in (average, extra_average):
    _one.picture(draw_times)
