"""A worker: hosts the instances that the coordinator gives it, and does what the coordinator says."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.checkpoint import PROTOCOLS
from steelyard.core import StateError
from steelyard.core.dataflow import Dataflow
from steelyard.core.durable import Described
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import Weights
from steelyard.resident.control import Maybe, Orders, Shapes
from steelyard.resident.costs import schedulers_of
from steelyard.resident.dealing import Dealing
from steelyard.resident.deployment import Deployment, Events, Settled
from steelyard.resident.keeper import Keeper, Replay
from steelyard.resident.manifest import Log
from steelyard.resident.operator import ALONE, Attempt
from steelyard.resident.peers import ADDRESS
from steelyard.resident.pulse import Pulse
from steelyard.resident.routing import distributor
from steelyard.resident.security import Credentials
from steelyard.resident.serving import ServingWorker
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Kind, batch_bytes

_STOP_SECONDS = 10.0
NOTE_BYTES = 8
"""Of the number of a checkpoint, beside results that will be in it."""
FILE = (str, int, int)
"""A `Described` file."""
LINE = {
    "epoch": int,
    "files": {str: FILE},
    "sent": [(int, int)],
    "logs": [(FILE, [(int, int, int)])],
    "lossy": bool,
    "dealt": Maybe(int),
}
"""Where all instances go on: their states, and what was sent to them."""
WEIGHTS = [{"from": str, "to": str, "weights": [int]}]
"""By which rows of edges are dealt out."""
UNANSWERED = ("begin_round", "keep", "interval", "weigh")
"""Orders that nobody waits for."""


def spoken(weights: Weights) -> list[dict[str, Any]]:
    """Weights as an order has them."""
    return [{"from": sender, "to": receiver, "weights": list(each)} for (sender, receiver), each in weights.items()]


def weights_of(order: Mapping[str, Any]) -> Weights:
    """The weights of an order."""
    return {(one["from"], one["to"]): tuple(one["weights"]) for one in order["weights"]}


ORDERS: dict[str, dict[str, Any]] = {
    "beat": {"seconds": float, "silence": float},
    "deploy": {
        "peers": [ADDRESS],
        "placement": {str: int},
        "store": Maybe(str),
        "attempt": str,
        "protocol": Maybe({"name": str, "parameters": dict}),
        "parallelism": {str: int},
        "line": Maybe(LINE),
        "weights": WEIGHTS,
        "round": int,
    },
    "rewire": {"round": int, "cut": int, "parallelism": {str: int}, "placement": {str: int}},
    "cut": {"round": int},
    "begin_round": {"number": int, "plan": str},
    "keep": {"numbers": {str: int}},
    "interval": {"seconds": float},
    "weigh": {"weights": WEIGHTS},
    "start": {"round": int},
    "pause": {"round": int},
    "resume": {"round": int},
    "flush": {"round": int},
    "snapshot": {"epoch": int, "round": int},
    "committed": {"round": int},
    "close_loops": {"round": int},
    "status": {"round": int},
    "finish": {"round": int},
    "stop": {"why": Maybe(str)},
}
"""What a coordinator may say."""
EVENTS: dict[str, dict[str, Any]] = {
    "hello": {"address": ADDRESS, "host": str, "pid": int},
    "did": {
        "what": str,
        "round": int,
        "sent": Maybe([(int, int)]),
        "done": Maybe([(int, int)]),
        "files": Maybe({str: FILE}),
    },
    "checkpoint": {
        "cut": int,
        "chain": str,
        "number": int,
        "kind": str,
        "for_round": int,
        "sent": [(int, int)],
        "received": [(int, int)],
        "unlogged": [(int, int)],
        "rows": int,
        "waited": float,
        "numbers": {str: int},
        "files": {str: FILE},
        "log": Maybe(FILE),
        "spans": [(int, int, int)],
        "captured": [(int, int, int)],
        "stood": float,
        "seconds": float,
    },
    "ended": {"instance": str, "cut": int, "sources": bool, "all": bool},
    "settled": {"cut": int, "parts": int, "bytes": int},
    "metrics": {
        "instances": {str: dict},
        "sent": {str: int},
        "received": {str: int},
        "refused_connections": int,
        "cores": int,
    },
    "failed": {"why": str, "final": bool, "ago": Maybe(float)},
}
"""What a worker may say."""


class Worker(ServingWorker):
    """A worker that hosts instances of a dataflow.

    Parameters
    ----------
    number, credentials, host, generation
        As of any worker.
    dataflow
        What the job runs; how it came here (a fork, a Spark closure) is not the worker's concern.
    """

    orders: ClassVar[Shapes] = ORDERS

    def __init__(
        self, number: int, dataflow: Dataflow, credentials: Credentials, host: str = "127.0.0.1", generation: int = 0
    ) -> None:
        super().__init__(number, credentials, host, generation)
        self._dataflow = dataflow
        self._ending = threading.Lock()
        self._ended: set[tuple[Instance, int]] = set()
        """Instances, and behind how many cuts they ended: who goes over to other channels ends once more."""
        self._deployment: Deployment | None = None
        self._store: SnapshotStore | None = None
        self._keeper: Keeper | None = None
        self._attempt = ALONE
        self._reporting = threading.Lock()

    @classmethod
    def warm(cls, given: Dataflow) -> None:
        """Load what is compiled to share rows out."""
        for number, edge in enumerate(given.edges):
            receivers = given.by_name[edge.receiver].parallelism
            made = distributor(edge, Instance(edge.sender, 0), receivers, schedulers_of(given, number), given.groups)
            made.prepare(given.schemas[edge.sender])

    def _greet(self) -> None:
        self._tell("hello", address=list(self.address), host=socket.gethostname(), pid=os.getpid())

    def _serve(self, orders: Orders) -> None:
        """Do what the coordinator says until it says stop."""
        actions: dict[str, Callable[[dict[str, Any]], object]] = {
            "beat": self._beat,
            "deploy": self._deploy,
            "start": self._start,
            "pause": lambda order: self._all(runner.pause() for runner in self._sources()),
            "resume": lambda order: self._all(runner.pause(False) for runner in self._sources()),
            "flush": lambda order: self._all(one.flush() for one in self._runners() if not one.is_source),
            "snapshot": self._snapshot,
            "rewire": self._rewire,
            "cut": self._cut,
            "committed": lambda order: self._all(one.committed(one.checkpoints) for one in self._runners()),
            "begin_round": lambda order: [one.begin_round(order["number"], order["plan"]) for one in self._sources()],
            "keep": self._keep,
            "interval": self._set_interval,
            "weigh": self._weigh,
            "close_loops": lambda order: self._all(one.close_loops() for one in self._runners()),
            "status": lambda order: None,
            "finish": self._finish,
        }
        while (order := orders.next())["do"] != "stop":
            answer = self._obeyed(actions[order["do"]], order)
            if answer is not None and order["do"] not in UNANSWERED:
                self._tell("did", what=order["do"], round=order.get("round", 0), **self._status(), **answer)

    def _obeyed(self, action: Callable[[dict[str, Any]], object], order: dict[str, Any]) -> dict[str, Any] | None:
        """What to answer; None where an order was not carried out: the coordinator hears why, and ends the worker."""
        answer: object = None
        try:
            answer = action(order)
        except CancelledError:
            self._fail(f"worker {self.number} could not {order['do']}: an instance has ended")
        except Exception as error:  # noqa: BLE001 - files, states, peers: whatever it is, it ends this generation
            why = f"worker {self.number} could not {order['do']}: {type(error).__name__}: {error}"
            self._fail(why, final=isinstance(error, StateError))  # it would be as damaged the next time
        if self._failure is not None:
            return None
        return answer if isinstance(answer, dict) else {}

    def _runners(self) -> Iterable[Any]:
        return list(self._deployment.runners.values()) if self._deployment else ()

    def _sources(self) -> Iterable[Any]:
        return [runner for runner in self._runners() if runner.is_source]

    @staticmethod
    def _all(answers: Iterable[Future[Any]]) -> list[Any]:
        """Ask all before waiting for the first."""
        return [answer.result() for answer in list(answers)]

    def _beat(self, order: dict[str, Any]) -> None:
        """Report from now on: other workers may take long to come, and what is compiled may take long to load."""
        assert self._orders is not None
        pulse = Pulse(order["seconds"], order["silence"])
        pulse.watch(self._orders.connection)
        self._peers.beat(pulse)
        threading.Thread(target=self._report, args=(order["seconds"],), name="heartbeat", daemon=True).start()

    def _deploy(self, order: dict[str, Any]) -> None:
        peers = [(host, port) for host, port in order["peers"]]
        self._dataflow = self._dataflow.rescaled(order["parallelism"])
        worker_of = {Instance.parse(name): worker for name, worker in order["placement"].items()}
        placement = Placement(worker_of, len(peers))
        self._store = SnapshotStore(order["store"]) if order["store"] else None
        events = Events(self._instance_failed, self._instance_ended, self._deliver, self._settled)
        self._attempt = Attempt.parse(order["attempt"])
        protocol, given = None, order.get("protocol")
        if given is not None and self._store is not None:
            protocol = PROTOCOLS.entries[given["name"]].kind(**given["parameters"])
            self._keeper = Keeper(self._store, self._attempt, self._tell, self._keeping_failed)
            self._keeper.start()
        made = Deployment(
            self._dataflow,
            placement,
            self.number,
            self._peers.send,
            events,
            self._attempt,
            protocol,
            self._keeper,
            weights_of(order),
        )
        self._restore(made, order.get("line"), protocol is None or protocol.deduplicates or not protocol.logged)
        self._peers.meet(peers)
        self._deployment = made
        self._peers.listen(made.receive, self._lost_peer)

    def _restore(self, made: Deployment, line: dict[str, Any] | None, deduplicates: bool) -> None:
        """Have all instances go on from a line, or from nothing."""
        if line is None or self._store is None:
            for instance in made.runners:
                made.restore(instance, {})
            return
        files = {name: Described(*file) for name, file in line["files"].items()}
        for runner in made.runners.values():
            runner.checkpoints = line["epoch"]  # of a snapshot that does not know it
        if line["dealt"] is not None:
            dealing = Dealing(self._dataflow, self._store, files, line["dealt"])
            for instance in made.runners:
                made.restore(instance, dealing.state(instance))
            return
        logs = [Log(Described(*file), spans) for file, spans in line["logs"]]
        replay = Replay(self._store, logs, deduplicates, line["lossy"])
        for instance in made.runners:
            file = files.get(str(instance))  # one that keeps nothing may be new
            state = self._store.load(file) if file is not None else {}
            made.restore(instance, state, dict(line["sent"]), replay)

    def _keep(self, order: dict[str, Any]) -> None:
        """Nobody goes back behind these checkpoints any more: what they gave may be seen."""
        for runner in self._runners():
            number = order["numbers"].get(str(runner.instance))
            if number is not None:
                runner.committed(number)

    def _set_interval(self, order: dict[str, Any]) -> None:
        assert self._deployment is not None
        self._deployment.set_interval(order["seconds"])

    def _weigh(self, order: dict[str, Any]) -> None:
        assert self._deployment is not None
        self._deployment.weigh(weights_of(order))

    def _keeping_failed(self, error: BaseException) -> None:
        self._failed(f"a checkpoint of worker {self.number}", error)

    def _start(self, order: dict[str, Any]) -> None:
        for runner in self._runners():
            runner.start()

    def _snapshot(self, order: dict[str, Any]) -> dict[str, Any]:
        runners = list(self._runners())
        files = {}
        for runner, state in zip(runners, self._all(one.snapshot() for one in runners), strict=True):
            if self._store is not None:
                written = self._store.write(order["epoch"], runner.instance, state, self._attempt)
                files[str(runner.instance)] = written
        with self._reporting:  # what is said of an epoch when it is committed has all of its rows
            self._tell("metrics", **self.metrics())
        return {"files": files}

    def _finish(self, order: dict[str, Any]) -> None:
        """From here on it does not matter who goes first."""
        with self._reporting:
            self._tell("metrics", **self.metrics())
            self._closing.set()

    def _status(self) -> dict[str, Any]:
        if self._deployment is None:
            return {}
        return {key: list(value.items()) for key, value in self._deployment.counters().items()}

    def _report(self, seconds: float) -> None:
        """Send metrics now and then: a worker that is silent is taken for dead."""
        with contextlib.suppress(OSError):
            while not self._closing.wait(seconds):
                with self._reporting:  # else older metrics could come behind the last ones
                    if not self._closing.is_set():
                        self._tell("metrics", **self.metrics())

    def metrics(self) -> dict[str, Any]:
        """What the instances did, and what went to and came from other workers."""
        sent, received = self._peers.traffic()
        return {
            "instances": {str(runner.instance): runner.report() for runner in self._runners()},
            "sent": sent.to_dict(),
            "received": received.to_dict(),
            "refused_connections": self._peers.refused,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        }

    def _instance_ended(self, instance: Instance) -> None:
        assert self._deployment is not None
        with self._ending:
            cut = self._deployment.runners[instance].links.number
            self._ended.add((instance, cut))
            sources = all((runner.instance, cut) in self._ended for runner in self._sources())
            everything = all((one, cut) in self._ended for one in self._deployment.hosted)
        self._tell("ended", instance=str(instance), cut=cut, sources=sources, all=everything)

    def _rewire(self, order: dict[str, Any]) -> None:
        """Make ready for a cut, behind which other instances are there."""
        assert self._deployment is not None
        self._dataflow = self._dataflow.rescaled(order["parallelism"])
        worker_of = {Instance.parse(name): worker for name, worker in order["placement"].items()}
        there = self._deployment.placement.workers
        self._deployment.prepare(order["cut"], self._dataflow, Placement(worker_of, there))

    def _cut(self, order: dict[str, Any]) -> None:
        assert self._deployment is not None
        self._deployment.cut()

    def _settled(self, settled: Settled) -> None:
        self._tell("settled", **settled._asdict())

    def _deliver(self, instance: Instance, batch: pa.RecordBatch, number: int) -> None:
        assert self._orders is not None
        sink = [operator.name for operator in self._dataflow.operators].index(instance.operator)
        note = number.to_bytes(NOTE_BYTES, "big")
        self._orders.connection.send(Kind.RESULT, sink, instance.number, batch_bytes(batch), note)

    def _instance_failed(self, instance: Instance, error: BaseException) -> None:
        self._failed(f"operator {instance.operator!r} (instance {instance.number}, worker {self.number})", error)

    def _halt(self) -> None:
        if self._deployment is not None:
            for runner in self._deployment.runners.values():
                runner.stop()

    def _close(self) -> None:
        self._closing.set()
        self._halt()
        self._peers.close()  # wakes whoever waits to send
        if self._deployment is not None:
            self._deployment.stop(_STOP_SECONDS)
        if self._keeper is not None:
            self._keeper.stop(_STOP_SECONDS)
        if self._orders is not None:
            self._orders.connection.close()
