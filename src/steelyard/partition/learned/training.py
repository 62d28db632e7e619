"""Training of PartLy: imitation, rewards, the curriculum of actions; seeded, and resumed where it was stopped.

Abdelhamid 2021, sections 4.5 and 4.6. Needs the extra `learn`; what comes out needs NumPy alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.core import OptionError, StateError
from steelyard.core.plans import Floats
from steelyard.learning import Curve, Trained, generator, libraries
from steelyard.partition.learned.actions import level
from steelyard.partition.learned.deep_q import DeepQ
from steelyard.partition.learned.learner import as_jax, as_numpy, by_halves, drawn, learner
from steelyard.partition.learned.options import RUN_TIME, Training
from steelyard.partition.learned.rewards import cost
from steelyard.partition.learned.run_time import RunTimeRewards, Times
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.transition import Batches
from steelyard.partition.learned.weights import Weights, packed, unpacked

POLICY_TRAINING = "partly training"
SMALL = 3
"""Every second update is of batches with so many times fewer keys: episodes of one update are to be of like length."""
SETTLED = 0.01
"""Learning has converged where the mean cost changes by less than this share (the sheet's reading of section 4.6)."""
WINDOW = 5_000
"""Episodes that a mean is taken over. (Updates are of hundreds of episodes: over 500 chance alone decides.)"""


@dataclass(frozen=True)
class Progress:
    """Where training is, after each update."""

    update: int
    updates: int
    episodes: int
    steps: int
    """Decisions so far."""
    cost: float
    """Mean of log(1 + cost in mean keys) of the batches of this update; by run time, of the costs in their range."""
    seconds: float


@dataclass(eq=False)
class Trainer:
    """Trains one agent, update by update.

    Parameters
    ----------
    options
        What it is told.
    samples
        What it learns from; by default shapes of the sizes in `options`.
    weights
        To begin with.
    times
        What tasks of a plan take; needed where `cost` of the options is `"runtime"`.

    Examples
    --------
    >>> Training(actions=0, keys=6, blocks=2, batches=8).steps
    6
    """

    options: Training = field(default_factory=Training)
    samples: Samples | None = None
    weights: Weights | None = None
    times: Times | None = None
    costs: list[float] = field(default_factory=list, init=False)
    """Of each update."""
    episodes: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)
    """That training took so far, whatever was between its parts."""

    def __post_init__(self) -> None:
        own = self.samples or Samples(self.options.keys, self.options.blocks)
        small = self.options.keys // SMALL
        if own.own or small < own.fewest_keys:
            self._samples = [replace(own, keys=self.options.keys)]
        else:
            self._samples = [replace(own, keys=self.options.keys, fewest_keys=small), replace(own, keys=small)]
        self.weights = self.weights or drawn(self.options)
        self._kept: Any = None
        self.run_time = RunTimeRewards(self.options, self.times) if self.options.cost == RUN_TIME else None
        self._values = DeepQ(self.options, self.weights) if self.options.values else None
        self._taught = self.options.bootstrap == "imitation" and self.options.imitated > 0

    @property
    def update(self) -> int:
        """How many updates were done."""
        return len(self.costs)

    def run(self, updates: int, minutes: float = np.inf) -> Iterator[Progress]:
        """Train until there are so many updates, or so many minutes have gone by."""
        jax = libraries().jax
        began = time.perf_counter()
        while self.update < updates and time.perf_counter() - began < 60 * minutes:
            number, since = self.update, time.perf_counter()
            self._begin(number)
            samples = self._samples[number % len(self._samples)]
            batches = samples.draw(self.options.batches, generator(self.options.seed, f"batches {number}"))
            key = jax.random.fold_in(jax.random.PRNGKey(self.options.seed), number)
            learn = self._by_run_time if self._timed(number) else self._by_model
            found, steps = learn(number, batches, key)
            mean = float(found.mean())
            if not (np.isfinite(mean) and self.finite):
                raise StateError(f"training diverged at update {number}: take a lower rate than {self.options.rate}")
            self.costs.append(mean)
            self.episodes += self.options.batches
            self.steps += steps
            self.seconds += time.perf_counter() - since
            yield Progress(self.update, updates, self.episodes, self.steps, self.costs[-1], time.perf_counter() - began)

    @property
    def finite(self) -> bool:
        """Whether all weights are numbers: those of a training that diverges are not."""
        assert self.weights is not None
        return all(np.isfinite(one).all() for one in packed(as_numpy(self.weights)).values())

    def _by_model(self, number: int, batches: Batches, key: Any) -> tuple[Floats, int]:
        """An update by the cost model; gives the costs and the number of decisions."""
        assert self.weights is not None
        if self._values is not None:
            last, seen = by_halves(self._like(batches.rows.shape[1]))[1](self.weights, as_jax(batches), key)
            learnt = self._values.learn(self.weights, self._kept, seen, last.done, batches.blocks, number)
            (self.weights, self._kept), steps = learnt, seen.alive.sum()
            load, card = last.load, last.card
        else:
            _, update = self._learner(number, batches.rows.shape[1])
            self.weights, self._kept, after = update(self.weights, self._kept, as_jax(batches), key)
            load, card, _, _, steps = after
        found = self._modelled(batches, load, card)
        if self.run_time is not None:
            self.run_time.saw(found)
        return found, int(steps)

    def _modelled(self, batches: Batches, load: Any, card: Any) -> Floats:
        found = cost(batches, np.asarray(load), np.asarray(card), self.options.model)
        return np.asarray(np.log1p(np.maximum(found, 0) * batches.keys / batches.blocks), np.float64)

    def _by_run_time(self, number: int, batches: Batches, key: Any) -> tuple[Floats, int]:
        """An update by the times of tasks, which are found between the episodes and the gradient steps on them."""
        assert self.run_time is not None
        jax, jnp, _ = libraries()
        _, act, descend = by_halves(self._like(batches.rows.shape[1]))
        given = as_jax(batches)
        acting, turn = jax.random.split(key)
        last, seen = act(self.weights, given, acting)
        if number == 0:  # nothing was learnt of the cost model before
            self.run_time.saw(self._modelled(batches, last.load, last.card))
        alive = np.asarray(seen.alive)
        rewards, found = self.run_time.of(batches, np.asarray(seen.action), np.asarray(last.done), alive)
        seen = seen._replace(reward=jnp.asarray(rewards))
        self.weights, self._kept, _ = descend(self.weights, self._kept, seen, last.done, given.blocks, turn)
        if not len(found):
            raise StateError(f"no episode of update {number} ended, so that no plan has times: train longer before")
        return found, int(alive.sum())

    @property
    def settled(self) -> bool:
        """Whether the mean cost of the last episodes is about that of those before them."""
        window = max(2, WINDOW // self.options.batches)
        if len(self.costs) < 2 * window or (self._taught and self.update < self.options.imitated + window):
            return False
        newest, before = float(np.mean(self.costs[-window:])), float(np.mean(self.costs[-2 * window : -window]))
        return bool(abs(newest - before) <= SETTLED * abs(before) + 1e-9)

    @property
    def curve(self) -> Curve:
        """The cost of every update."""
        return Curve(self.options.bootstrap, np.array(self.costs))

    def _teaches(self, update: int) -> bool:
        return self._taught and update < self.options.imitated

    def _timed(self, update: int) -> bool:
        """Whether run time is what counts."""
        return self.run_time is not None and update >= self.options.modelled

    def _begin(self, update: int) -> None:
        """A new optimiser at the start, where rewards take over from imitation, and where run time takes over."""
        kinds = [(self._teaches(one), self._timed(one)) for one in (max(0, update - 1), update)]
        if self._kept is None or kinds[0] != kinds[1]:
            self._kept = self._learner(update)[0](self.weights)

    def _learner(self, update: int, keys: int = 0) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Compiled once for all trainers of the same sizes, whatever their seeds."""
        found: tuple[Callable[..., Any], Callable[..., Any]] = learner(
            self._like(keys or self.options.keys), self._teaches(update)
        )
        return found

    def _like(self, keys: int) -> Training:
        """The options that decide what is compiled."""
        return replace(self.options, keys=keys, seed=0, average="none", modelled=self.options.imitated)

    def save(self, path: str | Path) -> Path:
        """All that the next update depends on; training that goes on from it gives the same weights."""
        jax = libraries().jax
        assert self.weights is not None
        kept = {f"kept.{number}": np.asarray(one) for number, one in enumerate(jax.tree_util.tree_leaves(self._kept))}
        arrays = packed(as_numpy(self.weights)) | kept | {"costs": np.array(self.costs)}
        for part in (self.run_time, self._values):
            arrays |= part.state() if part is not None else {}
        told = {"episodes": self.episodes, "steps": self.steps, "seconds": self.seconds}
        return Trained(
            POLICY_TRAINING,
            arrays,
            distribution=self._learnt_from(),
            options=self.options.to_dict(),
            metrics=told,
        ).save(path)

    def _learnt_from(self) -> dict[str, str]:
        return {"samples": self._samples[0].digest}

    def resume(self, path: str | Path) -> None:
        """Go on from a file that `save` wrote; StateError where it was trained otherwise."""
        jax, jnp, _ = libraries()
        found = Trained.load(path, POLICY_TRAINING)
        if dict(found.options) != self.options.to_dict():
            raise StateError(
                f"{path} is of a training with other options: begin anew in another file, or use its options"
            )
        if dict(found.distribution) != self._learnt_from():
            raise StateError(f"{path} is of a training on other counts: begin anew in another file, or use its counts")
        self.weights = unpacked(found.arrays, level(self.options.actions).kinds)
        self.costs = found.arrays["costs"].tolist()
        for part in (self.run_time, self._values):
            if part is not None:
                part.restore(found.arrays)
        self.episodes, self.steps = int(found.metrics["episodes"]), int(found.metrics["steps"])
        self.seconds = float(found.metrics["seconds"])
        like = self._learner(max(0, self.update - 1))[0](self.weights)
        leaves, shape = jax.tree_util.tree_flatten(like)
        names = [f"kept.{number}" for number in range(len(leaves))]
        if any(name not in found.arrays for name in names):
            raise StateError(f"{path} lacks what its optimiser knew: begin anew in another file")
        self._kept = jax.tree_util.tree_unflatten(shape, [jnp.asarray(found.arrays[name]) for name in names])


def curriculum(options: Training, levels: Sequence[int] = (0, 1, 2), most: int = 400) -> Iterator[tuple[int, Trainer]]:
    """Incremental learning: each level of actions begins with the weights of the one before, once that has converged.

    Gives (level, trainer) for each, after its training. `most` updates are done for a level that does not converge.
    """
    if any(number > 2 for number in levels):
        raise OptionError(f"a curriculum is of levels 0 to 2, whose actions contain each other, got {tuple(levels)}")
    weights: Weights | None = None
    for number in levels:
        own = replace(options, actions=number)
        trainer = Trainer(own, weights=None if weights is None else widened(weights, own))
        for _ in trainer.run(most):
            if trainer.settled:
                break
        assert trainer.weights is not None
        weights = as_numpy(trainer.weights)
        yield number, trainer


def widened(weights: Weights, options: Training) -> Weights:
    """Weights for a level with more kinds of actions, which are as unlikely at first as the least likely old one."""
    (*lower, (last, offsets)) = weights.actor
    more = level(options.actions).kinds - last.shape[1]
    new = generator(options.seed, "widened").normal(scale=0.01, size=(last.shape[0], more)).astype(np.float32)
    wider = np.concatenate([np.asarray(last), new], axis=1)
    longer = np.concatenate([np.asarray(offsets), np.full(more, np.asarray(offsets).min() - 2, np.float32)])
    return Weights((*lower, (wider, longer)), weights.critic)
