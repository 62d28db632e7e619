"""A model proposes placements, and what was learnt of its errors corrects it: few samples, none of them reckless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from steelyard.core.control import Action
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError, StateError
from steelyard.core.measured import Measured, Reading, settled
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.learning import Trained, generator
from steelyard.placement.draws import drawn
from steelyard.placement.proxy import Proxy
from steelyard.placement.representation import Groups, groups
from steelyard.placement.residual import Residual
from steelyard.placement.variations import allowed, varied

FIRST_STEPS, STEPS = 600, 120
"""Steps on all measurements so far, after the first of them and after each round."""
SEARCHED = 4
"""Every so many rounds the corrected model is searched to the end: what was learnt of its errors changes slowly."""
_REMEMBERED = 12
"""The best placements that were measured, kept for later."""


@runtime_checkable
class Model(Protocol):
    """Whatever tells the times of placements that nobody has tried."""

    def times(self, assignments: Ints) -> Floats:
        """float64[B, applications], in seconds, for int64[B, threads]."""
        ...


@runtime_checkable
class Modelling(Protocol):
    """A policy that makes such a model from what is seen, as `model_based` and `local_search` do."""

    def prediction(self, setup: Setup, seen: Reading) -> Model | None:
        """The model; None, as long as there is none."""
        ...


@dataclass
class Guided:
    """Search a model of placements, measure what it proposes, and learn by how much it is wrong.

    Beside `actor_critic` it needs a tenth of the samples, since it begins where the model ends: what is learnt is only
    the factor between measured and predicted times. That is a network over groups of threads and machines
    (`representation`) whose weights do not know how large the cluster is, so that what was learnt on four machines is
    used on ten, and for applications that were never seen. The model is given by `by`: something with
    `times(assignments)`, or a trained policy that makes one of what is seen, as `model_based` and `local_search` do;
    without one, it is a guess from the graph alone. A placement is tried only where the corrected model says
    that it is at most `bound` slower than what is deployed, and left again where that turns out to be wrong. Moving
    threads has a price: `move_cost`.

    Parameters
    ----------
    file
        What was learnt before.
    samples
        Placements that are measured in training, of which the model's own proposals are the first.
    bound
        By which share a placement may be predicted to be slower than the present one, and still be tried.
    move_cost
        What moving all threads costs, as a share of the present time.
    candidates, tried
        Placements that are looked at in a round, and how many of them are measured.
    numbers
        Whether numbers of threads may change too.

    Examples
    --------
    >>> Guided(samples=500)
    Guided(file='', samples=500, bound=0.1, move_cost=0.02, candidates=240, tried=12, numbers=False)
    """

    file: str = ""
    samples: int = 1000
    bound: float = 0.1
    move_cost: float = 0.02
    candidates: int = 240
    tried: int = 12
    numbers: bool = False
    model: Any = field(default=None, init=False, repr=False, compare=False)
    residual: Residual | None = field(default=None, init=False, repr=False, compare=False)
    trained: Trained | None = field(default=None, init=False, repr=False, compare=False)
    measured: list[tuple[Ints, Floats]] = field(default_factory=list, init=False, repr=False, compare=False)

    name: ClassVar[str] = "guided"

    def __post_init__(self) -> None:
        if self.samples < 1 or self.candidates < 1 or self.tried < 1:
            raise OptionError("samples, candidates and tried are 1 or more")
        if not self.bound >= 0 or not self.move_cost >= 0:
            raise OptionError(f"bound and move_cost are 0 or more, got {self.bound} and {self.move_cost}")
        if self.file:
            self.use(Trained.load(self.file, self.name))

    def by(self, model: Model | Modelling) -> Self:
        """Guided by this model; the policy itself is given back."""
        if not isinstance(model, Model | Modelling):
            raise OptionError(f"a model has times(assignments), or prediction(setup, seen), got {model!r}")
        self.model = model
        return self

    # ---- training

    def train(self, cluster: Measured, seed: int) -> None:
        """Propose, measure, correct."""
        self.train_on([cluster], seed)

    def train_on(self, clusters: Sequence[Measured], seed: int) -> None:
        """The same on several clusters, one after the other: what was learnt on all of them is kept.

        Placements that were measured are remembered of the last one, to whose setup the file belongs.
        """
        self.trained = None  # what is learnt now is of the present model, whatever the one before was
        residual, taken = Residual(seed), 0
        parts: list[tuple[Groups, Floats]] = []
        for cluster in clusters:
            session = _Session(self, cluster, seed, residual, parts)
            session.begin()
            while session.left:
                session.round()
            parts.append(session.part())
            taken += len(session.lived)
        self._keep(session, taken, seed)

    def _keep(self, session: _Session, taken: int, seed: int) -> None:
        cluster = session.cluster
        self.residual, self.measured = session.residual, session.best()
        lived = np.array([one.sum() for _, one in session.lived])
        self.trained = Trained(
            self.name,
            session.residual.arrays()
            | {"places": np.array([one for one, _ in self.measured]), "times": np.array([t for _, t in self.measured])}
            | {"rewards": 1 - lived / lived[0]},
            shapes={"setup": cluster.setup.fingerprint},
            distribution={"rates": cluster.rates.tolist(), "model": type(self.model).__name__},
            options={one.name: getattr(self, one.name) for one in fields(self) if one.name in _OPTIONS},
            metrics={"samples": taken, "worst_over_present": session.worst},
            seed=seed,
        )

    def use(self, trained: Trained) -> None:
        """What is in its file."""
        residual = Residual(trained.seed)
        residual.restore(trained.arrays)
        self.residual, self.trained = residual, trained
        places, times = trained.arrays["places"], trained.arrays["times"]
        self.measured = [(place, time) for place, time in zip(places, times, strict=True)]

    def save(self, path: str | Path) -> Path:
        """Write what was learnt to a file; OptionError where there is nothing."""
        if self.trained is None:
            raise OptionError("guided has not learnt anything that could be saved: train it first")
        return self.trained.save(path)

    # ---- use

    def place(self, setup: Setup, seen: Reading) -> Action:
        """The placement with the lowest corrected time, moves included, that a search finds."""
        if self.trained is None or self.residual is None:
            return Action(reason="guided has not learnt yet: train it on a cluster, or give the file of one")
        corrected = Corrected(setup, seen, self.modelled(setup, seen), self.residual)
        present = seen.assignment
        starts = [present, *allowed(setup, proposals(setup, present))]
        if self.trained.shapes["setup"] == setup.fingerprint:
            starts += [one for one, _ in self.measured]
        found = self._searched(corrected, np.array(starts), present)
        now, then = corrected.totals(np.stack([present, found])).tolist()
        moved = setup.moved(present, found)
        if not then * (1 + self.move_cost * moved / setup.threads) < now:
            return Action(
                reason=f"guided expects nothing that is worth the moves: {1000 * now:.3g} ms where threads are"
            )
        told = f"guided expects {1000 * then:.3g} ms, and {1000 * now:.3g} ms where threads are"
        return setup.action(found, f"{told}: {moved} threads move", present)

    def modelled(self, setup: Setup, seen: Reading) -> Model:
        """The model for a setup; StateError where what was learnt are the errors of another one."""
        known = self.trained.distribution.get("model") if self.trained is not None else None
        if known not in (None, type(self.model).__name__):
            learnt, given = (
                "no model" if one == type(None).__name__ else one for one in (known, type(self.model).__name__)
            )
            raise StateError(
                f"this 'guided' learnt over {learnt}, and is used with {given}: give it the model that it learnt over "
                "with by(...), or train it again"
            )
        found = self.model
        if isinstance(found, Modelling):
            found = found.prediction(setup, seen)
            if found is None:
                raise OptionError(f"the model of guided is a {type(self.model).__name__} that is not trained: train it")
        return Proxy(setup) if found is None else found

    def _searched(self, corrected: Corrected, starts: Ints, present: Ints) -> Ints:
        """From the best start on, while a step helps."""
        setup, random = corrected.setup, generator(0, "search")

        def worth(placed: Ints) -> Floats:
            moved = np.array([setup.moved(present, one) for one in placed])
            found: Floats = corrected.totals(placed) * (1 + self.move_cost * moved / setup.threads)
            return found

        values = worth(starts)
        best, value, failed = starts[int(values.argmin())], float(values.min()), 0
        while failed < 4:
            steps = allowed(setup, varied(setup, best, self.candidates, random, self.numbers))
            values = worth(steps)
            if len(values) and values.min() < value * (1 - 1e-4):
                best, value, failed = steps[int(values.argmin())], float(values.min()), 0
            else:
                failed += 1
        return np.asarray(best)


_OPTIONS = ("samples", "bound", "move_cost", "candidates", "tried", "numbers")


@dataclass(eq=False)
class Corrected:
    """A model times what was learnt of its errors."""

    setup: Setup
    seen: Reading
    model: Model
    residual: Residual

    def times(self, assignments: Ints) -> Floats:
        """float64[B, applications], in seconds."""
        predicted = np.maximum(np.asarray(self.model.times(assignments), dtype=np.float64), 1e-9)
        return predicted * self.residual.factors(groups(self.setup, assignments, self.seen, predicted))

    def totals(self, assignments: Ints) -> Floats:
        """float64[B]: all applications together."""
        found: Floats = self.times(assignments).sum(axis=1)
        return found


def proposals(setup: Setup, present: Ints) -> Ints:
    """Threads dealt to one machine, to two, and so on, by all applications or by each to its own: plain starts."""
    dealt = setup.dealt(setup.parallelism_of(present))
    runs, application = dealt >= 0, setup.application_of[setup.component_of]
    found = []
    for used in range(1, setup.machines + 1):
        found.append(np.where(runs, dealt % used, dealt))
        if len(setup.applications) > 1:
            found.append(np.where(runs, (application * used + dealt % used) % setup.machines, dealt))
    return np.array(found)


class _Session:
    """One training: what was measured, and where the search is."""

    def __init__(
        self,
        policy: Guided,
        cluster: Measured,
        seed: int,
        residual: Residual,
        before: Sequence[tuple[Groups, Floats]],
    ) -> None:
        self.policy, self.cluster, self.setup = policy, cluster, cluster.setup
        self.random = generator(seed, "guided")
        self.residual, self.before = residual, list(before)
        self.lived: list[tuple[Ints, Floats]] = []
        self.known: set[bytes] = set()
        self.rounds = 0
        self.worst = 0.0
        """The largest predicted time of what was tried over that of what was deployed then, less 1."""

    @property
    def left(self) -> int:
        """Samples that may still be taken."""
        return self.policy.samples - len(self.lived)

    def begin(self) -> None:
        """Measure what is there, and what the model alone proposes."""
        start = self.setup.round_robin()
        self.seen = self._measured(start)
        self.now = float(self.seen.times.sum())
        self.corrected = Corrected(self.setup, self.seen, self.policy.modelled(self.setup, self.seen), self.residual)
        starts = allowed(self.setup, proposals(self.setup, start))
        found = self.policy._searched(self.corrected, np.concatenate([start[None], starts]), start)
        self._attempt(np.concatenate([found[None], starts]))
        self._learn(FIRST_STEPS)

    def round(self) -> None:
        """Look around the best placements that were measured, and measure what the corrected model likes."""
        best = self.best()
        most = self.policy.candidates
        steps = [
            varied(self.setup, one, max(1, most // (2 + number)), self.random, self.policy.numbers)
            for number, (one, _) in enumerate(best[:4])
        ]
        steps.append(proposals(self.setup, best[0][0]))
        steps.append(drawn(self.setup, most // 4, int(self.random.integers(2**31)), vary=self.policy.numbers))
        if self.rounds % SEARCHED == 0:
            steps.append(np.array([self._searched_from(best)]))
        self.rounds += 1
        found = allowed(self.setup, np.unique(np.concatenate(steps), axis=0))
        found = found[[one.tobytes() not in self.known for one in found]]
        if not len(found):
            start = self.setup.round_robin()
            found = allowed(self.setup, varied(self.setup, start, most, self.random, self.policy.numbers))
        order = np.argsort(self._worth(found), kind="stable")
        greedy = found[order[: max(1, (2 * self.policy.tried) // 3)]]
        curious = found[self.random.permutation(len(found))[: self.policy.tried - len(greedy)]]
        before = len(self.lived)
        self._attempt(np.concatenate([greedy, curious]))
        if len(self.lived) == before:  # nothing may be tried: look at the best one again, which is always allowed
            self._measured(best[0][0])
        self._learn(STEPS)

    def best(self) -> list[tuple[Ints, Floats]]:
        """Measured placements with the lowest times; measured and corrected ones are averaged, since both are noisy."""
        placed = np.array([one for one, _ in self.lived])
        times = np.array([one for _, one in self.lived])
        expected = self.corrected.times(placed)
        both = np.sqrt(np.where(np.isfinite(times), times, np.inf) * expected)
        order = np.argsort(both.sum(axis=1), kind="stable")
        found: dict[bytes, tuple[Ints, Floats]] = {}
        for at in order.tolist():
            found.setdefault(placed[at].tobytes(), (placed[at], both[at]))
        return list(found.values())[:_REMEMBERED]

    def _searched_from(self, best: list[tuple[Ints, Floats]]) -> Ints:
        return self.policy._searched(self.corrected, np.array([one for one, _ in best]), self.cluster.assignment)

    def _worth(self, placed: Ints) -> Floats:
        moved = np.array([self.setup.moved(self.cluster.assignment, one) for one in placed])
        cost = self.policy.move_cost * moved / self.setup.threads
        found: Floats = self.corrected.totals(placed) * (1 + cost)
        return found

    def _attempt(self, placed: Ints) -> None:
        """Measure, one after the other, those that may be tried from where the cluster then is."""
        expected = self.corrected.totals(placed)
        for one, value in zip(placed, expected.tolist(), strict=True):
            if self.left <= 0:
                return
            if one.tobytes() in self.known:
                continue
            present = float(self.corrected.totals(self.cluster.assignment[None])[0])
            if value > present * (1 + self.policy.bound):
                continue
            self.worst = max(self.worst, value / present - 1)
            safe = self.cluster.assignment
            if not self._measured(one).times.sum() <= (1 + self.policy.bound) * self.now:
                self.cluster.deploy(safe)
            else:
                self.now = float(self.lived[-1][1].sum())

    def _measured(self, placed: Ints) -> Reading:
        seen = settled(self.cluster, placed)
        self.lived.append((placed.copy(), seen.times))
        self.known.add(placed.tobytes())
        return seen

    def part(self) -> tuple[Groups, Floats]:
        """What was measured, as the residual learns it."""
        placed = np.array([one for one, _ in self.lived])
        times = np.array([one for _, one in self.lived])
        predicted = np.maximum(self.corrected.model.times(placed), 1e-9)
        done = np.isfinite(times).all(axis=1)
        wanted = np.log(times[done] / predicted[done])
        return groups(self.setup, placed[done], self.seen, predicted[done]), wanted

    def _learn(self, steps: int) -> None:
        self.residual.learn([*self.before, self.part()], steps)
