"""Whether more partitioners converge as well as one, and what a second one brings (Zapridou et al. 2022, Fig 15, 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Series, Table, charts, experiment, mean
from steelyard.bench.dalton.charts import policy_lines
from steelyard.bench.dalton.cooperation import COOPERATIVE, interleaved, shared, warm_up_together
from steelyard.bench.dalton.policies import DALTON, contenders, of_trace, warm_up
from steelyard.bench.dalton.stage_model import Costs, Trace, measured_costs, routed
from steelyard.bench.dalton.streams import LONG_SLIDE, UNIFORM, WINDOW, ZIPF_15
from steelyard.core.counts import Ints

SLOTS = 64
PARTITIONERS = (1, 2, 4, 8)
ROWS, QUICK_ROWS = 480_000, 240_000
EVERY = 5_000
STATIC = ("hash", "shuffle", "pk2")
PART = 60_000
"""Rows of each part of Fig 1's scenario (the paper's second partitioner comes after 50,000)."""
BALANCE, SPREAD = "balance of the combiners", "spread of the top key"
"""Panels of the picture."""
PARTS = ("one partitioner", "two partitioners", "one source skewed")


class Curves(NamedTuple):
    """For each stretch of rows: the fullest block over the mean, and how many blocks the top key is in."""

    imbalance: list[float]
    fragments: list[float]

    @property
    def settled(self) -> float:
        """Mean imbalance of the second half."""
        return mean(self.imbalance[len(self.imbalance) // 2 :])

    @property
    def settled_fragments(self) -> float:
        """Mean blocks of the top key in the second half."""
        return mean(self.fragments[len(self.fragments) // 2 :])

    @property
    def converged(self) -> int:
        """Stretches until the imbalance is at most 1.25 times the median of the second half, twice in a row."""
        late = np.array(self.imbalance[len(self.imbalance) // 2 :])
        good = np.array(self.imbalance) <= 1.25 * np.median(late)
        both = good[:-1] & good[1:]
        return int(np.argmax(both)) + 1 if both.any() else len(good)


def half_skewed(partitioners: int, rows: int, seed: int) -> list[Ints]:
    """One source for each partitioner, half of them uniform and half Zipf 1.5; for one, both interleaved."""
    uniform, skewed = UNIFORM.draw(rows // 2, 2 * seed), ZIPF_15.draw(rows // 2, 2 * seed + 1)
    if partitioners == 1:
        return [interleaved([uniform, skewed])]
    half = partitioners // 2
    return [*(uniform[number::half] for number in range(half)), *(skewed[number::half] for number in range(half))]


def curves_of(trace: Trace) -> Curves:
    """Imbalance of each stretch, and blocks that have the top key in the window that ends with it."""
    top = np.bincount(trace.keys).argmax()
    imbalance, fragments = [], []
    for end in range(EVERY, len(trace.keys) + 1, EVERY):
        loads = np.bincount(trace.block[end - EVERY : end], minlength=trace.blocks)
        imbalance.append(float(loads.max() / loads.mean()))
        start = max(0, end - WINDOW)
        held = trace.block[start:end][trace.keys[start:end] == top]
        fragments.append(float(len(np.unique(held))))
    return Curves(imbalance, fragments)


def converge(seeds: Sequence[int], rows: int) -> dict[int, list[Curves]]:
    """Fig 15: cooperative Dalton with more and more partitioners, one for each seed."""
    one = shared([COOPERATIVE])[COOPERATIVE]
    return {
        count: [curves_of(one.trace(half_skewed(count, rows, seed), SLOTS, seed)) for seed in seeds]
        for count in PARTITIONERS
    }


def first_figure(seeds: Sequence[int], costs: Costs) -> dict[str, list[list[float]]]:
    """Fig 1: rates of each part of the scenario, by policy and seed.

    Two uniform sources with one partitioner; then one partitioner for each; then one of the sources turns skewed.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in (*STATIC, "dagreedy", DALTON)}
    for seed in seeds:
        uniform = [UNIFORM.draw(PART, 3 * seed + number) for number in range(2)]
        skewed = [uniform[0], ZIPF_15.draw(PART, 3 * seed + 2)]
        for name, ones in found.items():
            alone = contenders([name], WINDOW, LONG_SLIDE)[name]
            several = shared([COOPERATIVE if name == DALTON else name])[COOPERATIVE if name == DALTON else name]
            single = routed(alone.router(alone.plan(SLOTS).combiners, seed=seed), interleaved(uniform)[:PART])
            double = several.trace([np.concatenate(pair) for pair in zip(uniform, skewed, strict=True)], SLOTS, seed)
            rates = [of_trace(single, alone, alone.plan(SLOTS), costs, [PART]).rate()]
            rates += [
                of_trace(double, several, several.plan(SLOTS), costs, [end]).rate() for end in (2 * PART, 4 * PART)
            ]
            ones.append(rates)
    return found


