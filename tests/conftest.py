"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that run this are busy: an example may take long without being wrong.
settings.register_profile("steelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steelyard")
