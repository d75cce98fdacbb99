"""Turn the arguments of a service function into an intent, and carry it out at once or later."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, outbox, permissions, schemas, telemetry
from payments_integration.db import fields
from payments_integration.db.transactions import ledger_database, refuse_transaction
from payments_integration.enums import ID_PREFIXES
from payments_integration.models import MIRRORS, Mirror, Operation
from payments_integration.outbox import Intent
from payments_integration.signals import is_dispatching
from payments_integration.validation.validator import MAX_BODY_BYTES, Json, Validator, is_object_id

P = ParamSpec("P")
R = TypeVar("R")
MirrorT = TypeVar("MirrorT", bound=Mirror)

_prepare: dict[Callable[..., Any], Callable[..., Intent]] = {}


def service(result: type[R]) -> Callable[[Callable[P, Intent]], Callable[P, R]]:
    """Decorate a function that validates its arguments and returns an Intent.

    The public function of the same name submits the intent and returns a ``result``. Its name is the operation's.
    """

    def decorate(prepare: Callable[P, Intent]) -> Callable[P, R]:
        # The arguments hold personal data. Error reports leave out the variables of these frames.
        @sensitive_variables()
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # No line may follow: its unchecked exception would mean "not executed".
            return outbox.unknown_if_committed(_carry_out, prepare, args, kwargs)  # type: ignore[no-any-return]

        public = wraps(prepare)(call)
        # Readers and tools see what the call returns, not the intent.
        public.__annotations__ = {**prepare.__annotations__, "return": result}
        signature = inspect.signature(prepare).replace(return_annotation=result)
        setattr(public, "__signature__", signature)  # noqa: B010  (functions declare no such attribute)
        _prepare[public] = prepare
        return public

    return decorate


@sensitive_variables()
def _carry_out(
    prepare: Callable[..., Intent], args: tuple[Any, ...], kwargs: dict[str, Any], check: outbox.CommitCheck
) -> Any:
    refuse_transaction(prepare.__name__, is_dispatching=is_dispatching(), can_be_deferred=True)
    with telemetry.during(telemetry.ServiceCall(prepare.__name__)) as service_call:
        intent = _prepared(prepare, args, kwargs)
        service_call.account = intent.account
        return outbox.submit(intent, check)


@sensitive_variables()
def defer(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Operation:
    """Record a call of a service function in the caller's transaction, and send it after that commits.

    ``defer(create_payout, amount=…, …)``. If the transaction rolls back, nothing is sent. The call validates like the
    function itself, with two exceptions: inside a transaction it relies on the mirror instead of reading again, and it
    lets the provider decide if the balance covers a payout.

    Outside a transaction the call is sent before this returns. Inside a receiver, and with autocommit off outside
    ``atomic``, the next ``resume_operations`` sends it. The operation and the mirror show the outcome. If the provider
    refuses the call, ``attention`` is sent and nothing is raised.

    Args:
        function: A function of this module that sends.
        args: Its arguments by position.
        kwargs: Its arguments by name.

    Returns:
        The operation; if the key belongs to one already, that one. From the approval limit on, it waits for approval.

    Raises:
        ValidationError: As the function itself. Nothing was recorded.
        IdempotencyMismatch: The key belongs to a different call. Nothing was recorded.
        TypeError: The function does not send anything.
        OutcomeUnknown: Outside a transaction: it is recorded, or the database does not say so; then something failed.
    """
    prepare = _prepare.get(function)
    if prepare is None:
        raise TypeError(f"{getattr(function, '__name__', function)!r} cannot be deferred")
    return outbox.unknown_if_committed(_defer, prepare, args, kwargs)


@sensitive_variables()
def _defer(
    prepare: Callable[..., Intent], args: tuple[Any, ...], kwargs: dict[str, Any], check: outbox.CommitCheck
) -> Operation:
    return outbox.submit_later(_prepared(prepare, args, kwargs), check)


@sensitive_variables()
def _prepared(prepare: Callable[..., Intent], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Intent:
    """Return the intent of a call. Checks the actor's permission before anything else."""
    name, actor = prepare.__name__, kwargs.get("actor")
    if actor is not None:
        _check_permission(name, actor, args[0] if args else kwargs.get(_subject(prepare)))
    intent = prepare(*args, **kwargs)
    # A lazy object of a middleware equals the alias, but no database takes it: the answer could not be stored.
    account = next((alias for alias in conf.aliases() if alias == intent.account), intent.account)
    user_id, is_borrowed = permissions.user_id(actor), permissions.is_borrowed(actor)
    return dataclasses.replace(intent, operation=name, account=account, actor_id=user_id, is_borrowed=is_borrowed)


def _check_permission(name: str, actor: object, target: object) -> None:
    """Raise PermissionDenied if the actor is staff and lacks the call's permission. ``target`` is a row or its id."""
    call = outbox.operations.CALLS[name]
    if not call.permission or not permissions.is_staff(actor) or permissions.may(actor, call.permission):
        return
    row = target if isinstance(target, Mirror) else None
    if row is None and call.target is not None and isinstance(target, str):
        row = MIRRORS[call.target]._default_manager.filter(pk=target).first()
    permissions.require(actor, call.permission, row)


