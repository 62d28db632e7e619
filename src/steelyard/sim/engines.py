"""Engines on paper: what Prompt's techniques would find in Spark, Flink and Storm.

Chapter 5 of A. S. Abdelhamid, *Efficient Distributed Processing over Micro-batched Data Streams*, Purdue 2021, maps
five techniques to three engines and says, by design category, which gains most from which. It measures none of that.
Here an engine is a profile for simulated micro-batches, each technique is a switch, and what follows is arithmetic:
it shows what the categories imply, not what the engines do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from steelyard.core.errors import OptionError
from steelyard.scaling import Fixed, elasticity
from steelyard.sim.dataflow import Source
from steelyard.sim.microbatch import CENTRAL, GROUP_AHEAD, BatchCosts, MicroBatches
from steelyard.sim.profiles import Figure, Profile

BUFFERING, RELEASE, PARTITIONING, ALLOCATOR, SCHEDULING = (
    "buffering",
    "release",
    "partitioning",
    "allocator",
    "scheduling",
)
TECHNIQUES = {
    BUFFERING: "frequency-aware buffering: rows are counted and keys sorted while they come",
    RELEASE: "early batch release: a batch is cut in the last part of its interval",
    PARTITIONING: "balanced partitioning: Prompt's blocks",
    ALLOCATOR: "balanced key allocator: map tasks deal their keys out to buckets",
    SCHEDULING: "elastic scheduling: groups of batches ahead, numbers of tasks that follow the load",
}
"""In the document's order, 1 to 5."""
SLACK = 0.05
"""Of an interval, section 2.4.2."""
GROUP = 10
ZONES = "zones?patience=1&increment=proportional"


@dataclass(frozen=True)
class EngineDesign:
    """An engine, as far as the techniques meet it.

    Parameters
    ----------
    name, about
        How it is called, and its design in one line.
    profile
        Costs of scheduling and of making rows readable.
    blocking
        Whether reduce tasks wait for all map tasks.
    reduce_operations
        Operations that one Reduce of a user becomes, each with the fixed cost of a task.
    adds_tasks
        Whether the number of tasks can change while a job runs.
    """

    name: str
    about: str
    profile: Profile
    blocking: bool
    reduce_operations: int
    adds_tasks: bool

    def costs(self, work: BatchCosts) -> BatchCosts:
        """What tasks cost, with what this engine adds to it."""
        mine = {name: figure.value for name, figure in self.profile.figures.items()}
        return replace(work, **mine, reduce_task=self.reduce_operations * work.reduce_task)


@dataclass(frozen=True)
class Ingestion:
    """What counting a row, sorting a key and cutting cost, in seconds; a technique decides who waits for it."""

    count_row: float
    sort_key: float
    cut_key: float


def engine_query(
    engine: EngineDesign,
    techniques: Collection[str],
    source: Source,
    work: BatchCosts,
    ingestion: Ingestion,
    *,
    tasks: int,
    cores: int,
    interval: float = 1.0,
) -> MicroBatches:
    """A query on an engine that has these techniques; without any, keys are hashed to blocks and to buckets.

    Examples
    --------
    >>> source, costs = Source("log", rate=1000, keys=[1, 2, 3]), Ingestion(0, 0, 0)
    >>> query = engine_query(ENGINES["spark"], ["partitioning"], source, BatchCosts(), costs, tasks=4, cores=8)
    >>> query.partitioner, query.scheduler
    ('prompt', 'central')
    """
    for technique in techniques:
        if technique not in TECHNIQUES:
            raise OptionError.unknown("technique", technique, TECHNIQUES)
    cuts = PARTITIONING in techniques
    sorts_late = cuts and BUFFERING not in techniques
    costs = replace(
        engine.costs(work),
        cut_row=ingestion.count_row if sorts_late else 0.0,
        cut_key=ingestion.cut_key * cuts + ingestion.sort_key * sorts_late,
    )
    ahead = SCHEDULING in techniques
    follows = ahead and engine.adds_tasks
    bounds = f"&least_blocks={tasks}&least_buckets={tasks}&most_blocks={cores}&most_buckets={cores}"
    return MicroBatches(
        source,
        interval=interval,
        blocks=tasks,
        buckets=tasks,
        cores=cores,
        partitioner="prompt" if cuts else "hash",
        allocator="prompt" if ALLOCATOR in techniques else "hash",
        elasticity=elasticity(ZONES + bounds) if follows else Fixed(),
        scheduler=GROUP_AHEAD if ahead else CENTRAL,
        group=GROUP,
        slack=SLACK if RELEASE in techniques else 0.0,
        blocking=engine.blocking,
        costs=costs,
    )


def _profile(name: str, about: str, **figures: tuple[float, str]) -> Profile:
    return Profile(name, about, {constant: Figure(*given) for constant, given in figures.items()})


_SHARE = "set so that scheduling and communication take 60 % of a batch of 1 s (Fig 1.4b's least) with 8 + 8 tasks"
_ASSUMED = "assumed; no document has it"
_CONTINUOUS = "assumed: tasks stay, and a batch ends with a message to each"
ENGINES: dict[str, EngineDesign] = {
    one.name: one
    for one in (
        EngineDesign(
            "spark",
            "a job of short tasks for every batch; rows come in blocks of a receiver",
            _profile(
                "spark",
                "Spark Streaming",
                driver=(0.25, _SHARE),
                driver_task=(0.004, _SHARE),
                convert=(0.02, _ASSUMED),
                convert_row=(4e-7, _ASSUMED),
                local=(0.002, _ASSUMED),
            ),
            blocking=True,
            reduce_operations=3,
            adds_tasks=True,
        ),
        EngineDesign(
            "flink",
            "tasks that stay, records that flow between them; a job manager may change their number",
            _profile(
                "flink", "Flink", driver=(0.002, _CONTINUOUS), driver_task=(1e-4, _CONTINUOUS), local=(0.002, _ASSUMED)
            ),
            blocking=False,
            reduce_operations=1,
            adds_tasks=True,
        ),
        EngineDesign(
            "storm",
            "tasks that stay, whose number is that of the start; batches are transactions",
            _profile(
                "storm",
                "Storm (Trident)",
                driver=(0.002, _CONTINUOUS),
                driver_task=(1e-4, _CONTINUOUS),
                local=(0.002, _ASSUMED),
            ),
            blocking=False,
            reduce_operations=1,
            adds_tasks=False,
        ),
    )
}
"""Designs by section 5.4; numbers of scheduling are ours, each with where it comes from."""
