"""Refund several card payments: first show a summary, then make one service call and show one result for each.

The summary has an idempotency key, and each payment's key is derived from it. If the form is sent again, by a double
click, by a reload or to continue, each payment keeps its outcome.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import DatabaseError
from django.http import HttpResponse, HttpResponseNotAllowed
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from payments_integration import conf, services
from payments_integration.admin.flows.confirmation import CONFIRM, STEP, SendingPage
from payments_integration.admin.flows.refund import REFUNDED_JUST_NOW, ReasonForm
from payments_integration.admin.shared import display, twins
from payments_integration.admin.shared.buttons import new_key
from payments_integration.admin.shared.display import explain, validation_messages
from payments_integration.enums import VOID_REFUND_STATUSES, MethodFamily, PaymentStatus
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown, PaymentsError
from payments_integration.models import Operation, Payment, Refund, refundable_rest
from payments_integration.money import format_money
from payments_integration.runtime.logs import get_logger
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

logger = get_logger(__name__)

#: The most payments on one page, so that a person can still review them.
MAX_PAYMENTS = 50
#: Seconds after which no further refund is started. Web servers often stop a request after 30 seconds.
STOP_AFTER = 20.0

_MADE, _REFUSED, _OPEN, _NOT_STARTED = "made", "refused", "open", "not_started"
#: Created at the provider and then failed, canceled or returned, so no money went back.
_VOID = "void"
_RESULTS: dict[str, tuple[StrOrPromise, str]] = {
    _MADE: (gettext_lazy("created"), "good"),
    _VOID: (gettext_lazy("not paid back"), "bad"),
    _REFUSED: (gettext_lazy("refused"), "bad"),
    _OPEN: (gettext_lazy("no outcome yet"), "open"),
    _NOT_STARTED: (gettext_lazy("not started"), "quiet"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One selected payment and the amount to refund, in minor units: all that is left of it."""

    payment: Payment
    amount: int
    #: The reason why it cannot be refunded here; empty if it can.
    left_out: str = ""

    @property
    def value(self) -> str:
        """The value in the form, so that the confirmed amount is the amount that is sent."""
        return f"{self.payment.pk}:{self.amount}"


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    words: str = ""


def bulk_refund_url(model_admin: ReadOnlyAdmin, ids: Iterable[str]) -> str:
    name = f"admin:{model_admin.url_name('refund-selected')}"
    url = reverse(name, current_app=model_admin.admin_site.name)
    return f"{url}?{urlencode([('id', pk) for pk in ids])}"