@cache
def _subject(prepare: Callable[..., Intent]) -> str:
    """Return the name of the argument for the object that a call is about; "" if there is none."""
    first = next(iter(inspect.signature(prepare).parameters.values()))
    return first.name if first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else ""


def creation(
    validator: Validator,
    body: Json,
    *,
    account: str,
    idempotency_key: str | None,
    actor: object,
    arguments: Json | None = None,
    target_id: str = "",
    target: Mirror | None = None,
    fills_reference: bool = False,
) -> Intent:
    """Return the intent of a call that makes an object. Raises ValidationError with all that the validator found.

    ``arguments`` is what the caller gave, if it differs from ``body``. ``target`` is the row of the object that it is
    about, which has the id ``target_id``.
    """
    key, who = validator.key("idempotency_key", idempotency_key), validator.actor("actor", actor)
    validator.finish()
    _check_size(validator, body)
    for name, char in fields.lacking(body, ledger_database()).items():
        validator.fail(name, _("The database of this site cannot store the character %(char)s.") % {"char": char})
    validator.finish()
    return Intent(
        account=account,
        arguments=body if arguments is None else arguments,
        body=body,
        target_id=target_id,
        target=target,
        amount=body.get("amount"),
        currency=body.get("currency", ""),
        fills_reference=fills_reference,
        idempotency_key=key,
        key_is_new=_key_is_new(target),
        actor=who,
    )


def change(
    model: type[MirrorT],
    given: MirrorT | str,
    *,
    name: str,
    account: str | None,
    idempotency_key: str | None,
    actor: object,
) -> Intent:
    """Return the intent of a call that changes the object ``given``, which is the argument ``name``."""
    validator = Validator()
    key, who = validator.key("idempotency_key", idempotency_key), validator.actor("actor", actor)
    alias, object_id, row = find(validator, name, model, given, account, key=key)
    validator.finish()
    return Intent(
        account=alias,
        arguments={name: object_id},
        target_id=object_id,
        target=row,
        idempotency_key=key,
        key_is_new=_key_is_new(row),
        actor=who,
    )


def find(
    validator: Validator,
    name: str,
    model: type[MirrorT],
    given: MirrorT | str,
    account: str | None,
    *,
    key: str = "",
    annotations: Mapping[str, Exists] = MappingProxyType({}),
) -> tuple[str, str, MirrorT | None]:
    """Return account, id and mirror row of the object that a call is about.

    The row's account counts. ``account`` must be the same, or names it for an object that is not mirrored. ``key`` is
    the call's idempotency key. The same statement looks it up, as ``row.ledger_has_key``, and adds further
    ``annotations`` to the row.
    """
    object_id = given.object_id if isinstance(given, model) else given
    if not isinstance(object_id, str):
        validator.fail(name, _("This must be a %(model)s or its id.") % {"model": model._meta.verbose_name})
        return account or conf.DEFAULT_ACCOUNT, "", None
    if not is_object_id(object_id, ID_PREFIXES[model.kind]):
        validator.fail(name, _("This is not the id of a %(model)s.") % {"model": model._meta.verbose_name})
        return account or conf.DEFAULT_ACCOUNT, "", None
    known = Operation.objects.filter(account=OuterRef("account"), idempotency_key=key)
    rows = model._default_manager.filter(pk=str(object_id))
    row: Any = rows.annotate(ledger_has_key=Exists(known), **annotations).first()
    if row is None:
        return account or conf.DEFAULT_ACCOUNT, str(object_id), None
    if account is not None and account != row.account:
        validator.fail("account", _("This object belongs to another account."))
    return row.account, str(object_id), row


def _key_is_new(row: Any) -> bool:
    """Return True if ``find`` has found the object, and no operation of the key."""
    return row is not None and not row.ledger_has_key


def _check_size(validator: Validator, body: Mapping[str, Any]) -> None:
    """Refuse a body over 256 KB, in the name of its largest argument. For bodies that passed every other check."""
    # The merchant reference may still be filled in.
    if len(schemas.encode(body)) + 100 > MAX_BODY_BYTES:
        largest = max(body, key=lambda name: len(schemas.encode(body[name])))
        validator.fail(largest, _("The request would be larger than 256 KB."), "max_length")


def scoped_key(key: str, *scope: object) -> str:
    """Turn a key that a caller of your own API chose into an ``idempotency_key``.

    The ledger knows one key per account, and two customers may choose the same one. Another scope gives another key.

    Args:
        key: Any text that is not empty.
        scope: Whose key it is, such as a user's id.

    Returns:
        Visible ASCII that shows neither the key nor the scope.

    Raises:
        ValidationError: The key is empty, or no text.
        ValueError: There is no scope, or a part of it is None or empty: an anonymous user's id does not say who it is.
    """
    if not scope or any(part is None or part == "" for part in scope):
        raise ValueError("scoped_key() needs to know whose key it is; None and empty values do not say it")
    if not isinstance(key, str) or not key:
        raise ValidationError({"key": "A key is a text that is not empty."})
    parts = [key, *(str(part) for part in scope)]
    # As JSON, so that no two lists of parts run together. Surrogates are escaped.
    return f"scoped-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
