"""The mutants: rules of the app, each broken by replacing text that occurs exactly once in a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake as a list of changes: (file in the package, old text, new text)."""

    name: str
    changes: tuple[tuple[str, str, str], ...]


def _one(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name, ((path, old, new),))


_SEND = "            answer = call.send(client, operation, max_wait=max_wait)\n"
_SEND_AND_RECORD = """\
            try:
                answer = call.send(client, operation, max_wait=max_wait)
            finally:
                if operation._state.adding:
                    operation.save(force_insert=True)
"""
_DISPATCH = """\
        repeatable(call, using=page.using, durable=True, lost_races=False, about=ids_of(item))
"""
_MARK_AND_DISPATCH = """\
        from django.db import transaction
        with transaction.atomic(using=page.using), statements.preparing_cursor(connections[page.using]) as cursor:
            instance, lock = _lock(page, work, cursor)
            mark([item], lock, cursor, have_changes=bool(changes))
        try:
            with transaction.atomic(using=page.using):
                send(item, changes, instance, connections[page.using], is_stale=is_stale)
        except Exception as error:
            raise ReceiverFailed(str(item.pk)) from error
"""
_CAME_AT = """\
def _came_at(item):
    return item.received_at if isinstance(item, Event) else item.recorded_at


"""
_LOCK = " WHERE id = %s AND {only_by_key('claim_token')} = %s"
_LOCK_ANY = " WHERE id = %s AND %s IS NOT NULL"
_SEEN = "is_as_seen != (None if work.seen is None else True)"
_CHECK = f"    if not is_undispatched or is_overtaken or {_SEEN}:\n"
_CHECK_ITEM = "    if not is_undispatched:\n"
_CHECK_OBJECT = f"    if is_overtaken or {_SEEN}:\n"
_MARK = " WHERE id IN ({placeholders(count)}) AND {only_by_key('state')} = 'applied'"
_MARK_ANY = " WHERE id IN ({placeholders(count)})"
#: The lock and the mark of an item, whether it is still waiting or not.
_ANY_ITEM = (("inbox/calling.py", _CHECK, _CHECK_OBJECT), ("inbox/calling.py", _MARK, _MARK_ANY))
_LEAVE = """\
                    if not _dispatch_next(page, work):
                        objects.popleft()
"""
_GO_ON = """\
                    if not _dispatch_next(page, work):
                        work.items.pop(0)
                        if not work.items:
                            objects.popleft()
"""
_GO_ON_AFTER_FAILURE = """\
            raise error from None
        return False
    except OperationalError as error:
"""
_RAISE_FAILURE = """\
            raise error from None
        raise error
    except OperationalError as error:
"""
_AWAITING = "    return {(row[0], row[1], row[2]) for row in _awaited(shape, using=using, given=given, times=times)}\n"
_READ_WINDOW = "        complete = _read_window(run, held, window, save=not explicit)\n"
_MOVE_AND_READ = """\
        if not explicit:
            held.write(watermark=window.end)
        complete = _read_window(run, held, window, save=not explicit)
"""
_AS_READ = """\
    as_read = ledger.unclaimed(operation, states).filter(state=operation.state, may_have_run=may_have_run)
"""
#: The row under the worker's own claim, and under any claim.
_OWN, _ANY = "self.row.filter(**{self.claims._token: self.token})", "self.row"
_REFUSED = """\
        return _refused(account, 503, "database" if isinstance(error, AnyDatabaseError) else "keys")
"""
_KNOWN = """\
    if other is None:
        return _told(event, Receipt.KNOWN)
"""
_KNOWN_AND_APPLIED_AGAIN = """\
    if other is None:
        Event.objects.filter(id=event.id).update(state=EventState.PENDING)
        return _told(event, Receipt.KNOWN)
"""
_DEFERRED = "transaction.on_commit(partial(_send_deferred, operation.pk), using=ledger_database(), robust=True)"
_UNDISPATCHED = "    items = filter_account_last(items.filter(state=EventState.APPLIED), account)\n"
_UNDISPATCHED_OF_LATE = f"""\
{_UNDISPATCHED}\
    since = "received_at" if model is Event else "recorded_at"
    items = items.filter(**{{f"{{since}}__gt": now - timedelta(seconds=20)}})
"""
_RUN = "            result = function()\n"
_RETRIED = "    result = _retry(transact, using=using, once=not durable, lost_races=lost_races, attempts=attempts)\n"
_RUN_AND_RETRIED = """\
            result = _retry(function, using=using, once=False, lost_races=lost_races, attempts=attempts)
"""
#: The statement is built once, so the time of a call is put into it by name.
_LENGTHS = "for length in (timedelta(0), "
_DECIDED = "        decided = precondition.decide(asked) if precondition is not None else asked\n"
_EARLY = "    early = precondition.decide(intent) if precondition is not None else intent\n"
_MUST_LOOK = "    must_look = not is_looked_up\n"
_INSERT = "            statements.insert_like_save(operation)\n"
_RECORDED = f"            check.expect_insert(operation)\n{_INSERT}"
_RECORDED_ALONE = """\
    check.expect_insert(operation)
    try:
        insert_and_commit(operation, using=ledger_database())
"""

