"""A similarity join is a query as any other: its verbs, its events, and who decides in it."""

from __future__ import annotations

import json
import urllib.request

import pytest

import steelyard as sy
from steelyard.control import Cooldown, LargestStep
from steelyard.core import Action, OptionError
from steelyard.scaling import Zones
from steelyard.similarity import Balancing, Bandit, ImbalanceAbove
from steelyard.similarity.members import ID_BITS
from tests.spark.test_similarity_join import SCHEMA, SECOND, Fed, brute_force, frame, same, self_join, vectors

pytestmark = pytest.mark.spark


def parts(join, count=3, seconds=20):
    return [
        join.rows.where(f"at >= {n * seconds * SECOND} and at < {(n + 1) * seconds * SECOND}") for n in range(count)
    ]


def test_a_join_has_every_verb_of_a_query_and_tells_every_kind_of_event(spark, tmp_path):
    rows = vectors(60, seed=5)

    def write(part):
        some = frame(spark, rows[part * 20 : part * 20 + 20]).coalesce(1)
        some.write.parquet(str(tmp_path / f"in/{part}"))

    def started():
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in/*"))
        join = sy.similarity_join(stream, on="vector", id="id", time="at", window="1 hour", threshold=0.02, workers=3)
        join = join.balance("imbalance_above?limit=0", guards=[LargestStep(moves=1)]).metrics(port=0).name("alike")
        assert "ImbalanceAbove(limit=0.0)" in str(join)
        assert "LargestStep" in str(join)
        return join.sink("parquet", path=tmp_path / "out").checkpoint(tmp_path / "checkpoint").start()

    for part in range(2):
        write(part)
    heard, everywhere = [], []
    forget = sy.on_progress(everywhere.append)
    query = started().on_progress(heard.append)
    query.process_all_available()
    assert (query.name, query.is_active, query.exception()) == ("alike", True, None)
    assert query.status["committedBatch"] == query.last_progress.batch == 1
    assert [one.batch for one in query.recent_progress] == [0, 1]
    assert repr(query).startswith("Query(alike, active, last: batch 1: 20 rows")
    assert "alike" in query._repr_html_()
    assert not query.await_termination(0.01)
    query.stop()
    assert (query.is_active, query.exception(), query.await_termination(1)) == (False, None, True)
    write(2)
    again = started()
    again.process_all_available()
    again.stop()
    forget()
    assert again.id == query.id
    assert again.run_id != query.run_id
    assert {(one.name, one.id) for one in everywhere} == {("alike", query.id)}
    assert [one.to_json() for one in everywhere if one.run_id == query.run_id] == [one.to_json() for one in heard]
    kinds = [one.kind for one in heard]
    assert kinds[:3] == ["decision", "batch", "moved"]
    assert "brought" in kinds
    assert kinds[-1] == "stopped"
    decision, batch, moved = heard[:3]
    assert decision.wanted["moves"] > 1
    assert decision.done == {"moves": 1}
    assert decision.decision == batch.decision == moved.decision
    assert decision.decision.endswith("; 1 at once may move")
    assert (batch.moves, moved.moves, json.loads(moved.to_json())["moved_bytes"] > 0) == (1, 1, True)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    same(pairs, {(a, b, 0) for a, b, _ in brute_force(rows, rows, "angular", 0.02, 3600)}, ordered=False)


def test_metrics_of_a_join_have_its_decisions_its_moves_and_its_imbalance(spark, tmp_path):
    metrics = sy.Metrics()
    try:
        join = self_join(spark, vectors(40, seed=5), window="1 hour").balance(ImbalanceAbove(0.0))
        fed = Fed(spark, join, tmp_path / "join")
        fed.engine.feed.begin("alike")
        fed.engine.feed.listen(metrics)
        moves = [fed.give(part).moves for part in parts(join, 2)]
        fed.engine.feed.close()
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        metrics.close()
    assert 'steelyard_decisions_total{query="alike"}' in text
    assert sum(moves) > 0
    assert f'steelyard_moves_total{{query="alike"}} {sum(moves):.1f}\n' in text
    assert 'steelyard_imbalance{query="alike"}' in text


def test_in_a_cooldown_nothing_moves_and_the_engine_does_what_a_policy_of_the_users_wants(spark, tmp_path):
    class Once:
        """All worksets of the batch to the last worker; it asks for that at every look."""

        needs = ("worksets",)

        def decide(self, observation):
            worksets, last = observation.join.worksets, len(observation.join.loads) - 1
            return Action(moves={one.id: last for one in worksets}, reason="to the last")

    rows = vectors(60, seed=5)
    join = self_join(spark, rows, window="1 hour").balance(Once(), guards=[Cooldown(3600)])
    fed = Fed(spark, join, tmp_path / "join")
    reports = [fed.give(part) for part in parts(join)]
    assert [report.moves > 0 for report in reports] == [True, False, False]
    assert [report.decision for report in reports] == ["to the last", "", ""]
    assert set(fed.engine.last.assignment.values()) == {2}
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 3600), ordered=False)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (lambda one: Action(moves={one.id: 7}), "cannot go to worker 7: there are workers 0 to 2"),
        (lambda one: Action(cuts={one.id: 1}), "cut into 2 to"),
        (lambda one: Action(cuts={(one.id[0], one.id[1] | 1 << ID_BITS): 2}), "is cut already"),
        (lambda one: Action({"blocks": 3}), "a similarity join keeps its numbers of instances"),
    ],
)
def test_what_a_join_cannot_do_is_written_down_and_changes_nothing(spark, tmp_path, wanted, message):
    class Wrong:
        def decide(self, observation):
            return wanted(observation.join.worksets[0])

    join = self_join(spark, vectors(20, seed=1), window="1 hour").balance(Wrong())
    fed = Fed(spark, join, tmp_path)
    assert fed.give(join.rows).moves == 0
    (decision,) = fed.engine._controller.decisions
    assert message in decision.refused
    assert decision.done.is_nothing
    assert (fed.engine.last.batch, fed.engine.last.assignment, fed.engine.last.splits) == (0, {}, {})


def test_a_policy_that_needs_batches_is_refused_and_queries_do_not_share_one(spark, tmp_path):
    join = self_join(spark, vectors(40, seed=5), window="1 hour")
    with pytest.raises(OptionError, match="zones needs to see batches, which a similarity join cannot show"):
        Fed(spark, join.balance(Zones(interval=1.0)), tmp_path / "a")
    described = join.balance(Balancing(ImbalanceAbove(0.0), Bandit()))
    one, two = (Fed(spark, described, tmp_path / name) for name in "bc")
    one.give(parts(join)[0])
    plans = [fed.engine.settings.policy.state()["plans"].tolist() for fed in (one, two)]
    assert plans == [[1], [0]]
