"""Who may see a checkout page: whoever has its address, which nobody can guess. No login is needed.

Two kinds of token, both signed with SECRET_KEY (and its fallbacks, where keys are rotated):

- *status*: carries its time, so that it ends.
- *return*: part of the arguments of ``create_payment``. It is the same each time, or a repetition under the same
  idempotency key would be another call; its end is counted from the payment.

They are not secret to whom they are given: the name of the account and the reference can be read in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core import signing

_STATUS_SALT = "payments_integration.checkout.status"
_RETURN_SALT = "payments_integration.checkout.return"


class InvalidToken(Exception):
    """The token is not one of ours, or too old."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about: one payment, or whatever was tried to pay for one reference."""

    account: str
    payment_id: str = ""
    merchant_reference: str = ""


def status_token(subject: Subject) -> str:
    return signing.dumps(_content(subject), salt=_STATUS_SALT, compress=True)


def read_status_token(token: str, *, max_age: int) -> Subject:
    """Raises InvalidToken; ``max_age``: seconds."""
    try:
        return _subject(signing.loads(token, salt=_STATUS_SALT, max_age=max_age))
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise InvalidToken from error


def return_token(subject: Subject) -> str:
    return signing.Signer(salt=_RETURN_SALT).sign_object(_content(subject), compress=True)


def read_return_token(token: str) -> Subject:
    """Raises InvalidToken."""
    try:
        return _subject(signing.Signer(salt=_RETURN_SALT).unsign_object(token))
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise InvalidToken from error


def _content(subject: Subject) -> list[str]:
    return [subject.account, subject.payment_id, subject.merchant_reference]


def _subject(content: Any) -> Subject:
    account, payment_id, merchant_reference = content
    return Subject(account, payment_id, merchant_reference)
