"""OSG that keeps in touch with every instance instead of synchronising all of them at once: beyond the paper.

Chosen by experiment (`steelyard bench run osg-estimators`). Where OSG loses to Full Knowledge is less in the estimates
than in what becomes of their errors: they add up until the next epoch, the mean times of instances differ by chance
and count as speeds, and thousands of tuples go round robin before the first matrices are stable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from steelyard.core import OptionError
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.osg import OSG, require_share_kept, require_sketch, require_whole, shape_of
from steelyard.grouping.rules import rule_of

if TYPE_CHECKING:
    from steelyard.grouping.batches import SketchedBatches
    from steelyard.kernels.osg_state import Rule


@dataclass(frozen=True)
class TrackingOSG(CompiledGrouping):
    """OSG with a correction of each instance's load every few tuples, and speeds that follow changes within hundreds.

    Every `resync`-th tuple to an instance carries a request, and more of the first ones; its reply corrects the load of
    that instance at once, without epochs. Items without matrices cost the mean of all instances. An instance counts as
    slower or faster than the others as far as its last few hundred tuples took longer or shorter than was thought of
    them, and as this stands out of the noise: what they are about does not matter then, as it does in a mean.

    Parameters
    ----------
    epsilon, delta
        As those of `OSG`: together they say how many cells the matrices have.
    rows, columns
        How these are laid out. By default in a single row: where items are shared out, more cells part them better than
        more rows do. Columns of 0 make as many cells as OSG has.
    window, tolerance, seed
        As those of `OSG`.
    resync
        Tuples to an instance after which one carries a request.
    apart
        Seconds of work of an instance from one request to the next, as far as costs are known, and of a window, at
        least: a reply, or matrices, take some tenths of a millisecond of everybody's time, which many short tuples
        would feel.
    items
        `"each"` instance learns all items, as in OSG; or items are `"shared"` out, each learnt by one instance for
        all, so that a cell has as many items less as there are instances.
    update
        `"plain"` counts a tuple in every row, `"conservative"` only in its emptiest cells (Estan and Varghese 2002).
    keep
        Share of the matrices that stays after they were sent; 0 resets them, as OSG does.
    idle_aware
        Whether no instance is thought to end before now; `choose` then needs `times`, on the clock of the instances.
    cost_of
        As that of `OSG`.

    Examples
    --------
    >>> TrackingOSG().sketch_shape
    (1, 220)
    >>> TrackingOSG(resync=16).scheduler(instances=5).mode
    'round_robin'
    """

    epsilon: float = 0.05
    delta: float = 0.1
    rows: int = 1
    columns: int = 0
    window: int = 1024
    tolerance: float = 0.05
    resync: int = 64
    apart: float = 0.1
    items: Literal["each", "shared"] = "shared"
    update: Literal["plain", "conservative"] = "plain"
    keep: float = 0.0
    idle_aware: bool = True
    seed: int = 3
    cost_of: str = ""

    name: ClassVar[str] = "tracking_osg"
    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_sketch(self.name, self.epsilon, self.delta, self.columns, self.rows)
        require_whole(self.name, self.window, self.seed)
        for option, least in (("rows", 1), ("tolerance", 0), ("resync", 1), ("apart", 0)):
            if not getattr(self, option) >= least:
                raise OptionError(f"{option} of {self.name} must be {least} or more, got {getattr(self, option)}")
        require_share_kept(self.name, self.keep)
        for option, words in (("items", ("each", "shared")), ("update", ("plain", "conservative"))):
            if getattr(self, option) not in words:
                raise OptionError.unknown(f"{option} of {self.name}", getattr(self, option), words)

    @property
    def sketch_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrices."""
        depth, width = shape_of(self.epsilon, self.delta)
        return self.rows, self.columns or max(depth * width // self.rows, 1)

    def in_batches(self) -> SketchedBatches:
        """What is left of it where rows come in batches: its sketch, in OSG's hands."""
        rows, columns = self.sketch_shape
        sketch = OSG(self.epsilon, self.delta, columns, rows, update=self.update, seed=self.seed, cost_of=self.cost_of)
        return replace(sketch.in_batches(), name=self.name)

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        from steelyard.kernels.osg_state import LEARNT  # noqa: PLC0415 - slow to import

        return rule_of(
            LEARNT,
            instances,
            window=self.window,
            tolerance=float(self.tolerance),
            resync=self.resync,
            apart=float(self.apart),
            keep=float(self.keep),
            conservative=self.update == "conservative",
            idle_aware=self.idle_aware,
            continuous=True,
            shared=self.items == "shared",
            seed=self.seed,
            columns=self.sketch_shape[1],
        )
