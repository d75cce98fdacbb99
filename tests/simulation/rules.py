"""The rules that the mutants break: file, text that is there exactly once, and what stands in its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, by its changes: (file in the package, old text, new text)."""

    name: str
    changes: tuple[tuple[str, str, str], ...]


def _one(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name, ((path, old, new),))


_SEND = '        answer = recipe.send(client, operation, bytes(operation.body or b""), max_wait)\n'
_SEND_AND_RECORD = """\
        try:
            answer = recipe.send(client, operation, bytes(operation.body or b""), max_wait)
        finally:
            if operation._state.adding:
                operation.save(force_insert=True)
"""
_TELL = "    return repeatable(tell_next, using=using, durable=True, lost_races=False)\n"
_MARK_AND_TELL = """\
    first = _earliest(key)
    if first is None or first.state != EventState.APPLIED:
        return repeatable(tell_next, using=using, durable=True, lost_races=False)
    _mark_told(first)
    with transaction.atomic():
        _send(first)
    return True
"""
_READ_WINDOW = "        _read_window(run, held, window, save=not explicit, progress=progress, deadline=deadline)\n"
_MOVE_AND_READ = """\
        if not explicit:
            held.write(watermark=window.end)
        _read_window(run, held, window, save=not explicit, progress=progress, deadline=deadline)
"""
_AS_READ = """\
    as_read = Operation.objects.filter(free(now), pk=operation.pk, state__in=states).filter(
        attempts=operation.attempts, state=operation.state, may_have_run=repeated
    )
"""
_REFUSED = """\
type(error).__name__)
        return HttpResponse(status=503)
"""
_KNOWN = """\
        _alert(stray)
        return Receipt.QUARANTINED
    return Receipt.KNOWN
"""
_KNOWN_AND_APPLIED_AGAIN = """\
        _alert(stray)
        return Receipt.QUARANTINED
    Event.objects.filter(id=event.id).update(state=EventState.PENDING)
    return Receipt.KNOWN
"""
_DEFERRED = (
    "            transaction.on_commit(partial(_send_deferred, operation.pk), using=guards.database(), robust=True)"
)
_UNTOLD = "        untold = of_account(untold.filter(state=EventState.APPLIED), account)\n"
_UNTOLD_OF_LATE = f"""\
{_UNTOLD}\
        since = "received_at" if model is Event else "recorded_at"
        untold = untold.filter(**{{f"{{since}}__gt": timezone.now() - timedelta(seconds=20)}})
"""
_DECIDED = "        decided = intent.guard.decide(intent) if intent.guard is not None else intent\n"
_WRITTEN = "    written: Operation | None = None\n"

MUTANTS = (
    _one(
        "an older event overwrites a newer state",
        "projection/ordering.py",
        "return Order.NEWER if event_at > state_at else Order.OLDER",
        "return Order.NEWER",
    ),
    Mutant(
        "the operation is recorded after it was sent",
        (
            (
                "services/ledger.py",
                "        operation.save(force_insert=True)\n        written = operation\n",
                "        if deferred:\n            operation.save(force_insert=True)\n        written = operation\n",
            ),
            ("services/sending.py", _SEND, _SEND_AND_RECORD),
        ),
    ),
    _one("an item is marked as told before its receivers run", "inbox/telling.py", _TELL, _MARK_AND_TELL),
    _one("the watermark moves before the pages are in", "reconciliation/events.py", _READ_WINDOW, _MOVE_AND_READ),
    _one(
        "a retry has a key of its own",
        "services/leases.py",
        '        "last_sent_at": now,\n',
        '        "last_sent_at": now,\n        **({"idempotency_key": token} if operation.may_have_run else {}),\n',
    ),
    _one(
        "a refusal after an unknown attempt counts as one",
        "services/sending.py",
        "    elif claim.repeated or not _is_refusal(error):\n",
        "    elif not _is_refusal(error):\n",
    ),
    Mutant(
        "the answer of a repeated request is taken as the state",
        (
            (
                "services/outcomes.py",
                "    if claim.repeated:\n        return projection.record_identity",
                "    if claim is None:\n        return projection.record_identity",
            ),
            (
                "services/outcomes.py",
                "    if claim.repeated and resource is not None:\n        row = read_quietly",
                "    if claim is None and resource is not None:\n        row = read_quietly",
            ),
        ),
    ),
    _one(
        "a delivery is acknowledged though it was not committed",
        "webhooks.py",
        _REFUSED,
        _REFUSED.replace("503", "200"),
    ),
    _one(
        "who comes after its lease still writes its outcome",
        "services/leases.py",
        "pk=claim.operation.pk, lease_token=claim.token)",
        "pk=claim.operation.pk)",
    ),
    Mutant(
        "an operation has no lease",
        (
            ("services/leases.py", _AS_READ, "    as_read = Operation.objects.filter(pk=operation.pk)\n"),
            ("services/leases.py", "pk=claim.operation.pk, lease_token=claim.token)", "pk=claim.operation.pk)"),
        ),
    ),
    _one(
        "a look-up does not compare the money",
        "services/lookups.py",
        "    return bool(item.amount == operation.amount and item.currency == operation.currency)\n",
        "    return bool(item.currency)\n",
    ),
    _one(
        "a look-up does not ask for rivals",
        "services/lookups.py",
        "    elif _has_rival(operation):\n",
        '    elif operation.operation == "" and _has_rival(operation):\n',
    ),
    _one("an event that is known is applied again", "inbox/receiving.py", _KNOWN, _KNOWN_AND_APPLIED_AGAIN),
    _one(
        "events are told in the order of their arrival",
        "inbox/telling.py",
        '_TO_BE_APPLIED).order_by("created_at", "pk").first()',
        '_TO_BE_APPLIED).order_by("received_at", "pk").first()',
    ),
    _one(
        "what a pass brings is told at once",
        "inbox/processing.py",
        "EventState.HELD if held else EventState.APPLIED",
        "EventState.APPLIED",
    ),
    _one(
        "a tie is not settled by reading",
        "projection/events.py",
        'return "order_unclear" if rows.differences(item.write_out(), resource) else ""',
        'return ""',
    ),
    _one(
        "a deferred call is sent before the commit",
        "services/calls.py",
        _DEFERRED,
        "            _send_deferred(operation.pk)",
    ),
    Mutant(
        "what is left to refund is counted before the lock",
        (
            ("services/ledger.py", _DECIDED, "        decided = early\n"),
            ("services/ledger.py", _WRITTEN, _WRITTEN + _DECIDED[4:].replace("decided", "early", 1)),
        ),
    ),
    _one("the sweeper does not look for what is applied and untold", "inbox/telling.py", _UNTOLD, _UNTOLD_OF_LATE),
    _one(
        "an answer overwrites what came while it was under way",
        "projection/answers.py",
        "    if not unchanged or (\n",
        "    if row is None or (\n",
    ),
    _one(
        "a change of a refund does not have its payment read",
        "projection/events.py",
        "        if isinstance(resource, wire.Refund) and item.last_event is event:\n",
        "        if isinstance(resource, wire.Refund) and item.last_event is None:\n",
    ),
    _one(
        "an unknown operation is sent again after the key is forgotten",
        "services/sending.py",
        "RESEND_FOR = timedelta(hours=23)",
        "RESEND_FOR = timedelta(hours=2300)",
    ),
)
