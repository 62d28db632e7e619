"""Placements that were learnt without a model, beside those of a model and the default: chapters 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.bench import Result, Run, experiment
from steelyard.bench.placement.published import ACTOR, CHAPTER3, CHAPTER4, EXTRA
from steelyard.bench.placement.verdicts import ALONE, SEVERAL, contest, draw_times, result_of


def _single(run: Run, setups: Sequence[str], title: str) -> Result:
    return result_of(contest(run, setups, ALONE, title), ACTOR, setups, run)


def _several(run: Run, setups: Sequence[str], title: str) -> Result:
    return result_of(contest(run, setups, SEVERAL, title), EXTRA, setups, run)


@experiment("placement-small", title="Continuous queries in 20 threads, placed by each policy", figure="Fig. 3.3a")
def small(run: Run) -> Result:
    """The small setup."""
    return _single(run, ["cq-small"], "placement-small")


@experiment("placement-medium", title="Continuous queries in 50 threads, placed by each policy", figure="Fig. 3.3b")
def medium(run: Run) -> Result:
    """The medium setup."""
    return _single(run, ["cq-medium"], "placement-medium")


@experiment("placement-large", title="Continuous queries in 100 threads, placed by each policy", figure="Fig. 3.3c")
def large(run: Run) -> Result:
    """The large setup."""
    return _single(run, ["cq-large"], "placement-large")


@experiment("placement-logs", title="Log stream processing in 100 threads, placed by each policy", figure="Fig. 3.5")
def logs(run: Run) -> Result:
    """Two branches."""
    return _single(run, ["lsp-large"], "placement-logs")


@experiment("placement-words", title="Word count in 100 threads, placed by each policy", figure="Fig. 3.7")
def words(run: Run) -> Result:
    """A chain with a key."""
    return _single(run, ["wc-large"], "placement-words")


@experiment("placement-average", title="Actor and critic over the five setups of chapter 3", figure="section 3.5")
def average(run: Run) -> Result:
    """The averages that the document claims; a quick run has two of the setups."""
    return _single(run, run.pick(CHAPTER3, CHAPTER3[:2]), "placement-average")


@experiment("extra-queries", title="Three instances of continuous queries on one cluster", figure="Fig. 4.2")
def queries(run: Run) -> Result:
    """Small, medium and large."""
    return _several(run, run.pick(CHAPTER4[:3], CHAPTER4[:1]), "extra-queries")


@experiment("extra-words", title="Three instances of word count on one cluster", figure="Fig. 4.3")
def extra_words(run: Run) -> Result:
    """300 threads."""
    return _several(run, ["3x-wc-large"], "extra-words")


@experiment("extra-logs", title="Three instances of log stream processing on one cluster", figure="Fig. 4.4")
def extra_logs(run: Run) -> Result:
    """300 threads."""
    return _several(run, ["3x-lsp-large"], "extra-logs")


@experiment("extra-hybrid", title="Three different applications on one cluster", figure="Fig. 4.5")
def hybrid(run: Run) -> Result:
    """300 threads."""
    return _several(run, ["hybrid"], "extra-hybrid")


@experiment("extra-average", title="EXTRA over the six setups of chapter 4", figure="section 4.4")
def extra_average(run: Run) -> Result:
    """The averages that the document claims; a quick run has one of the setups."""
    return _several(run, run.pick(CHAPTER4, CHAPTER4[:1]), "extra-average")


for _one in (small, medium, large, logs, words, average, queries, extra_words, extra_logs, hybrid, extra_average):
    _one.picture(draw_times)
