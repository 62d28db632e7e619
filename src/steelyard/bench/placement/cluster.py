"""The cluster itself: how its formulas rank placements, and what the default scheduler shows."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from steelyard.bench import Cell, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.claims import Claim, mean
from steelyard.bench.placement.calibration import fit_table
from steelyard.bench.placement.contest import contest, seeds_of
from steelyard.bench.placement.published import SOURCE, SPLIT_PROCESSING, THROUGHPUT
from steelyard.bench.placement.verdicts import HOW
from steelyard.bench.result import Published
from steelyard.core.plans import Floats
from steelyard.placement.draws import drawn
from steelyard.sim.placed import ExactCluster, FastCluster, deployed
from steelyard.sim.placed.frozen import FILE

DRAWN, QUICK_DRAWN = 500, 60
TUPLES = 20_000
"""Source tuples of the slowest application, for which the exact level runs with each placement that is ranked."""
KEEPS_UP = 3.0
"""Times of the default, above which a placement counts as one that cannot keep up."""
LEVELS = ("cq-small", "cq-medium", "cq-large", "lsp-large", "wc-large", "3x-cq-small", "hybrid")
SCENARIOS = ("wc-30", "wc-15", "wc-7")


def exact_times(name: str, placements: np.ndarray, seed: int) -> Floats:
    """float64[B, applications]: what the exact level gives, warm and without the noise of readings."""
    setup = deployed(name)
    seconds = float(np.clip(TUPLES / setup.rates.min(), 2.0, 20.0))
    found = []
    for number, assignment in enumerate(placements):
        cluster = ExactCluster(setup, assignment, seed=seed + number, warm=True, noise=False)
        cluster.run(0.5)
        found.append(cluster.measure(seconds).times)
    return np.array(found)


@experiment("placement-levels", title="Do formulas rank placements as tuples do?")
def placement_levels(run: Run) -> Result:
    """Placements drawn with as many machines as may be: Spearman's correlation of both levels, by application."""
    from scipy.stats import spearmanr  # noqa: PLC0415 - an extra, and slow to import

    rows, series, worst = [], [], 1.0
    for name in run.progress.track(run.pick(LEVELS, LEVELS[:3]), "setups"):
        setup = deployed(name)
        many = drawn(setup.setup, run.pick(DRAWN, QUICK_DRAWN), run.seed)
        fast, exact = FastCluster(setup).times(many), exact_times(name, many, run.seed)
        dealt = FastCluster(setup).times(setup.setup.round_robin()[None])[0]
        for number, application in enumerate(setup.setup.applications):
            done = np.isfinite(exact[:, number])
            one, other = fast[done, number], exact[done, number]
            keeps = other < KEEPS_UP * dealt[number]
            rank = float(spearmanr(one, other).statistic)
            off = one[keeps] / other[keeps] - 1
            rows.append(
                (
                    name,
                    application,
                    len(one),
                    int(keeps.sum()),
                    round(rank, 4),
                    round(float(spearmanr(one[keeps], other[keeps]).statistic), 4),
                    round(100 * float(np.median(np.abs(off))), 2),
                )
            )
            worst = min(worst, rank)
            if number == 0:
                order = np.argsort(other[keeps])
                series.append(
                    Series(name, (1e3 * other[keeps][order]).tolist(), (1e3 * one[keeps][order]).tolist(), "simulated")
                )
    columns = (
        "setup",
        "application",
        "placements",
        "keep up",
        "Spearman of all",
        "of those that keep up",
        "their median error, %",
    )
    return Result(
        {"drawn": run.pick(DRAWN, QUICK_DRAWN), "seed": run.seed},
        {"worst_spearman": worst},
        tables=[Table("formulas beside tuples", columns, rows)],
        series=series,
        targets=[Target("worst_spearman", at_least=0.9)],
        kind="simulated",
        notes=[
            "Each draw has machine weights of its own, so that some use few machines. Placements that cannot keep up "
            "are among them; those that keep up take less than three times as long as the default."
        ],
    )


