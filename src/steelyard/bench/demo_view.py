"""What the demonstration shows while it runs: a table that fills, or plain lines where there is no terminal."""

from __future__ import annotations

import statistics
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from steelyard.bench.demo_stream import ENGINES, Measured, Scenario


def median(batches: list[Measured], of: str) -> float:
    """The median of a figure over batches, by its name."""
    return statistics.median(float(getattr(batch, of)) for batch in batches)


class View:
    """The batches of one scenario, as they come.

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
        self.console.print(f"[bold]{self.scenario.name}[/bold]: {self.scenario.story}", highlight=False)
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

    def begin(self, engine: str) -> None:
        """An engine starts."""
        self._at(engine)

    def add(self, batch: Measured) -> None:
        """An engine has finished a batch."""
        if batch.batch >= self.scenario.warm_ups + self.scenario.batches:  # the row that closes the last window
            return
        self.batches.append(batch)
        if self._live is not None:
            self._live.update(self._table())
        else:
            self.console.print(self.line(batch), highlight=False)

    def counted(self, engine: str) -> list[Measured]:
        """The batches of an engine that count."""
        return [batch for batch in self.batches if batch.engine == engine and batch.counts]

    def line(self, batch: Measured) -> str:
        """One batch in words."""
        if not batch.counts:
            return f"  {batch.engine}: warm-up {batch.batch + 1} of {self.scenario.warm_ups}, {batch.seconds:.2f} s"
        return (
            f"  {batch.engine}: batch {batch.batch - self.scenario.warm_ups + 1} of {self.scenario.batches}, "
            f"{batch.seconds:.2f} s, "
            f"{batch.seconds / self.scenario.interval:.2f} of the interval, "
            f"largest/mean {batch.largest_over_mean:.2f}, {len(batch.sizes)} tasks"
        )

    def _at(self, engine: str) -> None:
        self.at_work = engine
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        longest = "longest" if self.scenario.waits else "longest CPU"
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        for heading in ("batch", "time", "of interval", "largest/mean", "tasks", longest):
            table.add_column(heading, justify="right", no_wrap=True)
        for engine in ENGINES:
            table.add_row(*self._row(engine))
        return table

    def _row(self, engine: str) -> list[Text | str]:
        seen = [batch for batch in self.batches if batch.engine == engine]
        counted = self.counted(engine)
        name = Text(engine, style="bold" if engine == self.at_work else "")
        if not counted:
            return [name, f"warm {len(seen)}/{self.scenario.warm_ups}" if engine == self.at_work else "", *[""] * 5]
        seconds = median(counted, "seconds")
        load = seconds / self.scenario.interval
        return [
            name,
            f"{len(counted)}/{self.scenario.batches}",
            f"{seconds:.2f} s",
            Text(f"{load:.2f}", style="red" if load > 1 else "green"),
            f"{median(counted, 'largest_over_mean'):.2f}",
            str(len(counted[-1].sizes)),
            f"{median(counted, 'critical_path'):.2f} s",
        ]
