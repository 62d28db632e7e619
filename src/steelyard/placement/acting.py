"""Training of an actor and a critic over placements: the papers' Algorithms 2 and 3, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.learning import Fading, Layers, Network, Replay, Soft, adam, forward, generator, libraries
from steelyard.learning.replay import Arrays
from steelyard.placement.actions import Actions

HIDDEN = (64, 32)
"""Neurons of both networks between input and output, with tanh."""
Step = Callable[..., Any]


@dataclass(frozen=True)
class Acting:
    """How an actor and a critic learn; numbers are the paper's where it has them.

    Parameters
    ----------
    nearest
        K: allowed placements near the actor's wish, of which the critic chooses; the paper has no number.
    gamma, tau, minibatch, replay
        Discount, step of the target networks, transitions per step, and transitions that are kept.
    pretraining, epochs, episodes
        Steps on what was tried before; epochs of trying, in how many episodes, each of which explores anew.
    explore
        `"prob"`: noise is added with probability epsilon; `"scale"`: epsilon times the noise is always added.
    exploring
        Share of an episode over which epsilon falls from 1 to 0.02.
    invert
        Whether gradients that push the actor's wish out of its bounds fade as it comes near them (inverting gradients).
    actor_rate, critic_rate, clip
        Learning rates of Adam, and the norm to which gradients are cut.
    """

    nearest: int = 10
    gamma: float = 0.99
    tau: float = 0.01
    minibatch: int = 32
    replay: int = 1000
    pretraining: int = 5000
    epochs: int = 1500
    episodes: int = 1
    explore: str = "prob"
    exploring: float = 0.6
    invert: bool = True
    actor_rate: float = 3e-4
    critic_rate: float = 1e-3
    clip: float = 10.0

    def __post_init__(self) -> None:
        if self.nearest < 1 or self.minibatch < 1 or self.episodes < 1 or min(self.pretraining, self.epochs) < 0:
            raise OptionError("nearest, minibatch and episodes are 1 or more, pretraining and epochs 0 or more")
        if not 0 <= self.gamma < 1:
            raise OptionError(f"gamma is at least 0 and below 1, got {self.gamma}")
        if self.explore not in ("prob", "scale"):
            raise OptionError.unknown("way to explore", self.explore, ("prob", "scale"))


class Networks(NamedTuple):
    """The actor and the critic, and their targets."""

    actor: Layers
    critic: Layers
    actor_target: Layers
    critic_target: Layers


class Learnt(NamedTuple):
    """What training gives."""

    actor: Network
    critic: Network
    rewards: Floats
    """float64[epochs]"""


class Functions(NamedTuple):
    """Steps of training, traced by JAX."""

    wishes: Step
    """(actor, placements, load) -> float32[B, size]"""
    values: Step
    """(critic, placements[B], load[B], near[B, K]) -> float32[B, K]"""
    learn: Step
    """(networks, optimiser states, batch, near, next batch) -> networks, states, losses, wishes for the next batch"""
    rules: tuple[Any, Any]
    """Optimisers of the actor and the critic."""


def drawn_networks(actions: Actions, applications: int, seed: int) -> Networks:
    """Random ones: states are a placement and the load, the critic reads an action beside them."""
    random = generator(seed, "networks")
    state = actions.size + applications
    actor = Network.drawn((state, *HIDDEN, actions.size), random, last_gain=0.1).layers
    # Wishes begin in the middle of their bounds.
    weights, offsets = actor[-1]
    actor = (*actor[:-1], (weights, offsets + np.float32(0.5)))
    critic = Network.drawn((state + actions.size, *HIDDEN, 1), random, last_gain=0.1).layers
    return Networks(actor, critic, actor, critic)


def critic_loss(xp: Any, critic: Layers, states: Any, acted: Any, wanted: Any) -> Any:
    """Mean squared distance of Q(s, a) from y."""
    values = forward(critic, xp.concatenate([states, acted], axis=-1), "tanh", xp)[..., 0]
    return xp.mean((wanted - values) ** 2)


def ascent(jax: Any, xp: Any, critic: Layers, states: Any, wishes: Any, invert: bool) -> Any:
    """How Q(s, a) grows with each number of the wish; less near bounds that it is pushed towards, if inverted."""

    def total(acted: Any) -> Any:
        return forward(critic, xp.concatenate([states, acted], axis=-1), "tanh", xp).sum()

    slope = jax.grad(total)(wishes)
    return xp.where(slope > 0, slope * (1 - wishes), slope * wishes) if invert else slope


def actor_loss(jax: Any, xp: Any, actor: Layers, critic: Layers, states: Any, invert: bool) -> Any:
    """What has the gradient of -Q(s, f(s)) over the actor's weights: the policy gradient, at the wish itself."""
    wished = forward(actor, states, "tanh", xp)
    up = ascent(jax, xp, critic, states, jax.lax.stop_gradient(wished), invert)
    return -xp.mean(xp.sum(up * wished, axis=-1))


