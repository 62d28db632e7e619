"""What an observation has, in the words in which engines say what they show and policies what they need."""


def shown_by(seen):
    """All that is there; what is known of a single operator or source counts."""

    def known(*names):
        return any(getattr(one, name) is not None for one in seen.operators for name in names)

    there = {
        "operators": bool(seen.operators),
        "instances": any(one.instances for one in seen.operators),
        "arrivals": known("arrived_per_second", "lag", "lag_seconds", "lag_per_second", "end_offset"),
        "bytes": known("bytes_in_per_second", "bytes_out_per_second"),
        "cpu": known("cpu"),
        "queues": known("queue"),
        "costs": known("costs"),
        "state": known("state_bytes"),
        "latency": seen.latency is not None,
        "workers": bool(seen.workers),
        "placement": bool(seen.placement),
        "checkpoints": seen.checkpoints is not None,
        "weights": seen.weights is not None,
        "batch": seen.batch is not None,
        "batch.load": seen.batch is not None and seen.batch.interval_seconds > 0,
    }
    return {name for name, is_there in there.items() if is_there}
