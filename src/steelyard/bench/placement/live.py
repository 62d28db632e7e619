"""Placement on resident workers: what the model chooses beside round robin, in the same run, with equal answers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, mean, spark_for
from steelyard.bench.osg.completion import Clocked
from steelyard.core.counts import Ints
from steelyard.core.measured import Reading
from steelyard.core.placing import Component, Host, Setup, Stream
from steelyard.core.plans import Floats
from steelyard.core.topology import Instance, Placement
from steelyard.placement import placement
from steelyard.placement.collecting import Deployed, Watched
from steelyard.placement.draws import drawn
from steelyard.placement.learnt import Learnt
from steelyard.resident import Flow, Memory
from steelyard.resident.recorded import Recorded, collected, noted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS, EACH = 4, 4
"""Workers, and instances of each of the three operators."""
CHAIN = ("rows", "clean", "score")
RATE = 200.0
"""Rows per second, one by one: no operator is near its limit, so that a row's time is its way and its work."""
WINDOW = 1.0
"""Seconds over which loads and latencies are averaged; the document's 30 would take half an hour."""
SECONDS, QUICK_SECONDS = 6.0, 5.0
"""Of a run under one placement, of which the first window is not looked at."""
TRAINED, QUICK_TRAINED = 12, 4
REPETITIONS, QUICK_REPETITIONS = 4, 1
AIMED = 0.8
ROUND_ROBIN, MODEL, LOCAL = "round robin", "model_based", "local_search"
CORES = 2.0
_READ = pa.schema({"id": pa.int64(), "item": pa.string(), "label": pa.string(), "due": pa.float64()})


def setup_of(workers: int = WORKERS, each: int = EACH) -> Setup:
    """The job as a placement policy sees it."""
    parts = tuple(Component(name, each, source=not at) for at, name in enumerate(CHAIN))
    streams = tuple(Stream(sender, receiver) for sender, receiver in pairwise(CHAIN))
    return Setup(parts, streams, workers * (Host(CORES / workers),))


