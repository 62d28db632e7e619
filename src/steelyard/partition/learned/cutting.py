"""What a partitioner agent sees of its own input and of its own blocks, and the ways to cut that it chooses from.

Abdelhamid 2021, section 4.8: each partitioner observes its own input and what is immediately downstream of it, and
nothing else. Nothing here depends on how many rows or keys there are, so one network serves any of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steelyard.core import Partitioner, StateError
from steelyard.core.counts import Ints
from steelyard.learning import Network, Trained, once_per_file
from steelyard.partition.fragmentation import FragmentationMinimisation
from steelyard.partition.hash import Hash
from steelyard.partition.prompt import Prompt

POLICY = "agent"
SHIPPED = Path(__file__).with_name("agent.npz")
WAYS: tuple[Partitioner, ...] = (Hash(), FragmentationMinimisation(), Prompt(), Prompt(residual_order="insertion"))
"""An action of the agent is one of these: no cuts, as few as can be, Prompt's, and Prompt's with more cuts."""
UNCUT, FEWEST, HEURISTIC, MORE = range(len(WAYS))
INPUT, FEATURES = 5, 7
"""Features of the input, and all of them."""
VERSION = 1
"""Of the features; weights for another one are refused."""
MOST = 2.0
"""Blocks that are more uneven than this are not told apart."""


def of_input(rows: Ints, blocks: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32[INPUT]: how large the largest keys are beside a block, and how many keys and rows there are for it."""
    keys, total = max(len(rows), 1), max(int(rows.sum()), 1)
    top = np.partition(rows, -blocks)[-blocks:] if len(rows) > blocks else rows
    largest = int(rows.max(initial=0))
    found = [
        np.log1p(largest * blocks / total),
        top.sum() / total,
        np.log(keys / blocks) / 10,
        np.log2(blocks) / 5,
        np.log(total / keys) / 10,
    ]
    return np.array(found, np.float32)


def features(of_input: Any, key_share: Any, uneven: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32[..., FEATURES]: the input, what share of a block's time keys take, and how uneven the own blocks were.

    `uneven` is the longest task over the mean, less 1.
    """
    told = np.stack(np.broadcast_arrays(key_share, np.clip(uneven, 0, MOST)), -1)
    return np.concatenate([of_input, told], -1).astype(np.float32)


@once_per_file
def load(path: Path) -> Network:
    """A trained network for use; StateError, in one sentence, where there is none."""
    found = Trained.load(path, POLICY)
    found.require(features=VERSION)
    network = Network.from_arrays("actor", found.arrays, "relu")
    if (network.sizes[0], network.sizes[-1]) != (FEATURES, len(WAYS)):
        raise StateError(f"{path} has a network of {network.sizes}: train it again")
    return network
