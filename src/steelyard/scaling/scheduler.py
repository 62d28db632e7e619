"""The scheduler agent: numbers of tasks as a trained network chooses them.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, section 4.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import ClassVar

import numpy as np

from steelyard.core import BLOCKS, BUCKETS, Action, BatchObservation, Observation, OptionError, State, StateError
from steelyard.learning import Network, Trained, once_per_file
from steelyard.scaling.learned.looks import ACTIONS, FEATURES, STEPS, VERSION, WINDOW, Looks, allowed, features
from steelyard.scaling.zones import UNBOUNDED, Zones

_LOG = logging.getLogger(__name__)
SHIPPED = Path(__file__).parent / "learned" / "scheduler.npz"


@dataclass(eq=False)
class Scheduler:
    """A trained network adds or removes a block, a bucket or both, after every batch.

    It sees what zones see: the load W and what of it each stage took, how rows and keys changed in the last four
    batches, and the numbers of tasks. It was trained together with agents that cut batches, each judged by its own
    part, on simulated queries: batches that end too late cost, and so do tasks that were not needed. Using it needs
    NumPy only.
    Nothing is removed while W is above 1, and nothing is added while it is at most a half.

    Parameters
    ----------
    weights
        File of a trained network; empty for the one that comes with the package. Where it cannot be used, a warning
        says why, and `zones` decides.
    most_blocks, most_buckets
        Never more tasks; 0 for the slots that the engine has.
    interval
        Seconds that a batch may take; 0 for the interval of the query's trigger. With neither, nothing changes.

    Examples
    --------
    >>> policy = Scheduler(most_blocks=8)
    >>> for batch, rows in enumerate([1000, 1150, 1300, 1450]):
    ...     action = policy.decide(BatchObservation(batch, rows, 50, 4, 2, rows / 1200, interval_seconds=1.0).at())
    >>> action.parallelism["blocks"], policy.fallbacks
    (5, 0)

    References
    ----------
    A. S. Abdelhamid, *Efficient Distributed Processing over Micro-batched Data Streams*, Purdue 2021, section 4.8 and
    Algorithm 5, which proposes the agents and does not build them. Features, rewards and bounds are ours.
    """

    weights: str = ""
    most_blocks: int = 0
    most_buckets: int = 0
    interval: float = 0.0

    name: ClassVar[str] = "scheduler"
    paper: ClassVar[str] = "Abdelhamid 2021, section 4.8"

    def __post_init__(self) -> None:
        for option in ("most_blocks", "most_buckets"):
            if getattr(self, option) < 0:
                raise OptionError(f"{option} of {self.name} must be 0 or more, got {getattr(self, option)!r}")
        if not 0 <= self.interval < float("inf"):
            raise OptionError(f"interval of {self.name} must be 0, or seconds above 0, got {self.interval!r}")
        self.fallbacks = 0
        """Decisions that were made by zones, since there was no network that could be used."""
        self._seen = np.zeros((0, 2))  # rows and keys of the newest batches
        self._before, self._waiting = -1.0, 0.0
        self._zones = Zones(
            patience=1, most_blocks=self.most_blocks, most_buckets=self.most_buckets, interval=self.interval
        )
        self._network: Network | None = None
        try:
            self._network = load(Path(self.weights) if self.weights else SHIPPED)
        except StateError as problem:
            _LOG.warning("scheduler decides as zones do, since its network cannot be used: %s", problem)

    @property
    def needs(self) -> tuple[str, ...]:
        """What an engine must show."""
        return ("batch",) if self.interval else ("batch.load",)

    def decide(self, observation: Observation) -> Action:
        """Numbers of tasks for the next batch. Numbers outside the bounds are brought inside at once."""
        seen = observation.batch
        assert seen is not None, "an engine that shows no batches is refused"
        if self._network is None:
            self.fallbacks += 1
            return self._zones.decide(observation)
        interval = self.interval or seen.interval_seconds
        if interval <= 0:
            return Action(reason="W is not known: the query has no interval")
        if not (isfinite(seen.processing_seconds) and seen.processing_seconds >= 0 and isfinite(interval)):
            return Action(reason=f"W is not known: the batch is said to have taken {seen.processing_seconds:g} s")
        looks = self._look(seen, seen.processing_seconds / interval)
        tasks = {BLOCKS: seen.blocks, BUCKETS: seen.buckets}
        most = {BLOCKS: int(looks.most_blocks), BUCKETS: int(looks.most_buckets)}
        within = {name: min(count, most[name]) for name, count in tasks.items()}
        if within != tasks:
            return Action(within, "numbers of tasks brought within their bounds")
        scores = np.where(allowed(looks), self._network(features(looks)), -np.inf)
        steps = STEPS[int(scores.argmax())].tolist()
        if not any(steps):
            return Action()
        wanted = {name: tasks[name] + step for name, step in zip(tasks, steps, strict=True)}
        moved = ", ".join(f"{name} {tasks[name]} -> {count}" for name, count in wanted.items() if count != tasks[name])
        return Action(wanted, f"W = {float(looks.load):.3g}, and the trained network chose: {moved}")

    def state(self) -> State:
        """Rows and keys of the newest batches, the load of the last one, and how far behind batches are."""
        zones = {f"zones.{name}": array for name, array in self._zones.state().items()}
        return {"seen": self._seen.copy(), "loads": np.array([self._before, self._waiting]), **zones}

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        self._seen = np.asarray(state["seen"], np.float64).reshape(-1, 2)
        self._before, self._waiting = (float(value) for value in state["loads"])
        self._zones.restore(
            {name.partition(".")[2]: array for name, array in state.items() if name.startswith("zones.")}
        )

    def _look(self, seen: BatchObservation, load: float) -> Looks:
        """The batch that ended, beside those before it; it is remembered."""
        newest = np.array([[float(seen.rows), float(seen.keys)]])
        self._seen = np.concatenate([self._seen, newest])[-WINDOW:]
        before = load if self._before < 0 else self._before
        self._before = load
        self._waiting = max(0.0, self._waiting + load - 1.0)
        history = np.concatenate([np.repeat(self._seen[:1], WINDOW - len(self._seen), axis=0), self._seen])
        measured = seen.map_seconds > 0 and seen.reduce_seconds > 0
        both = seen.map_seconds + seen.reduce_seconds
        most = [most or max(1, seen.slots or UNBOUNDED) for most in (self.most_blocks, self.most_buckets)]
        return Looks(
            np.float64(load),
            np.float64(before),
            np.float64(seen.map_seconds / both if measured else 0.5),
            np.float64(measured),
            history[:, 0],
            history[:, 1],
            np.float64(seen.blocks),
            np.float64(seen.buckets),
            np.float64(most[0]),
            np.float64(most[1]),
            np.float64(self._waiting),
        )


@once_per_file
def load(path: Path) -> Network:
    """A trained network for use; StateError, in one sentence, where there is none."""
    found = Trained.load(path, Scheduler.name)
    found.require(features=VERSION)
    network = Network.from_arrays("actor", found.arrays, "relu")
    if (network.sizes[0], network.sizes[-1]) != (FEATURES, ACTIONS):
        raise StateError(f"{path} has a network of {network.sizes}: train it again")
    return network
