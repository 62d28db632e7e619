"""What training of several agents is told."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.core.errors import OptionError

ALL_AT_ONCE, ONE_AT_A_TIME = "all_at_once", "one_at_a_time"
ORCHESTRATIONS = (ALL_AT_ONCE, ONE_AT_A_TIME)


@dataclass(frozen=True)
class Training:
    """How agents are trained.

    Parameters
    ----------
    orchestration
        `all_at_once`: every partitioner learns, and what all of them lived through is one buffer. `one_at_a_time`: one
        of them learns while the others cut as Prompt does; all get its policy if it is no worse than Prompt's.
    partitioners
        How many there are.
    queries
        Simulated queries that run beside each other.
    episodes
        Of each query; the most that is done.
    batches
        Of an episode.
    hidden
        Width of the two hidden layers of every network.
    discount, tau, minibatch, buffer
        As usual for actor-critic methods of several agents; gamma, and the share by which targets follow.
    actor_rate, critic_rate
        Learning rates.
    explore
        Share of actions that are drawn evenly at the start; it fades to `explore_last` over two thirds of the episodes.
    seed
        Of all random choices.
    """

    orchestration: str = ALL_AT_ONCE
    partitioners: int = 3
    queries: int = 64
    episodes: int = 100
    batches: int = 100
    hidden: int = 64
    discount: float = 0.9
    tau: float = 0.01
    minibatch: int = 512
    buffer: int = 200_000
    actor_rate: float = 5e-4
    critic_rate: float = 2e-3
    explore: float = 0.5
    explore_last: float = 0.02
    seed: int = 7

    def __post_init__(self) -> None:
        if self.orchestration not in ORCHESTRATIONS:
            raise OptionError.unknown("orchestration", self.orchestration, ORCHESTRATIONS)
        for name in ("partitioners", "queries", "episodes", "batches", "hidden", "minibatch", "buffer"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of training must be 1 or more, got {getattr(self, name)!r}")
        if not 0 <= self.discount < 1:
            raise OptionError(f"discount of training must be 0 or more and below 1, got {self.discount!r}")
