"""What training is told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from steelyard.core import OptionError
from steelyard.partition.learned.rewards import COSTS, READINGS, Cost

Bootstrap = Literal["imitation", "rewards", "none"]
Method = Literal["ppo", "policy_gradient", "dqn"]
_BOOTSTRAPS: tuple[Bootstrap, ...] = ("imitation", "rewards", "none")
_METHODS: tuple[Method, ...] = ("ppo", "policy_gradient", "dqn")
RUN_TIME: Literal["runtime"] = "runtime"


@dataclass(frozen=True)
class Training:
    """Parameters of training; the document gives none of PPO's.

    Parameters
    ----------
    actions
        Level of actions, 0 to 3.
    bootstrap
        `"rewards"`: Prompt's constraints reward every step, as in section 4.5.1. `"imitation"`: first the teacher's
        decisions are imitated, then rewards are those of the end alone. `"none"`: those of the end from the start.
    method
        `"ppo"`, plain `"policy_gradient"` with the critic as baseline, or `"dqn"`: scores are values of actions, which
        cannot begin with imitation, and run time cannot take over from a cost model.
    cost
        What the end is judged by: `"mpi"`, `"pk2"`, or `"runtime"`: first `"mpi"`, and after `modelled` updates the
        larger variance of task times of the two stages, in the range of the costs before.
    average
        What becomes of rewards of run time: `"none"`, or the running average in one of the document's readings:
        `"smooth"` (it is the reward) or `"baseline"` (it is taken off).
    modelled
        Updates by the cost model, where run time follows.
    batches
        Batches at once, one update for all of them.
    keys, blocks
        The largest batch.
    hidden
        Width of the hidden layer.
    rate, clip, epochs, minibatches, entropy, gae, discount
        PPO's own.
    imitated
        Updates of imitation, where that is how it begins.
    teach_rate
        The learning rate of imitation.
    explore, buffer, tau
        Of deep Q-learning: the share of decisions that are drawn, transitions that are kept for replay, and how fast
        the target network follows.
    seed
        Of everything.
    """

    actions: int = 3
    bootstrap: Bootstrap = "imitation"
    method: Method = "ppo"
    cost: Cost | Literal["runtime"] = "mpi"
    average: Literal["none", "smooth", "baseline"] = "none"
    modelled: int = 150
    batches: int = 256
    keys: int = 96
    blocks: int = 24
    hidden: int = 32
    rate: float = 3e-4
    clip: float = 0.2
    epochs: int = 2
    minibatches: int = 4
    entropy: float = 0.001
    gae: float = 0.95
    discount: float = 1.0
    imitated: int = 150
    teach_rate: float = 3e-3
    explore: float = 0.1
    buffer: int = 20_000
    tau: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, known in (
            ("bootstrap", self.bootstrap, _BOOTSTRAPS),
            ("method", self.method, _METHODS),
            ("cost", self.cost, (*COSTS, RUN_TIME)),
            ("average", self.average, ("none", *READINGS)),
        ):
            if value not in known:
                raise OptionError.unknown(f"{what} of training", value, known)
        if not 0 <= self.actions <= 3:
            raise OptionError(f"actions of training must be level 0 to 3, got {self.actions}")
        for name in ("batches", "keys", "blocks", "hidden", "epochs", "minibatches", "buffer"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of training must be at least 1, got {getattr(self, name)}")
        if self.values and (self.bootstrap == "imitation" or self.cost == RUN_TIME):
            raise OptionError("dqn learns values of actions: with bootstrap='rewards' or 'none', and a cost of plans")
        if not 0 <= self.explore <= 1:
            raise OptionError(f"explore of training is a share, 0 to 1, got {self.explore}")
        if self.average != "none" and self.cost != RUN_TIME:
            raise OptionError(f"average={self.average!r} of training is of rewards of run time: cost='{RUN_TIME}'")
        taught = self.imitated if self.bootstrap == "imitation" else 0
        if self.cost == RUN_TIME and self.modelled < taught:
            raise OptionError(f"modelled of training must be at least imitated, {taught}, got {self.modelled}")
        if self.batches % self.minibatches:
            raise OptionError(
                f"batches of training must be a multiple of its minibatches, got {self.batches} and {self.minibatches}"
            )

    @property
    def values(self) -> bool:
        """Whether scores are values of actions, rather than logits of their probabilities."""
        return self.method == "dqn"

    @property
    def model(self) -> Cost:
        """The cost that a plan has by itself; where run time is what counts, the one before it."""
        return "mpi" if self.cost == RUN_TIME else self.cost

    @property
    def steps(self) -> int:
        """Decisions that an episode may take: every key, and half of what putting off and filling holes might add."""
        return self.keys if self.actions < 3 else self.keys + (self.put_off + self.blocks) // 2

    @property
    def put_off(self) -> int:
        """Keys that can be put off."""
        return min(32, self.keys)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
