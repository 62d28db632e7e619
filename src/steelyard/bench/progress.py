"""What a waiting person sees while a benchmark runs. It goes to stderr, so that stdout stays parseable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


class Reporter:
    """Sentences and progress bars on stderr.

    On a terminal a bar is drawn and removed when it ends. Elsewhere (a log file, a build) only the
    sentences are written.

    Examples
    --------
    >>> quiet = Reporter(Console(quiet=True))
    >>> [square * square for square in quiet.track([1, 2, 3], "squares")]
    [1, 4, 9]
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)

    def say(self, sentence: str) -> None:
        """Write one sentence."""
        self.console.print(f"[dim]{escape(sentence)}[/dim]", highlight=False)

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """The items one by one, with a bar that says how far it is."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        bar = Progress(
            TextColumn("[progress.description]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bar:
            yield from bar.track(items, total=total, description=escape(description))
