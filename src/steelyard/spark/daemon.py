"""Spark's Python daemon with the imports of our tasks done before it forks: workers then start in no time.

Spark forks a worker for every slot, and each would import NumPy, pandas and Arrow for itself, most of a second
each. `sy.session` sets `spark.python.daemon.module` to this module where workers share the driver's environment.
"""

from __future__ import annotations

import gc
import importlib

NEEDED = ("pyspark.worker", "numpy", "pyarrow", "pyarrow.compute", "pandas", "steelyard.spark.combine")


def main() -> None:
    """Import what tasks need, then be Spark's daemon."""
    from pyspark.daemon import manager  # noqa: PLC0415 - only a daemon needs it

    for name in NEEDED:
        importlib.import_module(name)
    gc.freeze()  # or the first collection in each worker would copy every page that it touches
    manager()


if __name__ == "__main__":
    main()
