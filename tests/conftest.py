from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Shared machines stall now and then; a slow example is no fault of the code.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HEADGATE_TEST_PROFILE", "default"))
