"""What policies have learnt, kept beside a query's commits so that it survives a restart."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from steelyard.core import Learning, Partitioner, ScalingPolicy, StateError, TuplePolicy
from steelyard.core.durable import Described, opened, sealed, written
from steelyard.core.policies import identity
from steelyard.spark.routing import Partitioners, packed, unpacked
from steelyard.spark.state import StateFolder

FORMAT = 5
"""Of what is kept; another one is not read."""
_LOG = logging.getLogger(__name__)


class PolicyMemory:
    """The state of a query's policies, written at each commit as `policy/12-<run>` under the checkpoint.

    A policy that was changed at a restart, by its kind or by a parameter, begins anew with a warning. So does one whose
    memory is not as it was written: it is a help, not part of the answers.

    Parameters
    ----------
    state
        The query's folder.
    partitioner, elastic
        The policies. Where they learn nothing, nothing is kept.
    """

    def __init__(self, state: StateFolder, partitioner: Partitioner | TuplePolicy, elastic: ScalingPolicy) -> None:
        self._state = state
        self.partitioners = None if isinstance(partitioner, Partitioner) else Partitioners(partitioner)
        policies = {"partitioner": partitioner, "elastic": elastic}
        self._learning: dict[str, Learning] = {n: p for n, p in policies.items() if isinstance(p, Learning)}
        self._identity: dict[str, Any] = {
            "format": FORMAT,
            **{name: identity(policy) for name, policy in policies.items()},
        }

    def keep(self, batch: int) -> Described | None:
        """Write what was learnt; gives the file as a commit describes it."""
        known = {name: text_of(policy) for name, policy in self._learning.items()}
        if self.partitioners is not None:
            known["routers"] = self.partitioners.to_text()
        if not known:
            return None
        name = self._state.new_folder(batch)
        self._state.policy.make()
        return self._state.policy.write_once(name, json.dumps({"of": self._identity, "known": known}))

    def recall(self, file: Described | None) -> None:
        """Read what a commit refers to, where it was learnt by the same policies."""
        if file is None:
            return
        of = f"batch {file.name.partition('-')[0]}"
        try:
            self._state.policy.require([file], of)
            kept = json.loads(self._state.policy.read(file.name, of))
            if kept["of"]["format"] != FORMAT:
                _LOG.warning("what policies had learnt is of another release: they begin anew")
                return
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the query can go on without
            _LOG.warning("policies begin anew, since what they had learnt cannot be read: %s", error)
            return
        for part, text in kept["known"].items():
            owner = "partitioner" if part == "routers" else part
            begin_from(owner, kept["of"].get(owner), self._identity[owner], partial(self._give_back, part, text))

    def _give_back(self, part: str, text: str) -> None:
        if part == "routers" and self.partitioners is not None:
            self.partitioners.restore(text)
        elif part in self._learning:
            restore_text(self._learning[part], text)


class KeptPolicy:
    """What a policy of a query on workers that stay has learnt, in a file of its own that is written anew each time.

    Where it is not as it was written, or another policy learnt it, the policy begins anew with a warning.

    Parameters
    ----------
    file
        Where.
    policy
        The policy. Where it learns nothing, nothing is kept.
    """

    def __init__(self, file: Path, policy: ScalingPolicy) -> None:
        self._file, self._identity = file, identity(policy)
        self._policy = policy if isinstance(policy, Learning) else None

    def keep(self, time: float) -> None:
        """Write what was learnt until this moment of the policy's time; what cannot be written is no failure."""
        if self._policy is None:
            return
        text = sealed({"of": self._identity, "time": time, "known": text_of(self._policy)})
        try:
            written(self._file, lambda file: file.write(text.encode()))
        except OSError as error:
            _LOG.warning("what the elastic policy has learnt cannot be written, a restart knows less of it: %s", error)

    def recall(self) -> float:
        """Read what was learnt; gives the moment until which it was, and 0 where there is nothing."""
        if self._policy is None or not self._file.exists():
            return 0.0
        try:
            kept, _ = opened(self._file.read_bytes(), self._file, "what the elastic policy had learnt")
        except (StateError, OSError) as error:
            _LOG.warning("the elastic policy begins anew, since what it had learnt cannot be read: %s", error)
            return 0.0
        begin_from("elastic", kept["of"], self._identity, partial(restore_text, self._policy, kept["known"]))
        return float(kept["time"])


def begin_from(owner: str, of: str | None, now: str, give_back: Callable[[], None]) -> None:
    """Give a policy back what was learnt; where another one learnt it, or it cannot be read, it begins anew.

    Parameters
    ----------
    owner
        Which policy of the query, for the warning.
    of, now
        The `identity` of the policy that learnt it, and of the one that there is now.
    give_back
        Does it.
    """
    if of != now:
        _LOG.warning("the %s policy begins anew, since another one had learnt: it is %s, and was %s", owner, now, of)
        return
    try:
        give_back()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the query can go on without
        _LOG.warning("the %s policy begins anew, since what it had learnt cannot be read: %r", owner, error)


def text_of(policy: Learning) -> str:
    """What it has learnt as text; empty for nothing."""
    learnt = policy.state()
    return base64.b64encode(packed(learnt)).decode() if learnt else ""


def restore_text(policy: Learning, text: str) -> None:
    """The inverse of `text_of`."""
    if text:
        policy.restore(unpacked(base64.b64decode(text)))
