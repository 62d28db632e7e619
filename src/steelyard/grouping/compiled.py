"""Schedulers and instances whose loops are compiled: one class of each for all groupings, told apart by their rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from steelyard.core import OptionError, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.core.weights import dealt, lowest
from steelyard.grouping.protocol import Chosen, Matrices, Reply, Report, Requests

if TYPE_CHECKING:
    from steelyard.kernels.osg_state import Learners, Rule, Schedulers

MOST_INSTANCES = 4_096
FOLLOWED_APART = 1.0
"""Seconds of work of an instance from one request to the next, at least, where a scheduler is told how far it is."""


class Banks(NamedTuple):
    """All schedulers and instances of a stream in arrays, for loops that run them together."""

    rule: Rule
    hashes: Ints
    schedulers: Schedulers
    learners: Learners


class CompiledGrouping:
    """What groupings share; a kind of grouping writes `rule` and, where it has matrices, `sketch_shape`."""

    name: ClassVar[str]
    learns: ClassVar[bool] = False
    """Whether instances report to it what items cost."""
    needs_costs: ClassVar[bool] = False
    """Whether it must be told the exact cost of every tuple."""
    weighs: ClassVar[bool] = False
    """Whether its schedulers can be given weights."""
    cost_of: str = ""
    """The column whose values are the items, for engines that have columns."""

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        raise NotImplementedError

    @property
    def sketch_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrices."""
        return 1, 1

    def hashes(self) -> Ints:
        """int64[rows, 2]: the hash functions that all schedulers and instances share."""
        from steelyard.kernels.osg_sketch import coefficients  # noqa: PLC0415 - slow to import

        return coefficients(self.sketch_shape[0], self.rule(1).seed)

    def banks(self, instances: int, schedulers: int = 1) -> Banks:
        """All schedulers and instances of a stream."""
        from steelyard.kernels.osg_state import new_learners, new_schedulers  # noqa: PLC0415 - slow to import

        rule = self.rule(_checked(instances))._replace(schedulers=schedulers)
        return Banks(
            rule,
            self.hashes(),
            new_schedulers(rule, schedulers, instances, *self.sketch_shape),
            new_learners(schedulers, instances, *self.sketch_shape),
        )

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> CompiledScheduler:
        """A new scheduler, one of so many that feed the same instances and have different numbers."""
        return CompiledScheduler(self, instances, number, schedulers)

    def instance(self, instances: int, number: int, schedulers: int = 1) -> CompiledInstance:
        """A new instance, one of so many, that is fed by so many schedulers."""
        return CompiledInstance(self, instances, number, schedulers)


