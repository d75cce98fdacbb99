"""Sign and read the addresses of the checkout pages. Anyone who has an address sees its page without a login.

An address holds one of two kinds of token, signed with SECRET_KEY (or one of SECRET_KEY_FALLBACKS):

- *status*: contains the time when it was made, so that it expires.
- *return*: part of the arguments of ``create_payment``. The provider keeps the first address of an attempt, so the
  token contains no time. It expires some time after the payment was created.

A token cannot be guessed, but it is not encrypted: anyone who has it can read the account's alias and the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from django.core import signing
from django.http import Http404, HttpRequest
from django.urls import NoReverseMatch
from django.utils.translation import get_language

from payments_integration import conf
from payments_integration.enums import PAID_PAYMENT_STATUSES
from payments_integration.models import Payment
from payments_integration.site_urls import path_of

STATUS, STATUS_DATA, RETURN = (
    f"payments_integration:checkout-{page}" for page in ("status", "status-data", "return")
)  # fmt: skip
_STATUS_SALT = "payments_integration.checkout.status"
_RETURN_SALT = "payments_integration.checkout.return"


def return_url(
    request: HttpRequest,
    merchant_reference: str,
    account: str = conf.DEFAULT_ACCOUNT,
    *,
    pay_again_url: str = "",
    url_name: str = RETURN,
) -> str:
    """Return the ``return_url`` for ``services.create_payment``: the payer of this reference comes back to it.

    It is absolute, with the request's scheme and host. Behind a proxy, SECURE_PROXY_SSL_HEADER makes it ``https``.
    A repeated call under the same idempotency key may have another address: the payer comes back to the first one.

    Args:
        request: The request of the payer.
        merchant_reference: The reference with which the payment is created.
        account: The account's alias.
        pay_again_url: The target of the status page's button "Pay again", such as the order's page: a path of this
            site, or an absolute web address. The page shows the button after the payment failed, expired or was
            canceled. Without this argument there is no button.
        url_name: The name of your own view's URL, if you subclass ``CheckoutReturnView``.

    Raises:
        TypeError: The reference is not a text, but a UUID, for example.
        ValueError: The reference is empty, or ``pay_again_url`` is another kind of address.
        ImproperlyConfigured: The account is unknown.
    """
    subject = _of_reference(merchant_reference, account, pay_again_url)
    return request.build_absolute_uri(path(url_name, return_token(subject)))


def status_url(
    request: HttpRequest,
    target: Payment | str,
    account: str = conf.DEFAULT_ACCOUNT,
    *,
    pay_again_url: str = "",
    url_name: str = STATUS,
) -> str:
    """Return the absolute address of the status page of a payment, or of a ``merchant_reference`` (a text).

    Anyone who has the address sees the page, until ``CheckoutStatusView.max_age`` seconds from now. ``account`` is the
    account of a reference; a payment has its own. ``pay_again_url`` and the errors are the same as for
    :func:`return_url`.
    """
    if isinstance(target, Payment):
        subject = Subject(target.account, payment_id=target.pk, pay_again_url=_checked(pay_again_url))
    else:
        subject = _of_reference(target, account, pay_again_url)
    return request.build_absolute_uri(path(url_name, status_token(subject)))


def receipt_url(request: HttpRequest, payment: Payment) -> str:
    """Return the absolute address of a payment's receipt, or "" if it is not paid or the project has no receipts.

    Anyone who has the address sees the receipt, as for :func:`status_url`.
    """
    if not has_receipt(payment):
        return ""
    found = receipt_path(status_token(Subject(payment.account, payment_id=payment.pk)))
    return request.build_absolute_uri(found) if found else ""


def receipt_path(token: str) -> str:
    """Return the receipt's path for the token of a status page, or "" if the project does not include its URLs."""
    try:
        return path("payments_receipts:receipt", token)
    except NoReverseMatch:
        return ""


class Subject(NamedTuple):
    """The subject of a page: one payment, or all attempts to pay for one reference."""

    account: str
    payment_id: str = ""
    merchant_reference: str = ""
    #: Where the payer may try again.
    pay_again_url: str = ""


def status_token(subject: Subject) -> str:
    return signing.dumps(_content(subject), salt=_STATUS_SALT, compress=True)


def read_status_token(token: str, *, max_age: int) -> Subject:
    """Return the subject of a token that is at most ``max_age`` seconds old. Raises Http404."""
    return _read(token, partial(signing.loads, salt=_STATUS_SALT, max_age=max_age))


def return_token(subject: Subject) -> str:
    return signing.Signer(salt=_RETURN_SALT).sign_object(_content(subject), compress=True)


def read_return_token(token: str) -> Subject:
    """Return the subject of a token. Raises Http404."""
    return _read(token, signing.Signer(salt=_RETURN_SALT).unsign_object)


def path(url_name: str, token: str) -> str:
    """Return the path of a page in the active language, which need not be one of the site's languages."""
    return path_of(url_name, language=get_language() or "", kwargs={"token": token})


def has_receipt(payment: Payment | None) -> bool:
    return payment is not None and payment.status in PAID_PAYMENT_STATUSES


def _of_reference(merchant_reference: object, account: str, pay_again_url: str) -> Subject:
    if not isinstance(merchant_reference, str):
        kind = type(merchant_reference).__name__
        raise TypeError(f"merchant_reference is a text, not {kind}: pass str(…), as for create_payment")
    if not merchant_reference:
        raise ValueError("a checkout page needs the merchant_reference that the payment is created with")
    alias = conf.account(account).alias
    return Subject(alias, merchant_reference=merchant_reference, pay_again_url=_checked(pay_again_url))


def _checked(pay_again_url: str) -> str:
    """Return the address. Raises ValueError if it is neither a path of this site nor a web address."""
    if pay_again_url and not re.match(r"/(?![/\\])|https?://", pay_again_url):
        raise ValueError("pay_again_url must be a path that begins with /, or begin with https:// or http://")
    return pay_again_url


def _content(subject: Subject) -> list[str]:
    content = [subject.account, subject.payment_id, subject.merchant_reference]
    # Add nothing for an empty URL: the address is an argument of calls that earlier versions recorded.
    return [*content, subject.pay_again_url] if subject.pay_again_url else content


def _read(token: str, unsigned: Callable[[str], Any]) -> Subject:
    """Return the subject. Raises Http404 if this site did not sign the token, or it is too old."""
    try:
        account, payment_id, merchant_reference, *further = unsigned(token)
        (pay_again_url,) = further or [""]
    except (signing.BadSignature, ValueError, TypeError):
        raise Http404 from None
    return Subject(account, payment_id, merchant_reference, pay_again_url)