NAMED = dict.fromkeys(("hash", "pk2"), "helps static schemes: hashing and two choices")
UNNAMED = "not published: the text names hashing and two choices"
SUFFERS = "static schemes cannot handle all distributions"
NOISY = "seeds differ by more than the numbers of partitioners do"
FEWER = (
    "it spreads skewed keys evenly, and a skewed source has fewer different keys, so that reducers have less to merge"
)


def claims_of(curves: Mapping[int, Sequence[Curves]], first: Mapping[str, Sequence[Sequence[float]]]) -> list[Claim]:
    """What the texts of Fig 15 and 1 say, beside what was found."""
    claims = [
        Claim(
            f"imbalance converges with {count} partitioners (second half over the first 20,000 rows)",
            "converges",
            [one.settled / mean(one.imbalance[: 20_000 // EVERY]) for one in ones],
            at_most=1.0,
        )
        for count, ones in curves.items()
    ]

    def against(many: int, few: int) -> list[float]:
        return [one.settled / other.settled for one, other in zip(curves[many], curves[few], strict=True)]

    speed = [other.converged - one.converged for one, other in zip(curves[1], curves[2], strict=True)]
    claims += [
        Claim("2 partitioners are slightly worse than 1 (imbalance)", "slightly worse", against(2, 1), 1.0, 1.5, NOISY),
        Claim(
            "imbalance does not grow from 2 to 8 partitioners", "no growth", against(8, 2), at_most=1.1, reason=NOISY
        ),
        Claim(
            "cost of the top key does not grow from 2 to 8 partitioners (combiners that have it)",
            "stable in all cases; growth with partitioners is spoken of for imbalance alone",
            [a.settled_fragments / b.settled_fragments for a, b in zip(curves[8], curves[2], strict=True)],
            at_most=1.1,
            reason="each partitioner explores up to its own cap of 6 combiners; tables are merged, windows are not",
        ),
        Claim(
            f"1 partitioner converges faster than 2 (stretches of {EVERY} rows earlier)",
            "faster",
            [float(value) for value in speed],
            at_least=0.0,
            reason=f"both settle within a stretch or two of {EVERY} rows, and seeds differ by as much",
        ),
    ]
    reason = "routing is compiled and operators are Python: a second partitioner matters where routing is slowest"
    for name in STATIC:
        gain = [rates[1] / rates[0] for rates in first[name]]
        claims.append(
            Claim(f"Fig 1: a second partitioner helps {name}", NAMED.get(name, UNNAMED), gain, 1.1, reason=reason)
        )
    gain = [rates[1] / rates[0] for rates in first["dagreedy"]]
    claims.append(
        Claim(
            "Fig 1: DAGreedy does not gain from a second partitioner",
            "no benefit",
            gain,
            at_most=1.1,
            reason="copies that do not know of each other cannot forward, so that reducers get everything",
        )
    )
    for name in STATIC:
        loss = [rates[2] / rates[1] for rates in first[name]]
        claims.append(
            Claim(
                f"Fig 1: {name} suffers when a source turns skewed",
                SUFFERS if name in NAMED else UNNAMED,
                loss,
                at_most=1.0,
                reason=FEWER,
            )
        )
    return claims


@experiment(
    "dalton-convergence",
    title="More partitioners: imbalance, splitting of the top key, and what a second one brings",
    figure="Zapridou et al. 2022, Fig 15 and 1",
)
def convergence(run: Run) -> Result:
    """Imbalance and fragments of the top key over time with 1 to 8 cooperating partitioners."""
    seeds = run.seeds()
    costs = measured_costs()
    warm_up()
    warm_up_together()
    rows = run.pick(ROWS, QUICK_ROWS)
    curves = converge(seeds, rows)
    return result_of(curves, first_figure(seeds, costs), rows, len(seeds))


def result_of(
    curves: Mapping[int, Sequence[Curves]], first: Mapping[str, Sequence[Sequence[float]]], rows: int, seeds: int
) -> Result:
    """Figures, tables and verdicts."""
    settled = {count: mean(one.settled for one in ones) for count, ones in curves.items()}
    rates = {name: np.mean(ones, axis=0) for name, ones in first.items()}
    measured = {f"imbalance_{count}_partitioners": value for count, value in settled.items()}
    measured |= {
        f"top_key_blocks_{c}_partitioners": mean(o.settled_fragments for o in ones) for c, ones in curves.items()
    }
    simulated = {f"fig1_{name}_second_partitioner": float(rate[1] / rate[0]) for name, rate in rates.items()}
    simulated |= {f"fig1_{name}_after_skew": float(rate[2] / rate[1]) for name, rate in rates.items()}
    columns = ("partitioners", "largest/mean, second half", "blocks of the top key", "converged after rows")
    table = [
        (
            count,
            settled[count],
            mean(one.settled_fragments for one in ones),
            EVERY * mean(one.converged for one in ones),
        )
        for count, ones in curves.items()
    ]
    source = "Zapridou et al. 2022, text"
    return Result(
        parameters={
            "slots": SLOTS,
            "rows": rows,
            "window": WINDOW,
            "slide": LONG_SLIDE,
            "seeds": seeds,
            "fig1_rows_a_part": PART,
        },
        metrics={**measured, **simulated},
        kinds=dict.fromkeys(simulated, "simulated"),
        claims=claims_of(curves, first),
        tables=[
            Table("after convergence", columns, table),
            Table(
                "Fig 1's scenario: rows per second (simulated)",
                ("policy", *PARTS),
                [(name, *map(float, rate)) for name, rate in rates.items()],
            ),
        ],
        series=[*_series("", curves, "imbalance"), *_series(f"{SPREAD}: ", curves, "fragments")],
        published=[
            Published(
                "imbalance with 2 partitioners slightly above that with 1, no growth beyond; 1 converges faster",
                f"{source} (Fig 15, section 5.4)",
            ),
            Published(
                "a second partitioner helps hashing and two choices, not DAGreedy", f"{source} (Fig 1, section 1)"
            ),
        ],
        notes=[
            "Imbalance and fragments are measured on the traces of the real partitioners; Fig 1's rates are "
            "simulated from "
            "traces and measured costs, see dalton-scalability.",
            "Half of the partitioners see uniform keys, half Zipf 1.5; one partitioner sees both interleaved. "
            "Partitioners "
            "synchronise once per slide of 20,000 rows.",
        ],
    )


def _series(begin: str, curves: Mapping[int, Sequence[Curves]], part: str) -> list[Series]:
    return [
        Series(
            f"{begin}{count} partitioner{'s' * (count > 1)}",
            [EVERY * (i + 1) for i in range(len(ones[0].imbalance))],
            np.mean([getattr(one, part) for one in ones], axis=0).tolist(),
        )
        for count, ones in curves.items()
    ]


@convergence.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """How full the fullest combiner is, and how many combiners have the top key, over time."""
    names = {BALANCE: "rows of the fullest / mean", SPREAD: "combiners that have the top key"}
    lines = {BALANCE: result.panel(), SPREAD: result.panel(SPREAD)}
    saved = {title: found for title, found in lines.items() if found}
    panels = charts.panels(figure, len(saved), (13, 4.8))
    for axes, (title, found) in zip(panels, saved.items(), strict=True):
        policy_lines(axes, found, small=True)
        axes.set_ylim(bottom=0)
        charts.thousands(axes.xaxis)
        charts.finish(axes, title=title, x="rows so far", y=names[title])
    charts.legend_below(figure, *panels)