class CompiledScheduler:
    """A scheduler of any grouping.

    Examples
    --------
    >>> from steelyard.grouping import grouping
    >>> scheduler = grouping("round_robin").scheduler(instances=3)
    >>> scheduler.choose(np.array([7, 7, 9, 7])).to.tolist()
    [0, 1, 2, 0]
    """

    def __init__(self, policy: CompiledGrouping, instances: int, number: int = 0, schedulers: int = 1) -> None:
        from steelyard.kernels.osg_state import new_schedulers  # noqa: PLC0415 - slow to import

        self.policy = policy
        self.instances = _checked(instances)
        if not 0 <= number < schedulers:
            raise ValueError(f"there is no scheduler {number} among {schedulers}, numbered from 0")
        self.number = number
        self._rule = policy.rule(instances)._replace(schedulers=schedulers)
        self._hashes = policy.hashes()
        self._bank = new_schedulers(self._rule, 1, instances, *policy.sketch_shape, first=number)

    def choose(
        self, items: Ints, costs: Floats | None = None, times: Floats | None = None, until: float = np.inf
    ) -> Chosen:
        """Instances for tuples in the order of sending; for fewer of them where no load is below `until` any more."""
        from steelyard.kernels.osg_batches import choose_batch  # noqa: PLC0415 - slow to import

        ids = _one_dimension("items", items, np.int64)
        rows = len(ids)
        if times is None and self._rule.idle_aware:
            raise OptionError(
                f"grouping {self.policy.name} looks at the clock: give `times` to choose, "
                "or idle_aware=false to the policy"
            )
        when = np.zeros(rows) if times is None else _one_dimension("times", times, np.float64, rows)
        to = np.empty(rows, np.int32)
        position, epoch, load = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows)
        exact = self._exact(costs, rows)
        count, marked = choose_batch(
            self._rule, self._hashes, self._bank, ids, exact, when, to, position, epoch, load, until
        )
        return Chosen(to[:count], Requests(position[:marked].copy(), epoch[:marked].copy(), load[:marked].copy()))

    def _exact(self, costs: Floats | None, rows: int) -> Floats:
        from steelyard.kernels.osg_state import KNOWN  # noqa: PLC0415 - slow to import

        if self._rule.kind != KNOWN:
            return np.zeros((1, self.instances))
        if costs is None:
            raise OptionError(f"grouping {self.policy.name} needs the exact cost of every item: give `costs` to choose")
        exact = np.asarray(costs, np.float64)
        exact = exact[:, None] if exact.ndim == 1 else exact
        if exact.shape not in ((rows, 1), (rows, self.instances)):
            raise ValueError(
                f"costs are one per tuple, or one per tuple and instance: {exact.shape} for {rows} tuples and "
                f"{self.instances} instances"
            )
        return np.ascontiguousarray(np.broadcast_to(exact, (rows, self.instances)))

    def feedback(self, reports: Sequence[Report]) -> None:
        """What instances reported, in the order of arrival; replies to other schedulers are passed over."""
        from steelyard.kernels.osg import take_matrices, take_reply  # noqa: PLC0415 - slow to import

        for report in reports:
            if not 0 <= report.sender < self.instances:
                raise ValueError(f"a report of instance {report.sender}, and there are {self.instances}")
            if isinstance(report, Matrices):
                if report.cells.shape != self._bank.cells.shape[2:]:
                    raise ValueError(f"matrices of {report.cells.shape}, not of {self._bank.cells.shape[2:]}")
                take_matrices(self._rule, self._bank, 0, report.sender, report.cells, report.tuples, report.time)
            elif report.scheduler == self.number:
                reply = (report.epoch, report.delta, report.tuples, report.time, report.own, report.everything)
                take_reply(self._rule, self._bank, 0, report.sender, *reply)

    @property
    def weights(self) -> tuple[int, ...]:
        """By instance: tuples of a cycle, where it deals them out in turn."""
        return tuple(np.bincount(self._bank.order[0], minlength=self.instances).tolist())

    def weigh(self, weights: Sequence[int]) -> None:
        """Deal tuples out in proportion to these from the next one on, one number per instance.

        A cycle begins anew, but not where these are the weights that it has already.
        """
        if not self.policy.weighs:
            raise OptionError(f"grouping {self.policy.name} has no weights: it does not deal tuples out in turn")
        if len(weights) != self.instances:
            raise OptionError(f"there are {self.instances} instances, got {len(weights)} weights: {tuple(weights)}")
        from steelyard.kernels.osg_state import TURN  # noqa: PLC0415 - slow to import

        if (wanted := lowest(weights)) != self.weights:
            order = np.array(dealt(wanted))[None]
            self._bank = self._bank._replace(order=order)
            self._rule = self._rule._replace(turns=order.shape[1])
            self._bank.status[0, TURN] = self.number % order.shape[1]

    @property
    def follows(self) -> bool:
        """Whether `follow` makes a difference: it tells when instances end what they have, by the clock."""
        return self._rule.continuous and self._rule.idle_aware

    @property
    def given(self) -> list[float]:
        """By instance: what it thinks each has been given so far, in seconds of work."""
        given: list[float] = self._bank.work[0, : self.instances, 1].tolist()
        return given

    @property
    def pace(self) -> list[float]:
        """By instance: seconds that each takes for a second of that work, with what it does for other schedulers."""
        own, everything = self._bank.time_of[0].tolist()
        share = everything / own if own > 0.0 else float(self._rule.schedulers)
        return [share * speed for speed in self._bank.speeds[0, : self.instances].tolist()]

    def follow(self, left: Sequence[float], now: float) -> None:
        """How long each instance will take for what is left to it, as far as is known: their loads are that from now.

        Who is told of that needs few replies: they teach it speeds, and no more.
        """
        loads = now + np.array(left)
        self._bank.deltas[0, : self.instances] += loads - self._bank.loads[0, : self.instances]
        self._bank.loads[0, : self.instances] = loads
        if self._rule.apart < FOLLOWED_APART:
            self._rule = self._rule._replace(apart=FOLLOWED_APART)

    @property
    def mode(self) -> str:
        """Where its state machine is: `round_robin`, `send_all`, `wait_all` or `run`."""
        from steelyard.kernels.osg_state import MODE  # noqa: PLC0415 - slow to import

        return ("round_robin", "send_all", "wait_all", "run")[self._bank.status[0, MODE]]

    @property
    def loads(self) -> Floats:
        """float64[instances]: what it thinks each instance has been given, C_hat."""
        return np.array(self._bank.loads[0])

    @property
    def traffic(self) -> dict[str, int]:
        """Control messages so far: matrices and replies that came, requests that went, epochs begun."""
        return dict(zip(("matrices", "requests", "replies", "epochs"), self._bank.traffic[0].tolist(), strict=True))

    def expected(self, item: int, instance: int) -> float:
        """How long an item takes on an instance, as far as the scheduler knows."""
        from steelyard.kernels.osg import expected  # noqa: PLC0415 - slow to import

        return float(expected(self._rule, self._hashes, self._bank, 0, instance, item))

    def state(self) -> State:
        """All that the next choice depends on."""
        return {name: array.copy() for name, array in self._bank._asdict().items()}

    def restore(self, state: State) -> None:
        """Go on as the scheduler that gave this state would."""
        bank = self._bank
        if self.policy.weighs and "order" in state:  # as long as the cycle of its weights
            bank = bank._replace(order=np.empty_like(state["order"]))
        _restore(bank, state, f"a scheduler of {self.policy.name} with {self.instances} instances")
        self._bank, self._rule = bank, self._rule._replace(turns=bank.order.shape[1])

    def __repr__(self) -> str:
        return f"CompiledScheduler({self.policy!r}, instances={self.instances}, number={self.number})"


