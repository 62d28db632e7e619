"""Copies, comparisons and the busiest worker of S3J and ClusterJoin by workers (Siachamis 2024, Fig 2.5, Table 2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from steelyard.bench import Cell, Kind, Number, Published, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.s3j.claims import parallelism_claims
from steelyard.bench.s3j.clusterjoin import COLLAPSED, TRUE
from steelyard.bench.s3j.windows import (
    CJ,
    CJ_TRUE,
    FIGURES,
    METHODS,
    QUICK_SHARE,
    S3J,
    SOURCE,
    WINDOW_SECONDS,
    Check,
    Cost,
    Denominators,
    beside,
    check,
    checks_table,
    clusterjoin,
    columns_of,
    figures_of,
    largest_difference,
    parameters,
    published_window,
    s3j,
    space_of,
    uniform_window,
)
from steelyard.similarity.members import Rows
from steelyard.similarity.metrics import metric as metric_of

RATE = 4000
"""Records per second and stream (Table 2.3)."""
T = 0.001
"""A selectivity of 0.1 %."""
WORKERS = (5, 10, 15, 20)
PRINTED_COPIES = (1.96, 2.12, 2.37, 2.62)
PRINTED_COMPARISONS = (4.48, 3.16, 2.93, 2.65)
PRINTED_RIVAL = (1.49, 20.36)
"""ClusterJoin's duplication and comparisons, the same for every number of workers."""

Costs = Mapping[str, Mapping[int, Cost]]
"""By method and workers."""


@dataclass(frozen=True)
class ByMethod:
    """What one window cost with every number of workers."""

    costs: Costs
    """By method and workers."""
    pairs: Denominators
    """The denominators."""
    twins: Mapping[int, Cost]
    """S3J on the published generator's streams, by workers."""

    def ratios(self, method: str, faster: int) -> list[float]:
        """Comparisons ratios by workers."""
        return [cost.ratio(self.pairs.nominal, faster) for cost in self.costs[method].values()]


def measure(rows: Rows, same: Rows, workers: Sequence[int] = WORKERS) -> ByMethod:
    """One window through all three; ClusterJoin's cells do not depend on the workers, so it is routed once."""
    rival = clusterjoin(rows, T, workers, metric_of("angular"))
    ours = {count: s3j(rows, space_of(count, T))[0] for count in workers}
    twins = {count: s3j(same, space_of(count, T))[0] for count in workers}
    return ByMethod({S3J: ours, CJ: rival[COLLAPSED], CJ_TRUE: rival[TRUE]}, Denominators.of(rows, T), twins)


def checked(a_side: int, seed: int) -> list[tuple[int, Check]]:
    """The pairs that S3J really finds with every number of workers, beside brute force."""
    rows, metric = uniform_window(a_side, seed), metric_of("angular")
    return [(count, check(rows, s3j(rows, space_of(count, T), find=True)[1], metric, T)) for count in WORKERS]


