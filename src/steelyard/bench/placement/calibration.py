"""Fits the constants of placed clusters to the default scheduler's published times, and to nothing else.

`python -m steelyard.bench.placement.calibration` writes `sim/placed/frozen.json`. Constants that the default's times
say nothing of are assumed, and stand in the file as such. The fit goes by formulas; the tuple-exact level then says how
far off it is, the formulas' error is taken out, and the fit is made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.bench.placement.published import DEFAULT, PUBLISHED, SOURCE, SPLIT_PROCESSING
from steelyard.bench.tables import Table
from steelyard.core.plans import Floats
from steelyard.sim.placed.exact import ExactCluster
from steelyard.sim.placed.fast import FastCluster
from steelyard.sim.placed.frozen import FILE, Constants, deployed

COMMAND = "python -m steelyard.bench.placement.calibration"
ASSUMED = {
    "local": "0.1 ms from thread to thread inside a process",
    "process": "0.25 ms between processes of a machine",
    "per_worker": "0.02 ms more for each further machine that an application uses",
    "serialise": "0.005 ms of a core at each end; Fig. 2.11 has 0.08 ms for a line with all of its words, so not much "
    "more",
    "thread_cpu": "a hundredth of a core for each thread",
    "warm": "two minutes: curves are stable after eight to ten",
    "rates": "665/s for each spout of continuous queries (Fig. 3.9 over ten), 40/s of lines of text and of logs",
    "ratios": "of the times of an application's components: count 1 : store 2; rules 4 : index 3 : count 3 : store 5; "
    "query 5 : file 1; spouts 0.05 ms",
    "spread": "standard deviation of a component's times: half of the mean",
    "words": "8 words a line, by Zipf's law",
}
"""What the default scheduler's times say nothing of, or too little."""
FITTED: Mapping[str, tuple[float, float, float]] = {
    "remote": (0.0001, 0.0004, 0.002),
    "per_thread": (1e-7, 5e-6, 5e-5),
    "crowding": (0.05, 0.5, 2.0),
    "queries": (0.0001, 0.0005, 0.002),
    "split": (0.000005, 0.00004, 0.0001),
    "words": (0.00002, 0.0001, 0.001),
    "logs": (0.0001, 0.0005, 0.002),
    "words of chapter 2": (0.1, 1.0, 10.0),
    "logs of chapter 2": (0.05, 0.5, 10.0),
}
"""Least, usual and most value of what is fitted; the logarithm is, with a weak pull towards the usual value."""
PULL = 0.01
ROUNDS = 3
SETTLE, SECONDS, SEEDS = 1.0, 20.0, 2


def constants_of(values: Mapping[str, float]) -> dict[str, Any]:
    """The file's contents from the values of what is fitted."""
    start = [one.starts[DEFAULT] / one.times[DEFAULT] for one in PUBLISHED.values() if one.starts]
    return {
        "costs": {
            "local": 0.0001,
            "process": 0.00025,
            "remote": values["remote"],
            "per_worker": 0.00002,
            "per_thread": values["per_thread"],
            "serialise": 0.000005,
            "thread_cpu": 0.01,
            "crowding": values["crowding"],
            "cold": float(np.mean(start)) - 1.0,
            "warm": 120.0,
        },
        "seconds": {
            "words": {
                "spout": 0.00005,
                "split": values["split"],
                "count": values["words"],
                "store": 2.0 * values["words"],
            },
            "logs": {
                "spout": 0.00005,
                "rules": 4.0 * values["logs"],
                "indexer": 3.0 * values["logs"],
                "counter": 3.0 * values["logs"],
                "store": 5.0 * values["logs"],
            },
            "queries": {"spout": 0.00005, "query": values["queries"], "file": values["queries"] / 5.0},
        },
        "rates": {"words": 40.0, "logs": 40.0, "queries": 665.0},
        "chapter2": {"words": values["words of chapter 2"], "logs": values["logs of chapter 2"]},
    }


def targets() -> dict[str, float]:
    """Seconds by what they are of: setups under the default, and the processing time of SplitSentence."""
    found = {name: one.times[DEFAULT] / 1e3 for name, one in PUBLISHED.items()}
    return found | {f"split of {name}": value / 1e3 for name, value in SPLIT_PROCESSING.items()}


