"""Agents that learnt together to cut batches and to choose numbers of tasks, against zones and Prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steelyard.bench import Cell, Claim, Published, Result, Run, Series, Table, Target, charts, experiment, mean
from steelyard.bench.claims import over, seeds_note
from steelyard.bench.prompt.cluster_model import measure_costs
from steelyard.bench.prompt.plus_elasticity import OPERATOR
from steelyard.bench.prompt.plus_model import INTERVAL, PATTERNS, RISE, Cluster, Course, Evenness, Pattern, simulate
from steelyard.bench.prompt.plus_techniques import BLOCKS, BUCKETS, KEYS, POLICY, ROWS, SLOTS, WORKERS, waiting
from steelyard.bench.prompt.plus_violations import AMPLITUDE, BATCHES, MEAN, PERIOD
from steelyard.core.counts import Ints
from steelyard.learning import Network
from steelyard.partition.agent import PartitionerAgent
from steelyard.partition.learned import cutting
from steelyard.partition.learned.cutting import FEATURES, HEURISTIC, UNCUT, WAYS
from steelyard.scaling import elasticity, scheduler
from steelyard.scaling.learned.looks import STAY
from steelyard.sim.agents import ALL_AT_ONCE, ONE_AT_A_TIME, Team, TrainedTeam, Training, repair, train
from steelyard.sim.agents.learner import FREE
from steelyard.sim.agents.orchestration import judge, unevenness
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.rates import Sinusoid

SWING = "rate swings"
"""As in promptplus-violations: a rate that swings, and rows that wait in their map tasks."""
AGENTS = "agents"
SLOW, SWIFT, LEAP, TIGHT = "zones, d = 3", "zones, d = 1", "zones, d = 1, proportional", "zones, d = 1, threshold 0.95"
RIVALS = {
    SLOW: "zones?patience=3",
    SWIFT: "zones?patience=1",
    LEAP: "zones?patience=1&increment=proportional",
    TIGHT: "zones?patience=1&threshold=0.95&step=0.07",
}
JUDGED = {**dict.fromkeys(PATTERNS, (SLOW, SWIFT)), SWING: (LEAP,)}
"""Zones that each scenario's own experiment judges."""
NO_LATER, NO_MORE = 0.01, 1.01
"""Up to here agents count as no worse: difference of shares of late batches, ratio of tasks."""
CAP = WORKERS * SLOTS
"""Most tasks of the scenario that swings."""
FAULTY = 1
"""The partitioner whose network is broken, counted from 0: the second."""
SMALL = Training(queries=32, episodes=6, batches=50, minibatch=256)
"""Training for a quick form, and of one partitioner again."""
SOURCE = "Abdelhamid 2021, section 4.8, text"
LATE, TASKS = "late", "tasks"


class Swing(Pattern):
    """A rate that swings around more than the first plan does; keys stay."""

    def batches(self, rows: float) -> tuple[Ints, Ints]:
        """Rows and distinct keys of each batch; how many rows there are is given, not a multiple."""
        rate = Sinusoid(MEAN * ROWS, AMPLITUDE, PERIOD * INTERVAL)
        until = rate.rows_until(np.arange(BATCHES + 1, dtype=np.float64) * INTERVAL)
        return np.diff(until).astype(np.int64), np.full(BATCHES, KEYS)


@dataclass(frozen=True)
class Taught:
    """What training again showed."""

    modes: Mapping[str, TrainedTeam]
    rewards: Mapping[str, Sequence[float]]
    """Mean reward of the scheduler and of the partitioners, by who acts."""
    trained: Sequence[bool]
    """Of each partitioner: whether it was trained again after one had been broken."""
    changed: Sequence[bool]
    """Of each partitioner: whether its network is another one then."""
    uneven: Sequence[tuple[float, float]]
    """Of each partitioner: how uneven its blocks were while one was broken, and after it was trained again."""


Outcome = Mapping[tuple[str, str], Course]
"""By scenario and policy."""


@experiment(
    "partly-agents",
    title="A scheduler agent and partitioner agents, against zones and Prompt",
    figure="Abdelhamid 2021, section 4.8",
)
def partly_agents(run: Run) -> Result:
    """Late batches and tasks of the agents that ship with the package, in simulated scenarios; and training them."""
    run.progress.say("timing tasks")
    costs = measure_costs(OPERATOR)
    found = [courses(costs, seed) for seed in run.progress.track(run.seeds(), "partly-agents")]
    return result_of(found, teach(run), run.quick)


