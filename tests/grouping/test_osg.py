"""OSG's state machines, messages and synchronisation, through the objects that engines use."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.grouping import OSG, Matrices, Reply, Requests, TrackingOSG, grouping

SMALL = OSG(rows=2, columns=8, window=10, tolerance=0.5)


def matrices(instance, cost=2.0):
    """As an instance sends them that executed items 0 to 9, each for so long."""
    learner = SMALL.instance(2, instance)
    items = np.tile(np.arange(10), 2)
    reports = learner.executed(items, np.full(20, cost), np.arange(20.0))
    assert [type(report) for report in reports] == [Matrices]
    return reports[0]


def ready(resync=0):
    """A scheduler that has got matrices of both instances."""
    scheduler = OSG(rows=2, columns=8, window=10, resync=resync).scheduler(2)
    scheduler.feedback([matrices(0), matrices(1)])
    return scheduler


def test_an_instance_sends_matrices_after_two_windows_that_agree_and_starts_anew():
    learner = SMALL.instance(2, 1)
    items, seconds = np.arange(10), np.full(10, 3.0)
    assert learner.executed(items, seconds, np.arange(10.0)) == []
    (sent,) = learner.executed(items, seconds, np.arange(10.0))
    assert sent.sender == 1
    assert sent.cells[:, :, 0].sum(axis=1).tolist() == [20.0, 20.0]
    assert sent.cells[:, :, 1].sum(axis=1).tolist() == [60.0, 60.0]
    assert sent.time / sent.tuples == 3.0
    assert learner.state()["cells"].sum() == 0


def test_an_instance_whose_times_still_move_waits():
    learner = OSG(rows=2, columns=8, window=10, tolerance=0.05).instance(2, 0)
    for cost in (1.0, 5.0, 1.0, 9.0):
        assert learner.executed(np.arange(10), np.full(10, cost), np.arange(10.0)) == []
    for _ in range(30):
        if learner.executed(np.arange(10), np.full(10, 4.0), np.arange(10.0)):
            return
    pytest.fail("equal times never became stable")


def test_literal_stability_counts_new_cells_as_moved_and_masked_does_not():
    for stability, sent in (("eq1", 0), ("masked", 1)):
        learner = OSG(rows=1, columns=64, window=10, stability=stability).instance(1, 0)
        learner.executed(np.zeros(10, np.int64), np.ones(10), np.arange(10.0))
        assert len(learner.executed(np.arange(10), np.ones(10), np.arange(10.0))) == sent


def test_only_changed_matrices_are_sent_where_that_is_asked_for():
    learner = OSG(rows=2, columns=8, window=10, send="changed").instance(1, 0)

    def sent(cost, windows):
        found = [learner.executed(np.arange(10), np.full(10, cost), np.arange(10.0)) for _ in range(windows)]
        return sum(len(reports) for reports in found)

    assert sent(2.0, 2) == 1
    assert sent(2.0, 8) == 0
    assert sent(4.0, 8) == 1


def test_tuples_go_round_robin_until_every_instance_has_sent_matrices():
    scheduler = SMALL.scheduler(2)
    assert scheduler.choose(np.zeros(5, np.int64)).to.tolist() == [0, 1, 0, 1, 0]
    scheduler.feedback([matrices(0)])
    assert scheduler.mode == "round_robin"
    scheduler.feedback([matrices(1)])
    assert scheduler.mode == "send_all"


def test_the_next_k_tuples_carry_requests_in_turn_and_replies_lead_to_run():
    scheduler = ready()
    chosen = scheduler.choose(np.array([1, 2, 3]))
    assert chosen.to[:2].tolist() == [0, 1]
    assert chosen.requests.position.tolist() == [0, 1]
    assert chosen.requests.epoch.tolist() == [1, 1]
    assert chosen.requests.load.tolist() == [2.0, 2.0]
    assert scheduler.mode == "wait_all"
    scheduler.feedback([Reply(0, 0, 1, 5.0, 10, 20.0)])
    assert scheduler.mode == "wait_all"
    before = scheduler.loads
    scheduler.feedback([Reply(1, 0, 1, -1.0, 10, 20.0)])
    assert scheduler.mode == "run"
    assert (scheduler.loads - before).tolist() == [5.0, -1.0]
    assert scheduler.traffic == {"matrices": 2, "requests": 2, "replies": 2, "epochs": 1}


def test_replies_that_come_while_requests_go_out_are_kept():
    scheduler = ready()
    scheduler.choose(np.array([1]))
    scheduler.feedback([Reply(0, 0, 1, 1.0, 1, 1.0)])
    scheduler.choose(np.array([1]))
    scheduler.feedback([Reply(1, 0, 1, 1.0, 1, 1.0)])
    assert scheduler.mode == "run"


def test_new_matrices_begin_a_new_epoch_and_old_replies_are_ignored():
    scheduler = ready()
    scheduler.choose(np.array([1, 2]))
    scheduler.feedback([matrices(0)])
    assert scheduler.mode == "send_all"
    loads = scheduler.loads
    scheduler.feedback([Reply(0, 0, 1, 99.0, 1, 1.0), Reply(1, 0, 1, 99.0, 1, 1.0)])
    assert scheduler.loads.tolist() == loads.tolist()
    assert scheduler.choose(np.array([1, 2])).requests.epoch.tolist() == [2, 2]


def test_replies_to_another_scheduler_are_passed_over():
    scheduler = ready()
    scheduler.choose(np.array([1, 2]))
    scheduler.feedback([Reply(0, 3, 1, 99.0, 1, 1.0), Reply(1, 3, 1, 99.0, 1, 1.0)])
    assert scheduler.mode == "wait_all"


def test_a_scheduler_synchronises_again_after_so_many_tuples():
    scheduler = ready(resync=6)
    scheduler.choose(np.array([1, 2]))
    scheduler.feedback([Reply(0, 0, 1, 0.0, 1, 2.0), Reply(1, 0, 1, 0.0, 1, 2.0)])
    chosen = scheduler.choose(np.zeros(20, np.int64))
    assert chosen.requests.position.tolist() == [6, 7]
    assert scheduler.traffic["epochs"] == 2


def test_items_that_nobody_saw_cost_the_mean_or_nothing():
    for unseen, cost in (("mean", 2.0), ("zero", 0.0)):
        scheduler = OSG(rows=1, columns=4096, window=10, unseen=unseen).scheduler(2)
        learner = OSG(rows=1, columns=4096, window=10, unseen=unseen).instance(2, 0)
        scheduler.feedback(learner.executed(np.zeros(20, np.int64), np.full(20, 2.0), np.arange(20.0)))
        assert scheduler.expected(0, 0) == 2.0
        assert scheduler.expected(7, 0) == cost


@pytest.mark.parametrize(("clock", "delta"), [("cumulated", 3.0 - 1.5), ("elapsed", 11.0 - 1.5)])
def test_a_reply_is_the_clock_minus_what_the_request_carried(clock, delta):
    learner = OSG(clock=clock).instance(2, 0)
    requests = Requests(np.array([1]), np.array([4]), np.array([1.5]))
    reports = learner.executed(np.array([5, 6, 7]), np.array([1.0, 2.0, 4.0]), np.array([9.0, 11.0, 20.0]), requests)
    assert reports == [Reply(0, 0, 4, delta, 2.0, 3.0, own=3.0, everything=3.0)]


def test_with_the_summed_clock_an_instance_keeps_the_schedulers_apart():
    learner = OSG(clock="cumulated").instance(2, 0, schedulers=2)
    learner.executed(np.array([1]), np.array([50.0]), np.array([50.0]), scheduler=0)
    request = Requests(np.array([0]), np.array([1]), np.array([0.0]))
    (reply,) = learner.executed(np.array([1]), np.array([3.0]), np.array([53.0]), request, scheduler=1)
    assert (reply.scheduler, reply.delta) == (1, 3.0)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_estimates_lie_between_the_shortest_and_the_longest_time(seed):
    rng = np.random.default_rng(seed)
    items, costs = rng.integers(0, 200, 40), rng.uniform(1, 64, 200)
    scheduler, learner = ready(), SMALL.instance(2, 0)
    for report in [*learner.executed(items, costs[items], np.arange(40.0)), matrices(0)]:
        scheduler.feedback([report])
        if isinstance(report, Matrices) and report.cells.sum():
            bounds = sorted([costs[items].min(), costs[items].max(), 2.0])
            for item in range(200):
                assert bounds[0] - 1e-9 <= scheduler.expected(item, 0) <= bounds[-1] + 1e-9


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_correction_is_exact_however_late_it_comes(asked_again):
    """The marked tuple ends when all that its request counted has been executed, and nothing else."""
    scheduler = TrackingOSG(resync=4, idle_aware=False).scheduler(1)
    scheduler.feedback([Matrices(0, np.full((1, 220, 2), [1.0, 3.0]), 10.0, 30.0)])  # everything is estimated at 3
    requests = scheduler.choose(np.zeros(6, np.int64)).requests
    assert requests.position.tolist() == [0, 2]
    late = [Reply(0, 0, 0, finished - load, 10.0, 30.0) for finished, load in ((5.0, 3.0), (23.0, 9.0))]
    for reply in late[: 1 + asked_again]:
        load = reply.delta + (3.0 if reply is late[0] else 9.0)
        scheduler.feedback([reply])
        since = 5 if reply is late[0] else 3
        assert scheduler.loads[0] == pytest.approx(load + 3.0 * since)


def test_sketches_are_as_good_as_their_precision_promises():
    """Count-Min: never below the true count, and above by epsilon of the others' in delta of the cases at most."""
    epsilon, delta, rows = 0.05, 0.1, 4_000
    rng = np.random.default_rng(3)
    items = rng.zipf(1.3, rows) % 1_000
    counts = np.bincount(items, minlength=1_000)
    wrong = 0
    for seed in range(20):
        policy = OSG(epsilon=epsilon, delta=delta, seed=seed, window=rows)
        learner = policy.instance(1, 0)
        learner.executed(items, np.ones(rows), np.arange(rows, dtype=float))
        cells, hashes = learner.state()["cells"][0], policy.hashes()
        columns = ((hashes[:, :1] * np.arange(1_000) + hashes[:, 1:]) % (2**31 - 1)) % cells.shape[1]
        found = cells[np.arange(len(cells))[:, None], columns, 0].min(axis=0)
        assert (found >= counts).all()
        wrong += np.count_nonzero(found - counts >= epsilon * (rows - counts))
    assert wrong / (20 * 1_000) <= delta