def clean(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The number in each row's text."""
    return batch


@dataclass(frozen=True)
class Score:
    """Some arithmetic for each row: the answer depends on the row alone."""

    rounds: int = 40

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with scores in place of their texts."""
        values = np.array([float(item) for item in batch.column("item").to_pylist()])
        for _ in range(self.rounds):
            values = np.floor((values * 1_103_515_245 + 12_345) % 2_147_483_648)
        scores = pa.array([f"{value:.0f}" for value in values])
        columns = [scores if name == "item" else batch.column(name) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True, eq=False)
class Ran:
    """Rows that came out, and where instances were."""

    placement: Placement
    rows: pa.Table
    begin: float
    """When the first row was due."""

    @property
    def times(self) -> Floats:
        """float64[rows]: seconds from when each was due until it was scored; without the first window."""
        due, done = self.rows["due"].to_numpy(), self.rows["score ended"].to_numpy()
        made: Floats = (done - due)[due >= self.begin + WINDOW]
        return made

    @property
    def answers(self) -> list[tuple[int, str]]:
        """Each row's score."""
        return list(zip(self.rows["id"].to_pylist(), self.rows["item"].to_pylist(), strict=True))


def placement_of(setup: Setup, assignment: Ints) -> Placement:
    """For the engine: the sink's instances are where those are that send to them, in the same threads."""
    places = {one: int(assignment[at]) for at, one in enumerate(setup.possible)}
    sinks = {Instance("out", one.number): at for one, at in places.items() if one.operator == CHAIN[-1]}
    return Placement(places | sinks, setup.machines)


def run_once(setup: Setup, assignment: Ints, seconds: float, spark: SparkSession | None = None) -> Ran:
    """The job under a placement, from its first row to its last."""
    rows = round(RATE * seconds)
    flow = Flow("placed")
    read = flow.source(Clocked(pa.array([str(n) for n in range(rows)]), 1 / RATE), name=CHAIN[0], parallelism=EACH)
    cleaned, scored = noted(_READ, CHAIN[1]), noted(noted(_READ, CHAIN[1]), CHAIN[2])
    once = read.shuffle().process(Recorded(clean), cleaned, name=CHAIN[1], parallelism=EACH)
    twice = once.shuffle().process(Recorded(Score()), scored, name=CHAIN[2], parallelism=EACH)
    twice.forward().sink(Memory(), name="out", parallelism=EACH)
    where = placement_of(setup, assignment)
    if spark is None:
        from steelyard.resident import run  # noqa: PLC0415 - beside its only use

        found = run(flow.dataflow(), placement=where).table("out")
    else:
        from steelyard.spark import resident  # noqa: PLC0415 - loads Spark

        found = resident.run(spark, flow.dataflow(), placement=where).table("out")
    found = found.sort_by("id")
    if found["id"].to_pylist() != list(range(rows)):
        raise WrongAnswerError(f"{rows} rows were sent, and {found.num_rows} came, not each of them once")
    found = found.append_column("source", pa.array(np.arange(rows) % EACH))
    return Ran(where, found, float(found["due"].to_numpy().min()))


def watched(setup: Setup, ran: Ran, number: int) -> Watched:
    """Its records, and what a reading of the same time would say."""
    end = float(ran.rows["due"].to_numpy().max())
    span = (ran.begin + WINDOW, end)
    records = collected(setup, ran.rows, CHAIN, ran.placement, number, span)
    assignment = setup.located({str(one): ran.placement.worker_of[one] for one in setup.possible})
    rate, seconds = np.array([RATE]), end - ran.begin
    processed = np.full(setup.threads, RATE * seconds / EACH)
    reading = Reading(end, seconds, assignment, np.array([ran.times.mean()]), rate, rate, processed)
    return Watched(Deployed(number, assignment, *span), records, reading)


@experiment("placement-live", title="The model's placement beside round robin, on resident workers")
def placement_live(run: Run) -> Result:
    """Mean time of a row from when it is due until it is scored, on 4 workers of this machine."""
    setup, seconds = setup_of(), run.pick(SECONDS, QUICK_SECONDS)
    drawn_ones = drawn(setup, run.pick(TRAINED, QUICK_TRAINED), run.seed)
    with spark_for("placement-live", WORKERS) as (spark, _):
        run_once(setup, setup.round_robin(), 2.0, spark)  # the first job of a session is slow
        learnt = Learnt(window=WINDOW)
        for number, assignment in enumerate(run.progress.track(list(drawn_ones), "placement-live")):
            learnt.add(setup, watched(setup, run_once(setup, assignment, seconds, spark), number))
        chosen = {ROUND_ROBIN: setup.round_robin()}
        present = watched(setup, run_once(setup, chosen[ROUND_ROBIN], seconds, spark), len(drawn_ones)).reading
        predicted: dict[str, float] = {}
        for name in (MODEL, LOCAL):
            policy: Any = placement(name)
            policy.learnt = learnt
            learnt.fit(policy.parameters, policy.pooled)
            chosen[name] = setup.assignment(policy.place(setup, present), present.assignment)
        model = learnt.prediction(setup, present)
        assert model is not None
        runs: dict[str, list[Ran]] = {name: [] for name in chosen}
        for _ in range(run.pick(REPETITIONS, QUICK_REPETITIONS)):
            for name, assignment in chosen.items():
                runs[name].append(run_once(setup, assignment, seconds, spark))
        for name, assignment in chosen.items():
            predicted[name] = float(model.times(assignment[None])[0, 0])
    return result_of(setup, chosen, runs, predicted)


def result_of(setup: Setup, chosen: dict[str, Ints], runs: dict[str, list[Ran]], predicted: dict[str, float]) -> Result:
    """Ratios of means, and where everything was."""
    answers = runs[ROUND_ROBIN][0].answers
    for name, each in runs.items():
        if any(one.answers != answers for one in each):
            raise WrongAnswerError(f"{name} gave other scores than round robin")
    means = {name: [1000 * float(one.times.mean()) for one in each] for name, each in runs.items()}
    base = mean(means[ROUND_ROBIN])
    rows = [
        (
            name,
            mean(means[name]),
            min(means[name]),
            max(means[name]),
            1000 * float(np.median(np.concatenate([one.times for one in runs[name]]))),
            1000 * predicted[name],
            setup.moved(chosen[ROUND_ROBIN], chosen[name]),
            len(set(chosen[name].tolist())),
        )
        for name in runs
    ]
    columns = ("placement", "mean ms", "least", "most", "median ms", "predicted ms", "instances moved", "workers used")
    medians = {row[0]: row[4] for row in rows}
    worst = max(abs(1000 * predicted[name] / mean(means[name]) - 1) for name in runs)
    return Result(
        parameters={"workers": setup.machines, "instances": setup.threads, "rows_per_s": RATE, "window_s": WINDOW},
        metrics={
            "model_vs_round_robin_live": mean(means[MODEL]) / base,
            "model_vs_round_robin_live_median": medians[MODEL] / medians[ROUND_ROBIN],
            "local_search_vs_round_robin_live": mean(means[LOCAL]) / base,
            "prediction_error_live": worst,
        },
        tables=[Table("placements, measured", columns, rows)],
        series=[Series(name, list(range(len(each))), each) for name, each in means.items()],
        targets=[
            Target(
                "model_vs_round_robin_live",
                at_most=AIMED,
                explanation="work and waiting for a core take more of a row's time here than its ways between workers",
            )
        ],
        notes=[
            "Rows come one by one at even distances; time counts from when a row is due until it is scored. All three "
            "operators have 4 instances, and edges are shuffled; a sink takes scores in the threads of the last one.",
            "The model learnt from records of other runs of the same job, under placements drawn at random; placements "
            "are then measured in turn. All gave the same scores.",
            "Means are what is aimed at; a moment in which the machine is busy with something else is in them, "
            "and hardly in the medians.",
        ],
    )


@placement_live.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Means by repetition."""
    title = "Time of a row by placement, resident workers"
    charts.lines(figure.add_subplot(), result.series, title=title, x="repetition", y="mean time, ms")
