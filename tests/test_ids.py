from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headgate.ids import secret, uuid7

PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
instants = st.integers(0, 2**48 - 1)


@given(instants)
def test_it_is_a_uuid_of_version_7_that_says_when(now_ms: int) -> None:
    found = uuid7(now_ms)
    assert PATTERN.fullmatch(found)
    assert int(found.replace("-", "")[:12], 16) == now_ms


@given(instants, instants)
def test_ids_of_different_milliseconds_sort_by_time(one: int, other: int) -> None:
    if one != other:
        assert (uuid7(one) < uuid7(other)) == (one < other)


def test_ids_of_one_millisecond_differ_in_every_random_bit() -> None:
    ids = [int(uuid7(1_770_000_000_000).replace("-", ""), 16) for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    changing = 0
    for found in ids:
        changing |= found ^ ids[0]
    # 12 bits after the version and 62 after the variant.
    assert changing == ((1 << 12) - 1) << 64 | (1 << 62) - 1


def test_secrets_are_256_bits_of_hexadecimal() -> None:
    secrets = {secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(re.fullmatch(r"[0-9a-f]{64}", found) for found in secrets)
