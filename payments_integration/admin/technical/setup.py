"""Show the steps from an installed app to a working one, before the first money arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.translation import gettext as _

from payments_integration import conf
from payments_integration.admin.flows import reconcile
from payments_integration.admin.flows.webhook_endpoint import public_url
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may, may_view
from payments_integration.health import AccountReport
from payments_integration.models import Event, ReconciliationRun, RunKind, WebhookEndpoint
from payments_integration.signals import Reason
from payments_integration.validation.text import StrOrPromise
from payments_integration.validation.urls import LOOPBACK_HOSTS

#: The problems that the steps replace while the steps are shown.
STEPS = frozenset({Reason.NO_ENDPOINT, Reason.NEVER_RECONCILED})


@dataclass(frozen=True, slots=True)
class Step:
    label: StrOrPromise
    is_done: bool
    #: What to do while the step is not done.
    advice: StrOrPromise
    #: The command that does the same; empty if there is none.
    command: str = ""
    #: The page that does it for this user, and its button; empty if there is none.
    url: str = ""
    button: StrOrPromise = ""
    #: The fields of the form, if the button sends a form.
    fields: tuple[tuple[str, str], ...] = ()


def steps(
    site: AdminSite, request: HttpRequest, account: str, report: AccountReport, *, is_empty: bool = False
) -> list[Step]:
    """Return the steps with their state while the installation is new. Later, health reports what is wrong.

    An installation is new if nothing was ever reconciled, or, with ``is_empty``, if a step is not done. Users who may
    not see all of endpoints, events and runs get no steps. Takes no queries, because ``report`` has all the data.
    """
    done = _done(account, report)
    is_reconciled = done[-1]
    if all(done) or (is_reconciled and not is_empty):
        return []
    if not all(may_view(site, request, model) for model in (WebhookEndpoint, Event, ReconciliationRun)):
        return []
    has_only_secret = done[0] and not report.statistics.endpoints
    return list(_steps(site, request, account, done, has_only_secret=has_only_secret))


def _steps(
    site: AdminSite, request: HttpRequest, account: str, done: tuple[bool, bool, bool], *, has_only_secret: bool
) -> Iterator[Step]:
    named = {"account": account} if len(conf.aliases()) > 1 else {}
    option = f" --account {account}" if named else ""
    registered, delivered, reconciled = done
    address = public_url(request, account)
    add = display.page_url(site, WebhookEndpoint, "add") if may(request, "manage_webhookendpoint") else ""
    yield Step(
        # A secret says nothing about the address, which the provider may not know yet.
        _("The secret of your webhooks is set") if has_only_secret else _("The provider knows your webhook address"),
        registered,
        _("Register the address to which the provider reports every payment."),
        f"python manage.py payments_endpoints create {address or 'https://…'}{option}",
        f"{add}?{urlencode(named)}" if add and named else add,
        _("Register it"),
    )
    # A provider on this machine is a sandbox, which can make a payment on its own.
    is_sandbox = urlsplit(conf.account(account).base_url).hostname in LOOPBACK_HOSTS
    yield Step(
        _("The first event was delivered"),
        delivered,
        _("Make a payment, as a customer would. The provider reports it within seconds."),
        f"python manage.py payments_trigger payment.succeeded{option}" if is_sandbox else "",
    )
    yield Step(
        _("The first reconciliation is complete"),
        reconciled,
        _("It reads what the provider has already. Later, the schedule runs it every few minutes."),
        f"python manage.py payments_reconcile{option}",
        reconcile.url(site, request),
        _("Run it now"),
        (("account", account), ("kind", RunKind.EVENTS.value)),
    )


def _done(account: str, report: AccountReport) -> tuple[bool, bool, bool]:
    found = report.statistics
    return (
        bool(found.endpoints or conf.account(account).webhook_secrets),
        found.last_webhook_age_seconds is not None,
        found.watermark_age_seconds is not None,
    )
