"""What a policy may need to see of a running job, and what of it engines show."""

from __future__ import annotations

SHOWN = {
    "operators": "to see operators",
    "instances": "to see instances",
    "arrivals": "to see what comes to sources",
    "bytes": "to see how many bytes go in and out",
    "cpu": "to see processor time",
    "queues": "to see what waits",
    "costs": "to see what rows cost",
    "state": "to see how large states are",
    "latency": "to see how old results are",
    "workers": "to see the load of workers",
    "placement": "to see where instances are",
    "batch": "to see batches",
    "batch.load": "to see how long a batch may take",
    "checkpoints": "to see what checkpoints cost and when workers failed",
    "weights": "to see weights of routes",
    "worksets": "to see worksets of a similarity join",
}
"""What a policy may need to see, in words for errors."""
OF_BATCHES = frozenset({"batch", "batch.load"})
"""What engines of batches show; the load only where batches have an interval."""
OF_SCENARIOS = frozenset(
    {"operators", "instances", "arrivals", "cpu", "queues", "placement", "workers", "latency", "weights"}
)
"""What simulated tuples show; flows all but the latency."""
OF_JOBS = OF_SCENARIOS | {"bytes", "costs", "state"}
"""What resident jobs show: arrivals where their readers tell where rows end, states where they have a store."""
