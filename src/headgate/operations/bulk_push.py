"""PUSH of many jobs with an outcome for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.core.envelope import Envelope
from headgate.core.errors import Conflict, OjsError
from headgate.engines.contract import Draft, Duplicate, Engine, Pushed
from headgate.operations.push import Producer, accepted, boosts_of, draft_of

Outcome = Pushed | Duplicate | OjsError


async def push_each(
    engine: Engine,
    envelopes: Sequence[Envelope | OjsError],
    producer: Producer,
    now_ms: int,
    new_id: Callable[[int], str],
    *,
    atomic: bool,
) -> list[Outcome]:
    """One outcome per item, refusals among them; when `atomic`, one refusal makes all of them refusals.

    Items that could not even be read come as what was wrong with them.
    It never waits for room: what is known of the other items would be old by then.
    """
    readable = [envelope for envelope in envelopes if isinstance(envelope, Envelope)]
    boosts = await boosts_of(engine, readable, now_ms)
    drafts: list[Draft | OjsError] = []
    for envelope in envelopes:
        if isinstance(envelope, OjsError):
            drafts.append(envelope)
            continue
        try:
            boost = boosts[envelope.tenant]
            drafts.append(draft_of(engine, envelope, now_ms, new_id, producer, boost))
        except OjsError as error:
            drafts.append(error)
    good = [draft for draft in drafts if isinstance(draft, Draft)]
    if atomic and len(good) < len(drafts):
        return [d if isinstance(d, OjsError) else _rolled_back() for d in drafts]
    pushed = iter(await engine.push(good, now_ms, whole=atomic) if good else ())
    outcomes: list[Outcome] = []
    for draft in drafts:
        try:
            outcomes.append(draft if isinstance(draft, OjsError) else accepted(next(pushed)))
        except OjsError as error:
            outcomes.append(error)
    if atomic and any(isinstance(outcome, OjsError) for outcome in outcomes):
        return [o if isinstance(o, OjsError) else _rolled_back() for o in outcomes]
    return outcomes


def _rolled_back() -> Conflict:
    return Conflict("rolled back, because another job of the request was refused")