class CompiledInstance:
    """An instance of any grouping; where the grouping learns nothing, it reports nothing."""

    def __init__(self, policy: CompiledGrouping, instances: int, number: int, schedulers: int = 1) -> None:
        from steelyard.kernels.osg_state import new_learners  # noqa: PLC0415 - slow to import

        if not 0 <= number < _checked(instances):
            raise ValueError(f"there is no instance {number} among {instances}, numbered from 0")
        self.policy = policy
        self.number = number
        self._rule = policy.rule(instances)
        self._hashes = policy.hashes()
        self._bank = new_learners(schedulers, 1, *policy.sketch_shape, first=number)

    def executed(
        self,
        items: Ints,
        seconds: Floats,
        finished: Floats,
        requests: Requests | None = None,
        scheduler: int = 0,
    ) -> list[Report]:
        """What to report after executing tuples of one scheduler, in the order in which they came."""
        from steelyard.kernels.osg import forget  # noqa: PLC0415 - slow to import
        from steelyard.kernels.osg_batches import execute_batch  # noqa: PLC0415 - slow to import
        from steelyard.kernels.osg_state import LEARNT  # noqa: PLC0415 - slow to import

        ids = _one_dimension("items", items, np.int64)
        took = _one_dimension("seconds", seconds, np.float64, len(ids))
        ended = _one_dimension("finished", finished, np.float64, len(ids))
        if self._rule.kind != LEARNT:
            return []
        asked = requests or Requests.none()
        replies = np.zeros((len(asked.load), 5))
        replies[:, 0] = asked.load
        reports: list[Report] = []
        row = answered = 0
        while row < len(ids):
            before = answered
            row, answered, send = execute_batch(
                self._rule, self._hashes, self._bank, ids, took, ended, scheduler, asked.position, replies, row, before
            )
            for one in range(before, answered):
                reports.append(Reply(self.number, scheduler, int(asked.epoch[one]), *replies[one].tolist()))
            if send:
                reports.append(Matrices(self.number, self._bank.cells[0].copy(), *self._bank.totals[0].tolist()))
                forget(self._rule, self._bank, 0)
        return reports

    def space_out(self, seconds: float) -> None:
        """From now on, send matrices at most once in so many seconds of work."""
        self._rule = self._rule._replace(apart=max(self._rule.apart, seconds))

    def passed_over(self, seconds: float, scheduler: int = 0) -> None:
        """Tuples of a scheduler were executed, and not looked at: their time counts, and no more."""
        self._bank.busy[0, scheduler] += seconds
        self._bank.worked[0] += seconds

    def state(self) -> State:
        """All that the next report depends on."""
        return {name: array.copy() for name, array in self._bank._asdict().items()}

    def restore(self, state: State) -> None:
        """Go on as the instance that gave this state would."""
        _restore(self._bank, state, f"an instance of {self.policy.name}")

    def __repr__(self) -> str:
        return f"CompiledInstance({self.policy!r}, number={self.number})"


def _checked(instances: int) -> int:
    if not 1 <= instances <= MOST_INSTANCES:
        raise OptionError(f"instances must be from 1 to {MOST_INSTANCES}, got {instances}")
    return instances


def _one_dimension(what: str, given: Any, kind: Any, length: int | None = None) -> Any:
    # a read-only array would be another type to the compiler, and compile everything once more
    array = np.require(given, kind, ["C", "W"])
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise ValueError(f"{what} must be one number per tuple: got {array.shape}, expected ({length or 'tuples'},)")
    return array


def _restore(bank: Any, state: State, what: str) -> None:
    for name, array in bank._asdict().items():
        if name not in state or state[name].shape != array.shape:
            given = f"of shape {state[name].shape}" if name in state else "missing"
            raise OptionError(f"a state of {what} has {name!r} of shape {array.shape}, and here it is {given}")
    for name, array in bank._asdict().items():
        array[...] = state[name]
