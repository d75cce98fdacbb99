"""The pages a payer sees: how the payment stands, what is to be done, and where the provider sends the payer back to.

They show what the mirror says. Whatever the query string claims is not looked at. Nothing here changes anything but
the mirror, and that only by reading the provider.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib.auth.decorators import login_not_required
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.views.generic import TemplateView, View

from payments_integration.checkout import addresses, attempts, tokens
from payments_integration.checkout.actions import fingerprint
from payments_integration.checkout.freshening import EVERY, PATIENCE, freshened
from payments_integration.checkout.standing import standing
from payments_integration.checkout.texts import visible
from payments_integration.checkout.tokens import InvalidToken, Subject
from payments_integration.models import Payment
from payments_integration.money import format_money

THIRTY_DAYS = 30 * 86400


class CheckoutView(View):
    """What the pages have in common: the token in the address, and that nobody keeps or finds them."""

    http_method_names = ["get", "head", "options"]
    #: Seconds after which an address is not found any more.
    max_age: ClassVar[int] = THIRTY_DAYS
    status_url_name: ClassVar[str] = addresses.STATUS
    data_url_name: ClassVar[str] = addresses.STATUS_DATA

    subject: Subject

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:
        view: Any = login_not_required(super().as_view(**initkwargs))
        for alias in connections:
            # A GET of the provider's is refused in a transaction, also where ATOMIC_REQUESTS is on.
            view = transaction.non_atomic_requests(using=alias)(view)
        return view  # type: ignore[no-any-return]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        add_never_cache_headers(response)
        # The address is the key: it is not handed on to where a link leads.
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response

    def read_token(self, token: str) -> Subject:
        """Whom the page is about; Http404 for a token that is wrong or too old."""
        try:
            return tokens.read_status_token(token, max_age=self.max_age)
        except InvalidToken:
            raise Http404 from None

    def get_payment(self) -> Payment | None:
        """The payment of ``self.subject``: of several attempts the one that is paid, else the newest. None until the
        mirror has one.
        """
        return attempts.find(self.subject)


class CheckoutStatusView(CheckoutView, TemplateView):
    """How a payment stands, and what the payer must do; it follows the payment by itself.

    Templates get ``payment`` (None until the mirror has it), ``standing``, ``amount`` and ``reference``. For a page of
    your own: subclass it, and give ``template_name`` or ``extra_context``.
    """

    template_name: str = "payments_integration/checkout/status.html"
    #: Seconds after which a page without JavaScript loads itself anew; longer where there is something to type.
    reload_seconds: ClassVar[int] = 5
    reload_seconds_with_action: ClassVar[int] = 20

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.subject = self.read_token(kwargs["token"])
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        payment = self.get_payment()
        wanted = fingerprint(payment)
        reference = payment.merchant_reference if payment else self.subject.merchant_reference
        return super().get_context_data(
            **{
                "payment": payment,
                "standing": standing(payment),
                "amount": format_money(payment.amount, payment.currency) if payment else "",
                "reference": visible(reference or ""),
                "action_fingerprint": wanted,
                "data_url": reverse(self.data_url_name, kwargs={"token": self.kwargs["token"]}),
                "reload_seconds": self.reload_seconds_with_action if wanted else self.reload_seconds,
                **kwargs,
            }
        )


class CheckoutStatusDataView(CheckoutView):
    """The same as JSON, for the page's script: ``{status, headline, message, tone, final, action}``.

    ``action`` is another text as soon as the payer has to do something else, and empty for nothing.
    """

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        self.subject = self.read_token(token)
        payment = self.get_payment()
        now = standing(payment)
        return JsonResponse(
            {
                "status": now.status,
                "headline": now.headline,
                "message": now.message,
                "tone": now.tone,
                "final": now.is_final,
                "action": fingerprint(payment),
            }
        )


class CheckoutReturnView(CheckoutView):
    """Where the provider sends the payer: reads the payment, and sends the payer on to the status page.

    Coming here proves nothing. For a page of your own: subclass it and override :meth:`get_next_url`.
    """

    #: Seconds: a payment is read once in so many, and a payer waits so many for the provider.
    refresh_every: ClassVar[float] = EVERY
    patience: ClassVar[float] = PATIENCE

    def read_token(self, token: str) -> Subject:
        try:
            return tokens.read_return_token(token)
        except InvalidToken:
            raise Http404 from None

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        self.subject = self.read_token(token)
        payment = self.get_payment()
        if payment is not None:
            if timezone.now() - payment.created_at > timedelta(seconds=self.max_age):
                raise Http404
            payment = freshened(payment, every=self.refresh_every, patience=self.patience)
        return HttpResponseRedirect(self.get_next_url(payment))

    def get_next_url(self, payment: Payment | None) -> str:
        """Where the payer goes on: the status page. ``payment``: as it is now; None until the mirror has it."""
        return reverse(self.status_url_name, kwargs={"token": tokens.status_token(self.subject)})