def test_instances_that_differ_get_work_by_their_speed():
    rng = np.random.default_rng(1)
    items = rng.integers(0, 64, 30_000)
    edge = ShuffleEdge(items, 1.0 + items, 3, provisioning=1.0, factors=np.array([0.5, 1.0, 2.0]))
    for name in ("osg?window=256", "tracking_osg?window=256"):
        counts = np.bincount(edge.run(name).flow.to[15_000:])
        assert counts[0] > 1.5 * counts[1] > 2 * counts[2]


@pytest.mark.parametrize("schedulers", [1, 3])
@pytest.mark.parametrize("items", ["shared", "each"])
def test_tracking_follows_a_change_of_speeds_within_a_window(items, schedulers):
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 64, 30_000)
    factors = np.array([[1.0, 1.0, 1.0], [0.6, 1.0, 1.4]])
    edge = ShuffleEdge(drawn, 1.0 + drawn, 3, 1.02, schedulers, factors, (0, 15_000))
    soon = edge.run(f"tracking_osg?window=1024&resync=16&items={items}")
    to, done = soon.flow.to[18_000:20_000], soon.completion[18_000:20_000]
    by_instance = [done[to == at].mean() for at in range(3)]
    if items == "shared":  # otherwise matrices have the speeds in them
        for speeds in soon.schedulers.speeds:
            assert speeds / speeds[1] == pytest.approx(factors[1], rel=0.1)
    late = edge.run("osg?window=1024")
    to, done = late.flow.to[18_000:20_000], late.completion[18_000:20_000]
    assert np.ptp(by_instance) < 0.5 * np.ptp([done[to == at].mean() for at in range(3)])


