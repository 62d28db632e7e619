"""Listeners that come with the library: events as lines of JSON in a file, and as metrics for Prometheus."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from steelyard.core import OptionError, Progress
from steelyard.core.progress import BATCH, DECISION, EPOCH, FAILED, MOVED, RECOVERED, STOPPED

LOOPBACK = "127.0.0.1"


def _grown(now: int, before: int) -> int:
    """What came to a count; one that is smaller than before began anew."""
    return now - before if now >= before else now


class ProgressFile:
    """Appends every event to a file, as one line of JSON.

    Parameters
    ----------
    path
        Of the file; its folder is made. Several queries may share one: lines tell `name`, `id` and `run_id`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "progress.jsonl"
    >>> ProgressFile(path)(Progress(1, rows=5))
    >>> path.read_text()[:23]
    '{"batch": 1, "rows": 5,'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        """One line more."""
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(progress.to_json() + "\n")


class Metrics:
    """Keeps what a Prometheus server asks for, and answers it over HTTP.

    Parameters
    ----------
    port
        Where it listens; 0 for any that is free.
    host
        By default only this machine can ask.
    one_query
        Whether it ends with the first query that does.
    """

    def __init__(self, port: int = 0, host: str = LOOPBACK, one_query: bool = False) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server  # noqa: PLC0415
        except ImportError as error:
            raise OptionError("metrics need prometheus-client: pip install 'steelyard[metrics]'") from error
        registry = CollectorRegistry()
        self._counters: dict[str, Any] = {
            name: Counter(f"steelyard_{name}", what, ["query", *labels], registry=registry)
            for name, what, labels in (
                ("batches", "Batches that ended, or epochs that were committed", []),
                ("rows", "Rows read", []),
                ("late_rows", "Rows behind the watermark", []),
                ("bad_rows", "Rows refused", ["reason"]),
                ("results", "Result rows handed to the sink", []),
                ("decisions", "Changes that a policy wanted", []),
                ("moves", "Worksets that changed their worker", []),
                ("failures", "Failures of the query", []),
                ("recoveries", "Times that it went on after a failure", []),
            )
        }
        self._gauges: dict[str, Any] = {
            name: Gauge(f"steelyard_{name}", what, ["query", *labels], registry=registry)
            for name, what, labels in (
                ("batch", "The newest batch or epoch", []),
                ("batch_seconds", "What the newest batch took, by phase", ["phase"]),
                ("tasks", "Tasks of a batch or instances, by what they are", ["of"]),
                ("largest_over_mean", "Rows of the largest block over the mean", []),
                ("imbalance", "How much loads of workers differ, in average loads of one", []),
                ("state", "Rows or bytes of state", ["unit"]),
            )
        }
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise OptionError(f"metrics(port={port}): nothing can listen there: {error.strerror}") from error
        self.port: int = self._server.server_port
        self._before: dict[str, Progress] = {}
        self._one_query = one_query

    def __call__(self, progress: Progress) -> None:
        """One event more."""
        query = progress.name or progress.id
        counted = {DECISION: "decisions", FAILED: "failures", RECOVERED: "recoveries"}
        if progress.kind in counted:
            self._counters[counted[progress.kind]].labels(query).inc()
        if progress.kind == MOVED:
            self._counters["moves"].labels(query).inc(progress.details["moves"])
        if progress.kind in (BATCH, EPOCH):
            self._add(query, progress)
            self._show(query, progress)
        if progress.kind == STOPPED and self._one_query:
            self.close()

    def _add(self, query: str, progress: Progress) -> None:
        """What has come since the last event: epochs count from the start of their run, batches by themselves."""
        before = self._before.get(query) if progress.kind == EPOCH else None
        if before is not None and before.run_id != progress.run_id:
            before = None
        self._before[query] = progress
        self._counters["batches"].labels(query).inc()
        for name in ("rows", "late_rows", "results"):
            self._counters[name].labels(query).inc(_grown(getattr(progress, name), getattr(before, name, 0)))
        for reason, rows in progress.bad_rows.items():
            known = before.bad_rows.get(reason, 0) if before else 0
            self._counters["bad_rows"].labels(query, reason).inc(_grown(rows, known))

    def _show(self, query: str, progress: Progress) -> None:
        self._gauges["batch"].labels(query).set(progress.batch)
        for phase, seconds in progress.seconds.items():
            self._gauges["batch_seconds"].labels(query, phase).set(seconds)
        details = progress.details
        for name in {"blocks", "buckets"} & details.keys():
            self._gauges["tasks"].labels(query, name).set(details[name])
        for name in {"largest_over_mean", "imbalance"} & details.keys():
            self._gauges[name].labels(query).set(details[name])
        for unit in ("rows", "bytes"):
            if f"state_{unit}" in details:
                self._gauges["state"].labels(query, unit).set(details[f"state_{unit}"])

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