def courses(costs: TaskCosts, seed: int) -> Outcome:
    """Agents, and zones with Prompt, in every scenario."""
    evenness = {AGENTS: Evenness.measured(seed, PartitionerAgent())}
    evenness |= dict.fromkeys(RIVALS, Evenness.measured(seed))
    # rows wait in map tasks; a reduce task takes what it costs by default
    waits = TaskCosts(0.0, waiting(INTERVAL), 0.0)
    found = {}
    for name, text in {AGENTS: "scheduler", **RIVALS}.items():
        policy, even = elasticity(text), evenness[name]
        for pattern in PATTERNS.values():
            found[pattern.name, name] = simulate(Cluster(costs, even), pattern, policy, pattern.tasks, seed)
        bounds = f"most_blocks={CAP}&most_buckets={CAP}"
        bounded = elasticity(f"{text}{'&' if '?' in text else '?'}{bounds}")
        swing = Swing(SWING, (1, 1), (1, 1), (BLOCKS, BUCKETS))
        found[SWING, name] = simulate(Cluster(waits, even), swing, bounded, swing.tasks, seed)
    return found


def shipped(partitioners: int) -> Team:
    """The agents that come with the package."""
    return Team((scheduler.load(scheduler.SHIPPED), *[cutting.load(cutting.SHIPPED)] * partitioners))


def broken(team: Team, place: int) -> Team:
    """A team with one partitioner whose network answers with hash, whatever it sees."""
    scores = np.zeros(len(WAYS), np.float32)
    scores[UNCUT] = 1.0
    stuck = Network(
        ((np.zeros((FEATURES, 1), np.float32), np.zeros(1, np.float32)), (np.zeros((1, len(WAYS)), np.float32), scores))
    )
    return team.with_partitioner(place, stuck)


def teach(run: Run) -> Taught:
    """Train in both orchestrations; break a partitioner, and train what that makes uneven."""
    options = replace(run.pick(Training(), SMALL), seed=run.seed)
    modes, rewards = {}, {}
    still = (STAY, *[HEURISTIC] * options.partitioners)
    for mode in (ALL_AT_ONCE, ONE_AT_A_TIME):
        chosen = replace(options, orchestration=mode)
        modes[mode] = train(chosen, _telling(run, mode))
        rewards[mode] = _told(judge(modes[mode].team, options).tolist())
    team = shipped(options.partitioners)
    rewards["agents that ship"] = _told(judge(team, options).tolist())
    rewards["fixed tasks, Prompt"] = _told(judge(team, options, still).tolist())
    rewards["scheduler that ships, Prompt"] = _told(judge(team, options, (FREE, *still[1:])).tolist())
    again = replace(SMALL, seed=run.seed)
    faulty = broken(team, FAULTY)
    mended = repair(faulty, again)
    before, after = (unevenness(one, again).tolist() for one in (faulty, mended.team))
    changed = [one is not other for one, other in zip(faulty.partitioners, mended.team.partitioners, strict=True)]
    return Taught(modes, rewards, mended.trained[1:], changed, list(zip(before, after, strict=True)))


def _telling(run: Run, mode: str) -> Callable[[int, int, float], None]:
    return lambda at, of, reward: run.progress.say(f"{mode}: episode {at + 1} of {of}, reward {reward:.3g}")


def _told(rewards: Sequence[float]) -> list[float]:
    return [float(rewards[0]), mean(rewards[1:])]


def late(course: Course) -> float:
    """Share of batches that ended more than an interval after their rows had come."""
    return mean(course.delay > INTERVAL)


