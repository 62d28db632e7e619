"""Placements in numbers that mean the same whatever the size of the cluster and the application.

A *group* is what a component has on a machine. What is known of a group is a row of features, and all rows go through
the same network, so that one that was trained on four machines reads ten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.measured import Reading
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats

FEATURES = (
    "rate of a thread", "rate of the machine", "threads of the machine", "processes of the machine",
    "senders here", "receivers here", "machines of the application", "threads here", "threads of the component",
    "source", "last", "share of the component", "share of the machine", "rate of the component", "predicted time",
)  # fmt: skip
"""Of a group. Rates are tuples per second and core, on a logarithmic scale as numbers and times are."""
_PER_SECOND, _SECONDS = 1000.0, 0.001


class Groups(NamedTuple):
    """Placements as groups.

    Parameters
    ----------
    features
        float32[B, components * machines, features]
    weights
        float32[B, applications, components * machines]: of each group in what is said of an application; 1 together.
    """

    features: Floats
    weights: Floats


def groups(setup: Setup, assignments: Ints, seen: Reading, predicted: Floats) -> Groups:
    """What networks read of placements.

    Parameters
    ----------
    setup
        Applications and machines.
    assignments
        int64[B, threads]
    seen
        What was measured last, under any placement: rates of components are taken from it.
    predicted
        float64[B, applications]: times of a model, in seconds.
    """
    counts = setup.counts(assignments).astype(np.float64)
    batch, components, machines = counts.shape
    running = counts.sum(axis=2, keepdims=True)
    share = counts / np.maximum(running, 1.0)
    cores = np.array([host.cores for host in setup.hosts])
    rate = np.add.reduceat(np.nan_to_num(seen.processed), setup.first[:-1]) / max(seen.seconds, 1e-9)
    tuples = rate[None, :, None] * share
    on_machine = tuples.sum(axis=1, keepdims=True) / cores
    application = setup.application_of
    applications = len(setup.applications)
    member = (application[None, :] == np.arange(applications)[:, None]).astype(np.float64)
    there = np.einsum("ac,bcm->bam", member, counts) > 0
    into, onward = _neighbours(setup)
    shape = counts.shape

    def spread(values: Floats) -> Floats:
        return np.broadcast_to(values, shape)

    features = [
        np.log1p(tuples / np.maximum(counts, 1.0)) / 5,
        spread(np.log1p(on_machine) / 5),
        spread(np.log1p(counts.sum(axis=1, keepdims=True) / cores)),
        spread(there.sum(axis=1)[:, None, :] / 3),
        np.einsum("cu,bum->bcm", into, share),
        np.einsum("cd,bdm->bcm", onward, share),
        spread(np.log(there.sum(axis=2))[:, application][:, :, None] / 2),
        np.log1p(counts) / 2,
        spread(np.log1p(running) / 3),
        spread((into.sum(axis=1) == 0).astype(np.float64)[None, :, None]),
        spread((onward.sum(axis=1) == 0).astype(np.float64)[None, :, None]),
        share,
        tuples / np.maximum(on_machine * cores, 1e-9),
        spread(np.log1p(rate / _PER_SECOND)[None, :, None]),
        spread(np.log(predicted / _SECONDS)[:, application][:, :, None] / 2),
    ]
    weights = member[None, :, :, None] * share[:, None] / member.sum(axis=1)[None, :, None, None]
    return Groups(
        np.stack(features, axis=-1).reshape(batch, components * machines, len(FEATURES)).astype(np.float32),
        weights.reshape(batch, applications, components * machines).astype(np.float32),
    )


def _neighbours(setup: Setup) -> tuple[Floats, Floats]:
    """float64[components, components]: shares of its senders in what a component gets, and of its receivers."""
    into = np.zeros((len(setup.operators), len(setup.operators)))
    for sender, receiver in setup.links.tolist():
        into[receiver, sender] = 1.0
    onward = into.T.copy()
    return (
        into / np.maximum(into.sum(axis=1, keepdims=True), 1.0),
        onward / np.maximum(onward.sum(axis=1, keepdims=True), 1.0),
    )
