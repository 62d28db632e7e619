"""Spark Connect is refused by its name: what this library does to a batch, it does in Spark's own driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from steelyard.core import OptionError

_CONNECT = "pyspark.sql.connect"
_REASON = (
    "plans every batch inside Spark's driver (foreachBatch, task reports, barrier jobs), which a Connect client does "
    "not reach"
)


def require_classic(given: Any, taker: str) -> None:
    """OptionError for a DataFrame or a session of Spark Connect; `taker` is what it was given to.

    >>> require_classic("no connection", "sy.stream")
    """
    if any(kind.__module__.startswith(_CONNECT) for kind in type(given).__mro__):
        raise OptionError(
            f"{taker} was given a Spark Connect {type(given).__name__}, and Steelyard {_REASON}: run the program where "
            "the driver runs, with sy.session(master=...) or spark-submit and without SPARK_REMOTE or .remote(...)"
        )


def require_no_connection(config: Mapping[str, str]) -> None:
    """OptionError where an option or the environment would make PySpark's builder give a Connect session.

    >>> require_no_connection({"spark.remote": "sc://there"})
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: sy.session: spark.remote asks for Spark Connect, and Steelyard ...
    """
    modes = {"spark.api.mode": config.get("spark.api.mode"), "SPARK_API_MODE": os.environ.get("SPARK_API_MODE")}
    asked = [
        *(["spark.remote"] if "spark.remote" in config else []),
        *(name for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") if name in os.environ),
        *(name for name, mode in modes.items() if mode is not None and mode.lower() == "connect"),
        *(["SPARK_CONNECT_MODE"] if os.environ.get("SPARK_CONNECT_MODE") == "1" else []),
    ]
    if asked:
        raise OptionError(
            f"sy.session: {asked[0]} asks for Spark Connect, and Steelyard {_REASON}: take it away, and give "
            "master=... or use spark-submit"
        )
