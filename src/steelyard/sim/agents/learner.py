"""One learner of several agents: critics that see what all of them see and do, actors that see their own part alone.

Abdelhamid 2021, Algorithm 5, after Lowe et al. 2017 (multi-agent actor-critic); actions are discrete, and gradients go
through them by Gumbel's softmax (Jang et al. 2017). Needs the extra `learn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.learning import Layers, Network, Replay, Soft, adam, forward, generator, libraries
from steelyard.partition.learned.cutting import FEATURES as OWN
from steelyard.partition.learned.cutting import WAYS
from steelyard.scaling.learned.looks import ACTIONS
from steelyard.scaling.learned.looks import FEATURES as OF_SCHEDULER
from steelyard.sim.agents.options import Training
from steelyard.sim.agents.receivers import Seen

FREE = -1
"""An agent that acts by its own network; others always take the action that is named instead."""
CLIP = 1.0
FLAT = 1e-3
"""Weight of the squares of scores in the actors' loss: it keeps them from being certain too early."""


@dataclass(frozen=True, eq=False)
class Team:
    """The actors: the scheduler first, then each partitioner."""

    actors: tuple[Network, ...]

    @property
    def scheduler(self) -> Network:
        """Of numbers of tasks."""
        return self.actors[0]

    @property
    def partitioners(self) -> tuple[Network, ...]:
        """One for each receiver."""
        return self.actors[1:]

    def scores(self, seen: Seen) -> list[np.ndarray[Any, Any]]:
        """float32[queries, actions] of each agent, from its own observation alone."""
        first = np.where(seen.allowed, self.scheduler(seen.scheduler), -np.inf)
        return [first, *(actor(seen.partitioners[:, place]) for place, actor in enumerate(self.partitioners))]

    def act(self, seen: Seen, fixed: Sequence[int] = ()) -> Ints:
        """int[queries, agents]: the likeliest action of each."""
        return _fixed(np.stack([one.argmax(axis=1) for one in self.scores(seen)], axis=1), fixed)

    def with_partitioner(self, place: int, actor: Network) -> Team:
        """The same with another network for one partitioner, counted from 0."""
        actors = list(self.actors)
        actors[1 + place] = actor
        return replace(self, actors=tuple(actors))


class Weights(NamedTuple):
    """All that is learnt, one entry for each agent."""

    actors: tuple[Layers, ...]
    critics: tuple[Layers, ...]
    target_actors: tuple[Layers, ...]
    target_critics: tuple[Layers, ...]
    actor_steps: tuple[Any, ...]
    critic_steps: tuple[Any, ...]


class Learner:
    """The agents while they are trained.

    Parameters
    ----------
    options
        How.
    team
        Actors to go on from; drawn anew where there are none.
    fixed
        For each agent, the action that it always takes, or `FREE`.
    trained
        Which agents learn; the others' networks stay as they are, to the bit.
    """

    def __init__(
        self,
        options: Training,
        team: Team | None = None,
        fixed: Sequence[int] = (),
        trained: Sequence[bool] = (),
    ) -> None:
        self.options = options
        agents = 1 + options.partitioners
        self.fixed = tuple(fixed) or (FREE,) * agents
        self.trained = tuple(trained) or (True,) * agents
        self._random = generator(options.seed, "agents")
        self._key = libraries().jax.random.PRNGKey(options.seed)
        team = team or drawn(options)
        self._team = team
        self._weights = self._begin(team)
        of_steps = replace(options, seed=0, queries=1, episodes=1, batches=1)  # what is compiled knows nothing of these
        self._update = _updates(of_steps, self.fixed, self.trained)
        own = (options.partitioners, OWN)
        flag, real, whole = np.bool_, np.float32, np.int32
        fields: dict[str, tuple[Sequence[int], Any]] = {
            "action": ((agents,), whole),
            "reward": ((agents,), real),
            **{f"scheduler{turn}": ((OF_SCHEDULER,), real) for turn in (0, 1)},
            **{f"partitioners{turn}": (own, real) for turn in (0, 1)},
            **{f"allowed{turn}": ((ACTIONS,), flag) for turn in (0, 1)},
        }
        self.replay = Replay(options.buffer, fields)

    @property
    def team(self) -> Team:
        """The actors as they are now."""
        return self._team

    def explore(self, seen: Seen, share: float) -> Ints:
        """int[queries, agents]: actions drawn by their scores, and a share of them evenly from what is allowed."""
        found = []
        for number, scores in enumerate(self._team.scores(seen)):
            drawn = scores + self._random.gumbel(size=scores.shape)
            even = np.where(np.isfinite(scores), self._random.random(scores.shape), -1)
            evenly = self._random.random(len(scores)) < (share if self.trained[number] else 0)
            chosen = drawn if self.trained[number] else scores
            found.append(np.where(evenly, even.argmax(axis=1), chosen.argmax(axis=1)))
        return _fixed(np.stack(found, axis=1), self.fixed)

    def keep(self, seen: Seen, action: Ints, reward: Any, following: Seen) -> None:
        """A transition of each query, into the one buffer of all agents."""
        parts = {
            f"{name}{turn}": value for turn, of in enumerate((seen, following)) for name, value in of._asdict().items()
        }
        self.replay.add(action=action, reward=reward, **parts)

    def learn(self) -> None:
        """A step of every critic and every actor that is trained, and then of their targets."""
        libs = libraries()
        batch = self.replay.draw(self._random, self.options.minibatch)
        self._key, key = libs.jax.random.split(self._key)
        self._weights = self._update(self._weights, batch, key)
        actors = [
            Network.of(layers, "relu") if self.trained[number] else self._team.actors[number]
            for number, layers in enumerate(self._weights.actors)
        ]
        self._team = Team(tuple(actors))

    def _begin(self, team: Team) -> Weights:
        options = self.options
        random = generator(options.seed, "critics")
        width = OF_SCHEDULER + options.partitioners * (OWN + len(WAYS)) + ACTIONS
        actors = tuple(actor.layers for actor in team.actors)
        critics = tuple(
            Network.drawn((width, options.hidden, options.hidden, 1), random, "relu").layers for _ in actors
        )
        actor_step, critic_step = _optimisers(options)
        return Weights(
            actors,
            critics,
            actors,
            critics,
            tuple(actor_step.init(each) for each in actors),
            tuple(critic_step.init(each) for each in critics),
        )