def result_of(found: Sequence[Outcome], taught: Taught, quick: bool) -> Result:
    """What agents and zones did, the claims, and what training showed."""
    pairs = [(scenario, rival) for scenario, rivals in JUDGED.items() for rival in rivals]
    worse = {pair: what for pair in pairs if (what := _worse(found, *pair))}
    exceptions = [f"{scenario}, against {rival}: {what}" for (scenario, rival), what in worse.items()]
    metrics = {
        "agents_vs_zones": 1 - len(worse) / len(pairs),
        "agents_vs_tight_zones": 1 - len([one for one in JUDGED if _worse(found, one, TIGHT)]) / len(JUDGED),
        "agents_late": mean(late(one[pair]) for one in found for pair in one if pair[1] == AGENTS),
        "zones_d1_late": mean(late(one[pair]) for one in found for pair in one if pair[1] == SWIFT),
        "agents_tasks": mean(one[pair].tasks for one in found for pair in one if pair[1] == AGENTS),
        "zones_d1_tasks": mean(one[pair].tasks for one in found for pair in one if pair[1] == SWIFT),
        "training_minutes": taught.modes[ALL_AT_ONCE].seconds / 60,
        "trained_again": float(sum(taught.trained)),
        "uneven_while_broken": taught.uneven[FAULTY][0],
        "uneven_when_mended": taught.uneven[FAULTY][1],
    }
    return Result(
        parameters={
            "interval_s": INTERVAL,
            "operator": OPERATOR,
            "no_later_by": NO_LATER,
            "no_more_tasks_than": NO_MORE,
            "swing": f"{MEAN:g} times the base rate, by {AMPLITUDE:g} of it, over {PERIOD} batches",
            "rival_of_swing": POLICY,
        },
        metrics=metrics,
        published=[Published("proposed, and not built: there are no figures", SOURCE)],
        tables=[_table(found), _exceptions(exceptions), *_taught(taught)],
        claims=claims_of(found, taught),
        series=_series(found[0], taught),
        targets=[
            Target(
                "agents_vs_zones",
                at_least=1.0,
                explanation="; ".join(exceptions) or "none",
            ),
            Target("training_minutes", at_most=10.0, explanation="the machine was busy"),
        ],
        kind="simulated",
        kinds={"training_minutes": "measured"},
        notes=[
            "Agents are the shipped weights: `scheduler` for numbers of tasks, `agent` for how batches are cut. Beside "
            "zones, Prompt cuts. All change one task at a time, but for proportional zones.",
            f"'{TIGHT}' is nobody's default: zones as somebody would set them who wants as few tasks as agents use. "
            "No claim is made of them.",
            "Training draws queries with rows and keys that stay, rise, fall, jump or swing, and with other costs: the "
            "scenarios are of the same kinds, and none of them was trained on.",
            f"'{SWING}' is the input of promptplus-violations with its costs, simulated; a plan holds from the next "
            "batch on, not two batches later as with groups.",
            "Training that is timed is done anew here, and its networks are not those that are judged against zones.",
            seeds_note(quick),
        ],
    )


def _values(found: Sequence[Outcome], scenario: str, policy: str, value: Callable[[Course], float]) -> list[float]:
    return [value(one[scenario, policy]) for one in found]


def _later(found: Sequence[Outcome], scenario: str, rival: str) -> list[float]:
    return [
        ours - theirs
        for ours, theirs in zip(
            _values(found, scenario, AGENTS, late), _values(found, scenario, rival, late), strict=True
        )
    ]


def _more(found: Sequence[Outcome], scenario: str, rival: str) -> list[float]:
    both = (_values(found, scenario, policy, lambda course: course.tasks) for policy in (AGENTS, rival))
    return over(*both)


def _worse(found: Sequence[Outcome], scenario: str, rival: str) -> str:
    """In what the agents are worse, on average; nothing where they are not."""
    later, more = mean(_later(found, scenario, rival)), mean(_more(found, scenario, rival))
    told = []
    if later > NO_LATER:
        told.append(f"{100 * later:.1f} % more of the batches are late")
    if more > NO_MORE:
        told.append(f"{100 * (more - 1):.1f} % more tasks")
    return " and ".join(told)


