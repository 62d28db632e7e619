"""What the demonstration shows while it runs: a table that fills, or plain lines where there is no terminal."""

from __future__ import annotations

import statistics
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from steelyard.bench.demo.stream import OURS, WAYS, Measured, Scenario


def median(batches: list[Measured], of: str) -> float:
    """The median of a figure over batches, by its name."""
    return statistics.median(float(getattr(batch, of)) for batch in batches)


class View:
    """The batches of all ways, as they come.

    Used as a context: on a terminal a table is redrawn until the context ends; elsewhere every batch is a line.

    Parameters
    ----------
    scenario
        Whose batches they are.
    console
        Where to draw.
    """

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self.scenario = scenario
        self.console = console
        self.batches: list[Measured] = []
        self.at_work = ""
        self._live = Live(self._table(), console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> View:
        self.console.print(self.story, highlight=False, soft_wrap=True)
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._at("")
        if self._live is not None:
            self._live.stop()
        elif kind is None:
            self.console.print(self._table())

    @property
    def story(self) -> str:
        """What the work is."""
        work, chosen = self.scenario.work, self.scenario
        return (
            f"{chosen.rows:,} rows per batch, {chosen.keys} skewed keys: each row is scored by a "
            f"service ({work.wait_us / 1000:g} ms), and for each of its keys a task first fetches a profile "
            f"({work.fetch_us / 1000:g} ms)."
        )

    def begin(self, way: str) -> None:
        """A way starts."""
        self._at(way)

    def add(self, batch: Measured) -> None:
        """A way has finished a batch."""
        if batch.batch >= self.scenario.warm_ups + self.scenario.batches:  # the row that closes the last window
            return
        self.batches.append(batch)
        if self._live is not None:
            self._live.update(self._table())
        else:
            self.console.print(self.line(batch), highlight=False)

    def counted(self, way: str) -> list[Measured]:
        """The batches of a way that count."""
        return [batch for batch in self.batches if batch.way == way and batch.counts]

    def line(self, batch: Measured) -> str:
        """One batch in words."""
        chose = f", chose {batch.policy}" if batch.policy else ""
        if not batch.counts:
            return f"  {batch.way}: warm-up {batch.batch + 1} of {self.scenario.warm_ups}, {batch.seconds:.2f} s{chose}"
        return (
            f"  {batch.way}: batch {batch.batch - self.scenario.warm_ups + 1} of {self.scenario.batches}, "
            f"{batch.seconds:.2f} s, {batch.fetched:,} fetches, rows largest/mean {batch.largest_over_mean:.2f}, "
            f"longest task {batch.longest:.2f} s{chose}"
        )

    def _at(self, way: str) -> None:
        self.at_work = way
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        for heading in ("batch", "time per batch", "longest task", "fetches", "rows largest/mean", "tasks"):
            table.add_column(heading, justify="right", no_wrap=True)
        for way in WAYS:
            table.add_row(*self._row(way))
        return table

    def _row(self, way: str) -> list[Text | str]:
        seen = [batch for batch in self.batches if batch.way == way]
        counted = self.counted(way)
        name = Text(way, style="bold" if way in (self.at_work, OURS) else "")
        if not counted:
            return [name, f"warm {len(seen)}/{self.scenario.warm_ups}" if way == self.at_work else "", *[""] * 5]
        return [
            name,
            f"{len(counted)}/{self.scenario.batches}",
            f"{median(counted, 'seconds'):.2f} s",
            f"{median(counted, 'longest'):.2f} s",
            f"{median(counted, 'fetched'):,.0f}",
            f"{median(counted, 'largest_over_mean'):.2f}",
            str(len(counted[-1].tasks)),
        ]
