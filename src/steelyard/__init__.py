"""Steelyard: load-aware streams on PySpark."""
