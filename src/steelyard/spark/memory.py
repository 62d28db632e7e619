"""What policies have learnt, kept beside a query's commits so that it survives a restart."""

from __future__ import annotations

import base64
import json
from typing import Any

from steelyard.core import ElasticityPolicy, Learning, Partitioner, TuplePolicy
from steelyard.spark.routing import Partitioners, packed, unpacked
from steelyard.spark.state import StateFolder


class PolicyMemory:
    """The state of a query's policies, written at each commit as `policy/12-<run>` under the checkpoint.

    A policy that was changed at a restart, by its kind or by a parameter, begins anew.

    Parameters
    ----------
    state
        The query's folder.
    partitioner, elastic
        The policies. Where they learn nothing, nothing is kept.
    """

    def __init__(self, state: StateFolder, partitioner: Partitioner | TuplePolicy, elastic: ElasticityPolicy) -> None:
        self._state = state
        self.partitioners = None if isinstance(partitioner, Partitioner) else Partitioners(partitioner)
        self._learning = {
            name: policy
            for name, policy in (("partitioner", partitioner), ("elastic", elastic))
            if isinstance(policy, Learning)
        }
        self._identity = {"partitioner": repr(partitioner), "elastic": repr(elastic)}

    def keep(self, batch: int) -> str | None:
        """Write what was learnt; gives the name under which a commit refers to it."""
        known: dict[str, Any] = {
            name: base64.b85encode(packed(policy.state())).decode() for name, policy in self._learning.items()
        }
        if self.partitioners is not None:
            known["partitioner"] = self.partitioners.to_text()
        if not known:
            return None
        name = self._state.new_folder(batch)
        self._state.policy.make()
        self._state.policy.write_once(name, json.dumps({"of": self._identity, "known": known}))
        return name

    def recall(self, name: str | None) -> None:
        """Read what a commit refers to, where it was learnt by the same policies."""
        if name is None:
            return
        kept = json.loads(self._state.policy.read(name))
        for part, text in kept["known"].items():
            if kept["of"][part] != self._identity[part]:
                continue
            if part == "partitioner" and self.partitioners is not None:
                self.partitioners.restore(text)
            elif part in self._learning:
                self._learning[part].restore(unpacked(base64.b85decode(text)))
