"""By how much a model of placements is wrong: a network over groups, for clusters and applications of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.core.plans import Floats
from steelyard.learning import Network, adam, forward, generator, libraries
from steelyard.placement.representation import FEATURES, Groups

OF_A_GROUP, OF_ALL = (len(FEATURES), 32, 16), (16, 16, 1)
"""Widths of the network that reads a group, and of the one that reads their mean."""
MOST = 1.5
"""A model is corrected by a factor of at most e to this, up or down."""


def corrections(group: Any, whole: Any, features: Any, weights: Any, xp: Any = np) -> Any:
    """float[B, applications]: the logarithm of measured over predicted times, as far as it was learnt."""
    pooled = weights @ xp.tanh(forward(group, features, "tanh", xp))
    return MOST * xp.tanh(forward(whole, pooled, "tanh", xp)[..., 0])


class Residual:
    """The network, as it is learnt from measurements.

    Parameters
    ----------
    seed
        Of its first weights, and of minibatches.
    rate
        Learning rate of Adam.
    """

    def __init__(self, seed: int = 0, rate: float = 3e-3) -> None:
        self.seed, self.rate = seed, rate
        random = generator(seed, "residual")
        self.group = Network.drawn(OF_A_GROUP, random)
        self.whole = Network.drawn(OF_ALL, random, last_gain=0.0)
        self._random = generator(seed, "minibatches")

    def factors(self, groups: Groups) -> Floats:
        """float64[B, applications]: what a model's times are multiplied by; 1 before anything was learnt."""
        found = corrections(self.group.layers, self.whole.layers, groups.features, groups.weights)
        return np.exp(np.asarray(found, dtype=np.float64))

    def learn(self, parts: Sequence[tuple[Groups, Floats]], steps: int = 400, minibatch: int = 64) -> float:
        """Steps on measurements of one or more setups: (groups, log(measured / predicted)); the last mean square."""
        step, rule = _traced(self.rate)
        layers = (self.group.layers, self.whole.layers)
        kept, loss = rule.init(layers), 0.0
        sizes = np.array([len(wanted) for _, wanted in parts], dtype=float)
        for _ in range(steps):
            groups, wanted = parts[int(self._random.choice(len(parts), p=sizes / sizes.sum()))]
            chosen = self._random.integers(len(wanted), size=minibatch)
            layers, kept, found = step(
                layers, kept, groups.features[chosen], groups.weights[chosen], wanted[chosen].astype(np.float32)
            )
            loss = found
        self.group, self.whole = (Network.of(one) for one in layers)
        return float(loss)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """For a file."""
        return self.group.arrays("group") | self.whole.arrays("whole")

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """As `arrays` gave it."""
        self.group, self.whole = Network.from_arrays("group", arrays), Network.from_arrays("whole", arrays)


_STEPS: dict[float, tuple[Any, Any]] = {}


def _traced(rate: float) -> tuple[Any, Any]:
    """One step of training, compiled once for each shape."""
    if rate not in _STEPS:
        jax, jnp, _ = libraries()
        rule = adam(rate, clip=1.0)

        def learn(layers: Any, kept: Any, features: Any, weights: Any, wanted: Any) -> Any:
            def loss(both: Any) -> Any:
                off = corrections(both[0], both[1], features, weights, jnp) - wanted
                return jnp.mean(jnp.where(jnp.abs(off) < 0.3, off**2, 0.6 * jnp.abs(off) - 0.09))

            value, slopes = jax.value_and_grad(loss)(layers)
            change, kept = rule.update(slopes, kept)
            return jax.tree.map(jnp.add, layers, change), kept, value

        _STEPS[rate] = jax.jit(learn), rule
    return _STEPS[rate]
