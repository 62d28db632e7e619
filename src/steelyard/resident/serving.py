"""What any worker does beside its work: comes, does what it is told, says what happens, and goes."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from steelyard.core import BadRowError, BatchError, StateError, SteelyardError
from steelyard.core.errors import place_of
from steelyard.resident.control import Orders, Shapes
from steelyard.resident.peers import TO_COORDINATOR, Address, Peers, WorkerError
from steelyard.resident.security import COORDINATOR, Credentials, Identity, RefusedError
from steelyard.resident.wire import WireError

log = logging.getLogger(__name__)


class ServingWorker(ABC):
    """One worker of one generation of a job.

    Parameters
    ----------
    number
        Which, from 0.
    credentials
        The job's secret.
    host
        The interface to listen at.
    generation
        Which attempt of the job this is.
    """

    orders: ClassVar[Shapes]
    """What a coordinator may say."""

    def __init__(self, number: int, credentials: Credentials, host: str, generation: int) -> None:
        self.number = number
        self._credentials, self._generation = credentials, generation
        self._peers = Peers(number, credentials, host, generation)
        self.address: Address = self._peers.address
        """Where others are told to reach it."""
        self._orders: Orders | None = None
        self._failure: str | None = None
        self._failing = threading.Lock()
        self._closing = threading.Event()

    @classmethod
    def warm(cls, given: Any) -> None:
        """Load what any worker of what is given will need; called once in the process that forks them."""
        return

    def run(self, coordinator: Address) -> None:
        """Serve until the coordinator ends it; WorkerError where something failed, here or elsewhere."""
        try:
            identity = Identity(self._generation, self.number, TO_COORDINATOR)
            control = self._credentials.reach(coordinator, identity, COORDINATOR, self._peers.given_up)
            self._orders = Orders(control, self.orders, self._stopped, self._lost)
            self._greet()
            self._orders.listen()
            self._serve(self._orders)
        except (RefusedError, OSError, WireError) as error:
            self._fail(f"the coordinator is gone: {error}")
        except Exception as error:  # noqa: BLE001 - the coordinator hears of it, whatever it is
            self._fail(f"worker {self.number}: {type(error).__name__}: {error}")
        finally:
            self._close()
        if self._failure is not None:
            raise WorkerError(self._failure)

    @abstractmethod
    def _greet(self) -> None:
        """Say hello."""

    @abstractmethod
    def _serve(self, orders: Orders) -> None:
        """Do what the coordinator says until it says stop."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of everything."""

    def _halt(self) -> None:  # noqa: B027 - not every worker has somebody who waits
        """Wake whoever waits: it is over."""

    def _stopped(self, order: dict[str, Any]) -> None:
        """A stop has come, perhaps while another order is being carried out: whoever waits is woken."""
        with self._failing:
            self._failure = self._failure or order.get("why")
        self._peers.give_up()
        self._halt()

    def _lost(self, why: str) -> None:
        """No order comes any more."""
        self._fail(f"worker {self.number}: {why}")
        self._peers.give_up()

    def _tell(self, event: str, **what: Any) -> None:
        assert self._orders is not None
        self._orders.tell(event, **what)

    def _failed(self, whose: str, error: BaseException) -> None:
        """Something of the worker's raised."""
        if self._closing.is_set():
            return
        # rows that nobody wants to be dropped would be the same the next time, and so would the program, and a store
        final = isinstance(error, BadRowError | BatchError | StateError)
        if not final:  # else the driver tells it, and a trace says no more
            log.error("%s failed\n%s", whose, "".join(traceback.format_exception(error)[-3:]))
        place = "" if isinstance(error, SteelyardError) else place_of(error)
        self._fail(f"{whose}: {type(error).__name__}: {error}{place}", final)

    def _lost_peer(self, why: str, ago: float) -> None:
        self._fail(why, ago=ago)

    def _fail(self, why: str, final: bool = False, ago: float = 0.0) -> None:
        """The first reason counts; the coordinator hears of it, and of how long ago it was, and ends everything."""
        with self._failing:
            if self._failure is not None or self._closing.is_set():
                return
            self._failure = why
        if self._orders is not None:
            with contextlib.suppress(OSError):
                self._tell("failed", why=why, final=final, ago=ago)
        self._halt()
