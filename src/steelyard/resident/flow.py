"""Dataflows as they are written: a source, what is done with its rows, and a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from steelyard.core import Cooperative, OptionError, Placer, tell_no_effect
from steelyard.core.aggregates import Aggregate
from steelyard.core.dataflow import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    SHUFFLE,
    Dataflow,
    Edge,
    Grouping,
    Logic,
    Operator,
    Route,
)
from steelyard.core.durations import micros
from steelyard.core.hints import Hinting
from steelyard.core.key_groups import DEFAULT_GROUPS
from steelyard.grouping.protocol import Grouping as Scheduling
from steelyard.grouping.protocol import item_column, require_item_column, require_knowable
from steelyard.grouping.registry import grouping as shuffle_grouping
from steelyard.grouping.registry import is_grouping
from steelyard.partition.registry import tuple_policy
from steelyard.resident.aggregate import PartialAggregate, WindowedAggregate
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.changes import ChangedAggregate
from steelyard.resident.custom import Custom, Deal
from steelyard.resident.join import Join
from steelyard.resident.operator import MIN_WATERMARK, InstanceContext, Step, schema_of
from steelyard.resident.running import RunningAggregate
from steelyard.resident.sinks import SinkLogic
from steelyard.resident.sources import DEFAULT_BATCH_ROWS, Reader, Source
from steelyard.resident.stateless import BatchFunction, Filter, FlatMap, Map, Select
from steelyard.resident.states import StateAggregate
from steelyard.resident.windows import Session, Window

Columns: TypeAlias = pa.Schema | Mapping[str, pa.DataType] | Sequence[tuple[str, pa.DataType]]


class Flow(Hinting):
    """A dataflow in the making.

    Parameters
    ----------
    name
        For pictures and logs.
    parallelism
        Of operators that are given none.
    groups
        Key groups, which instances share where rows go by hash: the most instances that an operator with keys may have.
        A job goes on with other numbers of instances, so that this is a choice for good.

    Examples
    --------
    >>> from steelyard import count
    >>> from steelyard.resident import Flow, Memory, Rows
    >>> flow = Flow("words")
    >>> words = flow.source(Rows(pa.table({"word": ["a", "b", "a"]})), name="read")
    >>> _ = words.key_by("word").aggregate(n=count(), parallelism=2).sink(Memory())
    >>> [str(edge.grouping) for edge in flow.dataflow().edges]
    ['hash(word)', 'forward']
    """

    _hints: ClassVar[dict[str, str]] = {"run": "write run(flow.dataflow())", "start": "write run(flow.dataflow())"}

    def __init__(self, name: str = "dataflow", parallelism: int = 1, groups: int = DEFAULT_GROUPS) -> None:
        self.name = name
        self.parallelism = parallelism
        self.groups = groups
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []

    def __repr__(self) -> str:
        return (
            f"Flow({self.name!r}: {', '.join(f'{one.name} x {one.parallelism}' for one in self._operators) or 'empty'})"
        )

    def source(
        self,
        reader: Reader,
        *,
        time: str | None = None,
        delay: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        step: int = 1,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Rows that a reader gives. `time` is the column of event times, `delay` how late rows may be.

        Event time goes on in steps of `step` microseconds.
        """
        logic = Source(reader, time, micros(delay, "delay") if delay else 0, batch_rows, step)
        return self._add(logic, [], name, parallelism)

    def dataflow(self) -> Dataflow:
        """What was described, checked; DataflowError where it cannot run."""
        return Dataflow(self.name, tuple(self._operators), tuple(self._edges), self.groups)

    def _add(self, logic: Logic, inputs: Sequence[Stream], name: str | None, parallelism: int | None) -> Stream:
        used = {operator.name for operator in self._operators}
        wanted = name or logic.kind
        number = 2
        chosen = wanted
        while name is None and chosen in used:
            chosen, number = f"{wanted} {number}", number + 1
        width = parallelism or (inputs[0].parallelism if inputs else self.parallelism)
        operator = Operator(chosen, logic, width)
        self._operators.append(operator)
        for port, stream in enumerate(inputs):
            stream.connect(operator, port)
        return Stream(self, (operator,))


