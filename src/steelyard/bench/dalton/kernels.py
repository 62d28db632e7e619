"""How fast policies route on one core, beside a compiled hash of the same keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment
from steelyard.core.counts import Ints, KeyCounts
from steelyard.partition import Prompt, tuple_policy
from steelyard.workloads.zipf import Zipf

TUPLES, QUICK_TUPLES = 10_000_000, 10_000_000
PLAN_TUPLES = 1_000_000
KEYS, BLOCKS = 100_000, 16
HEADLINE = 1.2
EXPONENTS = (0.0, 0.8, 1.2, 1.6)
HASH, TWO_CHOICES, DALTON = "hash", "pk2", "dalton"
POLICIES = (HASH, "shuffle", TWO_CHOICES, "pk5", "d_choices", "w_choices", "cam", "cm", "dagreedy", DALTON, "prompt")
QUICK_POLICIES = (HASH, TWO_CHOICES, "dagreedy", DALTON)
REPETITIONS, QUICK_REPETITIONS = 7, 5


@dataclass(frozen=True)
class Speeds:
    """Seconds of each policy over the same tuples, for one skew."""

    exponent: float
    tuples: int
    turns: Mapping[str, Sequence[float]]

    @property
    def seconds(self) -> dict[str, float]:
        """The fastest turn of each."""
        return {policy: min(taken) for policy, taken in self.turns.items()}

    def against_hash(self, policy: str) -> float:
        """Speed of a policy over that of hash, each at its fastest turn."""
        return self.seconds[HASH] / self.seconds[policy]

    def median_against_hash(self, policy: str) -> float:
        """The same at the median turn of each."""
        return float(np.median(self.turns[HASH]) / np.median(self.turns[policy]))


def key_ids(tuples: int, exponent: float, seed: int) -> Ints:
    """Ids of keys by Zipf's law, as `spark_hash` gives them: any 64-bit number, not small ones in a row."""
    from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - compiled when it is used

    law = Zipf(exponent, KEYS, seed=seed)
    ids = spark_hash(pa.array(np.arange(KEYS)))
    drawn = law.rows(0, tuples, np.zeros(tuples, np.int64)).column("key").to_numpy()
    return np.ascontiguousarray(ids[drawn])


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    clock = time.perf_counter()
    work()
    return time.perf_counter() - clock


def route_all(policy: str, keys: Ints, times: Ints) -> None:
    """A new partitioner of the policy over all keys."""
    tuple_policy(policy).router(BLOCKS).route(keys, times)


def plan_all(keys: Ints) -> None:
    """Prompt's plan of these rows: count them, sort, pack."""
    from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - compiled when it is used

    ids, rows, _ = number_keys(keys)
    Prompt().plan(KeyCounts(pa.array(ids), rows), BLOCKS)


def speeds(exponent: float, tuples: int, policies: tuple[str, ...], repetitions: int, run: Run) -> Speeds:
    """Every policy over the same tuples, in turns: the fastest is the one that others disturbed least."""
    keys, times = key_ids(tuples, exponent, run.seed), np.arange(tuples, dtype=np.int64)
    for policy in policies:
        route_all(policy, keys[:2_000], times[:2_000])  # compiles
    turns: dict[str, list[float]] = {policy: [] for policy in policies}
    for policy in run.progress.track(policies * repetitions, f"Zipf {exponent:g}"):
        turns[policy].append(timed(lambda chosen=policy: route_all(chosen, keys, times)))  # type: ignore[misc]
    return Speeds(exponent, tuples, turns)


