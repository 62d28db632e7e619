"""`steelyard train partly`: progress while it trains, a stop between two updates, and what came of it."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import numpy as np

from steelyard.bench import charts
from steelyard.bench.tables import Series
from steelyard.learning import Curve
from steelyard.partition.learned.courses import ANEW, ANEW_UPDATES, Judged, half_of, train_anew, train_on
from steelyard.partition.learned.training import Progress

if TYPE_CHECKING:
    from rich.console import Console

BLOCKS, MINUTES, SEED = 24, 5.0, 0
"""Of training on a file, where nothing else is said."""


class Stop:
    """Ctrl-C between two updates: what is saved is whole. A second one stops at once."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Stop:
        self._asked = False
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._console.print("stopping after this step; Ctrl-C again stops at once")
        signal.signal(signal.SIGINT, self._before)

    def heed(self) -> None:
        """Raise KeyboardInterrupt if somebody asked for it."""
        if self._asked:
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)


def train_partly(options: argparse.Namespace, console: Console) -> tuple[bool, list[str]]:
    """Train as the command says; whether it came to its end, and what to say of it."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    minutes = options.minutes or (np.inf if options.anew else MINUTES)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Stop(console) as stop, Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("compiling", total=60 * minutes if np.isfinite(minutes) else ANEW_UPDATES)

        def report(at: Progress) -> None:
            done = at.seconds if np.isfinite(minutes) else at.update
            bar.update(task, completed=done, description=f"update {at.update}, cost {at.cost:.3f}")
            stop.heed()

        try:
            if options.anew:
                seed = ANEW.seed if options.seed is None else options.seed
                found = train_anew(options.out, report, seed, minutes, resume=options.resume)
            else:
                blocks, seed = options.blocks or BLOCKS, SEED if options.seed is None else options.seed
                found = train_on(options.on, options.out, blocks, minutes, seed, report, options.resume)
            stop.heed()  # of who asked while the last plans were judged
        except KeyboardInterrupt:
            kept = half_of(options.out)
            if not kept.exists():
                return False, ["stopped before anything was learnt"]
            return False, [f"stopped: {kept} has what was learnt, and the same command with --resume goes on"]
    return True, list(_told(found, options.out))


def _told(found: Judged, out: Path) -> Iterator[str]:
    where = "that it did not see" if found.unseen else "that it learnt from, as there is no other"
    batches = f"mean of {found.batches} batches" if found.batches > 1 else "of the one batch"
    yield f"MPI over Prompt's, {batches} {where}: {found.before:.3f} before, {found.after:.3f} after"
    if not found.kept:
        yield "training did not help: the weights are those that come with the package"
    yield f'{out}: .partition_by("partly?weights={out}")'
    try:
        yield f"{_drawn(found.curve, out.with_suffix('.png'))}: the learning curve"
    except charts.PlottingError as error:
        yield f"no learning curve: {error}"


def _drawn(curve: Curve, path: Path) -> Path:
    costs = Series("cost", [float(update) for update in range(1, len(curve.values) + 1)], curve.values.tolist())

    def draw(figure: charts.Figure) -> None:
        charts.lines(figure.add_subplot(), [costs], title="learning curve", x="update", y="log(1 + cost in mean keys)")

    return charts.save(draw, path)
