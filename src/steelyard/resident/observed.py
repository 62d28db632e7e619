"""What a policy sees of a resident job: what its instances did since the last look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steelyard.core import InstanceObservation, Observation, OperatorObservation, WorkerObservation
from steelyard.core.control import PERCENTILES
from steelyard.core.dataflow import Dataflow
from steelyard.core.needs import OF_JOBS
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import Weights, shown_weights, weighed
from steelyard.resident.rescaling import joined_of
from steelyard.resident.routing import has_weights
from steelyard.resident.sinks import SinkLogic

_COUNTED = (
    "rows_in",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "busy",
    "blocked",
    "idle",
    "useful",
    "cpu",
    "seconds",
    "aged",
)
"""Metrics that only grow while an instance lives."""


def shown_of(dataflow: Dataflow, stored: bool) -> frozenset[str]:
    """What is seen of a job: what comes to sources where all readers tell it, states and weights where any are."""
    readers = [getattr(source.logic, "reader", None) for source in dataflow.sources]
    told = all(reader is not None and reader.tells_end for reader in readers)
    weighs = bool(weighed(dataflow, has_weights))
    known = {"arrivals": told, "state": stored, "weights": weighs}
    return OF_JOBS - {what for what, there in known.items() if not there}


Metrics = Mapping[str, Mapping[str, Any]]
"""By instance, since it started in its generation: `InstanceMetrics` as a dictionary."""


class Looks:
    """One look after the other at the metrics of a job.

    What is seen of an instance is over its own time, which moves with every report, whatever it does. Where that did
    not move since the look before, nothing is known of it: no shares of time, no processor time, no queue.

    Parameters
    ----------
    dataflow
        What runs.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        beside = {one.name for one in dataflow.operators if isinstance(one.logic, SinkLogic) and not one.logic.measured}
        self._beside = {str(one) for one in dataflow.instances if one.operator in beside}
        """Instances of sinks that no latency is measured of."""
        self._joined = joined_of(dataflow)
        self._before: Metrics = {}
        self._sent: dict[int, int] = {}
        self._time = 0.0
        self._generation = 0

    def of(self, dataflow: Dataflow) -> Looks:
        """Those at the same job when it runs another dataflow."""
        made = Looks(dataflow)
        made._time = self._time
        return made

    def among(self, dataflow: Dataflow) -> Looks:
        """Those at the same job when it has gone over to another dataflow in place: who is there still counts on."""
        made = self.of(dataflow)
        made._before, made._sent, made._generation = self._before, self._sent, self._generation
        return made

    def observed(
        self,
        metrics: Metrics,
        placement: Placement,
        time: float,
        generation: int = 0,
        hosts: Mapping[int, Mapping[str, Any]] | None = None,
        state_bytes: Mapping[str, int] | None = None,
        weights: Weights | None = None,
    ) -> Observation:
        """What was done since the last look.

        Parameters
        ----------
        metrics, placement
            What instances say, and where they are.
        time, generation
            When, and of which generation of workers.
        hosts
            By worker: its cores, and what it sent to others since its generation began.
        state_bytes
            By instance: how large its state is.
        weights
            Those that were given to edges.
        """
        if generation != self._generation:
            self._before, self._sent, self._generation = {}, {}, generation
        seconds = max(time - self._time, 1e-9)
        added = {
            name: self._added(name, metrics[name]) for name in map(str, self._dataflow.instances) if name in metrics
        }
        each = {
            operator.name: [
                self._instance(Instance(operator.name, number), metrics, added, seconds, state_bytes or {})
                for number in range(operator.parallelism)
            ]
            for operator in self._dataflow.operators
        }
        seen = tuple(OperatorObservation.of(name, each[name], self._received(name, each)) for name in each)
        places = {str(instance): worker for instance, worker in placement.worker_of.items()}
        workers = tuple(
            self._worker(number, one, added, places, seconds) for number, one in sorted((hosts or {}).items())
        )
        latency = _latency(metrics, {name: one for name, one in added.items() if name not in self._beside})
        self._before, self._time = dict(metrics), time
        held = shown_weights(self._dataflow, has_weights, weights or {}) or None
        return Observation(
            time,
            seconds,
            seen,
            placement=places,
            workers=workers,
            latency=latency,
            weights=held,
            joined=self._joined,
        )

    def _added(self, name: str, now: Mapping[str, Any]) -> dict[str, float]:
        """What came to the counters of an instance; those of one that began anew began at 0."""
        before = self._before.get(name, {})
        again = any(now[what] < before.get(what, 0) for what in _COUNTED)
        return {what: now[what] - (0 if again else before.get(what, 0)) for what in _COUNTED}

    def _instance(
        self,
        instance: Instance,
        metrics: Metrics,
        added: Mapping[str, Mapping[str, float]],
        seconds: float,
        state_bytes: Mapping[str, int],
    ) -> InstanceObservation:
        name = str(instance)
        if not any(added.get(name, {}).values()):  # nobody has told anything of it: neither of work nor of time
            return InstanceObservation(name)
        now, own = metrics[name], added[name]
        seconds = own["seconds"] or seconds  # what it says may be older than the look
        spent = own["busy"] + own["blocked"] + own["idle"]
        shares = {what: own[what] / spent if spent else 0.0 for what in ("busy", "blocked", "useful", "cpu")}
        return InstanceObservation(
            name,
            processed_per_second=own["rows_in"] / seconds,
            sent_per_second=own["rows_out"] / seconds,
            bytes_in_per_second=own["bytes_in"] / seconds,
            bytes_out_per_second=own["bytes_out"] / seconds,
            busy=shares["busy"],
            backpressured=shares["blocked"],
            idle=own["idle"] / spent if spent else 1.0,
            useful=shares["useful"],
            cpu=shares["cpu"],
            queue=now["queue_rows"],
            queue_filled=now["queue_filled"],
            costs=tuple((rows, took) for rows, took in now["costs"]),
            state_bytes=state_bytes.get(name),
            **self._behind(name, now["behind"], seconds),
        )

    def _behind(self, name: str, now: Mapping[str, Any] | None, seconds: float) -> dict[str, float]:
        """What came to the log of a source, and what is not read of it."""
        if now is None:
            return {}
        before = (self._before.get(name) or {}).get("behind")
        if before is None or before["arrived"] > now["arrived"]:
            before = {"arrived": 0, "lag": now["lag"]}
        return {
            "arrived_per_second": (now["arrived"] - before["arrived"]) / seconds,
            "end_offset": now["end"],
            "lag": now["lag"],
            "lag_per_second": (now["lag"] - before["lag"]) / seconds,
            "lag_seconds": now["seconds"],
        }

    def _received(self, name: str, each: Mapping[str, list[InstanceObservation]]) -> dict[str, float]:
        """Rows per second from each sender: as many of those that came as it gave of what all senders gave."""
        senders = dict.fromkeys(edge.sender for edge in self._dataflow.into(name))
        given = {sender: sum(one.sent_per_second for one in each[sender]) for sender in senders}
        came, total = sum(one.processed_per_second for one in each[name]), sum(given.values())
        return {sender: came * (rate / total if total else 0.0) for sender, rate in given.items()}

    def _worker(
        self,
        number: int,
        now: Mapping[str, Any],
        added: Mapping[str, Mapping[str, float]],
        places: Mapping[str, int],
        seconds: float,
    ) -> WorkerObservation:
        hosted = [one for name, one in added.items() if places[name] == number]
        used = sum(one["cpu"] / (one["seconds"] or seconds) for one in hosted)
        sent = sum(now["sent"][what] for what in ("payload", "overhead"))
        before, self._sent[number] = self._sent.get(number, 0), sent
        return WorkerObservation(number, used, now["cores"], (sent - before) / seconds)


def _latency(metrics: Metrics, added: Mapping[str, Mapping[str, float]]) -> dict[float, float] | None:
    """Of probes that came to these instances since the last look, as far as they are remembered."""
    ages = [age for name, own in added.items() if own["aged"] for age in metrics[name]["ages"][-int(own["aged"]) :]]
    if not ages:
        return None
    return dict(zip(PERCENTILES, np.percentile(ages, PERCENTILES).tolist(), strict=True))
