"""Rates and bytes of protocols on real workers: what is made of the runs."""

import pytest

from steelyard.bench.checkmate import live_rates
from steelyard.bench.checkmate.live_rates import NONE, Ran, Rates
from steelyard.resident.launchers import ProcessLauncher


def test_ratios_are_taken_round_by_round():
    runs = {NONE: [Ran(100.0, 1000), Ran(50.0, 1000)], "uncoordinated": [Ran(90.0, 1010), Ran(50.0, 1050)]}
    found = {("q12", name, block): of for name, of in runs.items() for block in live_rates.BLOCKS}
    result = live_rates.result_of(found, {64: 10, 1: 10})
    assert result.metrics["q12_rate_vs_none_uncoordinated"] == pytest.approx(0.95)
    assert result.metrics["q12_bytes_vs_none_uncoordinated_one_row"] == pytest.approx(1.03)
    assert result.metrics["overhead_unc"] == pytest.approx(1.03)
    assert [target.metric for target in result.missed] == ["overhead_unc"]


@pytest.mark.parametrize("protocol", [NONE, "uncoordinated"])
def test_a_run_counts_rows_and_the_bytes_that_travelled(tmp_path, protocol):
    ran = Rates(ProcessLauncher(), tmp_path).run(live_rates.QUERIES["q12"], protocol, 2_000, 64, 0)
    assert ran.rate > 0
    assert ran.sent > 2_000  # a byte per row is the least