@experiment(
    "s3j-parallelism",
    title="Copies and comparisons of a similarity join with 5 to 20 workers, beside ClusterJoin",
    figure=f"{SOURCE}, Fig 2.5 and Table 2.3",
)
def parallelism(run: Run) -> Result:
    """Duplication, comparisons and the busiest worker of one window, with both denominators."""
    faster = run.pick(1, QUICK_SHARE)
    a_side = RATE * WINDOW_SECONDS // faster
    run.progress.say(f"two windows of {2 * a_side} records")
    found = measure(uniform_window(a_side, run.seed), published_window(a_side))
    run.progress.say("pairs beside brute force")
    checks = checked(RATE * WINDOW_SECONDS // QUICK_SHARE // faster, run.seed)
    return result_of(found, checks, a_side, faster)


def result_of(found: ByMethod, checks: Sequence[tuple[int, Check]], a_side: int, faster: int) -> Result:
    """Figures, tables and targets."""
    metrics = metrics_of(found, faster) | {"pairs_wrong": sum(one.wrong for _, one in checks)}
    estimated: Kind = "measured" if faster == 1 else "simulated"
    return Result(
        parameters=parameters(a_side, faster, WORKERS, selectivity=T),
        metrics=metrics,
        kinds={name: estimated for name in metrics if "comparisons" in name or "fewer" in name},
        claims=parallelism_claims(metrics),
        tables=[
            _table(found, faster),
            _twins_table(found, faster),
            _path_table(found),
            checks_table("workers", checks),
        ],
        series=[Series(method, WORKERS, found.ratios(method, faster), estimated) for method in METHODS],
        published=_published(),
        targets=_targets(faster),
        notes=_notes(found, faster),
    )


def metrics_of(found: ByMethod, faster: int) -> dict[str, Number]:
    """Differences from the table, and what S3J gains with workers."""
    ours, shared, true = (found.ratios(method, faster) for method in METHODS)
    copies = [cost.duplication for cost in found.costs[S3J].values()]
    busiest = {method: [int(cost.workers.max()) for cost in found.costs[method].values()] for method in METHODS}
    twins = [cost.ratio(found.pairs.nominal, faster) for cost in found.twins.values()]
    steps = [before - after for before, after in pairwise(ours)]
    return {
        "s3j_duplication_5_workers": copies[0],
        "s3j_duplication_20_workers": copies[-1],
        "clusterjoin_duplication": found.costs[CJ][WORKERS[0]].duplication,
        "s3j_comparisons_off": largest_difference(ours, PRINTED_COMPARISONS),
        "s3j_comparisons_least_fall": min(steps),
        "published_streams_comparisons_off": largest_difference(twins, PRINTED_COMPARISONS),
        "clusterjoin_comparisons_off": largest_difference(shared[:1], PRINTED_RIVAL[1:]),
        "fewer_than_shared_keys_5_workers": shared[0] / ours[0],
        "fewer_than_shared_keys_20_workers": shared[-1] / ours[-1],
        "fewer_than_true_5_workers": true[0] / ours[0],
        "fewer_than_true_20_workers": true[-1] / ours[-1],
        "busiest_worker_vs_shared_keys": busiest[CJ][0] / busiest[S3J][0],
        "busiest_worker_vs_true": busiest[CJ_TRUE][0] / busiest[S3J][0],
        "busiest_worker_20_vs_5_workers": busiest[S3J][0] / busiest[S3J][-1],
    }


def _table(found: ByMethod, faster: int) -> Table:
    printed = {S3J: list(zip(PRINTED_COPIES, PRINTED_COMPARISONS, strict=True)), CJ: [PRINTED_RIVAL] * len(WORKERS)}
    rows: list[tuple[Cell, ...]] = [
        (method, count, *figures_of(cost, found.pairs, faster, printed[method][n] if method in printed else None))
        for method in METHODS
        for n, (count, cost) in enumerate(found.costs[method].items())
    ]
    return Table("Table 2.3: duplication and comparisons ratios", ("method", "workers", *FIGURES), rows)


def _twins_table(found: ByMethod, faster: int) -> Table:
    rows = [
        (count, cost.duplication, PRINTED_COPIES[n], cost.ratio(found.pairs.nominal, faster), PRINTED_COMPARISONS[n])
        for n, (count, cost) in enumerate(found.twins.items())
    ]
    columns = ("workers", "duplication", "published", "comparisons, nominal pairs", "published")
    return Table("S3J on the streams of the published generator (both sides are the same numbers)", columns, rows)


def _path_table(found: ByMethod) -> Table:
    rows = [
        (method, count, int(cost.workers.max()), cost.largest_share, cost.largest_share * count)
        for method in METHODS
        for count, cost in found.costs[method].items()
    ]
    columns = ("method", "workers", "distances of the busiest worker", "its share", "over the mean")
    return Table("the busiest worker, without balancing", columns, rows)


def _published() -> list[Published]:
    table, text = f"{SOURCE}, Table 2.3", f"{SOURCE}, chapter 2, text"
    return [
        Published(PRINTED_COPIES[0], table, "s3j_duplication_5_workers"),
        Published(PRINTED_COPIES[-1], table, "s3j_duplication_20_workers"),
        Published(PRINTED_RIVAL[0], table, "clusterjoin_duplication"),
        Published("4.48, 3.16, 2.93, 2.65 with 5, 10, 15, 20 workers", table, "s3j_comparisons_off"),
        Published("4.48, 3.16, 2.93, 2.65 with 5, 10, 15, 20 workers", table, "published_streams_comparisons_off"),
        Published(PRINTED_RIVAL[1], table, "clusterjoin_comparisons_off"),
        Published("4x to 5x", text, "fewer_than_shared_keys_5_workers"),
        Published("completion takes nearly twice as long", text, "busiest_worker_vs_shared_keys"),
    ]


def _targets(faster: int) -> list[Target]:
    few = "a tenth of the records has not made all worksets yet" if faster > 1 else "where records fall"
    targets = [
        Target("s3j_duplication_5_workers", at_least=1.86, explanation=few),
        Target("s3j_duplication_5_workers", at_most=2.06),
        Target("clusterjoin_duplication", at_least=1.42),
        Target("clusterjoin_duplication", at_most=1.56),
        Target("clusterjoin_comparisons_off", at_most=0.02, explanation=few),
        Target("s3j_comparisons_least_fall", at_least=0.0, explanation=few),
        Target("pairs_wrong", at_most=0),
    ]
    # Scaled up from a tenth the number of worksets is too small, so the ratio is an estimate and no target.
    return targets if faster > 1 else [*targets, Target("s3j_comparisons_off", at_most=0.02, explanation=few)]


def _notes(found: ByMethod, faster: int) -> list[str]:
    copies = ", ".join(f"{cost.duplication:.2f}" for cost in found.costs[S3J].values())
    twins = ", ".join(f"{cost.duplication:.2f}" for cost in found.twins.values())
    notes = [
        f"Finding: the table's duplication grows with workers, from 1.96 to 2.62; ours is flat ({copies}; {twins} on "
        "the published generator's streams). More partitions add guests at their borders only, and a border of "
        "0.002 on a circle of length 2 is little. The growth is no target.",
        "Comparisons are counted from the sizes of worksets and cells of one window of 60 s, as the run files have "
        "it, and not executed; the table of pairs is executed, with a tenth of the records.",
        "With a window of five minutes, as the text has it, distances to centroids would weigh a fifth of it and "
        "the ratio with 5 workers would be about 2.2, far from the printed 4.48.",
        "Comparisons fall with workers since a record is compared with the centroids of its own partition only.",
        "The factor of 4 to 5 holds against ClusterJoin with 129 keys for 500 cells, as the published runs had it; "
        "fewer_than_true is against a key for each cell.",
        "Completion times of Fig 2.5 are of a cluster. The busiest worker's distances are beside them: they leave "
        "out what it costs to send copies and to write pairs, so their ratio is larger than one of times.",
    ]
    if faster > 1:
        notes.append(
            f"One {faster}th of the published rate. Ratios are scaled to the published one: distances to centroids "
            "grow with the rate, comparisons and pairs with its square. The busiest worker is that of a tenth."
        )
    return notes


@parallelism.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Both ratios and the busiest worker, by workers."""
    names = [str(count) for count in WORKERS]
    copies, ratios, busiest = panels = charts.panels(figure, 3, (14, 4.8))
    ours, compared = (columns_of(result.table("Table 2.3"), 0, place) for place in (2, 4))
    rival = [PRINTED_RIVAL] * len(WORKERS)
    beside(copies, names, {S3J: ours[S3J], CJ: ours[CJ]}, {S3J: PRINTED_COPIES, CJ: [one[0] for one in rival]})
    beside(ratios, names, compared, {S3J: PRINTED_COMPARISONS, CJ: [one[1] for one in rival]})
    path = columns_of(result.table("the busiest worker"), 0, 2)
    millions = {name: [one / 1e6 for one in column] for name, column in path.items()}
    beside(busiest, names, millions, {})
    titles = {
        "Copies": "copies per record",
        "Comparisons": "comparisons per nominal pair",
        "Busiest worker": "million distances",
    }
    for axes, (title, y) in zip(panels, titles.items(), strict=True):
        axes.set_ylim(bottom=0)
        charts.finish(axes, title=title, x="workers", y=y)
    charts.legend_below(figure, *panels)
