"""Online Shuffle Grouping: tuples go by estimated cost, which instances learn in small sketches.

N. Rivetti, E. Anceaume, Y. Busnel, L. Querzoni, B. Sericola, Online Scheduling for Shuffle Grouping in Distributed
Stream Processing Systems, Middleware 2016; periodic synchronisation and the clock are those of the first author's
published program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from steelyard.core import OptionError
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.rules import rule_of

if TYPE_CHECKING:
    from steelyard.grouping.batches import SketchedBatches
    from steelyard.kernels.osg_state import Rule

BY_WINDOW = -1
"""For `resync`: after as many tuples as make a window of every instance."""
LARGEST = 1 << 62
"""What compiled loops can count to with room to spare."""


@dataclass(frozen=True)
class OSG(CompiledGrouping):
    """Send each tuple to the instance that has been given the least estimated time.

    An instance counts in two matrices how often items come and how long they take. When these hold still it sends
    them to the schedulers, which estimate with them what a tuple will take, and ask instances now and then how far
    their sums are off. Until every instance has sent matrices, tuples go round robin.

    Parameters
    ----------
    epsilon, delta
        Precision of the matrices: `ceil(e / epsilon)` columns and `ceil(log2(1 / delta))` rows.
    columns, rows
        Their size itself; 0 goes by `epsilon` and `delta`.
    window
        N: executed tuples after which an instance looks whether its matrices hold still.
    tolerance
        mu: how much the mean times of the cells may move in a window, over their sum (Eq 1).
    stability
        `"eq1"` compares all cells, as printed: one that is hit for the first time then counts as moved by all of its
        mean, and skewed streams wait long for their first matrices. `"masked"` compares cells hit before.
    clock
        What synchronisation corrects estimates to. `"cumulated"` is the summed execution time, as printed: what was
        out of balance long ago is repaid though its queues are long empty, and with spare capacity OSG falls behind
        round robin. `"elapsed"` is the time that has gone by, as in the authors' program; with several schedulers each
        then counts on the others to send as much as it does.
    resync
        Tuples of a scheduler after which it synchronises though no matrices came; -1 is `window` times the number of
        instances, as in the authors' program; 0 never does, as printed.
    unseen
        What an item costs whose cells are empty: the instance's `"mean"`, or `"zero"`, as in the authors' program.
    send
        `"stable"` matrices are sent as printed; or only `"changed"` ones, which differ from the stable ones before
        by more than `tolerance`.
    update
        `"plain"` counts a tuple in every row, as printed; `"conservative"` only in its emptiest cells (Estan and
        Varghese 2002).
    keep
        Share of the matrices that stays after they were sent; 0 resets them, as printed.
    seed
        Of the hash functions.
    cost_of
        The column that costs depend on, for engines that have columns: any type, one value being one item.

    Examples
    --------
    >>> OSG(epsilon=0.05, delta=0.1).sketch_shape
    (4, 55)
    >>> OSG().scheduler(instances=5).mode
    'round_robin'
    """

    epsilon: float = 0.05
    delta: float = 0.1
    columns: int = 0
    rows: int = 0
    window: int = 1024
    tolerance: float = 0.05
    stability: Literal["eq1", "masked"] = "masked"
    clock: Literal["elapsed", "cumulated"] = "elapsed"
    resync: int = BY_WINDOW
    unseen: Literal["mean", "zero"] = "mean"
    send: Literal["stable", "changed"] = "stable"
    update: Literal["plain", "conservative"] = "plain"
    keep: float = 0.0
    seed: int = 3
    cost_of: str = ""

    name: ClassVar[str] = "osg"
    paper: ClassVar[str] = "Rivetti et al. 2016"
    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_sketch(self.name, self.epsilon, self.delta, self.columns, self.rows)
        require_whole(self.name, self.window, self.seed)
        for option, least in (("tolerance", 0), ("resync", BY_WINDOW)):
            if not getattr(self, option) >= least:
                raise OptionError(f"{option} of {self.name} must be {least} or more, got {getattr(self, option)}")
        require_share_kept(self.name, self.keep)
        for option, words in (
            ("stability", ("eq1", "masked")),
            ("clock", ("elapsed", "cumulated")),
            ("unseen", ("mean", "zero")),
            ("send", ("stable", "changed")),
            ("update", ("plain", "conservative")),
        ):
            if getattr(self, option) not in words:
                raise OptionError.unknown(f"{option} of {self.name}", getattr(self, option), words)

    @property
    def sketch_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrices."""
        return shape_of(self.epsilon, self.delta, self.columns, self.rows)

    def in_batches(self) -> SketchedBatches:
        """What is left of it where rows come in batches: its sketch."""
        from steelyard.grouping.batches import SketchedBatches  # noqa: PLC0415 - which knows the registry

        return SketchedBatches(self)

    def rule(self, instances: int) -> Rule:
        """The parameters as compiled loops take them."""
        from steelyard.kernels.osg_state import LEARNT  # noqa: PLC0415 - slow to import

        return rule_of(
            LEARNT,
            instances,
            window=self.window,
            tolerance=float(self.tolerance),
            masked=self.stability == "masked",
            elapsed=self.clock == "elapsed",
            resync=self.window * instances if self.resync == BY_WINDOW else self.resync,
            mean_unseen=self.unseen == "mean",
            on_change=self.send == "changed",
            keep=float(self.keep),
            conservative=self.update == "conservative",
            seed=self.seed,
            columns=self.sketch_shape[1],
        )


def shape_of(epsilon: float, delta: float, columns: int = 0, rows: int = 0) -> tuple[int, int]:
    """Rows and columns of matrices with this precision, or as given.

    The paper's own numbers are 4 and 54 for 0.05 and 0.1: it rounds 54.37 down there, and up elsewhere.
    """
    return rows or math.ceil(math.log2(1 / delta)), columns or math.ceil(math.e / epsilon)


def require_sketch(policy: str, epsilon: float, delta: float, columns: int, rows: int) -> None:
    """Raise OptionError unless matrices can have this size."""
    if not 0 < epsilon <= 1:
        raise OptionError(f"epsilon of {policy} must be above 0 and at most 1, got {epsilon}")
    if not 0 < delta < 1:
        raise OptionError(f"delta of {policy} must be above 0 and below 1, got {delta}")
    for option, value in (("columns", columns), ("rows", rows)):
        if value < 0:
            raise OptionError(f"{option} of {policy} must be 0 or more, got {value}: 0 goes by epsilon and delta")


def require_whole(policy: str, window: int, seed: int) -> None:
    """Raise OptionError unless compiled loops can count so far."""
    if not 1 <= window <= LARGEST:
        raise OptionError(f"window of {policy} must be 1 or more tuples, and at most 2^62, got {window}")
    if not 0 <= seed < LARGEST:
        raise OptionError(f"seed of {policy} must be 0 or more, and below 2^62, got {seed}")


def require_share_kept(policy: str, keep: float) -> None:
    """Raise OptionError unless so much of the matrices can stay."""
    if not 0 <= keep < 1:
        raise OptionError(f"keep of {policy} must be 0 or more and below 1, or nothing is ever forgotten; got {keep}")
