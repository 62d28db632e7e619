"""What was learnt of an application's latencies so far: rows of features, and the regressions fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from steelyard.core import State
from steelyard.core.errors import OptionError, StateError
from steelyard.core.measured import Reading
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.placement.collecting import Watched
from steelyard.placement.features import PROCESSING, TRANSFER, WINDOW, Features, features, weights
from steelyard.placement.prediction import History, Prediction
from steelyard.placement.records import Collected, together
from steelyard.placement.regression import Parameters, Regression, fitted, thinned

ALIKE = 1.1
"""Loads that differ by less than this factor are one, where rows of threads and pairs that are alike become one."""
CLIPPED = 5.0
"""Latencies above so many times the median are taken for that: of a placement that cannot keep up it matters that it is
bad, and not how long its queues had grown when somebody looked."""
_KINDS = {"processing": ("component", PROCESSING), "transfer": ("edge", TRANSFER)}
_ARRAYS = ("mean", "scale", "support", "dual")


@dataclass
class Learnt:
    """Features so far, and what was fitted to them.

    Rows of threads of one component that had the same machine, window and (nearly) load are one row, their mean by
    tuples: they have the same features, and their mean is less noisy.
    """

    window: float = WINDOW
    """Seconds over which loads and latencies are averaged."""
    waiting: list[Collected] = field(default_factory=list)
    rows: Features | None = None
    history: History | None = None
    fingerprint: str = ""
    models: dict[str, dict[str, Regression]] = field(default_factory=dict)

    @property
    def is_trained(self) -> bool:
        """Whether it can predict."""
        return bool(self.models)

    def misfit(self, setup: Setup) -> str:
        """What of a setup is not as it was learnt; nothing where all is."""
        if setup.fingerprint == self.fingerprint:
            parts = [one.name for one in setup.operators if not one.source], [str(edge) for edge in setup.edges]
            wanted = zip(_KINDS, parts, strict=True)
            unseen = [name for kind, names in wanted for name in names if name not in self.models.get(kind, {})]
            return f"no tuple of {unseen[0]!r} was recorded" if self.models and unseen else ""
        return f"it knows {self.fingerprint!r}, and this is {setup.fingerprint!r}"

    def add(self, setup: Setup, seen: Watched, schedule: str = "") -> None:
        """More records, of the same setup; of another run of it where they are given a schedule's name of their own."""
        if self.fingerprint not in ("", setup.fingerprint):
            raise OptionError(f"records of another setup cannot be learnt together: {self.misfit(setup)}")
        self.fingerprint = setup.fingerprint
        if schedule:
            tables = features(seen.records, self.window)
            named = (one.assign(schedule_id=schedule) for one in (tables.processing, tables.transfer))
            self.rows = self._more(Features(*named))
        else:
            self.waiting.append(seen.records)
        load = seen.reading.processed * (self.window / seen.reading.seconds)
        self.history = History.of(setup, load, weights(seen.records), seen.reading.arrivals)

    def fit(self, parameters: Parameters | Mapping[str, Parameters], pooled: bool = False) -> None:
        """Fit a regression to each component and each stream, or to all of them together."""
        if self.waiting:
            self.rows = self._more(features(together(self.waiting), self.window))
            self.waiting.clear()
        if self.rows is None:
            raise OptionError("there is nothing to learn from: add records first")
        self.models = {kind: self._fitted(kind, parameters, pooled) for kind in _KINDS}

    def _more(self, found: Features) -> Features:
        return found if self.rows is None else self.rows.joined(found)

    def _fitted(
        self, kind: str, parameters: Parameters | Mapping[str, Parameters], pooled: bool
    ) -> dict[str, Regression]:
        assert self.rows is not None
        by, _ = _KINDS[kind]
        table = getattr(self.rows, kind)
        found: dict[str, Regression] = {}
        names = table[by].unique().tolist()
        for name in names[:1] if pooled else names:
            rows, seconds, _ = training_rows(table if pooled else table[table[by] == name], kind)
            own = parameters if isinstance(parameters, Parameters) else parameters[name]
            found[name] = fitted(rows, seconds, own)
        return dict.fromkeys(names, found[names[0]]) if pooled and names else found

    def prediction(self, setup: Setup, seen: Reading | None = None) -> Prediction | None:
        """The model, with the loads of a reading, or else those of the last records; None before it was fitted."""
        if not self.models or self.history is None:
            return None
        history = self.history
        if seen is not None and seen.seconds > 0 and seen.processed.sum() > 0:
            history = history.with_load(seen.processed * (self.window / seen.seconds))
        return Prediction(setup, self.models["processing"], self.models["transfer"], history)

    def state(self) -> State:
        """As arrays, without the rows that were learnt from."""
        found: dict[str, np.ndarray] = {"fingerprint": np.array(self.fingerprint)}
        if self.history is not None:
            own = {"load": self.history.load, "instance": self.history.instance, "rates": self.history.rates}
            found |= own | {f"pair {at}": one for at, one in enumerate(self.history.pair)}
        for kind, models in self.models.items():
            for name, one in models.items():
                numbers = [one.target_mean, one.target_scale, one.intercept]
                used = one.parameters
                found |= {f"{kind} {name} {part}": getattr(one, part) for part in _ARRAYS}
                found[f"{kind} {name} numbers"] = np.array([*numbers, used.C, used.epsilon, used.gamma])
                found[f"{kind} {name} kernel"] = np.array(used.kernel)
        return found

    @classmethod
    def of(cls, state: State) -> Learnt:
        """From what `state` gave."""
        try:
            made = cls(fingerprint=str(state["fingerprint"]))
            if "load" in state:
                pairs = tuple(state[f"pair {at}"] for at in range(sum(name.startswith("pair ") for name in state)))
                made.history = History(state["load"], state["instance"], pairs, state["rates"])
            for key in state:
                kind, _, rest = key.partition(" ")
                if kind in _KINDS and rest.endswith(" kernel"):
                    name = rest.removesuffix(" kernel")
                    made.models.setdefault(kind, {})[name] = _regression(state, f"{kind} {name}")
        except KeyError as error:
            raise StateError(f"the state lacks {error}: it is not one that a predicting policy gave") from None
        return made


