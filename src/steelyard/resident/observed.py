"""What a policy sees of a resident job: what its instances did since the last look, summed up by operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steelyard.core import Observation, OperatorObservation
from steelyard.core.dataflow import Dataflow, Placement

_COUNTED = ("rows_in", "rows_out", "busy", "blocked", "idle", "useful")
"""Metrics that only grow while an instance lives."""


class Looks:
    """One look after the other at the metrics of a job.

    Parameters
    ----------
    dataflow
        What runs.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._before: Mapping[str, Mapping[str, Any]] = {}
        self._time = 0.0
        self._generation = 0

    def observed(
        self, metrics: Mapping[str, Mapping[str, Any]], placement: Placement, time: float, generation: int = 0
    ) -> Observation:
        """What was done since the last look; `metrics` are by instance, since it started in its generation."""
        if generation != self._generation:
            self._before, self._generation = {}, generation
        done = {name: self._added(name, one) for name, one in metrics.items()}
        seconds = max(time - self._time, 1e-9)
        self._before, self._time = metrics, time
        totals = {
            operator.name: {
                what: sum(one[what] for name, one in done.items() if name.rpartition("#")[0] == operator.name)
                for what in _COUNTED
            }
            for operator in self._dataflow.operators
        }
        seen = tuple(self._operator(name, totals, seconds) for name in totals)
        places = {str(instance): worker for instance, worker in placement.worker_of.items()}
        return Observation(time, seconds, seen, placement=places)

    def _added(self, name: str, now: Mapping[str, Any]) -> dict[str, float]:
        """What came to the counters of an instance; those of one that began anew began at 0."""
        before = self._before.get(name, {})
        again = any(now[what] < before.get(what, 0) for what in _COUNTED)
        return {what: now[what] - (0 if again else before.get(what, 0)) for what in _COUNTED}

    def _operator(self, name: str, totals: Mapping[str, Mapping[str, float]], seconds: float) -> OperatorObservation:
        own, operator = totals[name], self._dataflow.by_name[name]
        senders = list(dict.fromkeys(edge.source for edge in self._dataflow.edges if edge.target == name))
        given = sum(totals[sender]["rows_out"] for sender in senders)
        spent = own["busy"] + own["blocked"] + own["idle"]
        shares = {what: own[what] / spent if spent else 0.0 for what in ("busy", "blocked", "idle")}
        return OperatorObservation(
            name=name,
            instances=operator.parallelism,
            received_from={
                sender: own["rows_in"] / seconds * (totals[sender]["rows_out"] / given if given else 0.0)
                for sender in senders
            },
            processed_per_second=(own["rows_in"] if senders else own["rows_out"]) / seconds,
            busy=shares["busy"],
            backpressured=shares["blocked"],
            idle=shares["idle"] if spent else 1.0,
            cpu=own["useful"] / spent if spent else 0.0,
        )