def asked_in_turn(scheduler, rounds, seconds):
    """Two tuples per round, answered at once; the totals of both instances afterwards."""
    totals = np.zeros((2, 2))
    for _ in range(rounds):
        chosen = scheduler.choose(np.zeros(2, np.int64))
        for position, epoch, _ in zip(*chosen.requests, strict=True):
            to = int(chosen.to[position])
            totals[to] += 1, seconds[to]
            scheduler.feedback([Reply(to, 0, int(epoch), 0.0, *totals[to])])
    return totals


def test_speeds_are_learnt_from_requests_that_are_remembered_and_totals_that_grow():
    scheduler = TrackingOSG(resync=1, idle_aware=False).scheduler(2)
    (count, time), _ = asked_in_turn(scheduler, 300, (10.0, 30.0)).tolist()
    learnt = scheduler.state()
    assert learnt["speeds"][0] == pytest.approx([0.5, 1.5], rel=0.1)
    for request in (0, 999_999):  # of a request that never went
        scheduler.feedback([Reply(0, 0, request, 0.0, count + 50, time + 9_000.0)])
        for name in ("speeds", "last_reply", "latest"):
            assert np.array_equal(scheduler.state()[name], learnt[name])
    chosen = scheduler.choose(np.zeros(200, np.int64))  # then an instance loses its totals: more tuples, less time
    last = chosen.requests.epoch[chosen.to[chosen.requests.position] == 0][-1]
    scheduler.feedback([Reply(0, 0, int(last), 0.0, count + 80, 1.0)])
    assert np.array_equal(scheduler.state()["latest"], learnt["latest"])
    assert scheduler.state()["speeds"].min() > 0