def drawn(options: Training) -> Team:
    """Actors that have learnt nothing."""
    random = generator(options.seed, "actors")
    widths = [(OF_SCHEDULER, ACTIONS), *[(OWN, len(WAYS))] * options.partitioners]
    return Team(
        tuple(
            Network.drawn((entering, options.hidden, options.hidden, leaving), random, "relu", last_gain=0.1)
            for entering, leaving in widths
        )
    )


def _fixed(actions: Ints, fixed: Sequence[int]) -> Ints:
    for number, action in enumerate(fixed):
        if action != FREE:
            actions[:, number] = action
    return actions


def _optimisers(options: Training) -> tuple[Any, Any]:
    return adam(options.actor_rate, CLIP), adam(options.critic_rate, CLIP)


@lru_cache(maxsize=8)
def _updates(options: Training, fixed: tuple[int, ...], trained: tuple[bool, ...]) -> Any:
    """The compiled step of Algorithm 5 for all agents: of (weights, minibatch, key) the next weights."""
    jax, jnp, optax = libraries()
    agents = range(1 + options.partitioners)
    widths = (ACTIONS, *[len(WAYS)] * options.partitioners)
    actor_step, critic_step = _optimisers(options)
    soft = Soft(options.tau)

    def scores(number: int, actor: Any, batch: Any, turn: int) -> Any:
        """Of one agent, from its own observation."""
        if number:
            return forward(actor, batch[f"partitioners{turn}"][:, number - 1], "relu", jnp)
        found = forward(actor, batch[f"scheduler{turn}"], "relu", jnp)
        return jnp.where(batch[f"allowed{turn}"], found, -1e9)

    def drawn_action(number: int, found: Any, key: Any) -> Any:
        """One action, whose gradient is that of Gumbel's softmax."""
        if fixed[number] != FREE:
            return jnp.zeros_like(found).at[:, fixed[number]].set(1.0)
        soft_action = jax.nn.softmax(found + jax.random.gumbel(key, found.shape))
        hard = jax.nn.one_hot(soft_action.argmax(-1), widths[number])
        return hard + soft_action - jax.lax.stop_gradient(soft_action)

    def judged(critic: Any, batch: Any, actions: Any, turn: int) -> Any:
        """Q of all observations and all actions."""
        own = batch[f"partitioners{turn}"]
        whole = [batch[f"scheduler{turn}"], own.reshape(len(own), -1), *actions]
        return forward(critic, jnp.concatenate(whole, -1), "relu", jnp)[:, 0]

    def update(weights: Weights, batch: Any, key: Any) -> Weights:
        keys = jax.random.split(key, 2 * len(agents))
        done = [jax.nn.one_hot(batch["action"][:, number], widths[number]) for number in agents]
        following = [
            drawn_action(number, scores(number, weights.target_actors[number], batch, 1), keys[number])
            for number in agents
        ]
        following = [jax.lax.stop_gradient(one) for one in following]
        new: dict[str, list[Any]] = {name: list(getattr(weights, name)) for name in Weights._fields}

        for number in (one for one in agents if trained[one]):
            # y = r_i + gamma Q'_i(s', a'_1 .. a'_N), a'_j = pi'_j(o'_j)
            target = batch["reward"][:, number] + options.discount * judged(
                weights.target_critics[number], batch, following, 1
            )

            def wrong(critic: Any, target: Any = target) -> Any:
                return ((judged(critic, batch, done, 0) - target) ** 2).mean()

            changes, new["critic_steps"][number] = critic_step.update(
                jax.grad(wrong)(weights.critics[number]), weights.critic_steps[number]
            )
            critic = new["critics"][number] = optax.apply_updates(weights.critics[number], changes)

            def worth(actor: Any, number: int = number, critic: Any = critic) -> Any:
                found = scores(number, actor, batch, 0)
                mine = drawn_action(number, found, keys[len(agents) + number])
                squares = jnp.where(found > -1e8, found**2, 0.0).mean()
                return -judged(critic, batch, [*done[:number], mine, *done[number + 1 :]], 0).mean() + FLAT * squares

            changes, new["actor_steps"][number] = actor_step.update(
                jax.grad(worth)(weights.actors[number]), weights.actor_steps[number]
            )
            actor = new["actors"][number] = optax.apply_updates(weights.actors[number], changes)
            new["target_critics"][number] = soft.followed(critic, weights.target_critics[number], 0)
            new["target_actors"][number] = soft.followed(actor, weights.target_actors[number], 0)
        return Weights(*(tuple(new[name]) for name in Weights._fields))

    return jax.jit(update)
