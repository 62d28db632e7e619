"""Families of policies: whoever puts a class with a `name` into the folder of a family has added a policy to it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from steelyard.core.errors import OptionError
from steelyard.core.names import named as object_named

Policy = TypeVar("Policy")


@dataclass(frozen=True)
class Entry:
    """One policy of a family.

    Parameters
    ----------
    kind
        Its class; what it is made with are its parameters.
    runs
        What runs it.
    """

    kind: type[Any]
    runs: tuple[str, ...]

    @property
    def name(self) -> str:
        """What a user calls it."""
        return str(self.kind.name)

    @property
    def what(self) -> str:
        """What it does: the first line of its docstring."""
        return (inspect.getdoc(self.kind) or "").partition("\n")[0]

    @property
    def paper(self) -> str:
        """Who made it, and where that stands; empty for what was made here."""
        return str(getattr(self.kind, "paper", ""))

    @property
    def file(self) -> str:
        """Where it lives, below the package."""
        return self.kind.__module__.partition(".")[2].replace(".", "/") + ".py"

    @property
    def parameters(self) -> dict[str, Any]:
        """What may stand behind its name, with the values that hold where it does not."""
        return {name: one.default for name, one in inspect.signature(self.kind).parameters.items()}


class Family(Generic[Policy]):
    """Policies of one kind, found in the modules of a package.

    Parameters
    ----------
    package
        Where they live: each class there that has a `name` of its own and one of the verbs.
    what
        What one of them is, in errors: `"partitioner"`.
    title
        What they decide, and how a user asks for one.
    verbs
        Methods of which a policy has at least one.
    runs
        What runs a policy of a class.
    """

    def __init__(
        self,
        package: str,
        what: str,
        title: str,
        verbs: tuple[str, ...],
        runs: Callable[[type[Any]], tuple[str, ...]],
    ) -> None:
        self.package, self.what, self.title, self.verbs = package, what, title, verbs
        self._runs = runs

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """All policies by name, in alphabetical order."""
        found: dict[str, Entry] = {}
        for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
            for kind in vars(importlib.import_module(f"{self.package}.{module.name}")).values():
                if inspect.isclass(kind) and kind.__module__.endswith(f".{module.name}") and self._is_policy(kind):
                    entry = Entry(kind, self._runs(kind))
                    if entry.name in found:
                        raise ValueError(f"two classes of {self.package} are called {entry.name!r}")
                    found[entry.name] = entry
        return dict(sorted(found.items()))

    def _is_policy(self, kind: type[Any]) -> bool:
        return isinstance(kind.__dict__.get("name"), str) and any(hasattr(kind, verb) for verb in self.verbs)

    def names(self) -> list[str]:
        """What its policies are called."""
        return list(self.entries)

    def named(self, given: str | Policy) -> Policy:
        """A policy from its name, with parameters behind a question mark; an object is given back as it is."""
        if isinstance(given, str):
            made: Policy = object_named(self.what, given, {name: one.kind for name, one in self.entries.items()})
            return made
        if isinstance(given, type) or not any(hasattr(given, verb) for verb in self.verbs):
            verbs = " or ".join(f"`{verb}`" for verb in self.verbs)
            article = "an" if self.what[0] in "aeiou" else "a"
            raise OptionError(f"{article} {self.what} is a name or an object with {verbs}, got {given!r}")
        return given
