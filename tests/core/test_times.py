from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.times import (
    DAY_MS,
    FIRST_INSTANT_MS,
    LAST_INSTANT_MS,
    LONGEST_MS,
    duration_ms,
    duration_text,
    instant_ms,
    instant_text,
    resolve_instant,
)

instants = st.integers(FIRST_INSTANT_MS, LAST_INSTANT_MS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1_000),
        ("PT0S", 0),
        ("PT0.25S", 250),
        ("PT1.0009S", 1_000),
        ("PT5M", 300_000),
        ("PT2H30M", 9_000_000),
        ("PT90S", 90_000),
        ("P1D", DAY_MS),
        ("P1DT1S", DAY_MS + 1_000),
        ("P2W", 14 * DAY_MS),
        ("P1M", 30 * DAY_MS),
        ("P1Y", 365 * DAY_MS),
        ("P1Y2M3W4DT5H6M7.8S", (365 + 60 + 21 + 4) * DAY_MS + 18_367_800),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "1S", "PT1", "T1S", "pt1s", "PT1s", "-PT1S", "PT-1S", "+PT1S"),
        *("PT1.S", "PT.5S", "PT1.5M", "P1.5D", "PT1S1M", "P1D1M", "10s", "PT1S ", " PT1S"),
        *("PT1S\n", "PT1,5S", "PT\u0661S", "P1H", "PT1D"),
        *("PT" + "9" * 40 + "S", "PT" + "1" * 5000 + "S"),
    ],
)
def test_durations_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "PT0S"),
        (1, "PT0.001S"),
        (1_500, "PT1.5S"),
        (60_000, "PT1M"),
        (60_100, "PT1M0.1S"),
        (90_000, "PT1M30S"),
        (3_600_000, "PT1H"),
        (DAY_MS, "P1D"),
        (7 * DAY_MS + 1_000, "P7DT1S"),
        (180 * DAY_MS, "P180D"),
    ],
)
def test_durations_written(ms: int, text: str) -> None:
    assert duration_text(ms) == text


@given(st.integers(0, LONGEST_MS))
def test_written_durations_read_back(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms


@pytest.mark.parametrize("ms", [-1, LONGEST_MS + 1])
def test_durations_out_of_range_are_not_written(ms: int) -> None:
    with pytest.raises(ValueError, match="between 0 and"):
        duration_text(ms)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500),
        ("1970-01-01T00:00:00.0009Z", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T18:30:00-05:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2000-02-29T00:00:00Z", 951_782_400_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
        ("0001-01-01T00:00:00.000Z", FIRST_INSTANT_MS),
        ("9999-12-31T23:59:59.999Z", LAST_INSTANT_MS),
    ],
)
def test_instants(text: str, expected: int) -> None:
    assert instant_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z"),
        *("1970-01-01T00:00Z", "1970-1-1T00:00:00Z", "1970-01-01T00:00:00+0200"),
        *("1970-01-01T00:00:00+02", "1970-01-01T00:00:00+24:00", "1970-01-01T00:00:00+02:60"),
        *("1970-02-29T00:00:00Z", "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z"),
        *("1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:61Z"),
        *("1970-01-01T12:00:60Z", "2017-01-01T23:59:60+01:00", "0000-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "1970-01-01T00:00:00.Z"),
        *("1970-01-01T00:00:00Z\n", "19\u06670-01-01T00:00:00Z", "1970-01-01T00:00:00,5Z"),
        "1970-01-01T00:00:00." + "1" * 100 + "Z",
    ],
)
def test_instants_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|does not exist|years"):
        instant_ms(text)


@given(instants)
def test_written_instants_read_back(ms: int) -> None:
    text = instant_text(ms)
    assert len(text) == len("1970-01-01T00:00:00.000Z")
    assert instant_ms(text) == ms
    assert datetime.fromisoformat(text) == EPOCH + timedelta(milliseconds=ms)


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_any_offset_means_the_same_as_the_library_says(moment: datetime, offset: int) -> None:
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    assert instant_ms(moment.isoformat()) == (moment - EPOCH) // timedelta(milliseconds=1)


@given(st.text(max_size=40) | st.text("0123456789-+:TtZzPDHMSWY. ", max_size=40))
def test_garbage_is_refused_or_understood_but_never_fails_otherwise(text: str) -> None:
    for read in (duration_ms, instant_ms):
        try:
            assert isinstance(read(text), int)
        except ValueError:
            continue


@pytest.mark.parametrize("ms", [FIRST_INSTANT_MS - 1, LAST_INSTANT_MS + 1, 10**20])
def test_instants_out_of_range_are_not_written(ms: int) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        instant_text(ms)


def test_absolute_instants_keep_their_literal() -> None:
    assert resolve_instant("1970-01-01T02:00:01+02:00", 7) == (1_000, "1970-01-01T02:00:01+02:00")


def test_relative_instants_count_from_now() -> None:
    assert resolve_instant("+PT2S", 500) == (2_500, "1970-01-01T00:00:02.500Z")


@pytest.mark.parametrize("text", ["+", "+2S", "+-PT2S", "++PT2S", "+1970-01-01T00:00:00Z"])
def test_relative_instants_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        resolve_instant(text, 0)


def test_relative_instants_end_with_the_calendar() -> None:
    with pytest.raises(ValueError, match="after the year 9999"):
        resolve_instant("+PT1S", LAST_INSTANT_MS - 999)
    assert resolve_instant("+PT1S", LAST_INSTANT_MS - 1_000)[0] == LAST_INSTANT_MS


@given(st.lists(st.integers(0, LONGEST_MS), max_size=5))
def test_a_few_durations_from_now_can_be_written(durations: list[int]) -> None:
    assert instant_text(1_770_892_200_000 + sum(durations)).endswith("Z")
