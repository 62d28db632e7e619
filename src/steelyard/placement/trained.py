"""What policies that learn placements share: a file that they come from, and a setup that it must be for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from steelyard.core.control import Action
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import Measured, Reading, settled
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.learning import Trained
from steelyard.placement.draws import drawn
from steelyard.placement.experience import Experience, Reward, samples, tried, weights_for


def shapes_of(setup: Setup) -> dict[str, Any]:
    """What a setup must have in common with the one that a policy was trained for."""
    return {
        "components": [one.name for one in setup.operators],
        "threads": setup.most.tolist(),
        "machines": setup.machines,
        "setup": setup.fingerprint,
    }


@dataclass
class LearntPlacement(ABC):
    """A policy that is trained on a cluster, kept in a file, and used with NumPy alone.

    Parameters
    ----------
    file
        A trained policy; without one it must be trained before it is used.
    samples
        Placements that are tried before anything is learnt.
    sampling
        How those are drawn: `"diversified"`, with weights of machines that differ from draw to draw, or `"literal"`,
        all machines equally likely, as the paper says; with many threads such draws are nearly all alike.
    most_load
        Samples are of the present arrival rates and up to so many times these.
    reward_clip
        Tuple times above so many times the default's count as that.
    """

    file: str = ""
    samples: int = 10_000
    sampling: str = "diversified"
    most_load: float = 1.0
    reward_clip: float = 2.0
    trained: Trained | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.sampling not in ("diversified", "literal"):
            raise OptionError.unknown("way to draw samples", self.sampling, ("diversified", "literal"))
        if self.samples < 1 or not self.most_load >= 1 or not self.reward_clip > 1:
            raise OptionError("samples and most_load are 1 or more, reward_clip is above 1")
        if self.file:
            self.use(Trained.load(self.file, self.name))

    @abstractmethod
    def train(self, cluster: Measured, seed: int) -> None:
        """Learn on a cluster."""

    @abstractmethod
    def use(self, trained: Trained) -> None:
        """Become what training left behind; StateError where that does not fit."""

    @abstractmethod
    def wanted(self, setup: Setup, present: Ints, load: Floats) -> Ints:
        """int64[threads]: where threads shall be."""

    def save(self, path: str | Path) -> Path:
        """Write what was learnt to a file; OptionError where there is nothing."""
        if self.trained is None:
            raise OptionError(f"{self.name} has not learnt anything that could be saved: train it first")
        return self.trained.save(path)

    def place(self, setup: Setup, seen: Reading) -> Action:
        """Where threads shall be; nothing, as long as it has not learnt."""
        if self.trained is None:
            return Action(reason=f"{self.name} has not learnt yet: train it on a cluster, or give the file of one")
        self.trained.require(**shapes_of(setup))
        begun = np.asarray(self.trained.distribution["rates"], dtype=float)
        known = np.isfinite(seen.arrivals) & (seen.arrivals > 0)
        load = np.where(known, np.where(known, seen.arrivals, 1.0) / begun, 1.0)
        wanted = self.wanted(setup, seen.assignment, load)
        moved = setup.moved(seen.assignment, wanted)
        if not moved:
            return Action(reason=f"{self.name} would have threads where they are")
        return setup.action(wanted, f"{self.name} learnt that this is faster: {moved} threads move", seen.assignment)

    @property
    def curve(self) -> Floats:
        """float64[epochs]: rewards while it tried, in the order of trying."""
        return np.zeros(0) if self.trained is None else np.asarray(self.trained.arrays["rewards"], dtype=float)

    @property
    def loads(self) -> tuple[float, ...]:
        """Factors of arrival rates that samples are drawn with."""
        return (1.0,) if self.most_load == 1 else tuple(np.linspace(1.0, self.most_load, 3).tolist())

    def _experience(self, cluster: Measured, seed: int, *, vary: bool = False, moves: bool = False) -> Experience:
        told: Any = cluster
        diversified = self.sampling == "diversified"
        if hasattr(cluster, "times"):
            return samples(told, seed, self.samples, diversified=diversified, vary=vary, moves=moves, loads=self.loads)
        return tried(cluster, drawn(cluster.setup, self.samples, seed, diversified=diversified, vary=vary), moves, seed)

    def _reward(self, cluster: Measured, weights: Sequence[float] = ()) -> Reward:
        """From what threads that are dealt in turn give."""
        given = weights_for(cluster.setup, weights)
        seen = settled(cluster, cluster.setup.round_robin())
        reference = float(Reward(1.0, given).total(seen.times))
        if not 0 < reference < np.inf:
            raise OptionError("no tuple was done while threads were dealt in turn: lower the arrival rates, and train")
        return Reward(reference, given, self.reward_clip)

    def _kept(
        self, cluster: Measured, seed: int, arrays: dict[str, Any], rewards: Floats, metrics: dict[str, float]
    ) -> Trained:
        last = float(rewards[-200:].mean()) if len(rewards) else 0.0
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("file", "trained")}
        return Trained(
            self.name,
            arrays | {"rewards": rewards},
            shapes=shapes_of(cluster.setup),
            distribution={"rates": cluster.rates.tolist(), "samples": self.samples, "sampling": self.sampling},
            options=own,
            metrics=metrics | {"reward_last_200": last, "samples": float(self.samples + len(rewards))},
            seed=seed,
        )


def followed(first: Ints, onward: Any, most: int) -> list[Ints]:
    """The placements that a policy comes to, until it stays, comes back to one, or has gone far enough."""
    way, known = [first], {first.tobytes()}
    for _ in range(most):
        following = np.asarray(onward(way[-1]))
        if following.tobytes() in known:
            break
        known.add(following.tobytes())
        way.append(following)
    return way
