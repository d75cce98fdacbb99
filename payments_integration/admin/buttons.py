"""Buttons on a row's page: one POST, one call of a service, one message."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: (row, idempotency key, user): calls a service. The key is the page's, so that a double click is one intent.
Call = Callable[[Any, str | None, Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    #: The last part of its address.
    name: str
    label: StrOrPromise
    #: ``has_<permission>_permission(request, obj)`` of the ModelAdmin decides who may.
    permission: str
    call: Call
    #: What the message says afterwards, with the row as it is then.
    done: StrOrPromise
    #: What stands in the row's history; empty for what changes nothing at the provider.
    logged: StrOrPromise = ""
    #: Whether it makes sense now, as far as the mirror knows; the service decides.
    shown: Callable[[Any], bool] = lambda obj: True
    #: Asked before it is done.
    question: StrOrPromise = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A button or link as the page shows it."""

    label: StrOrPromise
    url: str
    post: bool = True
    question: StrOrPromise = ""
    key: str = ""


def may(request: HttpRequest, codename: str, obj: Any = None) -> bool:
    """Whether the user has one of the app's own permissions, for all rows or for this one."""
    name = f"payments_integration.{codename}"
    return request.user.has_perm(name) or (obj is not None and request.user.has_perm(name, obj))


def new_key() -> str:
    """An idempotency key for one form or button as shown once."""
    return f"admin-{uuid.uuid4().hex}"
