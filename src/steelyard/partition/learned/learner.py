"""Updates of an agent's networks: whole episodes of many batches and the gradient steps on them, compiled by JAX.

Schulman et al. 2017 (PPO) and 2016 (generalised advantages). Needs the extra `learn`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from steelyard.core import OptionError
from steelyard.learning import Network, adam, forward, generator, libraries
from steelyard.partition.learned import transition
from steelyard.partition.learned.actions import LATER, level
from steelyard.partition.learned.features import BLOCK, VALUE, WHOLE, observe
from steelyard.partition.learned.networks import NEVER, logits, scores
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.rewards import partial, terminal
from steelyard.partition.learned.teacher import advise
from steelyard.partition.learned.transition import MOST_ROWS, Batches
from steelyard.partition.learned.weights import Weights

UNFINISHED = -4.0
"""Reward of an episode that did not end: putting off and filling holes went on for too long."""


class Seen(NamedTuple):
    """One step of all batches, or with one more axis in front all steps of an episode."""

    block: Any
    whole: Any
    value: Any
    allowed: Any
    action: Any
    likely: Any
    judged: Any
    reward: Any
    alive: Any


def drawn(options: Training) -> Weights:
    """Weights to begin with."""
    kinds = level(options.actions).kinds
    random = generator(options.seed, "partly")
    actor = Network.drawn((BLOCK + WHOLE, options.hidden, kinds), random, "relu", last_gain=0.1)
    critic = Network.drawn((WHOLE + VALUE, options.hidden, 1), random, "tanh", last_gain=0.1)
    return Weights(actor.layers, critic.layers)


def rollout(options: Training, taught: bool, sample: bool = True) -> Callable[..., Any]:
    """A function of (weights, batches, key): all steps of an episode and the last state.

    With `taught`, `Seen.action` is the teacher's and the student's own is done every second step; otherwise it is
    drawn, or the likeliest without `sample`.
    """
    jax, jnp, _ = libraries()
    actions = level(options.actions)
    modes = jnp.asarray(actions.modes)

    def run(weights: Weights, batches: Batches, key: Any) -> Any:
        start = transition.begin(batches, options.blocks, jnp, options.put_off)

        def step(state: Any, key: Any) -> Any:
            block, whole, value = observe(batches, state, jnp)
            allowed = transition.allowed(actions, batches, state, jnp)
            found = logits(actions, scores(weights.actor, block, whole, jnp), allowed, batches.blocks, jnp)
            flat = found.reshape(found.shape[0], -1)
            one, two = jax.random.split(key)
            own = jax.random.categorical(one, flat) if sample and not options.values else flat.argmax(-1)
            if sample and options.values:
                any_other = jax.random.categorical(one, jnp.where(flat > NEVER, 0.0, NEVER))
                own = jnp.where(jax.random.bernoulli(two, options.explore, own.shape), any_other, own)
            learnt = own
            if taught:
                at, kind = advise(actions, batches, state, allowed, jnp)
                learnt = at * actions.kinds + kind
                own = jnp.where(jax.random.bernoulli(two, 0.5, own.shape), own, learnt)
            likely = jnp.take_along_axis(jax.nn.log_softmax(flat), learnt[:, None], 1)[:, 0]
            judged = forward(weights.critic, jnp.concatenate([whole, value], -1), "tanh", jnp)[:, 0]
            put = transition.amounts(actions, batches, state, own // actions.kinds, own % actions.kinds, jnp)
            following = transition.advance(batches, state, put, modes[own % actions.kinds] == LATER, jnp)
            reward = jnp.where(following.done & ~state.done, terminal(batches, following, options.model, jnp), 0.0)
            if options.bootstrap == "rewards":
                reward = reward + partial(batches, state, following, put, xp=jnp)
            seen = Seen(block, whole, value, allowed, learnt, likely, judged, reward, ~state.done)
            return following, seen

        return jax.lax.scan(step, start, jax.random.split(key, options.steps))

    return run


def _advantages(options: Training, seen: Seen, finished: Any) -> tuple[Any, Any]:
    """Generalised advantages and returns of every step."""
    jax, jnp, _ = libraries()
    reward = seen.reward.at[-1].add(jnp.where(finished, 0.0, UNFINISHED))
    alive_next = jnp.concatenate([seen.alive[1:], jnp.zeros_like(seen.alive[:1])]).astype(jnp.float32)
    judged_next = jnp.concatenate([seen.judged[1:], jnp.zeros_like(seen.judged[:1])]) * alive_next

    def back(later: Any, now: Any) -> Any:
        reward, judged, judged_next, alive_next = now
        error = reward + options.discount * judged_next - judged
        gain = error + options.discount * options.gae * alive_next * later
        return gain, gain

    _, gains = jax.lax.scan(
        back, jnp.zeros_like(reward[0]), (reward, seen.judged, judged_next, alive_next), reverse=True
    )
    return gains, gains + seen.judged


def _loss(options: Training, taught: bool) -> Callable[..., Any]:
    """What a gradient step makes smaller: of the actor and the critic together."""
    jax, jnp, _ = libraries()
    actions = level(options.actions)

    def loss(weights: Weights, seen: Seen, gains: Any, returns: Any, blocks: Any) -> Any:
        shape = seen.alive.shape
        flat = [one.reshape(-1, *one.shape[2:]) for one in seen]
        block, whole, value, allowed, action, likely, _, _, alive = flat
        each = jnp.broadcast_to(blocks, shape).reshape(-1)
        found = logits(actions, scores(weights.actor, block, whole, jnp), allowed, each, jnp)
        every = jax.nn.log_softmax(found.reshape(len(found), -1))
        now = jnp.take_along_axis(every, action[:, None], 1)[:, 0]
        weight = alive / jnp.maximum(alive.sum(), 1)
        judged = forward(weights.critic, jnp.concatenate([whole, value], -1), "tanh", jnp)[:, 0]
        critic = (weight * (judged - returns.reshape(-1)) ** 2).sum()
        if taught:
            return -(weight * now).sum() + 0.5 * critic
        gain = gains.reshape(-1)
        mean = (weight * gain).sum()
        gain = (gain - mean) / (jnp.sqrt((weight * (gain - mean) ** 2).sum()) + 1e-6)
        ratio = jnp.exp(jnp.clip(now - likely, -20, 20))
        if options.method == "ppo":
            won = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - options.clip, 1 + options.clip) * gain)
        else:
            won = ratio * gain  # at the weights that acted its gradient is the policy gradient
        spread = -(jnp.exp(every) * jnp.maximum(every, -50)).sum(-1)
        return -(weight * won).sum() + 0.5 * critic - options.entropy * (weight * spread).sum()

    return loss


@lru_cache(maxsize=32)
def learner(options: Training, taught: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(make the optimiser's state of weights, a compiled update of (weights, optimiser's state, batches, key)).

    An update gives weights, the optimiser's state, and int and float arrays [batches] of the last state: loads, keys.
    """
    jax, _, _ = libraries()
    run, descend = rollout(options, taught), _descent(options, taught)

    def update(weights: Weights, kept: Any, batches: Batches, key: Any) -> Any:
        key, turn = jax.random.split(key)
        last, seen = run(weights, batches, key)
        weights, kept, lost = descend(weights, kept, seen, last.done, batches.blocks, turn)
        return weights, kept, (last.load, last.card, last.done, lost, seen.alive.sum())

    return optimiser_of(options, taught).init, jax.jit(update)