@lru_cache(maxsize=8)
def traced(actions: Actions, options: Acting) -> Functions:
    """The steps for a setup, each compiled when it is first called, and kept for other seeds."""
    jax, jnp, _ = libraries()
    rules = adam(options.actor_rate, options.clip), adam(options.critic_rate, options.clip)
    follow = Soft(options.tau).followed

    def states(placements: Any, load: Any) -> Any:
        return jnp.concatenate([actions.vectors(placements, jnp), load], axis=-1)

    def values(critic: Layers, placements: Any, load: Any, near: Any) -> Any:
        # The first layer reads a state once for all of its K candidates.
        (weights, offsets), *rest = critic
        state = states(placements, load)
        base = state @ weights[: state.shape[-1]] + offsets
        hidden = jnp.tanh(base[:, None, :] + actions.vectors(near, jnp) @ weights[state.shape[-1] :])
        return forward(tuple(rest), hidden, "tanh", jnp)[..., 0]

    def wishes(actor: Layers, placements: Any, load: Any) -> Any:
        return forward(actor, states(placements, load), "tanh", jnp)

    def learn(networks: Networks, kept: Any, batch: Arrays, near: Any, following: Arrays) -> Any:
        actor, critic, actor_target, critic_target = networks
        state, acted = states(batch["before"], batch["load"]), actions.vectors(batch["after"], jnp)
        wanted = batch["reward"]
        if options.gamma > 0:
            after = values(critic_target, batch["after"], batch["load"], near).max(axis=-1)
            wanted = wanted + options.gamma * after
        loss, slopes = jax.value_and_grad(lambda one: critic_loss(jnp, one, state, acted, wanted))(critic)
        change, critic_kept = rules[1].update(slopes, kept[1])
        critic = jax.tree.map(jnp.add, critic, change)

        slopes = jax.grad(lambda one: actor_loss(jax, jnp, one, critic, state, options.invert))(actor)
        change, actor_kept = rules[0].update(slopes, kept[0])
        actor = jax.tree.map(jnp.add, actor, change)
        actor_target, critic_target = follow(actor, actor_target, 1), follow(critic, critic_target, 1)
        found = Networks(actor, critic, actor_target, critic_target)
        return found, (actor_kept, critic_kept), loss, wishes(actor_target, following["after"], following["load"])

    return Functions(jax.jit(wishes), jax.jit(values), jax.jit(learn, donate_argnums=(1,)), rules)


class ActorAndCritic:
    """Both networks while they learn.

    Parameters
    ----------
    actions
        What they choose from.
    applications
        How many loads a state has.
    options
        How they learn.
    seed
        Of all random choices.
    """

    def __init__(self, actions: Actions, applications: int, options: Acting, seed: int) -> None:
        self.actions, self.options = actions, options
        self.functions = traced(actions, options)
        self.networks = drawn_networks(actions, applications, seed)
        rules = self.functions.rules
        self._kept = rules[0].init(self.networks.actor), rules[1].init(self.networks.critic)
        kind = np.int16 if max(actions.setup.most.max(), actions.setup.machines) < 2**15 else np.int64
        place = (actions.shape, kind)
        self.fields: dict[str, tuple[tuple[int, ...], Any]] = {
            "before": place,
            "after": place,
            "load": ((applications,), np.float32),
            "reward": ((), np.float32),
        }
        self._draws, self._noise = generator(seed, "minibatches"), generator(seed, "exploration")
        self.losses: list[float] = []

    def study(self, replay: Replay, steps: int) -> None:
        """So many steps on transitions that are kept; nothing, where there are none."""
        if steps < 1 or not len(replay):
            return
        batch = replay.draw(self._draws, self.options.minibatch)
        wished = self.functions.wishes(self.networks.actor_target, batch["after"], batch["load"])
        for left in range(steps - 1, -1, -1):
            following = replay.draw(self._draws, self.options.minibatch) if left else batch
            near = batch["after"][:, None]
            if self.options.gamma > 0:
                near = self.actions.nearest(wished, self.options.nearest).astype(batch["after"].dtype)
            self.networks, self._kept, loss, wished = self.functions.learn(
                self.networks, self._kept, batch, near, following
            )
            batch = following
        self.losses.append(float(loss))

    def act(self, before: Ints, load: Floats, epsilon: float) -> Ints:
        """The placement that is tried next."""
        placed, at = before[None], np.asarray(load, np.float32)[None]
        wished = np.asarray(self.functions.wishes(self.networks.actor, placed, at))
        if self.options.explore == "scale":
            wished = wished + epsilon * self._noise.random(wished.shape)
        elif self._noise.random() < epsilon:
            wished = wished + self._noise.random(wished.shape)
        near = self.actions.nearest(wished, self.options.nearest)
        found: Ints = near[0, int(np.argmax(self.functions.values(self.networks.critic, placed, at, near)[0]))]
        return found


def taught(
    actions: Actions,
    offline: Arrays,
    attempt: Callable[[Ints], float],
    begin: Callable[[], tuple[Ints, Floats]],
    options: Acting,
    seed: int,
) -> Learnt:
    """An actor and a critic that learnt from transitions, and then by trying.

    Parameters
    ----------
    actions
        What they choose from.
    offline
        Transitions: `before`, `after`, `load` and `reward`.
    attempt
        Deploys a placement, and gives its reward.
    begin
        The placement and the load that an episode begins with.
    options, seed
        How they learn.
    """
    both = ActorAndCritic(actions, offline["load"].shape[1], options, seed)
    tried = Replay(max(1, len(offline["reward"])), both.fields)
    tried.add(**offline)
    both.study(tried, options.pretraining)
    replay = Replay(options.replay, both.fields)
    replay.add(**{name: values[-options.replay :] for name, values in offline.items()})
    rewards = []
    for _ in range(options.episodes):
        epsilon = Fading(1.0, 0.02, round(options.exploring * options.epochs))
        placed, load = begin()
        for epoch in range(options.epochs):
            chosen = both.act(placed, load, epsilon.at(epoch))
            reward = attempt(chosen)
            replay.add(before=placed[None], after=chosen[None], load=load[None], reward=[reward])
            both.study(replay, 1)
            rewards.append(reward)
            placed = chosen
    return Learnt(Network.of(both.networks.actor), Network.of(both.networks.critic), np.array(rewards, dtype=float))
