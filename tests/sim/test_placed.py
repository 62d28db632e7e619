"""Placed clusters, tuple by tuple: groupings, acks, theory of queues, deployments, warm-up, records and clocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steelyard.core.errors import OptionError
from steelyard.core.measured import Fast, Measured, Recorded, settled
from steelyard.core.placing import GROUPINGS, Host
from steelyard.placement.draws import drawn
from steelyard.sim.placed import (
    Application,
    Clocks,
    ClusterCosts,
    Deployed,
    ExactCluster,
    FastCluster,
    Flow,
    Unit,
    deployed,
    setups,
)
from steelyard.sim.placed.frozen import frozen

NOTHING = ClusterCosts(
    local=0.0, process=0.0, remote=0.0, per_worker=0.0, per_thread=0.0, serialise=0.0, thread_cpu=0.0, crowding=0.0,
    cold=0.0, warm=120.0, noise=0.0,
)  # fmt: skip
"""A cluster that costs nothing."""


def pair(grouping: str, senders: int = 3, receivers: int = 4, rate: float = 300.0, **costs) -> Deployed:
    """Senders and receivers on two machines; what they cost is theirs alone."""
    keys = tuple(1.0 / np.arange(1, 40))
    application = Application(
        (Unit("log", senders, 0.0001, source=True), Unit("map", receivers, 0.0002)),
        (Flow("log", "map", grouping),),
        rate,
        keys,
    )
    return Deployed((("one", application),), 2 * (Host(),), replace(NOTHING, **costs))


def emptied(cluster: ExactCluster) -> ExactCluster:
    """No more tuples come, and all that are there are worked off."""
    cluster._state.threads["every"] = 0.0
    cluster.run(1000.0)
    return cluster


def recorded(of: Deployed, seconds: float = 5.0, seed: int = 1, clocks: Clocks | None = None, **options):
    cluster = ExactCluster(of, seed=seed, clocks=clocks, **options)
    cluster.record()
    cluster.run(seconds)
    return emptied(cluster), cluster.records()


# ---- groupings


def sent_by(records, setup):
    """Tuples by sender and receiver, both counted within their component."""
    first = setup.first
    table = np.zeros((setup.most[0], setup.most[1]), dtype=int)
    np.add.at(table, (records.transfer["sender"] - first[0], records.transfer["receiver"] - first[1]), 1)
    return table


def test_shuffle_is_equal_to_within_one_for_each_sender():
    cluster, records = recorded(pair("shuffle"))
    table = sent_by(records, cluster.setup)
    assert table.sum() > 1000
    assert (table.max(axis=1) - table.min(axis=1) <= 1).all()


def test_fields_sends_by_key_alone():
    """As often as the keys of each receiver come, from every sender alike."""
    cluster, records = recorded(pair("fields", rate=3000.0))
    table = sent_by(records, cluster.setup)
    keys = 1.0 / np.arange(1, 40)
    expected = np.bincount(np.arange(39) % 4, keys) / keys.sum()
    assert table.sum(axis=0) / table.sum() == pytest.approx(expected, abs=0.02)
    assert (table / table.sum(axis=1, keepdims=True)) == pytest.approx(np.tile(expected, (3, 1)), abs=0.04)


def test_all_sends_to_every_thread():
    cluster, records = recorded(pair("all"))
    table = sent_by(records, cluster.setup)
    assert (table == table[:, :1]).all()
    assert table[:, 0].sum() == len(records.ack)


def test_global_sends_to_the_first():
    cluster, records = recorded(pair("global"))
    table = sent_by(records, cluster.setup)
    assert table[:, 0].sum() == table.sum() == len(records.ack)


def test_direct_sends_where_the_sender_says():
    cluster, records = recorded(pair("direct"))
    table = sent_by(records, cluster.setup)
    assert all(table[sender, sender % 4] == table[sender].sum() for sender in range(3))


# ---- acks


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_every_source_tuple_is_acknowledged_once_when_all_that_it_became_is_done(grouping):
    cluster, records = recorded(pair(grouping, remote=0.0005, local=0.0001))
    assert cluster.under_way == 0
    assert len(np.unique(records.ack["root_id"])) == len(records.ack) == cluster._state.acked[2].sum()
    assert len(records.process) == len(records.transfer)
    last = np.zeros(records.ack["root_id"].max() + 1)
    np.maximum.at(last, records.process["root_id"], records.process["ended"])
    hop = records.ack["acked"] - last[records.ack["root_id"]]
    assert hop.min() >= 0.0001 - 1e-12
    assert hop.max() <= 0.0005 + 1e-12


def test_branches_join_into_one_source_tuple():
    """The time is that of the later branch, not the mean of both."""
    application = Application(
        (Unit("log", 1, 0.0, 0.0, source=True), Unit("a", 1, 0.001, 0.0), Unit("b", 1, 0.003, 0.0)),
        (Flow("log", "a"), Flow("log", "b")),
        10.0,
    )
    of = Deployed((("one", application),), (Host(),), replace(NOTHING, local=0.0001))
    times = settled(ExactCluster(of, warm=True), np.zeros(3, dtype=int), settle=1.0).times
    assert times[0] == pytest.approx(0.003 + 2 * 0.0001, rel=0.05)
    assert FastCluster(of).times(np.zeros((1, 3), dtype=int))[0] == pytest.approx(0.0032, rel=0.05)


# ---- theory of queues


def single(threads: int, seconds: float, spread: float, load: float, cores: float = 64.0) -> Deployed:
    application = Application(
        (Unit("log", 1, 0.0, 0.0, source=True), Unit("work", threads, seconds, spread)),
        (Flow("log", "work", "fields"),),
        load * threads / seconds,
        keys=(1.0,) * (threads * 50),
    )
    return Deployed((("one", application),), (Host(cores=cores),), NOTHING)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_thread_waits_as_pollaczek_and_khinchine_say(spread, load):
    of = single(4, 0.001, spread, load)
    wait = 0.001 * load / (1 - load) * (1 + spread**2) / 2
    cluster = ExactCluster(of, seed=2, warm=True, noise=False)
    cluster.run(2.0)
    found = cluster.measure(60.0).times[0]
    assert found == pytest.approx(0.001 + wait, rel=0.04)
    fast = FastCluster(of)
    assert fast.times(fast.setup.round_robin()[None])[0] == pytest.approx(0.001 + wait, rel=0.02)


def test_threads_that_share_a_core_share_its_time():
    """With as many threads as there may be tuples, a core is a queue with processor sharing: work / (1 - load)."""
    of = single(60, 0.001, 0.0, 0.6 / 60, cores=1.0)
    cluster = ExactCluster(of, seed=2, warm=True, noise=False)
    cluster.run(5.0)
    found = cluster.measure(60.0).times[0]
    # a tuple that finds its own thread at work waits instead of sharing, which takes no longer on average
    assert found == pytest.approx(0.001 / 0.4, rel=0.06)
    assert cluster.used_cores[0] / cluster.now == pytest.approx(0.6, rel=0.03)


def test_what_comes_goes_and_as_many_are_there_as_little_says():
    free = replace(deployed("cq-large"), costs=NOTHING)  # acks take no time, and all that is under way is at a thread
    cluster = ExactCluster(free, seed=3, warm=True, noise=False)
    cluster.run(1.0)
    inside, readings = [], []
    for _ in range(1500):
        readings.append(cluster.measure(0.01))
        inside.append(cluster.under_way)
    throughput = np.mean([one.throughput[0] for one in readings])
    assert throughput == pytest.approx(6650, rel=0.02)
    assert np.mean([one.arrivals[0] for one in readings]) == pytest.approx(throughput, rel=0.01)
    time = np.mean([one.times[0] for one in readings])
    assert np.mean(inside) == pytest.approx(throughput * time, rel=0.05)


def test_throughput_does_not_depend_on_the_placement_while_it_keeps_up():
    of = deployed("cq-small")
    found = []
    for machines in (1, 3, 10):
        cluster = ExactCluster(of, of.setup.round_robin() % machines, seed=1, warm=True)
        cluster.run(1.0)
        found.append(cluster.measure(10.0).throughput[0])
    assert found == pytest.approx([1330] * 3, rel=0.03)


# ---- hops, crowds, threads


def time_of(assignment, **costs) -> float:
    of = pair("shuffle", 1, 2, rate=50.0, **costs)
    cluster = ExactCluster(of, np.array(assignment), seed=1, warm=True, noise=False)
    cluster.run(1.0)
    return float(cluster.measure(40.0).times[0])


def test_each_kind_of_hop_costs_what_it_costs():
    base = time_of([0, 0, 0])
    assert time_of([0, 0, 0], local=0.001) - base == pytest.approx(0.002, rel=0.02)  # there, and the ack back
    assert time_of([0, 1, 1], remote=0.001) - base == pytest.approx(0.002, rel=0.02)
    assert time_of([0, 0, 0], remote=0.001) == pytest.approx(base, rel=0.02)
    inside = time_of([0, 0, 0], process=0.001, processes=2) - base
    assert inside == pytest.approx(0.0005, rel=0.1)  # one of the two threads is in the other process
    assert time_of([0, 1, 1], per_worker=0.001) - base == pytest.approx(0.002, rel=0.05)
    assert time_of([0, 1, 1], per_thread=0.001) - base == pytest.approx(0.002, rel=0.1)  # two threads are elsewhere
    assert time_of([0, 1, 1], serialise=0.001) - base == pytest.approx(0.001, rel=0.1)


def test_serialising_takes_processors_at_both_ends():
    of = pair("shuffle", 1, 1, rate=100.0, serialise=0.001)
    cluster = ExactCluster(of, np.array([0, 1]), seed=1, warm=True)
    cluster.run(50.0)
    used = cluster.used_cores / cluster.now
    assert used == pytest.approx([100 * 0.0011, 100 * 0.0012], rel=0.05)


def test_applications_that_crowd_a_machine_slow_each_other_down():
    one = pair("shuffle", 1, 2, rate=50.0, crowding=0.5, local=0.001).applications[0][1]
    costs = replace(NOTHING, crowding=0.5, local=0.001)
    of = Deployed((("a", one), ("b", one)), 2 * (Host(),), costs)
    together, apart = np.zeros(6, dtype=int), np.array([0, 0, 0, 1, 1, 1])
    found = {}
    for name, assignment in (("together", together), ("apart", apart)):
        cluster = ExactCluster(of, assignment, seed=1, warm=True, noise=False)
        cluster.run(1.0)
        found[name] = cluster.measure(30.0).times
        fast = FastCluster(of).times(assignment[None])[0]
        assert found[name] == pytest.approx(fast, rel=0.05)
    assert found["together"] / found["apart"] == pytest.approx([1.5, 1.5], rel=0.03)


# ---- deployments


def test_a_deployment_moves_only_what_differs_and_loses_nothing():
    of = deployed("cq-small")
    cluster = ExactCluster(of, seed=5)
    rng = np.random.default_rng(1)
    for number, assignment in enumerate(drawn(of.setup, 12, 7, vary=True)):
        before = cluster.assignment
        assert cluster.deploy(assignment) == of.setup.moved(before, assignment)
        assert cluster.deploy(assignment) == 0
        cluster.run(float(rng.uniform(0.01, 0.5)))
        assert number < 12
    emptied(cluster)
    assert cluster.under_way == 0
    assert cluster._state.acked[0].sum() == cluster._state.acked[2].sum() > 100
    assert cluster._state.counters[1] == len(cluster._state.pool), "every record of a tuple is free again"


def curve(cluster: Measured, readings: int) -> list[float]:
    return [float(cluster.measure(10.0).times.mean()) for _ in range(readings)]


@pytest.mark.parametrize("level", [ExactCluster, FastCluster])
def test_a_cluster_warms_up_and_a_redeployment_disturbs_it_the_more_threads_move(level):
    of = Deployed.of(deployed("cq-small").applications[0][1], replace(frozen().costs, noise=0.0))
    cluster = level(of, seed=1)
    first = curve(cluster, 90)
    stable = np.mean(first[-10:])
    assert first[0] / stable == pytest.approx(1 + frozen().costs.cold, rel=0.15)
    assert first[12] - stable < 0.5 * (first[0] - stable)  # a warm-up of two minutes
    spikes = []
    for moved in (2, 8, 20):
        after = cluster.assignment.copy()
        after[-moved:] = (after[-moved:] + 1) % of.setup.machines
        cluster.deploy(after)
        spikes.append(curve(cluster, 1)[0] / stable - 1.0)
        cluster.run(900.0)
    assert 0.0 < spikes[0] < spikes[1] < spikes[2]


def test_half_as_much_more_work_is_a_step_that_the_cluster_settles_on():
    cluster = ExactCluster(deployed("cq-large"), seed=2, warm=True, noise=False)
    cluster.run(1.0)
    before = cluster.measure(5.0)
    cluster.scale_rates(1.5)
    cluster.run(1.0)
    after = cluster.measure(5.0)
    assert after.arrivals / before.arrivals == pytest.approx([1.5], rel=0.03)
    assert 1.0 < after.times[0] / before.times[0] < 1.3


# ---- records and clocks


def test_records_tell_of_every_hop_and_every_work_and_add_up():
    cluster, records = recorded(deployed("lsp-33"), 3.0, warm=True)
    roots = len(records.ack)
    assert len(records.process) == len(records.transfer) == 5 * roots
    assert (np.sort(records.process["tuple_id"]) == np.sort(records.transfer["tuple_id"])).all()
    assert len(np.unique(records.process["tuple_id"])) == 5 * roots
    order = np.argsort(records.transfer["tuple_id"]), np.argsort(records.process["tuple_id"])
    transfer, process = records.transfer[order[0]], records.process[order[1]]
    assert (transfer["received"] == process["began"]).all()
    assert (transfer["receiver"] == process["thread"]).all()
    assert (transfer["received"] > transfer["sent"]).all()
    links = cluster.setup.links[transfer["edge"]]
    assert (links[:, 0] == cluster.setup.component_of[transfer["sender"]]).all()
    assert (links[:, 1] == cluster.setup.component_of[transfer["receiver"]]).all()
    assert (cluster.assignment[transfer["sender"]] == transfer["sender_machine"]).all()


def test_a_share_of_source_tuples_is_recorded_whole():
    cluster = ExactCluster(deployed("cq-small"), seed=1)
    cluster.record(0.1)
    cluster.run(20.0)
    cluster.record(0.0)
    emptied(cluster)
    records = cluster.records()
    assert len(records.ack) == pytest.approx(0.1 * 20 * 1330, rel=0.1)
    assert set(records.process["root_id"]) == set(records.ack["root_id"])
    assert len(cluster.records().ack) == 0


def test_clocks_that_are_off_show_in_records_and_an_exchange_finds_the_offset():
    clocks = Clocks.drawn(10, seed=3)
    of = deployed("cq-small")
    _, plain = recorded(of, 2.0, seed=4)
    cluster, off = recorded(of, 2.0, seed=4, clocks=clocks)
    machine = off.transfer["sender_machine"]
    assert off.transfer["sent"] == pytest.approx(
        plain.transfer["sent"] * (1 + clocks.drift[machine]) + clocks.offset[machine]
    )
    now = cluster.now
    for number in range(10):
        t1, t2, t3, t4 = cluster.exchange(number)[0]
        found = ((t2 - t1) - (t4 - t3)) / 2
        assert found == pytest.approx(clocks.offset[number] + now * clocks.drift[number], abs=1e-6)
        assert ((t2 - t1) + (t4 - t3)) / 2 == pytest.approx(of.costs.remote, rel=1e-3)


# ---- the two levels


@pytest.mark.parametrize("name", ["cq-small", "cq-large", "wc-large", "lsp-33", "3x-cq-medium"])
def test_formulas_rank_placements_as_tuples_do(name):
    from scipy.stats import spearmanr

    of = deployed(name)
    drawn_ones = drawn(of.setup, 40, 11)
    fast = FastCluster(of).times(drawn_ones)
    exact = []
    for number, assignment in enumerate(drawn_ones):
        cluster = ExactCluster(of, assignment, seed=number, warm=True, noise=False)
        cluster.run(0.5)
        exact.append(cluster.measure(2.0).times)
    for application in range(fast.shape[1]):
        found = np.array(exact)[:, application]
        assert spearmanr(fast[:, application], found, nan_policy="omit").statistic >= 0.9


def test_formulas_are_finite_whatever_the_placement_and_however_much_comes():
    for name in setups():
        cluster = FastCluster(deployed(name))
        times = cluster.times(drawn(cluster.setup, 50, 1, vary=True), cluster.rates * 100)
        assert np.isfinite(times).all()
        assert (times > 0).all()


def test_counts_of_threads_have_the_times_of_an_assignment_with_them():
    cluster = FastCluster(deployed("3x-cq-medium"))
    many = drawn(cluster.setup, 20, 5, vary=True)
    by_counts = cluster.times_of_counts(cluster.setup.counts(many))
    assert by_counts == pytest.approx(cluster.times(many), rel=1e-9)


@pytest.mark.parametrize("wrong", [[0.0], [-1.0], [np.nan], [np.inf], [1.0, 2.0], 1.0])
def test_formulas_refuse_rates_that_cannot_be(wrong):
    cluster = FastCluster(deployed("cq-small"))
    with pytest.raises(OptionError, match="rate"):
        cluster.times(cluster.setup.round_robin()[None], np.array(wrong))


def test_formulas_refuse_threads_and_counts_that_cannot_be():
    cluster = FastCluster(deployed("cq-small"))
    setup = cluster.setup
    number = int(np.argmax(setup.most))
    name, first, most = setup.operators[number].name, int(setup.first[number]), int(setup.most[number])
    holes = np.stack([setup.round_robin()] * 2)
    holes[1, first + 1] = -1
    with pytest.raises(OptionError, match=f"assignment 1, '{name}#2' runs and '{name}#1' does not"):
        cluster.times(holes)
    counts = setup.counts(setup.round_robin())[None]
    counts[0, number, 0] += 1
    with pytest.raises(OptionError, match=f"'{name}' has at most {most} threads, got {most + 1}"):
        cluster.times_of_counts(counts)
    counts[0, number, :2] += [-9, 8]
    for unfit in (counts, counts[0]):
        with pytest.raises(OptionError, match="numbers of 0 or more of the shape"):
            cluster.times_of_counts(unfit)


def test_both_levels_are_clusters_that_can_be_measured():
    exact, fast = ExactCluster(deployed("cq-small")), FastCluster(deployed("cq-small"))
    assert isinstance(exact, Measured)
    assert isinstance(fast, Measured)
    for protocol, one in ((Recorded, exact), (Fast, fast)):
        assert all(hasattr(one, name) for name in dir(protocol) if not name.startswith("_"))


def test_readings_of_the_fast_level_are_those_of_the_exact_one():
    for name in ("wc-30", "cq-small", "lsp-33"):
        of = deployed(name)
        exact, fast = ExactCluster(of, seed=1), FastCluster(of, seed=1)
        one, other = (settled(cluster, cluster.assignment) for cluster in (exact, fast))
        assert one.times == pytest.approx(other.times, rel=0.1)
        assert one.arrivals == pytest.approx(other.arrivals, rel=0.1)
        assert one.processed.sum() == pytest.approx(other.processed.sum(), rel=0.05)


@pytest.mark.parametrize("level", [ExactCluster, FastCluster])
def test_the_same_seed_is_the_same_run(level):
    def run(seed):
        cluster = level(deployed("wc-7"), seed=seed)
        return [cluster.measure(5.0).times[0] for _ in range(3)]

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize("wrong", [np.zeros(3, dtype=int), np.full(20, 10), np.zeros(20)])
def test_what_is_no_assignment_is_refused_by_both(wrong):
    for cluster in (ExactCluster(deployed("cq-small")), FastCluster(deployed("cq-small"))):
        with pytest.raises(OptionError):
            cluster.deploy(wrong)


@pytest.mark.parametrize("level", [ExactCluster, FastCluster])
def test_time_goes_on_and_rates_are_above_0(level):
    cluster = level(deployed("wc-7"))
    for wrong in (0.0, -1.0, np.nan, np.inf):
        for call in (cluster.measure, cluster.run, cluster.scale_rates):
            with pytest.raises(OptionError, match="must be above 0"):
                call(wrong)


def test_formulas_refuse_what_they_do_not_know():
    with pytest.raises(OptionError, match="use ExactCluster"):
        FastCluster(pair("shuffle", processes=2))


def test_costs_that_make_no_sense_are_refused():
    for wrong in ({"remote": -1.0}, {"warm": 0.0}, {"processes": 0}, {"local": np.nan}):
        with pytest.raises(OptionError):
            replace(NOTHING, **wrong)
    for build in (
        lambda: Unit("a", 1, seconds=-1.0),
        lambda: Unit("a", 1, spread=1.5),
        lambda: Flow("a", "b", outputs=0.0),
        lambda: Application((Unit("a", 1, source=True),), (), rate=0.0),
        lambda: Application((Unit("a", 1, source=True),), (), rate=1.0, keys=(0.0,)),
        lambda: deployed("cq-smal"),
        lambda: ExactCluster(deployed("wc-7")).record(2.0),
        lambda: ExactCluster(deployed("wc-7")).exchange(10),
    ):
        with pytest.raises(OptionError):
            build()
