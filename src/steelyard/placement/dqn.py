"""A deep Q-network that moves one thread at a time: what the actor and the critic are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import Measured, settled
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.learning import Fading, Network, Periodic, Replay, Trained, adam, forward, generator, libraries
from steelyard.placement.acting import HIDDEN
from steelyard.placement.actions import Assignments
from steelyard.placement.trained import LearntPlacement, followed


@dataclass
class Dqn(LearntPlacement):
    """Learn the value of each move of one thread to one machine, and make the best one.

    All placements are too many for a network that gives a value for each action, so its actions are the N * M moves of
    one thread. A trained one goes on, move after move, until it would stay where it is.

    The paper says little of it. Chosen here: the network of the actor and the critic (64 and 32 neurons, tanh), their
    discount, minibatch and replay; targets that are copied every 10 steps; epsilon from 1 to 0.02 over 60 % of the
    epochs.

    Parameters
    ----------
    file, samples, sampling, most_load, reward_clip
        As of `actor_critic`; a sample is a random placement with one thread moved.
    gamma, rate
        Discount, and learning rate of Adam.
    minibatch, replay
        Transitions per step, and transitions that are kept.
    pretraining, epochs
        Steps on random placements, and moves that are tried afterwards.
    copied_every
        Steps from one copy of the target network to the next.

    Examples
    --------
    >>> Dqn(epochs=100)
    Dqn(..., epochs=100, copied_every=10)
    """

    gamma: float = 0.99
    rate: float = 1e-3
    minibatch: int = 32
    replay: int = 1000
    pretraining: int = 5000
    epochs: int = 1500
    copied_every: int = 10
    values: Network | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "dqn"
    paper: ClassVar[str] = "Li 2018, section 3.4"

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1 or not self.rate > 0:
            raise OptionError(
                f"gamma is at least 0 and below 1, and rate above 0, got gamma={self.gamma!r} and rate={self.rate!r}"
            )
        for name, least in (("minibatch", 1), ("replay", 1), ("copied_every", 1), ("pretraining", 0), ("epochs", 0)):
            if not getattr(self, name) >= least:
                raise OptionError(f"{name} is {least} or more, got {getattr(self, name)!r}")
        super().__post_init__()

    def train(self, cluster: Measured, seed: int) -> None:
        """First from random moves, then by trying."""
        setup = cluster.setup
        actions = Assignments(setup)
        reward = self._reward(cluster)
        lived = self._experience(cluster, seed, moves=True)
        thread = np.argmax(lived.before != lived.after, axis=1)
        fields: dict[str, tuple[tuple[int, ...], Any]] = {
            "before": (actions.shape, np.int16),
            "after": (actions.shape, np.int16),
            "move": ((), np.int32),
            "load": ((len(setup.applications),), np.float32),
            "reward": ((), np.float32),
        }
        known = {
            "before": lived.before,
            "after": lived.after,
            "move": thread * setup.machines + lived.after[np.arange(len(lived)), thread],
            "load": lived.load,
            "reward": reward.of(lived.times),
        }
        offline, replay = Replay(len(lived), fields), Replay(self.replay, fields)
        offline.add(**known)
        replay.add(**{name: values[-self.replay :] for name, values in known.items()})
        study = _Study(actions, self, seed)
        for _ in range(self.pretraining):
            study.step(offline)
        rewards = self._try(cluster, study, replay, reward.of, seed)
        found = Network.of(study.network)
        self.use(self._kept(cluster, seed, found.arrays("values"), rewards, {"reference_seconds": reward.reference}))

    def _try(self, cluster: Measured, study: _Study, replay: Replay, worth: Any, seed: int) -> Floats:
        setup, random = cluster.setup, generator(seed, "exploration")
        epsilon = Fading(1.0, 0.02, round(0.6 * self.epochs))
        placed, load = setup.round_robin(), np.ones((1, len(setup.applications)), np.float32)
        cluster.deploy(placed)
        rewards = []
        for epoch in range(self.epochs):
            move = int(random.integers(setup.threads * setup.machines))
            if random.random() >= epsilon.at(epoch):
                move = int(np.argmax(study.values(study.network, placed[None], load)[0]))
            after = moved(setup, placed, move)
            rewards.append(float(worth(settled(cluster, after).times)))
            replay.add(before=placed[None], after=after[None], move=[move], load=load, reward=rewards[-1:])
            study.step(replay)
            placed = after
        return np.array(rewards, dtype=float)

    def use(self, trained: Trained) -> None:
        """The network of its file."""
        self.values = Network.from_arrays("values", trained.arrays)
        self.trained = trained

    def wanted(self, setup: Setup, present: Ints, load: Floats) -> Ints:
        """Move after move, at most as many as there are threads."""
        actions, network = Assignments(setup), self.values
        if network is None:
            raise AssertionError("used before it was trained")

        def onward(placed: Ints) -> Ints:
            state = np.concatenate([actions.vectors(placed), load]).astype(np.float32)
            return moved(setup, placed, int(np.argmax(network(state))))

        return followed(present, onward, setup.threads)[-1]


def moved(setup: Setup, placed: Ints, move: int) -> Ints:
    """The placement after a move, which is thread * machines + machine.

    >>> from steelyard.core.placing import Component, Host
    >>> moved(Setup((Component("log", 2, source=True),), (), 3 * (Host(),)), np.array([0, 0]), 5).tolist()
    [0, 2]
    """
    after = placed.copy()
    after[move // setup.machines] = move % setup.machines
    return after


class _Study:
    """The network while it learns."""

    def __init__(self, actions: Assignments, options: Dqn, seed: int) -> None:
        jax, jnp, _ = libraries()
        width = actions.size + len(actions.setup.applications)
        self.network = Network.drawn((width, *HIDDEN, actions.size), generator(seed, "networks"), last_gain=0.1).layers
        self._target, self._follow, self._steps = self.network, Periodic(options.copied_every), 0
        self._draws, self._minibatch = generator(seed, "minibatches"), options.minibatch
        rule = adam(options.rate, clip=10.0)
        self._kept = rule.init(self.network)

        def values(network: Any, placed: Any, load: Any) -> Any:
            return forward(network, jnp.concatenate([actions.vectors(placed, jnp), load], axis=-1), "tanh", jnp)

        def learn(network: Any, target: Any, kept: Any, batch: Any) -> Any:
            wanted = batch["reward"] + options.gamma * values(target, batch["after"], batch["load"]).max(axis=-1)

            def loss(one: Any) -> Any:
                every = values(one, batch["before"], batch["load"])
                return jnp.mean((wanted - every[jnp.arange(len(every)), batch["move"]]) ** 2)

            change, kept = rule.update(jax.grad(loss)(network), kept)
            return jax.tree.map(jnp.add, network, change), kept

        self.values, self._learn = jax.jit(values), jax.jit(learn)

    def step(self, replay: Replay) -> None:
        """One step on a minibatch."""
        self._steps += 1
        batch = replay.draw(self._draws, self._minibatch)
        self.network, self._kept = self._learn(self.network, self._target, self._kept, batch)
        self._target = self._follow.followed(self.network, self._target, self._steps)
