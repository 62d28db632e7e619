"""Who is trained when: all agents at once, one partitioner at a time, or only those whose own blocks are uneven."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.plans import Floats
from steelyard.learning import Curve, Fading, generator
from steelyard.partition.learned.cutting import HEURISTIC
from steelyard.sim.agents import plans
from steelyard.sim.agents.learner import FREE, Learner, Team
from steelyard.sim.agents.options import ALL_AT_ONCE, Training
from steelyard.sim.agents.receivers import Receivers

UNEVEN = 0.1
"""Own blocks that are more uneven than this, on average, make a partitioner one to be trained again: the longest task
over the mean, less 1."""
JUDGED = 2
"""Episodes that a policy is judged by."""
Tell = Callable[[int, int, float], None]
"""Is told the episode, how many there are, and the mean reward of it."""


@dataclass(frozen=True, eq=False)
class TrainedTeam:
    """What training led to.

    Parameters
    ----------
    team
        The actors.
    curves
        Mean reward of each episode, of the scheduler and of the partitioners.
    seconds
        What it took.
    trained
        Which agents learnt.
    deployed
        Whether the policy of one partitioner went to all of them; always for all at once, which has nothing to hand on.
    """

    team: Team
    curves: tuple[Curve, ...]
    seconds: float
    trained: tuple[bool, ...]
    deployed: bool = True


def train(options: Training, tell: Tell | None = None, team: Team | None = None) -> TrainedTeam:
    """Agents from nothing, or from a team, as the options say."""
    begun = time.monotonic()
    if options.orchestration == ALL_AT_ONCE:
        learner, curves = _run(options, Learner(options, team), tell)
        return TrainedTeam(learner.team, curves, time.monotonic() - begun, learner.trained)
    others = options.partitioners - 1
    learner = Learner(options, team, (FREE, FREE, *[HEURISTIC] * others), (True, True, *[False] * others))
    learner, curves = _run(options, learner, tell)
    trained = learner.team.partitioners[0]
    own = judge(learner.team, options)[1]
    heuristic = judge(learner.team, options, (FREE, *[HEURISTIC] * options.partitioners))[1]
    wins = bool(own >= heuristic)
    found = learner.team
    if wins:
        for place in range(options.partitioners):
            found = found.with_partitioner(place, trained)
    return TrainedTeam(found, curves, time.monotonic() - begun, learner.trained, wins)


def judge(team: Team, options: Training, fixed: Sequence[int] = ()) -> Floats:
    """float64[agents]: mean reward of each agent, with the likeliest actions, on queries that training did not see."""
    return _judged(team, options, fixed)[0]


def unevenness(team: Team, options: Training) -> Floats:
    """float64[partitioners]: how uneven the blocks of each one are, on average."""
    return _judged(team, options, ())[1]


def repair(team: Team, options: Training, uneven: float = UNEVEN, tell: Tell | None = None) -> TrainedTeam:
    """Train only those partitioners again whose own blocks are uneven; nobody else's network changes.

    Its own blocks are all that a partitioner is judged by, so a fault of one of them is blamed on nobody else.
    """
    begun = time.monotonic()
    faulty = unevenness(team, options) > uneven
    trained = (False, *faulty.tolist())
    if not faulty.any():
        return TrainedTeam(team, (), time.monotonic() - begun, trained)
    fresh = team
    for place in np.flatnonzero(faulty).tolist():  # from nothing: a network that is certain of a mistake learns slowly
        fresh = fresh.with_partitioner(place, Learner(options).team.partitioners[place])
    learner, curves = _run(options, Learner(options, fresh, trained=trained), tell)
    return TrainedTeam(learner.team, curves, time.monotonic() - begun, trained)


def _run(options: Training, learner: Learner, tell: Tell | None) -> tuple[Learner, tuple[Curve, ...]]:
    """Algorithm 5: act, keep, learn, for all episodes."""
    world = _world(options, "training", options.queries)
    share = Fading(options.explore, options.explore_last, max(1, 2 * options.episodes // 3))
    means = []
    for episode in range(options.episodes):
        seen, total = world.reset(), np.zeros(1 + options.partitioners)
        for _ in range(options.batches):
            action = learner.explore(seen, share.at(episode))
            reward = world.step(action[:, 0], action[:, 1:])
            following = world.seen()
            learner.keep(seen, action, reward, following)
            seen, total = following, total + reward.mean(axis=0)
            if len(learner.replay) >= options.minibatch:
                learner.learn()
        means.append(total / options.batches)
        if tell:
            tell(episode, options.episodes, float(means[-1][0]))
    rewards = np.array(means)
    return learner, (Curve("scheduler", rewards[:, 0]), Curve("partitioners", rewards[:, 1:].mean(axis=1)))


def _judged(team: Team, options: Training, fixed: Sequence[int]) -> tuple[Floats, Floats]:
    world = _world(options, "judging", options.queries)
    rewards, uneven = [], []
    for _ in range(JUDGED):
        seen = world.reset()
        for _ in range(options.batches):
            action = team.act(seen, fixed)
            rewards.append(world.step(action[:, 0], action[:, 1:]).mean(axis=0))
            uneven.append(world.uneven.mean(axis=0))
            seen = world.seen()
    return np.mean(rewards, axis=0), np.mean(uneven, axis=0)


def _world(options: Training, purpose: str, queries: int) -> Receivers:
    random = generator(options.seed, purpose)
    return Receivers(plans.measured(options.seed), queries, options.partitioners, options.batches, random)
