"""The builder: a keyed, windowed aggregation over any streaming DataFrame, read like a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Never

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from steelyard.control import Guard
from steelyard.core import KeyCounts, OptionError, Partitioner, Placer, ScalingPolicy, TuplePolicy
from steelyard.core.aggregates import Aggregate
from steelyard.core.durations import micros, spoken
from steelyard.core.errors import kind_of, nearest
from steelyard.core.names import with_parameters
from steelyard.grouping import Grouping, grouping_names
from steelyard.grouping.batches import in_batches
from steelyard.grouping.registry import is_grouping
from steelyard.partition import partitioner_names
from steelyard.partition import policy as named_policy
from steelyard.resident.settings import Settings as JobSettings
from steelyard.scaling import Fixed, elasticity
from steelyard.spark.aggregate_hints import require_aggregates
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.aggregator_check import check_aggregator, check_forms
from steelyard.spark.badrows import BadRows
from steelyard.spark.checkpoint import said
from steelyard.spark.classic import require_classic
from steelyard.spark.description import Description
from steelyard.spark.engine import readable_name, start_query
from steelyard.spark.group_start import start_groups
from steelyard.spark.idle import tell_idle
from steelyard.spark.map_engine import MapEngine, require_no_keys
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.oneshot import aggregate_once
from steelyard.spark.partials import ddl_fields
from steelyard.spark.program import Bound, MapFunction, Program, Session, Window
from steelyard.spark.query import Query
from steelyard.spark.resident_start import Resident, start_resident
from steelyard.spark.scratch import scratch
from steelyard.spark.settings import Settings
from steelyard.spark.sinks import FileSink
from steelyard.spark.sinks import sink as make_sink

MODES = ("append", "update", "complete")
STATISTICS = ("carried", "exact")
FORMS = ("arrow", "pandas")
ENGINES = ("microbatch", "groups", "resident")
DEFAULT_POLICY = "auto"
MAP_POLICY = "in_place"
"""Where there are no keys: rows are mapped where they are read, unless another policy is named."""


def stream(rows: DataFrame) -> Stream:
    """Start to describe a query over `rows`, a streaming DataFrame (or a static one, for `to_df`).

    Verbs of `Stream` add to the description, in any order, and `start()` runs it. For example, windows of ten seconds::

        query = (
            sy.stream(trips)
            .with_watermark("pickup", "2 seconds")
            .group_by("medallion")
            .window("10 seconds")
            .agg(total=sy.sum("fare"), trips=sy.count())
            .sink("console")
            .checkpoint("checkpoints/fares")
            .start()
        )
        query.await_termination()

    `map` runs a Python function over the rows before, or instead of, an aggregation; `partition_by` names a policy
    other than `"auto"`; `engine("groups")` and `engine("resident")` run the same on workers that stay.
    """
    require_classic(rows, "sy.stream")
    if not isinstance(rows, DataFrame):
        raise OptionError(f"sy.stream takes a Spark DataFrame, got {kind_of(rows)}")
    return Stream(rows)


@dataclass(frozen=True, repr=False)
class Stream(Description):
    """A description that each verb adds to; nothing runs before `start()` or `to_df()`.

    Every verb gives a new description, so that one can be the beginning of several.
    """

    _hints: ClassVar[dict[str, str]] = {
        **Description._hints,
        **dict.fromkeys(("aggregate", "count"), "write .agg(name=sy.count())"),
        **{name: f"write .agg(name=sy.{name}('column'))" for name in ("sum", "mean", "min", "max")},
        "avg": "write .agg(name=sy.mean('column'))",
        **dict.fromkeys(("repartition", "partitionBy", "shuffle"), "did you mean 'partition_by'?"),
        "key_by": "did you mean 'group_by'?",
    }

    rows: DataFrame
    _keys: tuple[str, ...] = ()
    _aggregates: dict[str, Aggregate | AggregatorUse] = field(default_factory=dict)
    _window: Window | Session | None = None
    _time: str | None = None
    _delay: int = 0
    _map: MapFunction | None = None
    _partitioner: Partitioner | TuplePolicy | None = None
    _blocks: int | None = None
    _buckets: int | None = None
    _elastic: ScalingPolicy = field(default_factory=Fixed)
    _guards: tuple[Guard, ...] = ()
    _statistics: str = "carried"
    _bad: BadRows = field(default_factory=BadRows)
    _mode: str | None = None
    _sink: tuple[str, dict[str, Any]] | None = None
    _checkpoint: str | None = None
    _trigger: dict[str, Any] = field(default_factory=dict)
    _name: str | None = None
    _metrics: tuple[int, str] | None = None
    _engine: str = "microbatch"
    _workers: int | None = None
    _interval: float | None = None
    _protocol: str | None = None

    def _facts(self) -> Mapping[str, object]:
        uses = [f"{name} = {use!r}" for name, use in self._aggregates.items()]
        return {
            "rows": ", ".join(self.rows.columns),
            "watermark": f"{self._time}, {spoken(self._delay)} late" if self._time else "",
            "map": self._map and getattr(self._map.function, "__name__", "a function"),
            "group by": ", ".join(self._keys),
            "window": said("window", self._window.signature) if self._window else "",
            "aggregates": ", ".join(uses),
            "partition by": self._partitioner and self._partitioner.name,
            "blocks": self._blocks,
            "buckets": self._buckets,
            "sink": self._sink and self._sink[0],
            "checkpoint": self._checkpoint,
            "name": self._name,
            "engine": self._engine,
        }

    def with_watermark(self, column: str, delay: str) -> Stream:
        """Event time is in `column`, and rows may come `delay` behind the newest, as in PySpark's withWatermark."""
        return replace(self, _time=column, _delay=micros(delay, "with_watermark"))

    def map(self, function: Callable[[Any], Any], schema: str | T.StructType, form: str = "arrow") -> Stream:
        """Run a vectorised function over the rows, before they are aggregated.

        Parameters
        ----------
        function
            From a batch of rows to a batch of rows: `pyarrow.RecordBatch` where `form` is `"arrow"`,
            `pandas.DataFrame` where it is `"pandas"`. The numbers of rows may differ.
        schema
            Of what it gives, as DDL or StructType.
        form
            `"arrow"` or `"pandas"`.
        """
        if form not in FORMS:
            raise OptionError.unknown("form of map", form, FORMS)
        if not callable(function):
            raise OptionError(f"map needs a function, got {function!r}")
        fields = schema if isinstance(schema, T.StructType) else ddl_fields(schema, "schema of map")
        return replace(self, _map=MapFunction(function, fields, form))

    def group_by(self, *columns: str) -> Stream:
        """The key columns."""
        if not columns or not all(isinstance(column, str) for column in columns):
            given = ", ".join(map(repr, columns)) or "none"
            raise OptionError(f"group_by needs names of columns, as in .group_by('user', 'city'), got {given}")
        return replace(self, _keys=tuple(dict.fromkeys(columns)))

    def window(self, size: str, slide: str | None = None) -> Stream:
        """Windows of `size`, tumbling, or one every `slide`."""
        length = micros(size, "window size")
        step = micros(slide, "window slide") if slide is not None else length
        if not 0 < step <= length:
            raise OptionError(f"window: slide must be positive and not longer than size, got {slide!r} and {size!r}")
        return replace(self, _window=Window(length, step))

    def session_window(self, gap: str) -> Stream:
        """Sessions: rows of a key that follow each other by `gap` or less, as PySpark's `session_window`."""
        length = micros(gap, "session_window gap")
        if length <= 0:
            raise OptionError(f"session_window: the gap must be above 0, got {gap!r}")
        return replace(self, _window=Session(length))

    def agg(self, /, *unnamed: Never, **aggregates: Aggregate | AggregatorUse) -> Stream:
        """Named aggregates: `sy.sum("fare")`, `sy.count()`, or `MyAggregator().of("fare")`."""
        require_aggregates(unnamed, aggregates)
        return replace(self, _aggregates={**self._aggregates, **aggregates})

    def partition_by(
        self,
        policy: str | Partitioner | TuplePolicy | Grouping,
        blocks: int | None = None,
        buckets: int | None = None,
        **parameters: Any,
    ) -> Stream:
        """The policy, and how many blocks (map tasks) and buckets (reduce tasks); by default one per core.

        A policy that you name moves rows to its blocks; `"in_place"` leaves them where they are read. Without this verb
        it is `"auto"`, which finds out what pays, and leaves rows of built-in aggregates where they are read.

        Parameters of a policy are keywords, or stand in its name: `partition_by("dalton", epsilon=0.1)` is
        `partition_by("dalton?epsilon=0.1")`. `"osg"` with `cost_of="customer"` is for a map function that takes longer
        for some rows than for others: it is measured, and rows are spread by what they will take.
        """
        if parameters:
            option, value = next(iter(parameters.items()))
            if meant := nearest(option, ("blocks", "buckets")):
                raise OptionError(f"partition_by has no option {option!r}: did you mean {meant!r}?")
            if not isinstance(policy, str):
                raise OptionError(
                    f"partition_by: {policy!r} has its parameters, and {option}={value!r} is given beside it"
                )
            policy = with_parameters(policy, parameters)
        for option, value in (("blocks", blocks), ("buckets", buckets)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise OptionError(f"partition_by: {option} must be a whole number of at least 1, got {value!r}")
        names = [*partitioner_names(), *grouping_names()]
        if isinstance(policy, str) and (name := policy.partition("?")[0]) not in names:
            raise OptionError.unknown("partitioner", name, names)
        by_cost = is_grouping(policy)
        chosen: Any = in_batches(policy) if by_cost else named_policy(policy)  # type: ignore[arg-type]  # one of them
        return replace(self, _partitioner=chosen, _blocks=blocks, _buckets=buckets)

    def statistics(self, source: str) -> Stream:
        """Where key counts come from: `"carried"` from the batches before, or `"exact"`, a pass over the batch."""
        return replace(self, _statistics=_one_of("statistics", source, STATISTICS))

    def elastic(self, policy: str | ScalingPolicy, guards: Sequence[Guard] = ()) -> Stream:
        """What sets the next batch's numbers of tasks: a name such as `"zones?patience=2"`, or an object.

        On `.engine("resident")`, numbers of instances: `"hpa_cpu"`, or another policy that looks at operators. `guards`
        of `steelyard.control` bound what it may do, as `[LargestStep(up=2)]`.
        """
        return replace(self, _elastic=elasticity(policy), _guards=tuple(guards))

    def on_bad_rows(self, policy: str, path: str | None = None) -> Stream:
        """`"fail"` (the default), `"drop"`, or `"dead_letter"` with the `path` they are kept in."""
        return replace(self, _bad=BadRows(policy, path))

    def output_mode(self, mode: str) -> Stream:
        """`"append"`: a window once, when it closes; `"update"`: what a batch changed; `"complete"`: everything."""
        return replace(self, _mode=_one_of("output mode", mode, MODES))

    def engine(
        self, name: str, workers: int | None = None, interval: str | None = None, protocol: str | None = None
    ) -> Stream:
        """What runs it: `"microbatch"`, a Spark job per batch, or workers that stay: `"groups"`, or `"resident"`.

        `"groups"` has batches of `interval`, 100 milliseconds by default, which are scheduled ahead; `"resident"` has
        none. Both read the source by themselves. `workers` is the number of Spark slots that they
        keep while they run; by default all but one, which is left to other jobs of the session. `protocol` is how
        `"resident"` takes snapshots: a name out of `steelyard policies checkpoint`.
        """
        chosen = _one_of("engine", name, ENGINES)
        if workers is not None and (chosen == "microbatch" or workers < 1):
            raise OptionError(f"engine: workers, at least 1, are those that stay, got {workers} for {name!r}")
        if interval is not None and chosen != "groups":
            raise OptionError(f"engine: interval is that of 'groups', got {interval!r} for {name!r}: leave it out")
        seconds = None if interval is None else micros(interval, "interval") / 1e6
        if seconds is not None and seconds <= 0:
            raise OptionError(f"engine: interval must be above 0, got {interval!r}")
        if protocol is not None and chosen != "resident":
            raise OptionError(f"engine: protocol is that of 'resident', got {protocol!r} for {name!r}: leave it out")
        if protocol is not None:
            JobSettings(store="", interval=1.0, protocol=protocol)  # says what is wrong with it
        return replace(self, _engine=chosen, _workers=workers, _interval=seconds, _protocol=protocol)

    def start(self) -> Query:
        """Check everything, and start the query."""
        if not self.rows.isStreaming:
            raise OptionError("start() needs a streaming DataFrame (spark.readStream); for a static one use to_df()")
        if self._sink is None:
            raise OptionError("say where results go, for example .sink('console')")
        bound = self._bound()
        spark = self.rows.sparkSession
        settings = self._settings()
        if self._engine == "resident":
            return self._start(lambda: start_resident(self.rows, bound, settings, self._resident()))
        kind, options = self._sink
        target = make_sink(kind, self._keys, spark, settings.mode, options)
        if isinstance(target, FileSink):
            target.require_no_batch_id(bound.result_columns)
        if self._engine == "groups":
            return self._start(lambda: start_groups(self.rows, bound, settings, self._resident(), target))
        if "batch.load" in getattr(settings.elastic, "needs", ()) and not settings.interval:
            raise OptionError(
                f"elastic: {settings.elastic!r} compares the time of a batch with the interval between batches: add "
                ".trigger(processing_time='1 second'), or set the policy's own interval, as in 'zones?interval=1'"
            )
        checkpoint = self._checkpoint or scratch()
        run = MicroBatch if bound.program.aggregates else MapEngine
        engine = run(spark, bound, settings, target, checkpoint)
        tell_idle(bound, settings)
        return self._start(lambda: start_query(engine, self.rows, checkpoint, self._trigger, self._called()))

    def _called(self) -> str:
        """The query's name: the given one, or one made of what it computes."""
        what = f"{', '.join(self._aggregates)} by {', '.join(self._keys)}" if self._aggregates else "map"
        return self._name or readable_name(what)

    def _resident(self) -> Resident:
        assert self._sink is not None, "`start` checks it"
        kind, options = self._sink
        return Resident(
            kind,
            options,
            self._checkpoint,
            "availableNow" in self._trigger,
            self._called(),
            self._workers,
            self._interval,
            self._protocol,
        )

    def to_df(self) -> DataFrame:
        """The results over a static DataFrame, as one batch: all windows, nothing late."""
        if self.rows.isStreaming:
            raise OptionError("to_df() is for a static DataFrame; for a streaming one use start()")
        self._bad.refuse_letters()
        bound, settings = self._bound(), self._settings()
        tell_idle(bound, settings)
        return aggregate_once(self.rows, bound, settings)

    def _bound(self) -> Bound:
        if self._map is not None and not (self._keys or self._aggregates or self._window):
            self._check_map_alone()
        elif not self._keys:
            raise OptionError("say what to group by, with .group_by('column')")
        elif not self._aggregates:
            raise OptionError("say what to compute, for example .agg(rows=sy.count())")
        if self._window is not None and self._time is None:
            raise OptionError("a window needs event time: add .with_watermark('column', '10 seconds')")
        self._check_mode()
        kind = self.rows.schema[self._time].dataType if self._time in self.rows.columns else None
        if isinstance(kind, T.TimestampNTZType):
            zone = self.rows.sparkSession.conf.get("spark.sql.session.timeZone")
            if zone not in ("UTC", "Etc/UTC", "GMT", "Z"):
                raise OptionError(
                    f"time column {self._time!r} has no time zone and the session's is {zone}: cast it to timestamp, "
                    "or set spark.sql.session.timeZone to UTC"
                )
        if isinstance(self._partitioner, Placer):
            name, column = self._partitioner.name, self._partitioner.cost_of
            if self._partitioner.learns and self._map is None:
                raise OptionError(f"partition_by: {name} goes by what the map function takes: add .map(...)")
            if column and column not in self.rows.columns:
                raise OptionError.unknown(f"column cost_of of {name}", column, self.rows.columns)
        program = Program(self._keys, self._aggregates, self._window, self._time, self._delay, self._map)
        for name, use in program.pythons.items():
            check_aggregator(name, use)
        case_sensitive = self.rows.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        bound = Bound.of(program, self.rows.schema, case_sensitive)
        for name, use in program.pythons.items():
            check_forms(name, use, bound.rows)
        return bound

    def _check_mode(self) -> None:
        """Raise an OptionError where the output mode does not go with the window."""
        if self._mode == "append" and self._window is None and self._aggregates:
            raise OptionError("output mode 'append' gives a window when it closes: add .window(...), or use 'update'")
        if self._mode == "update" and isinstance(self._window, Session):
            raise OptionError(
                "output mode 'update' has no sessions, as in Spark: one that grows takes the place of others. Use "
                "'append', which gives a session when it is over, or 'complete'"
            )

    def _check_map_alone(self) -> None:
        """Raise an OptionError where a verb needs keys or aggregates, and there is a map function alone."""
        if self._mode not in (None, "append"):
            raise OptionError(f"output mode {self._mode!r} is for aggregates: what .map(...) gives is always 'append'")
        if self._partitioner is not None:
            require_no_keys(self._partitioner)

    def _default_policy(self) -> str:
        if not self._keys:
            return MAP_POLICY
        # Rows that stay in place have as many tasks as the source has partitions, whatever an elastic policy says.
        moving = f"{DEFAULT_POLICY}?candidates=hash,prompt,shuffle"
        return DEFAULT_POLICY if isinstance(self._elastic, Fixed) else moving

    def _settings(self) -> Settings:
        cores = self.rows.sparkSession.sparkContext.defaultParallelism
        text = self._trigger.get("processingTime")
        return Settings(
            partitioner=self._partitioner or named_policy(self._default_policy()),
            is_planned=self._partitioner is not None,
            elastic=self._elastic,
            guards=self._guards,
            blocks=self._blocks or cores,
            buckets=self._buckets or cores,
            statistics=self._statistics,
            mode=self._mode or ("append" if self._window or not self._aggregates else "update"),
            interval=micros(text, "trigger") / 1e6 if text else 0.0,
            bad=self._bad,
        )


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise OptionError.unknown(option, value, known)
    return value


__all__ = ["KeyCounts", "Stream", "stream"]
