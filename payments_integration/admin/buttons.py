"""Buttons on a row's page: one POST, one call of a service, one message."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _

from payments_integration import permissions

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Press:
    """A button as it was pressed once."""

    user: Any
    #: The idempotency key: the page's, so that a double click is one intent.
    key: str | None
    #: What was written into the button's form, cleaned.
    answers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of pressing a button, in words."""

    text: StrOrPromise
    level: int = messages.SUCCESS


def canceled(row: Any | None) -> Outcome:
    """Where a cancel has led: the provider's answer may say something else."""
    if row is None or row.status == "canceled":
        return Outcome(_("It was canceled."))
    status = dict(row.Status.choices).get(row.status, row.status)
    return Outcome(_("It was asked to be canceled, and stands at: %s.") % status, messages.WARNING)


#: (row, press): calls a service.
Call = Callable[[Any, Press], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    #: The last part of its address.
    name: str
    label: StrOrPromise
    #: ``has_<permission>_permission(request, obj)`` of the ModelAdmin decides who may.
    permission: str
    call: Call
    #: What the message says afterwards; a function is given the row as it is then, None where it is gone.
    done: StrOrPromise | Callable[[Any | None], Outcome]
    #: What stands in the row's history; empty for what changes nothing at the provider.
    logged: StrOrPromise = ""
    #: Whether it makes sense now, as far as the mirror knows; the service decides.
    shown: Callable[[Any], bool] = lambda obj: True
    #: Asked before it is done.
    question: StrOrPromise = ""
    #: What must be said with it, and what is written there at first.
    form: type[forms.Form] | None = None
    initial: Callable[[Any], dict[str, Any]] = lambda obj: {}

    def outcome(self, obj: Any | None) -> Outcome:
        return self.done(obj) if callable(self.done) else Outcome(self.done)

    def unbound(self, obj: Any) -> forms.Form | None:
        """Its form as a page shows it; several may ask for the same."""
        return self.form(initial=self.initial(obj), auto_id=f"pi-{self.name}-%s") if self.form else None


@dataclass(frozen=True, slots=True)
class Tool:
    """A button or link as the page shows it."""

    label: StrOrPromise
    url: str
    post: bool = True
    question: StrOrPromise = ""
    key: str = ""
    form: forms.Form | None = None


def may(request: HttpRequest, codename: str, obj: Any = None) -> bool:
    """Whether the user has one of the app's own permissions, for all rows or for this one."""
    return permissions.may(request.user, codename, obj)


def may_view(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    """Whether the site has a page of the model, and the user may see it."""
    return site.is_registered(model) and site.get_model_admin(model).has_view_permission(request)


def new_key() -> str:
    """An idempotency key for one form or button as shown once."""
    return f"admin-{uuid.uuid4().hex}"
