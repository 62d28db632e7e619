"""The speeds of groupings."""

from steelyard.bench.osg import kernels as osg_kernels
from steelyard.bench.registry import Run


def test_speeds_are_measured_for_every_compiled_grouping(monkeypatch):
    monkeypatch.setattr(osg_kernels, "TUPLES", 200_000)
    monkeypatch.setattr(osg_kernels, "WARM", 8_000)
    result = osg_kernels.kernels(Run(quick=True))
    assert result.kind_of("osg_tuples_per_s") == "measured"
    assert all(value > 0 for value in result.metrics.values())
    learnt = {row[0]: row[3] for row in result.tables[0].rows}
    assert list(learnt) == osg_kernels.compiled_names()
    assert [name for name in learnt if learnt[name]] == ["osg", "tracking_osg"]