def _regression(state: State, prefix: str) -> Regression:
    target_mean, target_scale, intercept, C, epsilon, gamma = state[f"{prefix} numbers"].tolist()
    mean, scale, support, dual = (state[f"{prefix} {part}"] for part in _ARRAYS)
    parameters = Parameters(str(state[f"{prefix} kernel"]), C, epsilon, gamma)
    return Regression(parameters, mean, scale, target_mean, target_scale, support, dual, intercept)


def training_rows(table: pd.DataFrame, kind: str) -> tuple[Floats, Floats, np.ndarray]:
    """Rows of features, latencies and schedules that a regression is fitted to: threads that are alike are one row."""
    _, names = _KINDS[kind]
    columns = list(names)
    alike = [one for one in columns if one.startswith("thread_workload")]
    places = ["machine"] if kind == "processing" else ["src_machine", "dst_machine"]
    of = "component" if kind == "processing" else "edge"
    keys = [table[one] for one in ("app_id", "schedule_id", "window", of, *places)]
    keys += [(np.log(np.maximum(table[one], 1.0)) / np.log(ALIKE)).round().rename(f"{one} about") for one in alike]
    counts = table["tuples"].to_numpy(np.float64)
    weighted = table[[*columns, "seconds"]].mul(counts, axis=0)
    weighted["tuples"] = counts
    sums = weighted.groupby(keys, sort=True).sum()
    means = sums[[*columns, "seconds"]].div(sums["tuples"], axis=0)
    schedules = sums.index.get_level_values("schedule_id").to_numpy()
    seconds = means["seconds"].to_numpy(np.float64)
    return thinned(means[columns].to_numpy(np.float64), np.minimum(seconds, CLIPPED * np.median(seconds)), schedules)
