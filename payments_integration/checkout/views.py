"""Serve the payer's pages: the payment's status with the next action, and the return from the provider.

They show what the mirror says and ignore the query string. They change only the mirror, by reading the payment from
the provider when its payer comes back. These reads are limited in number and time, so that reloading the page does not
flood the provider.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any, ClassVar

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, JsonResponse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.views.generic import TemplateView, View

from payments_integration import conf
from payments_integration.checkout.actions import fingerprint
from payments_integration.db.transactions import outside_transactions
from payments_integration.enums import VAIN_PAYMENT_STATUSES
from payments_integration.models import Payment
from payments_integration.money import format_for_payer
from payments_integration.payer import links
from payments_integration.payer.links import Subject
from payments_integration.payer.reading import EVERY, MAX_WAIT, refreshed
from payments_integration.payer.status import find_payment, shown_status
from payments_integration.payer.texts import visible

THIRTY_DAYS = 30 * 86400


class CheckoutView(View):
    """The base of the pages: a token in the address, and no caching or indexing."""

    http_method_names = ["get", "head", "options"]
    #: Seconds after which an address answers 404.
    max_age: ClassVar[int] = THIRTY_DAYS
    status_url_name: ClassVar[str] = links.STATUS
    data_url_name: ClassVar[str] = links.STATUS_DATA

    subject: Subject

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:
        # The provider is never read within a transaction.
        view: Any = outside_transactions(login_not_required(super().as_view(**initkwargs)))
        # A project's own post() may change something, so it keeps the CSRF protection.
        view.csrf_exempt = getattr(cls, "post", None) is ReturnByPost.post
        return view  # type: ignore[no-any-return]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        add_never_cache_headers(response)
        # The address grants access, so other sites must not get it as referrer.
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response

    def read_token(self, token: str) -> Subject:
        """Return the subject of the page. Raises Http404 for a token that is wrong or too old."""
        return links.read_status_token(token, max_age=self.max_age)

    def get_payment(self) -> Payment | None:
        """Return the payment of ``self.subject``: the paid attempt, or the newest; None until the mirror has one."""
        return find_payment(self.subject)


class ReturnByPost(CheckoutView):
    """A page that accepts a payer's return by POST from a bank's own page, and redirects to its GET.

    It ignores the body and changes nothing, so it needs no CSRF token, which the bank does not have.
    """

    http_method_names = ["get", "head", "post", "options"]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.read_token(kwargs["token"])
        return HttpResponseRedirect(request.path, status=HTTPStatus.SEE_OTHER)


class CheckoutStatusView(ReturnByPost, TemplateView):
    """The payment's status and what the payer must do. The page updates itself.

    Templates get ``payment`` (None until the mirror has it), ``status``, ``amount``, ``reference``, ``receipt_url``
    (empty unless the project has receipts), ``has_receipt`` and ``pay_again_url``. For a page of your own, subclass it
    and set ``template_name`` or ``extra_context``, or override :meth:`get_pay_again_url`.
    """

    template_name: str = "payments_integration/checkout/status.html"
    #: Seconds after which a page without JavaScript reloads. Longer while the payer has details to copy.
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
                "is_test": conf.is_test(self.subject.account),
                "status": shown_status(payment, subject=self.subject),
                "amount": format_for_payer(payment.amount, payment.currency, payment.country) if payment else "",
                "reference": visible(reference or ""),
                "receipt_url": links.receipt_path(self.kwargs["token"]),
                "has_receipt": links.has_receipt(payment),
                "pay_again_url": self.get_pay_again_url(payment),
                "pay_again_statuses": sorted(VAIN_PAYMENT_STATUSES),
                "action_fingerprint": wanted,
                "data_url": links.path(self.data_url_name, self.kwargs["token"]),
                "reload_seconds": self.reload_seconds_with_action if wanted else self.reload_seconds,
                **kwargs,
            }
        )

    def get_pay_again_url(self, payment: Payment | None) -> str:
        """Return the target of the button "Pay again", which the page's address contains; empty for no button.

        The page shows the button when the payment has failed, was refused, has expired or was canceled.
        """
        return self.subject.pay_again_url


class CheckoutStatusDataView(CheckoutView):
    """The status as JSON for the page's script: ``{status, headline, message, tone, final, action, receipt}``.

    ``action`` changes when the payer has to do something else, and is empty if there is nothing to do.
    """

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        self.subject = self.read_token(token)
        payment = self.get_payment()
        now = shown_status(payment, subject=self.subject)
        return JsonResponse(
            {
                "status": now.status,
                "headline": now.headline,
                "message": now.message,
                "tone": now.tone,
                "final": now.is_final,
                "action": fingerprint(payment),
                "receipt": links.has_receipt(payment),
            }
        )


class CheckoutReturnView(ReturnByPost):
    """Receive the payer from the provider: read the payment, then redirect to the status page.

    A visit does not prove that the payer has paid. For a page of your own, subclass it and override
    :meth:`get_next_url`.
    """

    refresh_every: ClassVar[float] = EVERY
    max_wait: ClassVar[float] = MAX_WAIT

    def read_token(self, token: str) -> Subject:
        return links.read_return_token(token)

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        self.subject = self.read_token(token)
        payment = self.get_payment()
        if payment is not None:
            if timezone.now() - payment.created_at > timedelta(seconds=self.max_age):
                raise Http404
            payment = refreshed(payment, every=self.refresh_every, max_wait=self.max_wait)
        return HttpResponseRedirect(self.get_next_url(payment))

    def get_next_url(self, payment: Payment | None) -> str:
        """Return the status page. ``payment`` is as it is now; None until the mirror has it."""
        return links.path(self.status_url_name, links.status_token(self.subject))
