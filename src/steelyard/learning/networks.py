"""Fully connected networks: the same forward pass in NumPy, where they are used, and in JAX, where they are trained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steelyard.core.errors import OptionError, StateError

Array = np.ndarray[Any, np.dtype[np.float32]]
Layers = tuple[tuple[Any, Any], ...]
"""(weights, offsets) of each layer, from the input on: arrays of NumPy or of JAX, so a tree that JAX knows."""
Activation = Literal["tanh", "relu"]
ACTIVATIONS: tuple[Activation, ...] = ("tanh", "relu")


def forward(layers: Layers, inputs: Any, activation: Activation, xp: Any = np) -> Any:
    """What a network gives for inputs[..., first width]: the last layer is linear.

    `xp` is the library of the arrays: `numpy`, or `jax.numpy` in functions that JAX traces.
    """
    bent = xp.tanh if activation == "tanh" else lambda values: xp.maximum(values, 0)
    hidden = inputs
    for weights, offsets in layers[:-1]:
        hidden = bent(hidden @ weights + offsets)
    weights, offsets = layers[-1]
    return hidden @ weights + offsets


@dataclass(frozen=True, eq=False)
class Network:
    """A fully connected network that is ready for use; needs NumPy only.

    Parameters
    ----------
    layers
        float32 (weights[from, to], offsets[to]) of each layer.
    activation
        Of all layers but the last one.

    Examples
    --------
    >>> network = Network.drawn((3, 64, 32, 2), np.random.default_rng(0))
    >>> network.sizes, network(np.ones((5, 3), np.float32)).shape
    ((3, 64, 32, 2), (5, 2))
    """

    layers: Layers
    activation: Activation = "tanh"

    @classmethod
    def drawn(
        cls,
        sizes: Sequence[int],
        random: np.random.Generator,
        activation: Activation = "tanh",
        last_gain: float = 1.0,
    ) -> Network:
        """One with random weights (Glorot's), and no offsets; `last_gain` scales those of the last layer."""
        if len(sizes) < 2 or min(sizes) < 1:
            raise OptionError(f"a network has at least two widths of 1 or more, got {tuple(sizes)}")
        if activation not in ACTIVATIONS:
            raise OptionError.unknown("activation", activation, ACTIVATIONS)
        layers = []
        for number, (entering, leaving) in enumerate(itertools.pairwise(sizes)):
            gain = last_gain if number == len(sizes) - 2 else 1.0
            bound = gain * np.sqrt(6 / (entering + leaving))
            weights = random.uniform(-bound, bound, (entering, leaving)).astype(np.float32)
            layers.append((weights, np.zeros(leaving, np.float32)))
        return cls(tuple(layers), activation)

    @classmethod
    def of(cls, layers: Layers, activation: Activation = "tanh") -> Network:
        """From layers as JAX has trained them."""
        return cls(tuple((np.asarray(w, np.float32), np.asarray(b, np.float32)) for w, b in layers), activation)

    def __call__(self, inputs: Array) -> Array:
        """What it gives for inputs[..., first width]."""
        found: Array = forward(self.layers, inputs, self.activation)
        return found

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths from the input to the output."""
        return (len(self.layers[0][0]), *(len(offsets) for _, offsets in self.layers))

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Its weights as named arrays, for a file."""
        named = {}
        for number, (weights, offsets) in enumerate(self.layers):
            named[f"{name}.{number}.weights"], named[f"{name}.{number}.offsets"] = weights, offsets
        return named

    @classmethod
    def from_arrays(
        cls, name: str, arrays: Mapping[str, np.ndarray[Any, Any]], activation: Activation = "tanh"
    ) -> Network:
        """The network that `arrays` gave under this name; StateError where they do not fit each other."""
        layers: list[tuple[Array, Array]] = []
        width = None
        while f"{name}.{len(layers)}.weights" in arrays:
            place = f"{name}.{len(layers)}"
            weights, offsets = arrays[f"{place}.weights"], arrays.get(f"{place}.offsets")
            if (
                offsets is None
                or weights.ndim != 2
                or offsets.shape != weights.shape[1:]
                or width not in (None, len(weights))
                or not (np.isfinite(weights).all() and np.isfinite(offsets).all())
            ):
                raise StateError(f"layer {place} of a trained policy does not fit the others: train it again")
            layers.append((weights.astype(np.float32), offsets.astype(np.float32)))
            width = weights.shape[1]
        if not layers:
            raise StateError(f"a trained policy has no network {name!r}: train it again")
        return cls(tuple(layers), activation)
