"""The addresses of the checkout pages."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from payments_integration import conf
from payments_integration.checkout.tokens import Subject, return_token, status_token
from payments_integration.models import Payment

STATUS, STATUS_DATA, RETURN = (
    f"payments_integration:checkout-{page}" for page in ("status", "status-data", "return")
)  # fmt: skip


def return_url(
    request: HttpRequest, merchant_reference: str, account: str = conf.DEFAULT_ACCOUNT, *, url_name: str = RETURN
) -> str:
    """The ``return_url`` for ``services.create_payment``: where the payer of this reference comes back to.

    Absolute, with the scheme and host of the request: behind a proxy SECURE_PROXY_SSL_HEADER makes it ``https``. The
    same for the same arguments, so that a repetition under the same idempotency key is the same call. ``url_name``: of
    a view of your own, a subclass of ``CheckoutReturnView``.

    Raises ValueError for an empty reference, ImproperlyConfigured for an unknown account.
    """
    subject = _of_reference(merchant_reference, account)
    return request.build_absolute_uri(reverse(url_name, kwargs={"token": return_token(subject)}))


def status_url(
    request: HttpRequest, target: Payment | str, account: str = conf.DEFAULT_ACCOUNT, *, url_name: str = STATUS
) -> str:
    """The absolute address of the status page of a payment, or of a ``merchant_reference`` (a text).

    Whoever has it sees the page, until ``CheckoutStatusView.max_age`` seconds from now. ``account`` counts for a
    reference. Raises like :func:`return_url`.
    """
    if isinstance(target, Payment):
        subject = Subject(target.account, payment_id=target.pk)
    else:
        subject = _of_reference(target, account)
    return request.build_absolute_uri(reverse(url_name, kwargs={"token": status_token(subject)}))


def _of_reference(merchant_reference: str, account: str) -> Subject:
    if not isinstance(merchant_reference, str) or not merchant_reference:
        raise ValueError("a checkout page needs the merchant_reference that the payment is created with")
    return Subject(conf.account(account).alias, merchant_reference=merchant_reference)