@dataclass(frozen=True, repr=False)
class Stream(Hinting):
    """The rows that one or several operators give, and how they are to be grouped for the next one."""

    _hints: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("groupBy", "groupby", "group_by"), "did you mean 'key_by'?"),
        **dict.fromkeys(("agg", "window"), "write .aggregate(n=count(), window='1 minute')"),
        **dict.fromkeys(("where",), "did you mean 'filter'?"),
        **dict.fromkeys(("repartition", "rebalance", "partition_by"), "did you mean 'shuffle'?"),
        **dict.fromkeys(("writeStream", "write"), "did you mean 'sink'?"),
        **dict.fromkeys(("start", "run"), "write run(flow.dataflow())"),
        "withWatermark": "give time= and delay= to flow.source(...)",
        "with_watermark": "give time= and delay= to flow.source(...)",
        "withColumn": "did you mean 'map'?",
    }

    flow: Flow
    operators: tuple[Operator, ...]
    grouping: Grouping | None = None

    @property
    def parallelism(self) -> int:
        """Of the operator that gives the rows."""
        return self.operators[0].parallelism

    def __repr__(self) -> str:
        grouped = f", grouped by {self.grouping}" if self.grouping else ""
        return f"Stream(of {', '.join(repr(one.name) for one in self.operators)} in {self.flow.name!r}{grouped})"

    def connect(self, target: Operator, port: int, feedback: bool = False) -> None:
        """Lead the rows to an input of an operator; called by the verbs below."""
        for operator in self.operators:
            equal = operator.parallelism == target.parallelism
            grouping = self.grouping or (FORWARD if equal else SHUFFLE)
            self.flow._edges.append(Edge(operator.name, target.name, grouping, port, feedback))

    def key_by(self, *columns: str, grouping: Any = "hash") -> Stream:
        """Rows of a key go to one instance, by hash; or where a partitioner or tuple policy sends them."""
        if grouping == "hash":
            return replace(self, grouping=Grouping(Route.HASH, columns))
        if is_grouping(grouping) or isinstance(grouping, Placer):
            name = str(getattr(grouping, "name", grouping))
            raise OptionError(f"{name} goes by what rows cost, and not by keys: use shuffle({name!r})")
        policy = tuple_policy(grouping)  # a name that is none is an error here, where it was written
        if isinstance(policy, Cooperative) and getattr(policy, "sync", "") != "never":
            raise OptionError(
                f"{policy.name}: resident workers do not carry what its partitioners tell each other: use one that "
                "learns alone, as 'dalton', or engine('microbatch')"
            )
        return replace(self, grouping=Grouping(Route.POLICY, columns, grouping))

    def shuffle(self, grouping: str | Scheduling | None = None) -> Stream:
        """Rows go to the instances in turn; or where a grouping sends them, by what it learns of their costs.

        `shuffle(OSG(cost_of="customer"))`, or the same by name, `shuffle("osg?cost_of=customer")`: instances measure
        how long rows of each customer take, and rows go where the least work waits.
        """
        if grouping is None:
            return replace(self, grouping=SHUFFLE)
        policy = shuffle_grouping(grouping)
        require_knowable(policy)
        require_item_column(policy, "shuffle")
        columns = (item_column(policy),) if item_column(policy) else ()
        return replace(self, grouping=Grouping(Route.COST, columns, policy))

    def forward(self) -> Stream:
        """Rows of instance i go to instance i."""
        return replace(self, grouping=FORWARD)

    def broadcast(self) -> Stream:
        """Every row goes to every instance."""
        return replace(self, grouping=BROADCAST)

    def to_first(self) -> Stream:
        """Every row goes to the first instance."""
        return replace(self, grouping=GLOBAL)

    def union(self, *others: Stream) -> Stream:
        """The rows of all of these, which have the same columns."""
        return replace(self, operators=self.operators + tuple(one for other in others for one in other.operators))

    def map(
        self,
        function: BatchFunction,
        schema: Columns | None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """A function of a batch that keeps the number of rows; `schema` where it gives other columns."""
        return self.flow._add(Map(function, _schema(schema)), [self], name, parallelism)

    def flat_map(
        self,
        function: BatchFunction,
        schema: Columns | None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """A function of a batch that gives any number of rows."""
        return self.flow._add(FlatMap(function, _schema(schema)), [self], name, parallelism)

    def filter(self, condition: Any, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Rows for which an Arrow expression, or a function of a batch, is true."""
        return self.flow._add(Filter(condition), [self], name, parallelism)

    def select(self, *columns: str, name: str | None = None, parallelism: int | None = None, **renamed: str) -> Stream:
        """Some columns; `new="old"` renames one."""
        chosen = tuple((column, column) for column in columns) + tuple(renamed.items())
        return self.flow._add(Select(chosen), [self], name, parallelism)

    def aggregate(
        self,
        uses: Mapping[str, Aggregate | StateAggregate] | None = None,
        /,
        *,
        window: str | None = None,
        slide: str | None = None,
        session: str | None = None,
        time: str | None = None,
        emit: str = "updates",
        combine: bool = False,
        open_end: bool = False,
        begins: int = MIN_WATERMARK,
        name: str | None = None,
        parallelism: int | None = None,
        **aggregates: Aggregate | StateAggregate,
    ) -> Stream:
        """Aggregates by the key of `key_by`, in windows of event time or running.

        They are given by their names, or as `uses`, where one has the name of an option.
        Where the grouping may split a key, two operators do it: the first makes partials where the policy sends
        the rows, the second merges them by hash. `combine=True` makes partials before rows leave their worker.
        `session="30 seconds"` gives sessions: rows of a key that follow each other by so much or less.
        `emit="epochs"` gives what changed since the last snapshot when the next one is taken, with or without windows.
        `open_end=True` keeps windows that event time has not passed open at the end of all rows; `begins=0` takes rows
        before 1970 for late. Spark does both.
        """
        keys = self.grouping.columns if self.grouping and self.grouping.route is not Route.COST else ()
        if self.grouping is not None and self.grouping.route is Route.COST:
            tell_no_effect(f"shuffle({str(self.grouping)!r})", "rows of a key must meet to be aggregated", "use key_by")
        if slide is not None and window is None:
            raise OptionError(f"slide={slide!r} needs a window: give window= too")
        named = {**(uses or {}), **aggregates}
        for whose, use in named.items():
            if not isinstance(use, Aggregate | StateAggregate):
                raise OptionError(f"aggregate {whose!r} must be sy.count(), sy.sum('column') and so on, got {use!r}")
        how = Aggregation(keys, tuple(named.items()), self._window(window, slide, session, time))
        if self.grouping is not None and self.grouping.route is Route.POLICY:
            parts = self.flow._add(PartialAggregate(how), [self], f"{name} partials" if name else None, parallelism)
            return parts._merged(how, emit, True, name, parallelism, open_end, begins)
        if combine:
            before = replace(self, grouping=FORWARD)
            parts = self.flow._add(PartialAggregate(how), [before], f"{name} partials" if name else None, None)
            return parts._merged(how, emit, True, name, parallelism, open_end, begins)
        return self._merged(how, emit, False, name, parallelism, open_end, begins)

    def _merged(
        self,
        how: Aggregation,
        emit: str,
        from_partials: bool,
        name: str | None,
        parallelism: int | None,
        open_end: bool,
        begins: int,
    ) -> Stream:
        logic: Logic
        if emit == "epochs" and isinstance(how.window, Session):
            raise OptionError("sessions are given when they close: leave emit='epochs' out")
        if emit == "epochs":
            logic = ChangedAggregate(how, from_partials, begins)
        elif how.window is None:
            logic = RunningAggregate(how, emit, from_partials)
        else:
            logic = WindowedAggregate(how, from_partials, open_end, begins)
        grouped = replace(self, grouping=Grouping(Route.HASH, how.keys)) if how.keys else replace(self, grouping=None)
        return self.flow._add(logic, [grouped], name, parallelism if how.keys else 1)

    def _window(self, size: str | None, slide: str | None, session: str | None, time: str | None) -> Window | None:
        if session is not None:
            if size is not None:
                raise OptionError(f"window={size!r} and session={session!r} are two kinds of windows: give one of them")
            return Session.of(time or self._event_time(), session)
        return Window.of(time or self._event_time(), size, slide) if size is not None else None

    def _event_time(self) -> str:
        """The time column of the sources that lead here, if they agree in one."""
        before = {operator.name for operator in self.operators}
        grown = 0
        while grown < len(before):
            grown = len(before)
            before |= {edge.sender for edge in self.flow._edges if edge.receiver in before}
        sources = [one.logic for one in self.flow._operators if one.name in before and isinstance(one.logic, Source)]
        times = {source.time for source in sources}
        column = times.pop() if len(times) == 1 else None
        if column is None:
            raise OptionError("a window needs event times: give time= at the source, or at the operator")
        return column

    def join(
        self,
        other: Stream,
        *,
        on: str | Sequence[str] | None = None,
        window: str | None = None,
        slide: str | None = None,
        suffix: str = "_right",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Pairs of rows that agree in their keys: of all rows so far, or of those in one window.

        Keys are the columns `on`, or those of `key_by` on each side. A side that is `broadcast()` meets the other
        wherever its rows go.
        """
        keys = tuple([on] if isinstance(on, str) else on or ())
        sides = [self, other]
        left, right = (keys or (side.grouping.columns if side.grouping else ()) for side in sides)
        if not left or not right:
            raise OptionError("a join needs keys on both sides: give on=, or key_by(...) both")
        spread = any(side.grouping is not None and side.grouping.route is Route.BROADCAST for side in sides)
        if not spread:
            self._tell_hashed(sides)
            sides = [
                replace(side, grouping=Grouping(Route.HASH, columns))
                for side, columns in zip(sides, (left, right), strict=True)
            ]
        windows = None
        if window is not None:
            windows = (
                Window.of(self._event_time(), window, slide),
                Window.of(other._event_time(), window, slide),
            )
        return self.flow._add(Join(left, right, windows, suffix), sides, name, parallelism)

    @staticmethod
    def _tell_hashed(sides: Sequence[Stream]) -> None:
        for side in sides:
            if side.grouping is not None and side.grouping.route in (Route.POLICY, Route.COST):
                tell_no_effect(
                    f"grouping {str(side.grouping)!r}", "rows of a key must meet to be joined, and go by hash"
                )

    def process(
        self,
        factory: Callable[[InstanceContext], Step],
        schema: Columns | None = None,
        *others: Stream,
        deal: Deal | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """An operator of your own, with this stream at input 0 and `others` at the inputs behind it.

        Inputs that were grouped by `key_by` declare that the rows of a key must meet. `deal` says how the states of all
        instances become that of one of another number: `deal(states, share)`, called for each of them.
        """
        inputs = [self, *others]
        keys = tuple(
            side.grouping.columns if side.grouping and side.grouping.route is Route.HASH else None for side in inputs
        )
        return self.flow._add(Custom(factory, _schema(schema), keys, deal), inputs, name, parallelism)

    def feedback(self, into: Stream, port: int = 0) -> Stream:
        """Lead these rows back to an input of an operator that they came through, which closes a cycle."""
        for target in into.operators:
            self.connect(target, port, feedback=True)
        return self

    def sink(self, logic: SinkLogic, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Where the rows end."""
        return self.flow._add(logic, [self], name, parallelism)


def _schema(given: Columns | None) -> pa.Schema | None:
    return None if given is None else schema_of(given)
