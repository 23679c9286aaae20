from __future__ import annotations

import pytest

for module in ("everything", "flow", "flowing", "invariants", "machine", "views"):
    pytest.register_assert_rewrite(f"tests.agreement.{module}")