@experiment("partition-kernels", title="Tuples a second that each policy routes on one core")
def partition_kernels(run: Run) -> Result:
    """Speed of every policy's compiled loop over 10 million tuples, as a ratio to a compiled hash."""
    policies = QUICK_POLICIES if run.quick else POLICIES
    exponents = (HEADLINE,) if run.quick else EXPONENTS
    tuples = QUICK_TUPLES if run.quick else TUPLES
    repetitions = QUICK_REPETITIONS if run.quick else REPETITIONS
    found = {exponent: speeds(exponent, tuples, policies, repetitions, run) for exponent in exponents}
    keys, times = key_ids(PLAN_TUPLES, HEADLINE, run.seed), np.arange(PLAN_TUPLES, dtype=np.int64)
    plan_all(keys)
    turns = [
        (timed(lambda: plan_all(keys)), timed(lambda: route_all(DALTON, keys, times))) for _ in range(3 * repetitions)
    ]
    planning, routing = (min(taken) for taken in zip(*turns, strict=True))
    return result_of(found, planning, routing, repetitions)


def result_of(found: Mapping[float, Speeds], planning: float, routing: float, repetitions: int) -> Result:
    """The ratios at the headline's skew."""
    headline = found[HEADLINE]
    metrics = {
        "two_choices_vs_hash": headline.against_hash(TWO_CHOICES),
        "two_choices_vs_hash_at_the_median": headline.median_against_hash(TWO_CHOICES),
        "dalton_vs_hash": headline.against_hash(DALTON),
        "dalton_vs_hash_at_the_median": headline.median_against_hash(DALTON),
        "prompt_vs_dalton": routing / planning,
        "hash_million_a_second": headline.tuples / headline.seconds[HASH] / 1e6,
        "prompt_plan_1m_ms": planning * 1e3,
        "dalton_route_1m_ms": routing * 1e3,
    }
    for policy in headline.seconds:
        if policy not in (HASH, TWO_CHOICES, DALTON):
            metrics[f"{policy}_vs_hash"] = headline.against_hash(policy)
    fast = f"hash alone routes {metrics['hash_million_a_second']:.0f} million tuples a second here"
    return Result(
        parameters={
            "tuples": headline.tuples,
            "keys": KEYS,
            "blocks": BLOCKS,
            "zipf_exponent": HEADLINE,
            "plan_tuples": PLAN_TUPLES,
            "repetitions": repetitions,
        },
        metrics=metrics,
        tables=[_table(found)],
        series=[
            Series(policy, list(found), [one.tuples / one.seconds[policy] / 1e6 for one in found.values()])
            for policy in headline.seconds
        ],
        targets=[
            Target("two_choices_vs_hash", at_least=0.25, explanation=fast),
            Target("dalton_vs_hash", at_least=0.15, explanation=fast),
            Target("prompt_vs_dalton", at_least=1, explanation="counting a million ids is most of a plan"),
        ],
        notes=[
            "One core, every loop compiled; keys are 64-bit ids, times count tuples. a_vs_b is a's speed over b's, "
            "each at its fastest turn: policies take turns, and other users of the machine's caches slow some of them.",
            f"prompt_vs_dalton: Prompt counts and plans {PLAN_TUPLES:,} tuples, Dalton routes them.",
        ],
    )


def _table(found: Mapping[float, Speeds]) -> Table:
    rows = [
        (policy, one.exponent, one.tuples / seconds / 1e6, one.against_hash(policy), one.median_against_hash(policy))
        for one in found.values()
        for policy, seconds in one.seconds.items()
    ]
    return Table("speeds", ("policy", "exponent", "million tuples a second", "of hash", "of hash, medians"), rows)


@partition_kernels.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Speeds at the headline's skew, and at all."""
    several = len(result.series[0].x) > 1
    if several:
        figure.set_size_inches(13, 4.8)
    left = figure.add_subplot(1, 1 + several, 1)
    values = {
        one["policy"]: one["million tuples a second"]
        for one in result.tables[0].records()
        if one["exponent"] == HEADLINE
    }
    speed = "million tuples per second, one core"
    charts.dots(left, values, title=f"Speed of policies, Zipf {HEADLINE:g}", x=speed, y="policy")
    if several:
        right = figure.add_subplot(1, 2, 2)
        charts.lines(right, result.series, title="The same by skew", x="Zipf exponent", y=speed, log="y")
