from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.local.heads import Heads, Place


class Owner:
    """Somebody with a place that changes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.place: tuple[int, int] | None = None
        self.inside = False
        self.entry = None

    def __lt__(self, other: object) -> bool:
        return False


def place_of(owner: Owner) -> Place | None:
    return owner.place


steps = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "earlier", "later", "nothing", "drop", "take"]),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(steps)
def test_whoever_comes_first_is_found(given_steps: list[tuple[str, int, int]]) -> None:
    owners = [Owner(n) for n in range(8)]
    heads = Heads(place_of, "entry")
    for ticket, (what, which, where) in enumerate(given_steps, 1):
        owner = owners[which]
        if what in ("next", "earlier"):
            # At the end of everybody, as new jobs come, or somewhere before; it must be told.
            place = (0, ticket) if what == "next" else (-where, ticket)
            if owner.place is None or place < owner.place or not owner.inside:
                owner.place, owner.inside = place, True
                heads.put(owner)
        elif what == "later" and owner.place is not None:
            owner.place = (owner.place[0] + where, ticket)
        elif what == "nothing":
            # Whoever has nothing leaves by itself, and is told of when it comes back.
            owner.place, owner.inside = None, False
        elif what == "drop":
            heads.drop(owner)
            owner.inside = False
        elif (first := heads.first()) is not None:
            assert first.place is not None
            first.place = (first.place[0], ticket)
        there = [each for each in owners if each.inside and each.place is not None]
        expected = min(there, key=lambda each: each.place or (0, 0), default=None)
        assert heads.first() is expected


def test_what_is_no_longer_true_is_not_gathered() -> None:
    owners = [Owner(n) for n in range(10)]
    heads = Heads(place_of, "entry")
    for n in range(10_000):
        owner = owners[n % 10]
        heads.drop(owner)
        # In the order of coming, and against it.
        owner.place = (0, n if n % 3 else -n)
        heads.put(owner)
    assert len(heads._line) + len(heads._heap) < 100
