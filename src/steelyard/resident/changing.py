"""A job whose instances get other places, or other numbers, while it runs."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from steelyard.checkpoint import CheckpointProtocol
from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL
from steelyard.core.control import for_all_joined
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import Weights, require_weights, weighed
from steelyard.resident.coordinator import Coordinator
from steelyard.resident.dealing import require_newest_dealt
from steelyard.resident.generations import Generations
from steelyard.resident.launchers import Launcher
from steelyard.resident.manifest import channels_of
from steelyard.resident.observed import Looks
from steelyard.resident.outcome import Outcome
from steelyard.resident.recovery_line import CheckpointTotals
from steelyard.resident.rescaling import Rescaling, Wish, joined_of, kept_placement, not_in_place, rescaled
from steelyard.resident.routing import has_weights
from steelyard.resident.security import Credentials
from steelyard.resident.settings import Settings
from steelyard.resident.snapshot import SnapshotStore

log = logging.getLogger(__name__)
Target = tuple[Dataflow, Placement]
"""What is to run, and where."""


class ChangingJob(Generations[Coordinator]):
    """What runs, where, and what is to follow.

    Numbers of instances become others in one of two ways. In place, the generation that runs goes over to them
    (`switching.py`). Otherwise it comes to an end with a snapshot, and the next one goes on from that.

    Parameters
    ----------
    dataflow, placement
        What runs where.
    launcher, settings, credentials
        As of a `Job`.
    """

    what: ClassVar[str]

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        launcher: Launcher,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        require_all_placed(dataflow, placement)
        super().__init__(launcher, dataflow, credentials)
        self._dataflow, self._placement = dataflow, placement
        self._settings = settings or Settings()
        require_weights(dataflow, has_weights, self._settings.weights)
        self.outcome = Outcome(recoveries=self.recovered)
        """What it gave so far."""
        self._wanted: Target | None = None
        """What the next generation is to run, and where."""
        self._target: Target | None = None
        """To what this generation is to go over in place."""
        self._asked: Target | None = None
        """Of that, what whoever directs the newest generation was asked when he was made."""
        self._paid_before = CheckpointTotals()
        """What checkpoints had come to when they began to be taken as they are."""
        self._known: dict[str, Target] = {}
        """By digest of its channels: what ran before it went over to something else in place."""
        self._begun_at: tuple[Dataflow, str, float] | None = None
        """What was there before other numbers that take a snapshot, why they do, and since when that goes on."""
        self._why = ""
        self._looks = Looks(dataflow)

    def set_checkpoints(self, interval: float | None = None, protocol: str | CheckpointProtocol | None = None) -> None:
        """Take checkpoints at another interval, or by another protocol. Any thread may call it while `run` runs.

        Another interval holds at once, of the checkpoint that is awaited too. For another protocol, and for the first
        interval of all, sources stop, a snapshot is taken, and the next generation of workers goes on from it.

        Raises
        ------
        OptionError
            Without a store; where the interval is none, nobody knows the protocol, or it cannot be on a cycle.
        """
        self._take_checkpoints_as(self._checkpoints_as(interval, protocol))

    def _checkpoints_as(self, interval: float | None, protocol: str | CheckpointProtocol | None) -> Settings:
        then = self._settings.with_checkpoints(interval, protocol)
        if then.way is not None:
            then.way.require(self._dataflow.cyclic)
        return then

    def _take_checkpoints_as(self, then: Settings) -> None:
        with self._changing:
            before, self._settings = self._settings, replace(then, weights=self._settings.weights)
            if self._driver is not None and then.interval is not None and before.interval != then.interval:
                self._driver.request_interval(then.interval)
        if before.way != then.way:
            self._paid_before = replace(self.outcome.checkpoints)
            self._why = "checkpoints are taken in another way"
            self._go_on_as(*self._next)

    def set_weights(self, weights: Weights) -> None:
        """Deal rows of edges out in other proportions, as in `{("read", "work"): (3, 1)}`: from the next batch on.

        Nothing stops for it, and no answer is another, since only edges have weights that deal rows out in turn. One
        whole number per receiving instance; who has 0 gets no rows, but still hears of time. Edges that are not named
        keep theirs. Weights stay over failures, moves and restarts, until the receiver has another number of instances:
        then all are 1 again, and `outcome.rescalings` says so. Any thread may call it while `run` runs.

        Raises
        ------
        OptionError
            Where an edge is not there, has no weights, or leads to another number of instances.
        """
        require_weights(self._next[0], has_weights, weights)
        self._hold_weights({**self._settings.weights, **weights})

    def _hold_weights(self, weights: Weights) -> None:
        with self._changing:
            self._settings = replace(self._settings, weights=weights)
            if self._driver is not None:
                self._driver.request_weights(weights)

    def _forget_weights(self) -> tuple[str, ...]:
        """Of edges that lead to another number of instances now; gives these edges."""
        fits, held = weighed(self._next[0], has_weights), self._settings.weights
        gone = [ends for ends, each in held.items() if fits.get(ends) != len(each)]
        if gone:
            self._hold_weights({ends: each for ends, each in held.items() if ends not in gone})
        return tuple(" -> ".join(ends) for ends in gone)

    def move(self, placement: Placement) -> None:
        """Go on with another placement, also of another number of workers. Any thread may call it while `run` runs.

        Sources stop, a snapshot is taken, and the next generation of workers goes on from it. A dataflow that comes to
        its end first is not moved any more.

        Raises
        ------
        OptionError
            Without a store there is no snapshot to go on from; and an instance must have a place.
        """
        if self._settings.store is None:
            raise OptionError("to move instances takes a snapshot: give a folder for it, Settings(store=...)")
        dataflow = self._next[0]
        require_all_placed(dataflow, placement)
        self._launcher.require(placement.workers)
        self._why = "instances go to other workers"
        self._go_on_as(dataflow, placement)

    def rescale(
        self, parallelism: Mapping[str, int], placement: Placement | None = None, in_place: bool | None = None
    ) -> None:
        """Go on with other numbers of instances, as in `{"count": 6}`. Any thread may call it while `run` runs.

        In place, if that can be: key groups that get another owner go there, rows of theirs wait so long, and all else
        goes on. Otherwise as `move` does: sources stop, a snapshot is taken, and the next generation of workers deals
        states out anew; where an operator of your own has a state then and cannot deal it out, the job goes on as it
        was, and `outcome.refused` has the reason. `outcome.rescalings` says which way it was, and why.

        Parameters
        ----------
        parallelism
            By operator; the others keep what they have.
        placement
            Which worker hosts which instance. Where none is given: in place, whoever is there stays, and instance i of
            those that are new goes to worker i mod as many as there are; otherwise that holds of all.
        in_place
            Whether it must be in place, or must not; the engine chooses where nothing is said.

        Raises
        ------
        OptionError
            Without a store, where that is needed; where forward edges join operators that would have different numbers;
            where an operator is known to have a state that it cannot deal out; where it must be in place and cannot.
        """
        there, where = self._next
        dataflow = rescaled(there, parallelism)
        beside = placement or kept_placement(dataflow, where)
        require_all_placed(dataflow, beside)
        if dataflow.operators == there.operators and beside == where:
            return  # that is so, or will be
        with self._changing:
            running = self._driver is not None and self._wanted is None and not self._stopped
        why = "" if running else "no workers are there that could go over"
        why = why or ("that was wished" if in_place is False else not_in_place(there, dataflow, where, beside))
        if not why:
            self._go_over_to(dataflow, beside)
            return
        if in_place:
            raise OptionError(
                f"these numbers cannot be had in place: {why}; leave in_place= out, or give other numbers"
            )
        if self._settings.store is None:
            raise OptionError(f"to rescale takes a snapshot, since {why}: give a folder for it, Settings(store=...)")
        require_newest_dealt(dataflow, SnapshotStore(self._settings.store))
        chosen = placement or Placement.spread(dataflow, where.workers)
        self._launcher.require(chosen.workers)
        self._why = why
        self._go_on_as(dataflow, chosen)

    @property
    def _next(self) -> Target:
        """What is to run, and where: a change that is under way is not taken back."""
        return self._wanted or self._target or (self._dataflow, self._placement)

    def _go_over_to(self, dataflow: Dataflow, placement: Placement) -> None:
        with self._changing:
            self._target = dataflow, placement
            if self._driver is not None:
                self._ask(self._driver, self._target)

    def _went_over(self, to: Target, how: Rescaling) -> None:
        """This generation runs that now."""
        with self._changing:
            self._known[channels_of(self._dataflow)] = self._dataflow, self._placement
            self._dataflow, self._placement = to
            self._looks = self._looks.among(self._dataflow)
            if self._target == to:
                self._target = None
        self._tell_rescaled(how)

    def _tell_rescaled(self, how: Rescaling) -> None:
        how = how._replace(unweighed=self._forget_weights())
        self.outcome.rescalings.append(how)
        self.outcome.rescales += 1
        log.info("%s", how)

    def _go_on_as(self, dataflow: Dataflow, placement: Placement) -> None:
        with self._changing:
            self._wanted = dataflow, placement
            if self._driver is not None:
                self._driver.request_stop()

    def apply(self, action: Action) -> float:
        """Go on with other numbers of instances, instances on other workers, other checkpoints, or other weights.

        What forward edges join is rescaled together: who names one of them names all, and the largest number counts.
        How long it stops the job is not known beforehand.
        """
        action.require_only(self.what, "placement", "parallelism", "settings", "weights")
        dataflow, there = self._next
        try:
            checkpoints = self._checkpoints_of(action.settings)
            wanted = {Instance.parse(one): at for one, at in action.placement.items()}
            numbers = self._numbers(action.parallelism)
            require_weights(dataflow.rescaled(numbers), has_weights, action.weights)
            if numbers:
                there = kept_placement(dataflow.rescaled(numbers), there)
            placement = Placement({**there.worker_of, **wanted}, there.workers)
            if numbers:
                self.rescale(numbers, placement)
            elif wanted:  # else all is as it should be, or will be soon
                self.move(placement)
            if checkpoints is not None:
                self._take_checkpoints_as(checkpoints)
            if action.weights:
                self.set_weights(action.weights)
        except OptionError as error:
            raise ActionRefusedError(str(error)) from error
        return 0.0

    def _checkpoints_of(self, settings: Mapping[str, str]) -> Settings | None:
        for name in settings:
            if name not in (CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL):
                raise OptionError.unknown("setting", name, (CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL))
        if not settings:
            return None
        given = settings.get(CHECKPOINT_INTERVAL)
        try:
            interval = None if given is None else float(given)
        except ValueError as error:
            raise OptionError(f"{CHECKPOINT_INTERVAL} must be a number of seconds, got {given!r}") from error
        return self._checkpoints_as(interval, settings.get(CHECKPOINT_PROTOCOL))

    def _numbers(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Those of all operators that get other numbers."""
        dataflow = self._next[0]
        for name in wanted:
            dataflow.operator(name)
        numbers = for_all_joined(wanted, joined_of(dataflow))
        return {name: number for name, number in numbers.items() if number != dataflow.by_name[name].parallelism}

    def _is_to_end(self) -> bool:
        return super()._is_to_end() or self._wanted is not None

    def _goes_on(self) -> bool:
        """Whether it is to be followed by a generation with another placement, or other numbers of instances."""
        with self._changing:
            wanted, self._wanted = self._wanted, None
            if wanted is None or self._stopped or self._undeliverable or self._driver is None or self._driver.ended:
                return False
            dataflow, placement = wanted
            if dataflow is self._dataflow or self._has_rescaled(dataflow):
                self._placement, self._target = placement, None
                self.outcome.moves += 1
            return True

    def _has_rescaled(self, dataflow: Dataflow) -> bool:
        """Whether the snapshot can be dealt out to the instances of this dataflow, which is then the one that runs."""
        assert self._settings.store is not None, "who rescales so has one"
        try:
            require_newest_dealt(dataflow, SnapshotStore(self._settings.store))
        except OptionError as error:
            log.warning("the job goes on as it was: %s", error)
            self.outcome.refused = str(error)
            return False
        self._begun_at = self._dataflow, self._why, time.monotonic()
        self._dataflow, self._looks = dataflow, self._looks.of(dataflow)
        there = set(map(str, dataflow.instances))
        self.outcome.metrics = {name: one for name, one in self.outcome.metrics.items() if name in there}
        return True

    def _started(self, at: float) -> None:
        begun, self._begun_at = self._begun_at, None
        if begun is not None:
            was, why, since = begun
            self._tell_rescaled(Rescaling.of(was, self._dataflow, why, at - since))
        super()._started(at)

    def _directed(self, number: int) -> Coordinator:
        self._go_back()
        driver = self._coordinator(number)
        with self._changing:
            target = self._target
            if target is not None and target[0].operators == self._dataflow.operators:  # it was there once
                target = self._target = None
            why = not_in_place(self._dataflow, target[0], self._placement, target[1]) if target else ""
            if target is not None and why:  # it was to go there in several steps
                self._target = None
                self._wanted, self._why = self._wanted or target, why
            self._asked = target if target is not None and not why else None
        if self._asked is not None:
            self._ask(driver, self._asked)
        return driver

    def _ask(self, driver: Coordinator, target: Target) -> None:
        driver.request_rescale(Wish(*target, partial(self._went_over, target)))

    def _taken_up(self, driver: Coordinator) -> None:
        if self._target is not None and self._target is not self._asked:  # wished while the driver was made
            self._ask(driver, self._target)
        if self._settings.weights != driver.settings.weights:  # likewise
            driver.request_weights(self._settings.weights)
        if self._settings.interval is not None and self._settings.interval != driver.settings.interval:  # likewise
            driver.request_interval(self._settings.interval)

    def _go_back(self) -> None:
        """Where workers failed before there was a line behind a cut, go on as what the newest commit is of.

        What was wanted then is wanted still.
        """
        if self._settings.store is None or not self._known:
            return
        newest = SnapshotStore(self._settings.store).newest()
        if newest is None or newest.fits(self._dataflow) or newest.is_at_rest:
            return
        with self._changing:
            self._target = self._next if self._wanted is None else self._target
            self._dataflow, self._placement = self._known[newest.channels]
            self._looks = self._looks.of(self._dataflow)

    @abstractmethod
    def _coordinator(self, number: int) -> Coordinator:
        """Who directs a generation."""


def require_all_placed(dataflow: Dataflow, placement: Placement) -> None:
    """OptionError unless every instance has a worker, and nobody else."""
    known, placed = set(dataflow.instances), set(placement.worker_of)
    if known - placed:
        raise OptionError(f"the placement has no worker for {sorted(known - placed)[0]}: place every instance")
    if placed - known:
        raise OptionError(f"the placement has {sorted(placed - known)[0]}, which the dataflow has not: leave it out")
