"""The plain twin of `count_tree`: a dictionary and a sorted list."""

from __future__ import annotations

from bisect import insort
from typing import Any

from steelyard.kernels.count_tree import Ints


def buffer_rows_plain(
    keys: Ints,
    times: Ints,
    start: float,
    end: float,
    budget: int,
    first_step: float,
    expected: float,
    refresh_both: bool,
) -> tuple[list[int], list[int], list[int]]:
    """Algorithm 1 with a dictionary and a sorted list: (ids, counts, updates), most frequent first.

    The plain twin of `buffer_rows` over a whole batch.
    """
    table: dict[int, dict[str, Any]] = {}
    tree: list[tuple[int, int, int]] = []  # (count, -slot, id): ascending
    for rows, (key, now) in enumerate(zip(keys.tolist(), times.tolist(), strict=True), start=1):
        if key not in table:
            table[key] = {"freq": 1, "updated": 1, "last": now, "budget": budget, "slot": len(table)}
            table[key] |= {"f_step": first_step, "t_step": (end - now) / budget}
            insort(tree, (1, -table[key]["slot"], key))
            continue
        entry = table[key]
        entry["freq"] += 1
        if entry["budget"] <= 0:
            continue
        by_frequency = entry["freq"] - entry["updated"] >= entry["f_step"]
        by_time = now - entry["last"] >= entry["t_step"]
        if not by_frequency and not by_time:
            continue
        tree.remove((entry["updated"], -entry["slot"], key))
        insort(tree, (entry["freq"], -entry["slot"], key))
        entry["budget"] -= 1
        entry["updated"], entry["last"] = entry["freq"], now
        if by_frequency or refresh_both:
            estimate = expected if expected > 0 else rows * (end - start) / max(now - start, 1.0)
            entry["f_step"] = max(1.0, estimate / budget * entry["freq"] / rows)
        if entry["budget"] > 0 and (refresh_both or not by_frequency):
            entry["t_step"] = (end - now) / entry["budget"]
    order = [key for _, _, key in reversed(tree)]
    return order, [table[key]["freq"] for key in order], [budget - table[key]["budget"] for key in order]