MUTANTS = (
    _one(
        "an older event overwrites a newer state",
        "projection/ordering.py",
        "return Order.NEWER if at > event_at else Order.OLDER",
        "return Order.NEWER",
    ),
    Mutant(
        "the operation is recorded after it was sent",
        (
            ("outbox/ledger.py", _RECORDED, f"            if deferred:\n    {_INSERT}"),
            ("outbox/ledger.py", _RECORDED_ALONE, "    try:\n        pass\n"),
            ("outbox/sending.py", _SEND, _SEND_AND_RECORD),
        ),
    ),
    _one("an item is marked before its receivers run", "inbox/calling.py", _DISPATCH, _MARK_AND_DISPATCH),
    _one("the watermark moves before the pages are in", "reconciliation/events.py", _READ_WINDOW, _MOVE_AND_READ),
    _one(
        "the watermark passes the provider's time",
        "reconciliation/events.py",
        "min(complete, end.earlier)",
        "window.read_to",
    ),
    _one(
        "a long gap is followed by no resync",
        "reconciliation/events.py",
        "    if (gap is None or gap > MAX_GAP) and state.resync_due_at is None:\n",
        "    if gap is None and state.resync_due_at is None:\n",
    ),
    _one(
        "a long gap calls no attention",
        "reconciliation/events.py",
        "    if read_to is not None and end - read_to > MAX_GAP:\n",
        "    if read_to is not None and end - read_to > MAX_GAP * 100:\n",
    ),
    _one(
        "an event of any age is dispatched",
        "projection/history.py",
        "event.received_at - event.created_at > TOO_OLD_TO_DISPATCH",
        "event.received_at < event.created_at - TOO_OLD_TO_DISPATCH",
    ),
    _one(
        "an error after the commit reaches the caller",
        "outbox/ledger.py",
        "        operation = check.operation_in_doubt()\n",
        "        operation = None\n",
    ),
    _one(
        "a passing refusal uses up the key",
        "models/operations.py",
        '        return self.error.get("type") == NOT_CONNECTED or is_passing(self.error)\n',
        "        return False\n",
    ),
    _one(
        "a retry has a key of its own",
        "outbox/ledger.py",
        '        "last_sent_at": now,\n',
        '        "last_sent_at": now,\n        **({"idempotency_key": token} if operation.may_have_run else {}),\n',
    ),
    _one(
        "a refusal after an unknown attempt closes the operation",
        "outbox/sending.py",
        "    elif claim.earlier_may_have_run or not is_refusal(error):\n",
        "    elif not is_refusal(error):\n",
    ),
    Mutant(
        "the answer to a repeated request overwrites the state",
        (
            (
                "outbox/outcomes.py",
                "    if claim.earlier_may_have_run:\n        return projection.record_identity",
                "    if claim is None:\n        return projection.record_identity",
            ),
            (
                "outbox/outcomes.py",
                "    if claim.earlier_may_have_run and resource is not None:\n        row = _read_quietly",
                "    if claim is None and resource is not None:\n        row = _read_quietly",
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
        "an outcome is written after the claim was lost",
        "db/claims.py",
        _OWN,
        _ANY,
    ),
    Mutant(
        "an operation has no claim",
        (
            ("outbox/outcomes.py", _AS_READ, "    as_read = Operation.objects.filter(pk=operation.pk)\n"),
            ("db/claims.py", _OWN, _ANY),
        ),
    ),
    Mutant(
        "a look-up does not compare the money",
        (
            ("outbox/operations/base.py", "return not self.contradicts(operation, item) and item", "return item"),
            ("outbox/operations/refunds.py", "return not self.contradicts(operation, item)", "return True"),
        ),
    ),
    _one(
        "a look-up ignores other operations with the same arguments",
        "outbox/look_ups.py",
        "    if _has_rival(operation):\n",
        '    if operation.operation == "" and _has_rival(operation):\n',
    ),
    _one("a known event is applied again", "inbox/receiving.py", _KNOWN, _KNOWN_AND_APPLIED_AGAIN),
    Mutant(
        "events are dispatched in the order of their arrival",
        (
            (
                "inbox/loading.py",
                "    items: list[Item] = sorted([*events, *answered], key=time_of)\n",
                "    items: list[Item] = sorted([*events, *answered], key=_came_at)\n",
            ),
            (
                "inbox/loading.py",
                "def time_of(item: Item) -> datetime:\n",
                _CAME_AT + "def time_of(item: Item) -> datetime:\n",
            ),
            ("inbox/calling.py", _CHECK, _CHECK_ITEM),
        ),
    ),
    _one("a page is dispatched as it was loaded", "inbox/calling.py", _CHECK, _CHECK_ITEM),
    Mutant(
        "a worker goes on after its claim has run out",
        (("inbox/calling.py", _LOCK, _LOCK_ANY), *_ANY_ITEM),
    ),
    _one(
        "a claim outlives its holder",
        "inbox/finding.py",
        "ObjectDispatch.objects.filter(is_free(NOW), pk__in=_row_stand_ins(count))",
        'ObjectDispatch.objects.filter(is_free(NOW), pk__in=_row_stand_ins(count), claim_token="")',
    ),
    Mutant(
        "after a failure in a page, the object goes on",
        (
            ("inbox/dispatching.py", _LEAVE, _GO_ON),
            ("inbox/calling.py", _LOCK, _LOCK_ANY),
            ("inbox/calling.py", _CHECK, _CHECK_ITEM),
        ),
    ),
    _one(
        "callbacks are called inside the retry",
        "db/transactions.py",
        "                callbacks.contain()\n",
        "                pass\n",
    ),
    Mutant(
        "a transaction is repeated before its COMMIT only",
        (
            ("db/transactions.py", _RUN, _RUN_AND_RETRIED),
            ("db/transactions.py", _RETRIED, "    result = transact()\n"),
        ),
    ),
    Mutant("an item is locked and marked though it is done", _ANY_ITEM),
    _one(
        "a death in a group charges its first item",
        "inbox/claiming.py",
        "    if row.grouping == Grouping.GROUPED:\n        logger",
        "    if row.grouping == Grouping.ALONE:\n        logger",
    ),
    Mutant(
        "a group in which a worker died is repeated as a group",
        (
            (
                "inbox/claiming.py",
                "        claimed.filter(grouping=Grouping.GROUPED).update(grouping=Grouping.ALONE)\n",
                "",
            ),
            ("inbox/claiming.py", "                other.grouping = Grouping.ALONE\n", "                pass\n"),
        ),
    ),
    _one(
        "what was before the installation is dispatched",
        "projection/history.py",
        "    return begins_at is not None and at < begins_at\n",
        "    return False\n",
    ),
    _one("handlers wait for no read", "projection/reads.py", _AWAITING, "    return set()\n"),
    _one(
        "events of a pass are dispatched at once",
        "inbox/processing.py",
        "EventState.HELD if held else EventState.APPLIED",
        "EventState.APPLIED",
    ),
    _one(
        "an unclear order is not settled by a refresh",
        "projection/events.py",
        'return RefreshReason.ORDER_UNCLEAR if rows.differences(item.up_to_date_row(), resource) else ""',
        'return ""',
    ),
    _one(
        "a deferred call is sent before the commit",
        "outbox/submission.py",
        _DEFERRED,
        "_send_deferred(operation.pk)",
    ),
    _one(
        "a handler's call whose savepoint is rolled back is another call when it is made again",
        "signals.py",
        "            made = [each for each in made if id(each[0]) in kept and is_recorded(each[1])]\n",
        "",
    ),
    Mutant(
        "the refundable rest is computed before the lock",
        (
            ("outbox/ledger.py", _DECIDED, "        decided = early\n"),
            ("outbox/ledger.py", _MUST_LOOK, _MUST_LOOK + _EARLY),
        ),
    ),
    Mutant(
        "the sweeper ignores items that are applied and not dispatched",
        (
            ("inbox/finding.py", _UNDISPATCHED, _UNDISPATCHED_OF_LATE),
            ("db/claims.py", _LENGTHS, f"{_LENGTHS}timedelta(seconds=-20), "),
        ),
    ),
    _one(
        "an answer overwrites an event that came while it was under way",
        "projection/answers.py",
        "    if not unchanged or (by_event and order is Order.NEWER):\n",
        "    if by_event and order is Order.NEWER:\n",
    ),
    _one(
        "a change of a refund does not refresh its payment",
        "projection/events.py",
        "        if item.last_event is event:\n            # If that object",
        "        if item.last_event is None:\n            # If that object",
    ),
    _one(
        "an unknown operation is sent again after the key is forgotten",
        "outbox/sending.py",
        "RESEND_FOR = timedelta(hours=23)",
        "RESEND_FOR = timedelta(hours=2300)",
    ),
    _one(
        "an event may name objects of another account",
        "projection/events.py",
        "        if any(owners.get(name, event.account) != event.account for name in _named(resource)):\n",
        "        if any(owners.get(name, event.account) == '' for name in _named(resource)):\n",
    ),
    _one(
        "our own clock says how old a key is",
        "outbox/sending.py",
        "        if date is None or not _is_key_valid(operation, date):\n",
        "        if date is None:\n",
    ),
    _one(
        "a request that the client repeated is judged as a first one",
        "outbox/sending.py",
        "dataclasses.replace(claim, earlier_may_have_run=True) if exchange.was_repeated else claim",
        "dataclasses.replace(claim, earlier_may_have_run=True) if exchange is None else claim",
    ),
    _one(
        "the claim is not looked at before the first byte",
        "outbox/sending.py",
        "            before_sending(claim.ensure_lasts),\n",
        "            before_sending(lambda seconds: None),\n",
    ),
    _one(
        "a slightly negative age of a key is uncertain",
        "outbox/sending.py",
        "-CLOCK_SLACK <= date",
        "timedelta(0) <= date",
    ),
    _one(
        "what seems unsent is sent without a look",
        "outbox/repeats.py",
        "    if operation.may_have_run:\n        return False\n",
        "    if operation.pk:\n        return False\n",
    ),
    _one(
        "references may end with a blank, and are compared exactly",
        "validation/validator.py",
        "        if text != text.strip():\n",
        "        if text != text:\n",
    ),
    _one(
        "a payout over its limit is sent without approval",
        "outbox/operations/base.py",
        "amount is not None and amount >= limit",
        "amount is not None and amount > limit",
    ),
    _one(
        "an approval counts after a rejection at the same time",
        "outbox/approvals.py",
        "        _check(row, actor, who, digest)\n        if failure",
        "        if failure",
    ),
    _one(
        "an interruption charges the first item of its group",
        "inbox/dispatching.py",
        "        item, cause = failure.item, failure.__cause__ or failure\n",
        "        cause = failure.__cause__ or failure\n",
    ),
    _one("a failing item ends the pass", "inbox/dispatching.py", _GO_ON_AFTER_FAILURE, _RAISE_FAILURE),
    _one(
        "an interruption leaves the claim behind",
        "inbox/dispatching.py",
        "        release_after_error(page)\n        raise\n",
        "        raise\n",
    ),
    _one(
        "another app's receiver ends a pass",
        "reconciliation/due.py",
        "        elif isinstance(error, AnyDatabaseError):\n",
        "        elif isinstance(error, Exception):\n",
    ),
    _one(
        "other apps' receivers are told of our own rows",
        "db/transactions.py",
        "    return _retry(lambda: rows._raw_delete(rows.db), using=rows.db)\n",
        "    return _retry(lambda: rows.delete()[0], using=rows.db)\n",
    ),
    _one(
        "a key is not compared with its call",
        "outbox/ledger.py",
        "    if not may_take and not is_same_call(operation, intent):\n",
        "    if not may_take and operation.operation != intent.operation:\n",
    ),
    _one(
        "a job pays again after a restored backup",
        "outbox/submission.py",
        "    if call.may_be_a_repeat(intent):\n",
        "    if intent is None:\n",
    ),
    _one(
        "a person sends without a look what seems unsent",
        "outbox/resolution.py",
        "            verdict = repeats.find_result(operation)\n",
        "            verdict = None\n",
    ),
    _one(
        "an approval sends without a look what seems unsent",
        "outbox/approvals.py",
        "    verdict = repeats.find_result(operation)\n",
        "    verdict = None\n",
    ),
    _one(
        "a person replays what is not dispatched yet",
        "inbox/releasing.py",
        "pk=item.id, state__in=(EventState.PARKED, EventState.DONE)",
        "pk=item.id",
    ),
    _one(
        "a key of another project is not refused",
        "sync/project_keys.py",
        "    if not waiting_accounts(account):\n        return\n",
        "    if account:\n        return\n",
    ),
    _one(
        "a deferred call under a free key looks for its own arguments only",
        "outbox/ledger.py",
        "        if known is not None and not is_same and reopenable is None:\n",
        "        if known is not None and not known.pk:\n",
    ),
    _one(
        "a block that the merchant's code leaves open stays open",
        "db/border.py",
        "            if is_off or len(found) > len(blocks):\n",
        "            if is_off and len(found) > len(blocks):\n",
    ),
    _one(
        "a generator that ends later ends the block of its connection",
        "db/border.py",
        "                    block.using = _LEFT\n",
        "                    pass\n",
    ),
    _one(
        "a receiver of attention that is cancelled ends its pass",
        "signals.py",
        "            except BaseException as error:  # also CancelledError, and the time-outs of gevent\n",
        "            except Exception as error:\n",
    ),
    _one(
        "attention is known only to the process that calls it",
        "attention.py",
        "    statements.insert_many([due])\n",
        "    due.pk = 0\n",
    ),
    _one(
        "the secret before a rotation is forgotten",
        "projection/endpoints.py",
        "                endpoint.previous_secret_token = endpoint.secret_token\n",
        "                endpoint.previous_secret_token = ''\n",
    ),
    _one(
        "an attempt that waits for money counts as ended",
        "payable/attempts.py",
        "        return status in VAIN_PAYMENT_STATUSES\n",
        "        return status not in PAID_PAYMENT_STATUSES\n",
    ),
    _one(
        "DISPATCH_SINCE does not count",
        "projection/history.py",
        "configured.dispatch_since is not None",
        "configured.dispatch_since == 0",
    ),
)