@lru_cache(maxsize=32)
def by_halves(options: Training) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """An update in two halves, between which rewards are found elsewhere.

    (make the optimiser's state, all steps of an episode as `rollout` gives them, the gradient steps on them): the last
    is a function of (weights, optimiser's state, steps, which episodes ended, blocks, key).
    """
    jax, _, _ = libraries()
    return optimiser_of(options, False).init, jax.jit(rollout(options, False)), jax.jit(_descent(options, False))


def optimiser_of(options: Training, taught: bool) -> Any:
    """Adam, at the rate of what it does."""
    return adam(options.teach_rate if taught else options.rate, 0.5)


def _descent(options: Training, taught: bool) -> Callable[..., Any]:
    """All gradient steps on one rollout."""
    jax, jnp, optax = libraries()
    loss, optimiser = _loss(options, taught), optimiser_of(options, taught)
    epochs = options.epochs if options.method == "ppo" or taught else 1
    minibatches = options.minibatches if options.method == "ppo" or taught else 1

    def descended(weights: Weights, kept: Any, seen: Seen, finished: Any, blocks: Any, turn: Any) -> Any:
        gains, returns = _advantages(options, seen, finished)

        def descend(carry: Any, chosen: Any) -> Any:
            weights, kept = carry
            part = Seen(*(one[:, chosen] for one in seen))
            found, gradient = jax.value_and_grad(loss)(
                weights, part, gains[:, chosen], returns[:, chosen], blocks[chosen]
            )
            changes, kept = optimiser.update(gradient, kept, weights)
            return (optax.apply_updates(weights, changes), kept), found

        # batches come in no order, so that parts of them may be taken as they are; the parts' order is drawn
        split = jnp.arange(options.batches).reshape(minibatches, -1)
        turns = jnp.concatenate(
            [split[jax.random.permutation(one, minibatches)] for one in jax.random.split(turn, epochs)]
        )
        (weights, kept), losses = jax.lax.scan(descend, (weights, kept), turns)
        return weights, kept, losses.mean()

    return descended


def as_jax(batches: Batches) -> Batches:
    """In 32 bits, as JAX has them; OptionError for batches with more rows than there is room for."""
    most = int(batches.total.max(initial=0))
    if most > MOST_ROWS:
        raise OptionError(f"a batch to learn from has at most {MOST_ROWS} rows, got {most}: make counts smaller alike")
    jnp = libraries().numpy
    return Batches(*(jnp.asarray(one, jnp.float32 if one.dtype.kind == "f" else jnp.int32) for one in batches))


def as_numpy(weights: Weights) -> Weights:
    """Weights as arrays of NumPy."""
    return Weights(*(tuple((np.asarray(w), np.asarray(b)) for w, b in one) for one in weights))