@placement_levels.picture
def _levels(figure: charts.Figure, result: Result) -> None:
    across = 4
    down = -(-len(result.series) // across)
    panels = charts.panels(figure, across, (3.4 * across, 3.4 * down), down=down)
    for panel in panels[len(result.series) :]:
        panel.remove()
    for panel, one in zip(panels, result.series, strict=False):
        panel.plot(one.x, one.y, ".", markersize=3)
        ends = [min([*one.x, *one.y]), max([*one.x, *one.y])]
        panel.plot(ends, ends, "-", linewidth=0.8, color="grey")
        charts.logarithmic(panel, "xy")
        charts.finish(panel, title=one.name, x="tuple by tuple, ms", y="formulas, ms")


@experiment("placement-fit", title="The default scheduler: published, and simulated with the frozen constants")
def placement_fit(run: Run) -> Result:
    """What the constants were fitted to, and how far off they are."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    errors = {name: one["error"] for name, one in document["fit"].items()}
    worst = max(errors, key=lambda name: abs(errors[name]))
    return Result(
        {"fitted": document["fitted"], "assumed": document["assumed"], "worst": worst},
        {"rms_error": document["rms_error"], "worst_error": abs(errors[worst])},
        tables=[fit_table(document)],
        kind="simulated",
        notes=[f"{document['command']} makes the file. Fitted to {document['fitted_to']}."],
    )


@placement_fit.picture
def _fit(figure: charts.Figure, result: Result) -> None:
    (table,) = result.tables
    (panel,) = charts.panels(figure, 1, (8, 6))
    _beside(panel, [(str(row[0]), row[1], row[2]) for row in table.rows])
    charts.finish(panel, title="The default scheduler", x="tuple time, ms", y="setup")
    charts.legend_beside(panel)


def _beside(panel: charts.Axes, rows: Sequence[tuple[str, Cell, Cell]]) -> None:
    """Two bars for each row: published, where it is, and simulated."""
    places = np.arange(len(rows))
    for number, kind in enumerate(("published", "simulated")):
        found = [np.nan if row[1 + number] is None else float(str(row[1 + number])) for row in rows]
        panel.barh(places + 0.4 * number - 0.2, found, height=0.36, color=charts.COLOURS[number], label=kind)
    panel.set_yticks(places, [row[0] for row in rows])
    panel.invert_yaxis()


@experiment("placement-parameters", title="Word count with fewer and fewer threads", figure=f"{SOURCE}, Fig. 2.11")
def placement_parameters(run: Run) -> Result:
    """Scenarios A, B and C: 30, 15 and 7 threads, as many lines for each spout; and the same lines for all."""
    rows, found = [], {}
    for name in SCENARIOS:
        for alike in (False, True):
            got = [_panel(name, seed, run.pick(60.0, 10.0), alike) for seed in seeds_of(run)]
            found[name, alike] = got
            split, transfer, whole = (mean(one[at] for one in got) for at in range(3))
            said = None if alike else SPLIT_PROCESSING[name]
            lines = "those of scenario A" if alike else "40/s for each spout"
            rows.append((name, lines, said, round(split, 4), round(transfer, 4), round(whole, 3)))
    columns = (
        "setup",
        "lines",
        "published: processing at SplitSentence, ms",
        "ours, ms",
        "ours: transfer to it, ms",
        "ours: whole, ms",
    )
    return Result(
        {"seeds": seeds_of(run)},
        {f"split_{name.replace('-', '_')}_ms": mean(one[0] for one in found[name, False]) for name in SCENARIOS},
        tables=[Table("fewer threads", columns, rows)],
        published=[
            Published(value, f"{SOURCE}, Fig. 2.11, in ms", f"split_{name.replace('-', '_')}_ms")
            for name, value in SPLIT_PROCESSING.items()
        ],
        claims=[_slower(found, True), _slower(found, False), _faster(found, True), _faster(found, False)],
        kind="simulated",
        notes=[HOW, "The processing times are three of the 17 figures of the fit; whole times of B and C are none."],
    )


@placement_parameters.picture
def _parameters(figure: charts.Figure, result: Result) -> None:
    rows = result.table("fewer threads").rows
    split, whole = charts.panels(figure, 2, (15, 4))
    _beside(split, [(f"{row[0]}, {row[1]}", row[2], row[3]) for row in rows])
    charts.finish(split, title="Processing at SplitSentence", x="ms", y="setup and lines")
    charts.legend_beside(split)
    times = {f"{row[0]}, {row[1]}": float(str(row[5])) for row in rows}
    charts.bars(whole, times, title="Whole tuple time, simulated", x="ms", y="setup and lines")


Panels = dict[tuple[str, bool], list[tuple[float, float, float]]]


def _panel(name: str, seed: int, seconds: float, alike: bool) -> tuple[float, float, float]:
    """Milliseconds: processing at SplitSentence, transfer to it, the whole."""
    cluster = ExactCluster(deployed(name), seed=seed, warm=True, noise=False)
    if alike:
        cluster.scale_rates(float(deployed(SCENARIOS[0]).rates[0] / cluster.deployed.rates[0]))
    cluster.run(seconds)
    whole = float(cluster.measure(seconds).times[0])
    return 1e3 * float(cluster.processing[1]), 1e3 * float(cluster.transfer[0]), 1e3 * whole


_LINES = {False: "as many lines for each spout", True: "the same lines for all"}


def _slower(found: Panels, alike: bool) -> Claim:
    pairs = zip(found["wc-7", alike], found["wc-30", alike], strict=True)
    return Claim(
        f"a line takes longer at SplitSentence with fewer threads ({_LINES[alike]})",
        "0.080 to 0.088 ms",
        [few[0] / many[0] for few, many in pairs],
        at_least=1.0,
        reason="work for a line does not depend on how many threads there are",
    )


def _faster(found: Panels, alike: bool) -> Claim:
    pairs = zip(found["wc-30", alike], found["wc-7", alike], strict=True)
    return Claim(
        f"with more threads a line is done sooner ({_LINES[alike]})",
        "more executors, lower time",
        [many[2] / few[2] for many, few in pairs],
        at_most=1.0,
        reason="threads are far from full, and a further one makes batches later",
    )


@experiment("placement-throughput", title="Tuples per second, whatever the placement", figure=f"{SOURCE}, Fig. 3.9")
def placement_throughput(run: Run) -> Result:
    """The large setup of continuous queries."""
    rows, metrics, claims = [], {}, []
    for (_, who), each in contest(run, run.pick(("cq-large",), ("cq-small",)), "placement-throughput").items():
        per_second = [one.throughput[0] for one in each]
        came = [one.arrivals[0] for one in each]
        rows.append((who, "6,600 to 6,700", round(mean(per_second), 1), round(mean(came), 1)))
        metrics[f"{who}_per_second"] = mean(per_second)
        claims.append(
            Claim(
                f"{who} keeps up with what comes",
                "about 6,600 to 6,700 tuples/s",
                [one / other for one, other in zip(per_second, came, strict=True)],
                at_least=0.99,
                at_most=1.01,
                reason="some of its threads or machines get more than they can do",
            )
        )
    return Result(
        {"seeds": seeds_of(run)},
        metrics,
        tables=[Table("tuples per second", ("policy", "published", "ours", "came"), rows)],
        published=[Published(f"{THROUGHPUT[0]:.0f} to {THROUGHPUT[1]:.0f}", f"{SOURCE}, Fig. 3.9")],
        claims=claims,
        kind="simulated",
        notes=[HOW, "665 tuples per second for each spout were chosen so that as many come as are published."],
    )


@placement_throughput.picture
def _throughput(figure: charts.Figure, result: Result) -> None:
    table = result.table("tuples per second")
    per_second = {str(row[0]): float(str(row[2])) for row in table.rows}
    charts.bars(
        figure.add_subplot(), per_second, title="Tuples done, 6,600 to 6,700 published", x="per second", y="policy"
    )