def claims_of(found: Sequence[Outcome], taught: Taught) -> list[Claim]:
    """No more late batches and no more tasks than zones and Prompt; and that a fault is blamed on one agent."""
    claims = []
    for scenario, rivals in JUDGED.items():
        for rival in rivals:
            fewer = mean(_later(found, scenario, rival))
            claims += [
                Claim(
                    f"{scenario}: no more late batches than {rival} (difference of shares)",
                    "not published",
                    _later(found, scenario, rival),
                    at_most=NO_LATER,
                    reason="agents keep the load closer to 1, and some batches pass it",
                ),
                Claim(
                    f"{scenario}: no more tasks than {rival} (ratio)",
                    "not published",
                    _more(found, scenario, rival),
                    at_most=NO_MORE,
                    reason=f"these zones have fewer tasks than it takes, and {-100 * fewer:.0f} % more late batches"
                    if fewer < -NO_LATER
                    else "agents keep more tasks than zones do",
                ),
            ]
    only = float(list(taught.trained) == [place == FAULTY for place in range(len(taught.trained))])
    claims.append(
        Claim(
            "a fault of the second partitioner: it is the only one that is trained again (1: yes)",
            SOURCE,
            [only],
            at_least=1.0,
            reason="blocks of others were uneven too",
        )
    )
    return claims


def _table(found: Sequence[Outcome]) -> Table:
    rows: list[dict[str, Cell]] = []
    for scenario, policy in found[0]:
        rows.append(
            {
                "scenario": scenario,
                "policy": policy,
                "late, %": 100 * mean(_values(found, scenario, policy, late)),
                "W > 1, %": 100 * mean(_values(found, scenario, policy, lambda course: mean(course.load > 1))),
                "mean tasks": mean(_values(found, scenario, policy, lambda course: course.tasks)),
                "reversals": mean(_values(found, scenario, policy, lambda course: course.reversals)),
            }
        )
    return Table.of("means over the seeds (simulated)", sorted(rows, key=lambda row: str(row["scenario"])))


def _exceptions(exceptions: Sequence[str]) -> Table:
    return Table("where agents are worse", ("exception",), [[one] for one in exceptions] or [["none"]])


def _taught(taught: Taught) -> list[Table]:
    seconds = {mode: one.seconds for mode, one in taught.modes.items()}
    return [
        Table.of(
            "rewards on queries that training did not see",
            [
                {"who acts": who, "scheduler": first, "partitioners": others, "training, s": seconds.get(who, 0.0)}
                for who, (first, others) in taught.rewards.items()
            ],
        ),
        Table.of(
            "the second partitioner is broken, and trained again",
            [
                {"partitioner": place + 1, "uneven while broken": before, "uneven afterwards": after,
                 "trained again": str(trained), "network changed": str(changed)}
                for place, ((before, after), trained, changed) in enumerate(
                    zip(taught.uneven, taught.trained, taught.changed, strict=True)
                )
            ],
        ),
    ]  # fmt: skip


def _series(found: Outcome, taught: Taught) -> list[Series]:
    """Learning curves; and of one seed, tasks while both rise."""
    series = []
    for mode, one in taught.modes.items():
        for curve in one.curves:
            steps = list(range(1, len(curve.values) + 1))
            series.append(Series(f"learning: {curve.name}, {mode}", steps, (-curve.values).tolist(), "simulated"))
    for policy in (AGENTS, SLOW, SWIFT):
        course = found[RISE, policy]
        tasks = (course.blocks + course.buckets).tolist()
        series.append(Series(f"rise: {policy}", list(range(len(tasks))), tasks, "simulated"))
    return series


@partly_agents.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Late batches against tasks by scenario, tasks while both rise, and how agents learn."""
    panels = charts.panels(figure, 4, (22, 6.5))
    rows = result.tables[1].records()
    scenarios = list(dict.fromkeys(str(one["scenario"]) for one in rows))
    policies = [AGENTS, *RIVALS]
    for axes, column, title in ((panels[0], "late, %", "Late batches"), (panels[1], "mean tasks", "Tasks in use")):
        groups = {
            policy: [
                float(one[column])
                for name in scenarios
                for one in rows
                if (one["scenario"], one["policy"]) == (name, policy)
            ]
            for policy in policies
        }
        charts.grouped(axes, scenarios, groups, title=title, x="scenario", y=column)
    for axes in panels[:2]:
        axes.tick_params(axis="x", rotation=45)
    charts.lines(
        panels[2], result.panel("rise"), title="Both rise: tasks, one seed", x="batch", y="tasks", legend=False
    )
    learning = result.panel("learning")
    cost = "cost of a batch: reward, negated"
    charts.lines(panels[3], learning, title="Learning", x="episode", y=cost, legend=False)
    panels[2].legend(frameon=False, fontsize="small")
    panels[3].legend(frameon=False, fontsize="small")
    charts.legend_below(figure, panels[0])