class BulkRefundPage(SendingPage):
    """GET: the summary of ``?id=…&id=…``. POST: the refunds that a summary listed."""

    def respond(self) -> HttpResponse:
        if self.request.method in ("GET", "HEAD"):
            return self._summary(self.request.GET.getlist("id"), ReasonForm(initial={"idempotency_key": new_key()}))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        form = ReasonForm(self.request.POST)
        parts = self._confirmed()
        if not form.is_valid() or not parts or self.request.POST.get(STEP) != CONFIRM:
            return self._summary([part.payment.pk for part in parts], form)
        self.keys = tuple(_key(form, part) for part in parts)
        if not self.may_send(parts):
            return self._summary([part.payment.pk for part in parts], form)
        return self._results(form, parts)

    def twin(self, subject: Part) -> Operation | None:
        found = twins.refund(subject.payment, self.since, self.keys)
        if found is not None and not found.actor_id and refundable_rest(subject.payment) <= 0:
            # A job refunded all of it. The service refuses this refund, and the other payments are still refunded.
            return None
        return found

    def warning(self, subject: Part, twin: Operation) -> str:
        words = twins.warning(self.admin.admin_site, twin, REFUNDED_JUST_NOW)
        return format_html("{}: {}", self._link(subject.payment), words)

    # The summary

    def _summary(self, ids: list[str], form: ReasonForm) -> HttpResponse:
        parts = [self._part(payment) for payment in self._payments(ids)]
        included = [part for part in parts if not part.left_out]
        totals = _totals(included)
        count = len(included)
        form.fields["reason"].help_text = _("The same for all of them.")
        context = {
            "title": _("Refund selected payments"),
            "form": form,
            "rows": [
                (
                    self._link(part.payment),
                    _reference(part.payment),
                    display.method_name(part.payment.method_code),
                    display.money(part.amount, part.payment.currency),
                )
                for part in included
            ],
            "values": [part.value for part in included],
            "left_out": [
                (self._link(part.payment), _reference(part.payment), part.left_out) for part in parts if part.left_out
            ],
            "missing": len(set(ids[:MAX_PAYMENTS])) - len(parts),
            "too_many": len(set(ids)) > MAX_PAYMENTS,
            "most": MAX_PAYMENTS,
            "totals": [(currency, display.money(total, currency)) for currency, total in totals],
            "button": ngettext("Refund %(count)d payment", "Refund %(count)d payments", count) % {"count": count},
            **self.warnings(parts),
        }
        return self._render("admin/payments_backoffice/refund_selected.html", context)

    def _payments(self, ids: list[str]) -> list[Payment]:
        """Return the payments that the user may refund, newest first. The page does not reveal if others exist."""
        wanted = [pk for pk in dict.fromkeys(ids) if "\x00" not in pk][:MAX_PAYMENTS]
        found = self.admin.get_queryset(self.request).filter(pk__in=wanted).order_by("-created_at", "-pk")
        may_all = self._may(None)
        may_some = [payment for payment in found if may_all or self._may(payment)]
        if not may_all and not may_some:
            raise PermissionDenied
        return may_some

    def _may(self, payment: Payment | None) -> bool:
        return bool(getattr(self.admin, "has_refund_permission")(self.request, payment))  # noqa: B009

    def _part(self, payment: Payment) -> Part:
        rest = refundable_rest(payment)
        left_out = ""
        if payment.method_family != MethodFamily.CARD:
            left_out = _("Not paid by card: its refund needs a bank account. Refund it on its own page.")
        elif payment.status != PaymentStatus.SUCCEEDED:
            left_out = _("Its status is not succeeded.")
        elif rest <= 0:
            left_out = _("Nothing is left to refund.")
        elif words := display.removed(payment.account):
            left_out = words
        return Part(payment, rest, left_out)

    # The refunds

    def _confirmed(self) -> list[Part]:
        """Return the payments of the summary, with the amounts that were confirmed."""
        amounts: dict[str, int] = {}
        for value in self.request.POST.getlist("refund"):
            pk, _colon, amount = value.rpartition(":")
            if amount.isascii() and amount.isdigit() and len(amount) < 20:
                amounts[pk] = int(amount)
        return [Part(payment, amounts[payment.pk]) for payment in self._payments(list(amounts))]

    def _results(self, form: ReasonForm, parts: list[Part]) -> HttpResponse:
        deadline = time.monotonic() + STOP_AFTER
        results = [
            (part, self._refund(part, form) if time.monotonic() < deadline else Result(_NOT_STARTED)) for part in parts
        ]
        kinds = Counter(result.kind for _part, result in results)
        made = _totals(part for part, result in results if result.kind == _MADE)
        context = {
            "title": _("Refunds of the selected payments"),
            "form": form,
            "rows": [
                (
                    self._link(part.payment),
                    _reference(part.payment),
                    display.money(part.amount, part.payment.currency),
                    _badge(result.kind),
                    result.words,
                )
                for part, result in results
            ],
            "counts": [(_badge(kind), kinds[kind]) for kind in _RESULTS if kinds[kind]],
            "totals": [(currency, display.money(total, currency)) for currency, total in made],
            # Send all payments again: payments with an outcome keep it, and the others are started.
            "values": [part.value for part in parts] if kinds[_NOT_STARTED] else [],
            # Warnings that the user has confirmed stay confirmed.
            "confirmed": self.request.POST.getlist(twins.TWIN),
        }
        return self._render("admin/payments_backoffice/refunded_selected.html", context)

    def _refund(self, part: Part, form: ReasonForm) -> Result:
        """Make one service call. An error does not stop the others."""
        site, payment = self.admin.admin_site, part.payment
        key = _key(form, part)
        try:
            with self.unless_asked_meanwhile(part):
                refund = services.create_refund(
                    payment,
                    amount=part.amount,
                    reason=form.cleaned_data["reason"] or None,
                    idempotency_key=key,
                    actor=self.request.user,
                )
        except (OutcomeUnknown, ApprovalRequired) as error:
            entry = _("Refund asked for: operation %(id)s.") % {"id": error.operation.pk}
            self.admin.log_once(self.request, payment, entry, about=error.operation.pk, key=key)
            return Result(_OPEN, explain(site, error))
        except ValidationError as error:
            return Result(_REFUSED, " ".join(message for _argument, message in validation_messages(error)))
        except PermissionDenied as error:
            return Result(_REFUSED, str(error) or _("You may not refund it."))
        except (PaymentsError, ImproperlyConfigured) as error:
            return Result(_REFUSED, explain(site, error))
        except DatabaseError:
            logger.exception(
                "The database failed while payment %s was refunded", payment.pk, extra={"account": payment.account}
            )
            return Result(_NOT_STARTED, _("The database failed. Continue to try again; it is never refunded twice."))
        shown = format_money(refund.amount, refund.currency)
        entry = _("Refunded %(amount)s: %(id)s.") % {"amount": shown, "id": refund.pk}
        self.admin.log_once(self.request, payment, entry, about=refund.pk, key=key)
        status = display.text(dict(Refund.Status.choices).get(refund.status, refund.status))
        words = format_html("{} ({})", display.admin_link(site, Refund, refund.pk), status)
        return Result(_VOID if refund.status in VOID_REFUND_STATUSES else _MADE, words)

    # Both pages

    def _link(self, payment: Payment) -> str:
        may_view = self.admin.has_view_permission(self.request, payment)
        return display.admin_link(self.admin.admin_site, Payment, payment.pk) if may_view else display.text(payment.pk)

    def _render(self, template: str, context: dict[str, Any]) -> HttpResponse:
        list_url = self.admin.visible_list_url(self.request)
        crumbs = [(list_url, _("Payments")), ("", context["title"])]
        context = {**context, "list_url": list_url, "made_at": self.made_at}
        return self.admin.render_page(self.request, template, context, crumbs)


def _key(form: ReasonForm, part: Part) -> str:
    """Return the idempotency key of one payment's refund."""
    return services.scoped_key(form.cleaned_data["idempotency_key"], "refund-selected", part.payment.pk)


def _reference(payment: Payment) -> str:
    """Return the merchant reference, with the account if there are several."""
    account = conf.account_name(payment.account) if len(conf.aliases()) > 1 else ""
    return display.text(" · ".join(filter(None, (payment.merchant_reference, account))))


def _totals(parts: Iterable[Part]) -> list[tuple[str, int]]:
    """Return the total per currency, over all accounts, in minor units."""
    totals: Counter[str] = Counter()
    for part in parts:
        totals[part.payment.currency] += part.amount
    return sorted(totals.items())


def _badge(kind: str) -> str:
    words, tone = _RESULTS[kind]
    return format_html('<span class="pi-status pi-status-{}">{}</span>', tone, words)