@pytest.mark.parametrize(
    "policy", [TrackingOSG(idle_aware=False), TrackingOSG(window=256, resync=16, idle_aware=False)]
)
def test_equal_instances_count_as_equal_where_they_report_one_after_the_other(policy):
    """A batch of each instance at a time, and tuples that all take half as long from some moment on."""
    scheduler, instances = policy.scheduler(4), [policy.instance(4, number) for number in range(4)]
    rng, clock = np.random.default_rng(0), np.zeros(4)
    costs = rng.integers(1, 64, 64).astype(float)
    for batch in range(8):
        items = rng.integers(0, 64, 10_000)
        chosen = scheduler.choose(items)
        for to in range(4):
            rows, requests = chosen.share(to)
            took = costs[items[rows]] * (1.0 if batch < 4 else 0.5)
            finished = clock[to] + np.cumsum(took)
            clock[to] = finished[-1]
            scheduler.feedback(instances[to].executed(items[rows], took, finished, requests))
        assert scheduler.state()["learnt_at"] == pytest.approx(1.0, abs=0.3)  # a reply is of 16 tuples or more


def test_messages_stay_within_the_papers_order_of_km_over_n():
    rng = np.random.default_rng(1)
    items = rng.integers(0, 64, 60_000)
    edge = ShuffleEdge(items, 1.0 + items, 5)
    run = edge.run(OSG(window=512))
    traffic = run.traffic
    assert traffic["matrices"] <= len(items) / (2 * 512)
    assert traffic["replies"] == traffic["requests"]
    assert traffic["requests"] <= 5 * traffic["epochs"] <= 5 * (traffic["matrices"] + len(items) / (512 * 5) + 1)
    assert run.traffic_bytes >= traffic["matrices"] * 8 * 2 * 4 * 55


@pytest.mark.parametrize("name", ["osg?window=256", "tracking_osg?window=256&resync=16"])
def test_several_schedulers_that_do_not_talk_still_do_better_than_round_robin(name):
    rng = np.random.default_rng(2)
    items = rng.integers(0, 64, 60_000)
    edge = ShuffleEdge(items, 1.0 + items, 4, schedulers=4)
    run = edge.run(name)
    assert run.schedulers.known.all()
    assert run.mean_completion < edge.run("round_robin").mean_completion


def test_tracking_asks_each_instance_every_so_many_tuples():
    scheduler = TrackingOSG(resync=5, idle_aware=False).scheduler(2)
    chosen = scheduler.choose(np.zeros(20, np.int64))
    rows, requests = chosen.share(0)
    assert rows.tolist() == list(range(0, 20, 2))
    assert requests.position.tolist() == [0, 2, 6]  # two, four, and then five tuples apart
    scheduler.feedback([Reply(0, 0, 0, 10.0, 1, 10.0), Reply(1, 0, 0, 10.0, 1, 10.0)])
    assert scheduler.mode == "run"


def test_objects_that_engines_use_do_what_the_simulated_banks_do():
    """The same stream, tuple by tuple through schedulers and instances and their reports."""
    rng = np.random.default_rng(4)
    items = rng.integers(0, 60, 3_000)
    times = 1.0 + items % 9
    edge = ShuffleEdge(items, times, 3, provisioning=1.02)
    for name in ("osg?window=64&tolerance=0.3", "tracking_osg?window=64&resync=9"):
        policy = grouping(name)
        scheduler = policy.scheduler(3)
        instances = [policy.instance(3, number) for number in range(3)]
        queue, free, to = [], np.zeros(3), []
        for row, now in enumerate(edge.arrivals.tolist()):
            for entry in sorted(one for one in queue if one[0] <= now):
                finished, at, done, requests = entry[0], entry[1], entry[2], entry[3]
                batch = (items[done : done + 1], times[done : done + 1], np.array([finished]))
                scheduler.feedback(instances[at].executed(*batch, requests))
            queue = [one for one in queue if one[0] > now]
            chosen = scheduler.choose(items[row : row + 1], times=np.array([now]))
            at = int(chosen.to[0])
            free[at] = max(now, free[at]) + times[row]
            queue.append((float(free[at]), at, row, chosen.requests))
            to.append(at)
        assert to == edge.run(policy).flow.to.tolist()


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5), st.data())
def test_requests_of_batches_that_become_one_are_those_of_its_rows(batches, data):
    parts, epoch = [], 0
    for asks in batches:
        position = np.flatnonzero(asks)
        parts.append(Requests(position, np.arange(epoch, epoch + len(position)), np.ones(len(position))))
        epoch += len(position)
    whole = Requests.joined(parts, [len(asks) for asks in batches])
    assert whole.position.tolist() == np.flatnonzero(np.concatenate(batches)).tolist()
    assert whole.epoch.tolist() == list(range(epoch))
    rows = sum(len(asks) for asks in batches)
    cut = data.draw(st.integers(0, rows))
    before, behind = whole.between(0, cut), whole.between(cut, rows)
    assert [*before.position, *(behind.position + cut)] == whole.position.tolist()
    assert [*before.epoch, *behind.epoch] == whole.epoch.tolist()
