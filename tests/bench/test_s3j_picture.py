"""The picture of worksets shows what the policies do."""

from __future__ import annotations

import numpy as np

from steelyard.bench import charts
from steelyard.bench.s3j import picture as s3j_picture
from steelyard.bench.s3j.picture import SHOWN, THRESHOLD
from steelyard.similarity.members import INNER, OUTER, OUTLIER


def test_members_lie_where_their_roles_say():
    scene = s3j_picture.scene()
    distance = np.linalg.norm(scene.points[scene.record] - scene.centroids[scene.workset - 1], axis=1)
    assert distance[scene.role == INNER].max() <= THRESHOLD / 2
    outliers = distance[scene.role == OUTLIER]
    assert outliers.min() > THRESHOLD / 2
    assert outliers.max() <= THRESHOLD
    assert distance[scene.role == OUTER].max() <= 2 * THRESHOLD * (1 + 1e-9)


def test_the_workset_that_is_shown_has_members_of_every_kind():
    scene = s3j_picture.scene()
    shown = scene.workset == scene.richest
    assert set(scene.role[shown].tolist()) == {INNER, OUTLIER, OUTER}
    position, outer = scene.routed.of(SHOWN)
    assert np.isin(scene.record[shown], position[outer]).any()


def test_the_picture_is_drawn(tmp_path):
    assert charts.save(s3j_picture.draw, tmp_path / "worksets.png").stat().st_size > 10_000
