"""A validated call, before anything is recorded: what the ledger will hold and what will go on the wire."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration import conf, wire
from payments_integration.models import Mirror
from payments_integration.services.checks import Checks, Json

#: Spec, "Limits".
MAX_BODY_BYTES = 256 * 1024

#: Of the payer, what differs from one attempt of the same intent to the next.
_NOT_COMPARED = ("ip", "device_id")

MirrorT = TypeVar("MirrorT", bound=Mirror)


class Doubt(ValidationError):
    """The mirror says no. It may be behind: it is refreshed once, then decided again."""


class Guard(Protocol):
    """What must hold at the moment an intent is recorded."""

    #: Whether it also stands in the way of a deferred call, which cannot bring the mirror up to date.
    when_deferred: ClassVar[bool]
    #: Whether what it decides depends on the operations that are recorded: the same call's must not count against it.
    counts_operations: ClassVar[bool]

    def before(self) -> None:
        """Bring the mirror up to date where the decision needs it.

        Outside transactions: it may send a GET.
        """

    def decide(self, intent: Intent) -> Intent:
        """Check under a lock, within the recording transaction; may fill in the intent. Raises Doubt."""

    def refresh(self) -> None:
        """Read again what ``decide`` looks at. Outside transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One call of a service function. The repr shows no argument: they hold personal data."""

    #: The name of the service function.
    operation: str
    account: str
    #: What the caller gave, normalised, before defaults are filled in.
    arguments: Json = field(repr=False)
    #: The request as JSON; None where it has none.
    body: Json | None = field(default=None, repr=False)
    #: The object in the path, or a refund's payment.
    target_id: str = ""
    amount: int | None = None
    currency: str = ""
    #: Whether the provider is told the operation's id as merchant_reference when the caller gave none.
    fills_reference: bool = False
    #: Empty: a new one per call.
    idempotency_key: str = ""
    actor: str = ""
    #: The user's primary key, where a user asked.
    actor_id: str = ""
    guard: Guard | None = field(default=None, repr=False, compare=False)

    @property
    def arguments_hash(self) -> str:
        """What a repeated call must match: operation and arguments, without the payer's ip and device_id."""
        compared = dict(self.arguments)
        payer = compared.pop("payer", None)
        if payer is not None:
            payer = {name: value for name, value in payer.items() if name not in _NOT_COMPARED}
            if payer:
                compared["payer"] = payer
        content = json.dumps([self.operation, compared], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


def check_size(checks: Checks, body: Json) -> None:
    """Refuse a body over 256 KB, in the name of its largest argument.

    For bodies that passed every other check.
    """
    encoded = {name: len(wire.encode(value)) for name, value in body.items()}
    # The merchant reference may still be filled in.
    if sum(encoded.values()) + sum(len(name) + 4 for name in encoded) + 100 > MAX_BODY_BYTES:
        largest = max(encoded, key=lambda name: encoded[name])
        checks.fail(largest, _("The request would be larger than 256 KB."), "max_length")


def target(
    checks: Checks, name: str, model: type[MirrorT], given: MirrorT | str, prefix: str, account: str | None
) -> tuple[str, str, MirrorT | None]:
    """Account, id and, where it is mirrored, the row of the object that a call is about.

    The row's account counts; ``account`` must be the same, or names it for an object that is not mirrored.
    """
    if isinstance(given, model):
        object_id = given.object_id
    elif isinstance(given, str):
        object_id = str(given)
    else:
        checks.fail(name, _("This must be a %(model)s or its id.") % {"model": model._meta.verbose_name})
        return account or conf.DEFAULT_ACCOUNT, "", None
    if not _is_id(object_id, prefix):
        checks.fail(name, _("This is not the id of a %(model)s.") % {"model": model._meta.verbose_name})
        return account or conf.DEFAULT_ACCOUNT, "", None
    row: Any = model._default_manager.filter(pk=object_id).first()
    if row is None:
        return account or conf.DEFAULT_ACCOUNT, object_id, None
    if account is not None and account != row.account:
        checks.fail("account", _("This object belongs to another account."))
    return row.account, object_id, row


def _is_id(text: str, prefix: str) -> bool:
    """An id that can stand in a path: visible ASCII without what a URL reads as syntax."""
    if not text.startswith(prefix) or not len(prefix) < len(text) <= 255:
        return False
    return text.isascii() and text.isprintable() and not set(text) & set(' /?#%\\"')
