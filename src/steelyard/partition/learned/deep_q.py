"""Deep Q-learning for PartLy: the network's scores are values of actions, learnt from what is replayed.

Mnih et al. 2015, Human-level control through deep reinforcement learning. Needs the extra `learn`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from steelyard.learning import Layers, Replay, Soft, generator, libraries
from steelyard.partition.learned.actions import level
from steelyard.partition.learned.features import BLOCK, WHOLE
from steelyard.partition.learned.learner import UNFINISHED, Seen, optimiser_of
from steelyard.partition.learned.networks import logits, scores
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.weights import Weights

DRAWN = 4
"""A gradient step is of so many transitions for each batch of an update."""


class DeepQ:
    """The replay and the target network of one training.

    Parameters
    ----------
    options
        Of the training.
    weights
        That it begins with.
    """

    def __init__(self, options: Training, weights: Weights) -> None:
        self._options = options
        kinds, blocks = level(options.actions).kinds, options.blocks
        seen: dict[str, tuple[tuple[int, ...], Any]] = {"block": ((blocks, BLOCK), np.float32)}
        seen["whole"] = ((WHOLE,), np.float32)
        seen["allowed"] = ((blocks, kinds), np.bool_)
        of_next = {f"next_{name}": kind for name, kind in seen.items()}
        others = {"action": np.int32, "reward": np.float32, "goes_on": np.float32, "blocks": np.int32}
        self._replay = Replay(options.buffer, seen | of_next | {name: ((), kind) for name, kind in others.items()})
        self._target: Layers = weights.actor

    def learn(
        self, weights: Weights, kept: Any, seen: Seen, finished: Any, blocks: Any, number: int
    ) -> tuple[Weights, Any]:
        """Take in all steps of an update's episodes, and do its gradient steps; gives weights and optimiser's state."""
        self._take_in(seen, np.asarray(finished), np.asarray(blocks))
        options = self._options
        random = generator(options.seed, f"replay {number}")
        step = _step(options)
        actor = weights.actor
        for _ in range(options.epochs * options.minibatches):
            drawn = self._replay.draw(random, DRAWN * options.batches)
            actor, kept, self._target = step(Weights(actor, weights.critic), kept, self._target, drawn)
        return Weights(actor, weights.critic), kept

    def _take_in(self, seen: Seen, finished: Any, blocks: Any) -> None:
        arrays = {name: np.asarray(getattr(seen, name)) for name in ("block", "whole", "allowed")}
        alive = np.asarray(seen.alive)
        goes_on = np.concatenate([alive[1:], np.zeros_like(alive[:1])])
        reward = np.array(seen.reward)
        reward[-1] += np.where(finished, 0.0, UNFINISHED)
        later = {f"next_{name}": np.concatenate([array[1:], array[-1:]])[alive] for name, array in arrays.items()}
        self._replay.add(
            **{name: array[alive] for name, array in arrays.items()},
            **later,
            action=np.asarray(seen.action)[alive],
            reward=reward[alive],
            goes_on=goes_on[alive],
            blocks=np.broadcast_to(blocks, alive.shape)[alive],
        )

    def state(self) -> dict[str, Any]:
        """What the next update depends on."""
        pairs = list(enumerate(self._target))
        target = {f"target.{at}.{part}": np.asarray(pair[part]) for at, pair in pairs for part in (0, 1)}
        return target | {f"replay.{name}": array for name, array in self._replay.state().items()}

    def restore(self, state: Any) -> None:
        """Go on from it."""
        self._target = tuple((state[f"target.{at}.0"], state[f"target.{at}.1"]) for at in range(len(self._target)))
        kept = {name.removeprefix("replay."): array for name, array in state.items() if name.startswith("replay.")}
        self._replay.restore(kept)


@lru_cache(maxsize=8)
def _step(options: Training) -> Callable[..., Any]:
    """A compiled gradient step on transitions that were drawn; the target follows."""
    jax, jnp, optax = libraries()
    actions, optimiser, soft = level(options.actions), optimiser_of(options, False), Soft(options.tau)

    def values(actor: Layers, block: Any, whole: Any, allowed: Any, blocks: Any) -> Any:
        found = logits(actions, scores(actor, block, whole, jnp), allowed, blocks, jnp)
        return found.reshape(len(found), -1)

    def loss(weights: Weights, target: Layers, drawn: Any) -> Any:
        now = values(weights.actor, drawn["block"], drawn["whole"], drawn["allowed"], drawn["blocks"])
        after = values(target, drawn["next_block"], drawn["next_whole"], drawn["next_allowed"], drawn["blocks"])
        best = jnp.where(drawn["goes_on"] > 0, after.max(-1), 0.0)  # behind the end nothing is allowed
        own = jnp.take_along_axis(now, drawn["action"][:, None], 1)[:, 0]
        return optax.huber_loss(own, drawn["reward"] + options.discount * best).mean()

    def step(weights: Weights, kept: Any, target: Layers, drawn: Any) -> Any:
        changes, kept = optimiser.update(jax.grad(loss)(weights, target, drawn), kept, weights)
        actor = optax.apply_updates(weights, changes).actor
        return actor, kept, soft.followed(actor, target, 0)

    compiled: Callable[..., Any] = jax.jit(step)
    return compiled