def by_formulas(constants: Constants) -> dict[str, float]:
    """The same of the fast level; the time of SplitSentence by hand, as nothing waits for a core there."""
    found = {}
    for name in PUBLISHED:
        cluster = FastCluster(deployed(name, constants))
        found[name] = float(cluster.times(cluster.setup.round_robin()[None]).mean())
    words = constants.seconds["words"]["split"] + 9.0 * constants.costs.serialise
    return found | {f"split of {name}": words for name in SPLIT_PROCESSING}


def tuple_by_tuple(constants: Constants, seconds: float = SECONDS, seeds: int = SEEDS) -> dict[str, float]:
    """The same of the exact level, warm and without the noise of readings: means over seeds."""
    found = {}
    for name in [*PUBLISHED, *(one for one in SPLIT_PROCESSING if one not in PUBLISHED)]:
        runs = [warm_run(constants, name, seconds, seed) for seed in range(seeds)]
        if name in PUBLISHED:
            found[name] = float(np.mean([times for times, _ in runs]))
        if name in SPLIT_PROCESSING:
            found[f"split of {name}"] = float(np.mean([split for _, split in runs]))
    return found


def warm_run(constants: Constants, name: str, seconds: float, seed: int) -> tuple[float, float]:
    """Mean time over the applications, and the processing time of the second component."""
    cluster = ExactCluster(deployed(name, constants), seed=seed, noise=False, warm=True)
    cluster.run(SETTLE)
    times = cluster.measure(seconds).times
    return float(times.mean()), float(cluster.processing[1])


def fit() -> tuple[dict[str, float], dict[str, float]]:
    """Values of what is fitted, and what the exact level makes of them."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - is not needed to use the constants

    names, wanted = list(FITTED), targets()
    low, usual, high = (np.log([FITTED[name][at] for name in names]) for at in range(3))
    error = dict.fromkeys(wanted, 1.0)
    at = usual.copy()
    exact: dict[str, float] = {}

    def off(logs: Floats) -> Floats:
        found = by_formulas(Constants.of(constants_of(_values(names, logs))))
        misfit = [np.log(found[name] * error[name] / wanted[name]) for name in wanted]
        return np.array([*misfit, *(PULL * (logs - usual))])

    for _ in range(ROUNDS):
        at = least_squares(off, at, bounds=(low, high)).x
        constants = Constants.of(constants_of(_values(names, at)))
        exact, formulas = tuple_by_tuple(constants), by_formulas(constants)
        error = {name: exact[name] / formulas[name] for name in wanted}
    return {name: float(f"{value:.4g}") for name, value in _values(names, at).items()}, exact


def _values(names: list[str], logs: Floats) -> dict[str, float]:
    return dict(zip(names, np.exp(logs).tolist(), strict=True))


def fit_table(document: Mapping[str, Any]) -> Table:
    """What the fit was made to, and how far off it is."""
    rows = [
        (name, 1e3 * one["published"], round(1e3 * one["simulated"], 4), f"{100 * one['error']:+.1f} %")
        for name, one in document["fit"].items()
    ]
    return Table(
        "the default scheduler: published, and simulated with the fit",
        ("of", "published, ms", "simulated, ms", "off"),
        rows,
    )


def main(path: Path = FILE) -> None:
    """Fit, and write the file."""
    values, exact = fit()
    wanted = targets()
    document = {
        "command": COMMAND,
        "source": SOURCE,
        "fitted_to": "the default scheduler's stabilised times and Fig. 2.11, and to no other policy",
        "fitted": values,
        "assumed": ASSUMED,
        "rms_error": float(np.sqrt(np.mean([np.log(exact[name] / wanted[name]) ** 2 for name in wanted]))),
        "fit": {
            name: {"published": wanted[name], "simulated": exact[name], "error": exact[name] / wanted[name] - 1.0}
            for name in wanted
        },
        **constants_of(values),
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for row in fit_table(document).rows:
        sys.stdout.write("  ".join(str(cell) for cell in row) + "\n")


if __name__ == "__main__":
    main()
