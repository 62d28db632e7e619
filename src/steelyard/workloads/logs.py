"""Lines of a web server's log, with the fields of the W3C extended format as IIS writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws, quantile_table
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.vocabulary import vocabulary
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT

MAX_PAGES, MAX_VISITORS = 1_000_000, 10_000_000
METHODS, STATUSES = ("GET", "POST", "HEAD"), (200, 304, 404, 500)
METHOD_SHARES, STATUS_SHARES = (0.85, 0.97), (0.78, 0.92, 0.98)
"""Up to which number between 0 and 1 each of them but the last is drawn."""
AGENTS = ("Mozilla/5.0+(Windows)", "Mozilla/5.0+(Macintosh)", "Mozilla/5.0+(X11)", "Googlebot/2.1", "bingbot/2.0")
SUBSTATUS_OF, WIN32_OF = {404: 0, 500: 19}, {404: 2, 500: 64}
_NORMAL = NormalDist()
MILLISECONDS = quantile_table(lambda p: exp(log(60) + 1.3 * _NORMAL.inv_cdf(p)))
"""Median 60 ms, one in a hundred above 1.2 s."""


@dataclass(frozen=True)
class Logs(Workload):
    """One request a row, as a college's IIS server would log it; all that it says is made up.

    Parameters
    ----------
    pages
        Number of addresses, up to 10^6.
    exponent
        Skew of requests over them, 0 to 4.
    visitors
        Number of clients, up to 10^7.
    seed
        Chooses the requests.

    Examples
    --------
    >>> line = Logs(seed=1).rows(0, 1, np.zeros(1)).to_pylist()[0]
    >>> line["method"], line["uri_stem"], line["status"]
    ('POST', '/ko.aspx', 304)
    """

    pages: int = 5_000
    exponent: float = 1.0
    visitors: int = 20_000
    seed: int = 0

    name: ClassVar[str] = "logs"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("event_time", TIMESTAMP),
            ("server_ip", pa.string()),
            ("method", pa.string()),
            ("uri_stem", pa.string()),
            ("uri_query", pa.string()),
            ("port", pa.int32()),
            ("username", pa.string()),
            ("client_ip", pa.string()),
            ("agent", pa.string()),
            ("status", pa.int32()),
            ("substatus", pa.int32()),
            ("win32_status", pa.int32()),
            ("time_taken", pa.int32()),
        ]
    )

    def __post_init__(self) -> None:
        require_within("pages", self.pages, 1, MAX_PAGES)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("visitors", self.visitors, 1, MAX_VISITORS)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        page = rank_table(self.exponent, self.pages).ranks(draws.uniform("page"))
        words = vocabulary(self.pages)
        stems = [f"/{word}.aspx" for word in words.take(pa.array(page)).to_pylist()]
        visitor = draws.integers("visitor", self.visitors)
        status = np.asarray(STATUSES)[np.searchsorted(STATUS_SHARES, draws.uniform("status"), side="right")]
        method = np.searchsorted(METHOD_SHARES, draws.uniform("method"), side="right")
        secure, asks = draws.happens("secure", 0.4), draws.happens("asks", 0.2)
        known = draws.happens("known", 0.1)
        return [
            times,
            pa.array([f"10.0.0.{one + 1}" for one in draws.integers("server", 4).tolist()], pa.string()),
            pa.array(METHODS).take(pa.array(method)),
            pa.array(stems, pa.string()),
            pa.array(
                [f"id={one}" if q else "-" for one, q in zip(page.tolist(), asks.tolist(), strict=True)], pa.string()
            ),
            np.where(secure, 443, 80).astype(np.int32),
            pa.array(
                [f"user{v}" if k else "-" for v, k in zip(visitor.tolist(), known.tolist(), strict=True)], pa.string()
            ),
            pa.array([f"172.{16 + v // 65536 % 16}.{v // 256 % 256}.{v % 256}" for v in visitor.tolist()], pa.string()),
            pa.array(AGENTS).take(pa.array(visitor % len(AGENTS))),
            status.astype(np.int32),
            np.select([status == code for code in SUBSTATUS_OF], list(SUBSTATUS_OF.values())).astype(np.int32),
            np.select([status == code for code in WIN32_OF], list(WIN32_OF.values())).astype(np.int32),
            np.rint(draws.distributed("taken", MILLISECONDS)).astype(np.int32),
        ]
