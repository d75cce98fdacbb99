"""Define the buttons on a row's page: one POST, one service call, one message."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import permissions
from payments_integration.models import Operation
from payments_integration.validation.text import StrOrPromise

#: The parameter of a form's address with the id of the payout or refund that did not arrive. It fills in the form.
#: Addresses are logged, and an id is no personal data.
AGAIN = "again"
#: The answer to a GET of a button's URL. If the session ended before the click, the login leads there.
NOTHING_DONE = gettext_lazy("Nothing was done. Press the button again.")


class Weight(enum.IntEnum):
    """How prominent a button is among the others."""

    #: First: most people want it.
    MAIN = 0
    #: In between.
    PLAIN = 1
    #: Last and without a border: few people need it.
    QUIET = 2


class Press(NamedTuple):
    """One click on a button."""

    user: Any
    #: The idempotency key of the page. It makes a double click one intent.
    key: str | None
    #: The cleaned data of the button's form.
    answers: Mapping[str, Any]


class Outcome(NamedTuple):
    """The message after a click."""

    text: StrOrPromise
    level: int = messages.SUCCESS


def canceled(row: Any | None) -> Outcome:
    """Return the message after a cancel. The provider's answer may have another status than canceled."""
    if row is None or row.status == "canceled":
        return Outcome(_("It was canceled."))
    status = dict(row.Status.choices).get(row.status, row.status)
    return Outcome(_("The provider was asked to cancel it. Its status is: %s.") % status, messages.WARNING)


#: ``call(row, press)`` calls a service.
Call = Callable[[Any, Press], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    #: The last part of its URL.
    name: str
    label: StrOrPromise
    #: The codename of the permission that it needs. Empty: who may see the row may use it.
    permission: str
    call: Call
    #: Finds the same call if it was asked for since a time, or is still open. A second person is then warned, and
    #: nothing is sent until they confirm again (see ``twins``). Set it to None if the button sends nothing, or nothing
    #: that can be doubled.
    twin: Callable[[Any, datetime], Operation | None] | None
    #: The message afterwards. A function receives the row as it is after the call, or None if it no longer exists.
    done: StrOrPromise | Callable[[Any | None], Outcome]
    #: The entry in the row's history; empty if the button changes nothing at the provider.
    logged: StrOrPromise = ""
    #: Returns True if the button is useful for this row, as far as the mirror knows. The service decides.
    shown: Callable[[Any], bool] = lambda obj: True
    #: Shown before the confirming click.
    question: StrOrPromise = ""
    #: A form to fill in first, and its initial values.
    form: type[forms.Form] | None = None
    #: Its place among the other buttons and links.
    weight: Weight = Weight.PLAIN
    initial: Callable[[Any], dict[str, Any]] = lambda obj: {}
    #: Another row whose page the user sees afterwards, if they may. None for the page of the row itself.
    leads_to: Callable[[Any], Model | None] = lambda obj: None

    def outcome(self, obj: Any | None) -> Outcome:
        return self.done(obj) if callable(self.done) else Outcome(self.done)

    def unbound(self, request: HttpRequest, obj: Any, **initial: Any) -> forms.Form | None:
        """Return its form: empty, or with what was typed if this request is the click, which was refused.

        Field ids contain the button's name, because a page may have several such forms.
        """
        values = {**self.initial(obj), **initial, **typed_in(request, self.name)}
        return self.form(initial=values, auto_id=f"pi-{self.name}-%s") if self.form else None


@dataclass(frozen=True, slots=True)
class Tool:
    """A button or link in a page."""

    label: StrOrPromise
    url: str
    post: bool = True
    question: StrOrPromise = ""
    key: str = ""
    form: forms.Form | None = None
    #: True if the form comes back after a refusal.
    is_refused: bool = False
    weight: Weight = Weight.PLAIN
    #: The id of an operation that just asked for the same, and the warning about it.
    twin: str = ""
    warning: str = ""
    #: When the page was made (``twins.made_at``), if there may be such an operation.
    made_at: int | None = None

    @property
    def css(self) -> str:
        return {Weight.MAIN: " pi-main", Weight.QUIET: " pi-quiet"}.get(self.weight, "")


def refused(request: HttpRequest, name: str, form: forms.BaseForm) -> HttpRequest:
    """Return a request that shows the page again with what was typed into the form of the named button."""
    shown = copy(request)
    shown.method = "GET"
    typed = {field.name: field.value() for field in form if not field.is_hidden}
    shown._pi_typed = (name, typed)  # type: ignore[attr-defined]
    return shown


def typed_in(request: HttpRequest, name: str) -> dict[str, Any]:
    """Return what was typed into the form of the named button; empty if the click was not refused."""
    button, typed = getattr(request, "_pi_typed", ("", {}))
    return typed if button == name else {}


def may(request: HttpRequest, codename: str, obj: Any = None) -> bool:
    """Return True if the user has one of the app's permissions, for all rows or for this one."""
    return permissions.may(request.user, codename, obj)


def may_view(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    """Return True if the model is registered on the site and the user may see it."""
    return site.is_registered(model) and site.get_model_admin(model).has_view_permission(request)


def hidden(site: AdminSite, request: HttpRequest, *models: type[Model]) -> list[StrOrPromise]:
    """Return the names of the given models that are on the site and whose rows the user may not see."""
    unseen = (model for model in models if site.is_registered(model) and not may_view(site, request, model))
    return [model._meta.verbose_name_plural for model in unseen if model._meta.verbose_name_plural]


def new_key() -> str:
    """Return an idempotency key for one form or button of one page view."""
    return f"admin-{uuid.uuid4().hex}"
