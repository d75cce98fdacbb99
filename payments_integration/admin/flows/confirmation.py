"""Provide the base of pages that move money: a form, then what will happen in words, then one service call.

All steps have the same URL.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.options import IS_POPUP_VAR, TO_FIELD_VAR
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from payments_integration import services
from payments_integration.admin.flows.forms import Fact, KeyedForm
from payments_integration.admin.shared import twins
from payments_integration.admin.shared.buttons import Outcome, new_key
from payments_integration.admin.shared.display import SENT_BEFORE, explain, validation_messages
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.models import Operation, OperationState
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

#: The parameter for the step, and its values. Only CONFIRM calls the service.
STEP, REVIEW, CHANGE, CONFIRM = "step", "review", "change", "confirm"
#: The parameter of a confirmation page whose button asks for approval.
ASKS = "asks_for_approval"

#: ``check`` needs these fields. It has run if there are errors of no field.
_CHECKED = {"account", "currency", "amount", NON_FIELD_ERRORS}

#: Seconds that the first of two calls waits for the other one to be closed.
WAIT_FOR_TWIN = 2.0

NEEDS_APPROVAL = gettext_lazy("Because of its amount, another person must approve it before it is sent.")
ASK_FOR_APPROVAL = gettext_lazy("Ask for approval")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The content of the confirmation page."""

    #: What will happen in a few words: how much, and to whom.
    title: str
    #: What will happen, as a sentence.
    sentence: str
    #: The label of the button that does it.
    button: StrOrPromise
    facts: Sequence[Fact]
    notes: Sequence[StrOrPromise] = ()
    #: The balance that the money comes from.
    balance: Sequence[Fact] = ()


class SendingPage(ABC):
    """A page that moves money.

    Each page finds what a person has just asked for. It then sends nothing until a person who saw it confirms again. A
    class without ``twin`` cannot be defined.
    """

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not abstract and cls.twin is SendingPage.twin:
            raise TypeError(f"{cls.__name__} moves money: write its twin()")

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        # Messages link only to pages that the user may open.
        self.admin = model_admin.seen(request)
        self.request = request
        #: When the form was shown first. Each page of it carries this time.
        self.made_at = twins.made_at(request)
        #: The idempotency keys of what this page sends. Their operations are no twins of it.
        self.keys: tuple[str, ...] = ()

    @property
    def since(self) -> datetime:
        """The time from which on ``twin`` looks."""
        return twins.window_start(self.made_at)

    @abstractmethod
    def twin(self, subject: Any) -> Operation | None:
        """Return an operation since ``since`` that does the same. A person must confirm both.

        It has another key than ``keys``: this page did not make it.

        ``subject``: what is about to be sent, such as the page's form.
        """

    def warning(self, subject: Any, twin: Operation) -> str:
        return twins.warning(self.admin.admin_site, twin)

    def may_send(self, subjects: Sequence[Any]) -> bool:
        """Return True if the page showed each twin."""
        return not any(map(self._new_twin, subjects))

    @contextmanager
    def unless_asked_meanwhile(self, subject: Any) -> Iterator[None]:
        """Look for a twin again when a call of this block is recorded. Raise ValidationError if there is one.

        Another person may have pressed at the same time, before either call was recorded. The first one of two calls
        waits until the other is closed. If that does not happen, the other did not find it, and is being sent.
        """

        def look(operation: Operation) -> None:
            if operation.idempotency_key not in self.keys:
                # A receiver of the site makes a call of its own, which may look like the page's.
                return
            until = time.monotonic() + WAIT_FOR_TWIN
            while (twin := self._new_twin(subject)) is not None:
                is_first = (operation.created_at, operation.pk) < (twin.created_at, twin.pk)
                if not is_first or time.monotonic() >= until:
                    raise ValidationError(self.warning(subject, twin))
                time.sleep(0.05)

        with services.SecondLook(look):
            yield

    def _new_twin(self, subject: Any) -> Operation | None:
        twin = self.twin(subject)
        return None if twins.is_confirmed(twin, self.request.POST.getlist(twins.TWIN), ()) else twin

    def warnings(self, subjects: Sequence[Any]) -> dict[str, Any]:
        """Return the context of ``includes/twins.html``: each twin's id, which the form confirms, and its sentence."""
        found = [(subject, self.twin(subject)) for subject in subjects]
        return {"twins": [(twin.pk, self.warning(subject, twin)) for subject, twin in found if twin is not None]}


class KeyedPage(ABC):
    """One request of a page whose form has an idempotency key, and calls one service.

    The key stays the same when the form is shown again, so a form that is sent twice runs once.
    """

    admin: ReadOnlyAdmin
    request: HttpRequest

    template: ClassVar[str]
    title: ClassVar[StrOrPromise]
    #: The titles of the form's groups with their fields. Fields in no group are hidden.
    groups: ClassVar[tuple[tuple[StrOrPromise | None, tuple[str, ...]], ...]]

    @abstractmethod
    def form(self, *args: Any, **kwargs: Any) -> KeyedForm: ...

    @abstractmethod
    def initial(self) -> dict[str, Any]:
        """Return the form's initial values, without its key."""

    @abstractmethod
    def call(self, form: Any) -> Any:
        """Call the service and return the mirror row."""

    @abstractmethod
    def done(self, row: Any) -> tuple[Any, str, Outcome]:
        """After success, return (the row whose history gets an entry, the entry, the message to the user).

        The entry contains the id of ``row``.
        """

    @abstractmethod
    def recorded(self, operation: Operation) -> tuple[Any, str]:
        """While the operation is open, return (the row whose history gets an entry, the entry with its id)."""

    @abstractmethod
    def back(self, row: Any = None) -> HttpResponse:
        """Return the redirect afterwards. ``row``: the mirror row that was created."""

    @abstractmethod
    def crumbs(self) -> list[tuple[str, StrOrPromise]]:
        """Return (URL or "", name) of the breadcrumbs below the app."""

    def account(self, form: Any) -> str | None:
        """Return the chosen account; None if the page offers no choice."""
        return None

    def context(self, form: KeyedForm) -> dict[str, Any]:
        """Return further context of the form's template, such as a ``title`` that names the person."""
        return {}

    def key(self) -> str:
        return new_key()

    # Error reports must not contain the bank account from this function or any function that it calls.
    @sensitive_variables()
    def respond(self) -> HttpResponse:
        if self.request.method in ("GET", "HEAD"):
            return self._page(self._unbound(self.initial()))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        return self._posted()

    def _posted(self) -> HttpResponse:
        form = self.form(self.request.POST)
        return self._send(form) if form.is_valid() else self._page(form)

    def _unbound(self, values: dict[str, Any]) -> KeyedForm:
        return self.form(initial={**values, "idempotency_key": values.get("idempotency_key") or self.key()})

    def _send(self, form: KeyedForm) -> HttpResponse:
        site, key = self.admin.admin_site, form.cleaned_data["idempotency_key"]
        account, sent = self.account(form), Operation.objects.filter(idempotency_key=key)
        # Keys are unique per account: sent again with another account, the form would run twice.
        if account is not None and sent.exclude(account=account).exists():
            self.admin.message_user(self.request, SENT_BEFORE, messages.WARNING)
            return self.back()
        try:
            row = self.call(form)
        except ValidationError as error:
            for argument, message in validation_messages(error):
                name, shown = form.field_of(argument, message)
                form.add_error(name, shown)
            if sent.exists():
                self._change_key(form, sent)
            return self._page(form)
        except (OutcomeUnknown, ApprovalRequired) as error:
            # Leave the form, because it must not be sent again.
            self.admin.log_once(self.request, *self.recorded(error.operation), about=error.operation.pk, key=key)
            self.admin.message_user(self.request, explain(site, error), messages.WARNING)
            return self.back()
        except IdempotencyMismatch as error:
            self.admin.message_user(self.request, explain(site, error), messages.WARNING)
            return self.back()
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, explain(site, error))
            self._change_key(form, sent)
            return self._page(form)
        subject, entry, outcome = self.done(row)
        self.admin.log_once(self.request, subject, entry, about=row.pk, key=key)
        self.admin.message_user(self.request, outcome.text, outcome.level)
        return self.back(row)

    def _change_key(self, form: KeyedForm, sent: QuerySet[Operation]) -> None:
        # After a temporary refusal, the key stays: older tabs have it too. Another key keeps its refusal forever.
        if not any(operation.has_free_key for operation in sent.all()):
            form.data = self.request.POST.copy()
            form.data["idempotency_key"] = self.key()

    def _page(self, form: KeyedForm) -> HttpResponse:
        shown = [
            (title, {"fields": [name for name in names if name in form.fields and not form[name].is_hidden]})
            for title, names in self.groups
            if any(name in form.fields for name in names)
        ]
        # Fields in no group show only their errors.
        grouped = {name for _title, names in self.groups for name in names}
        hidden = [bound for bound in form if bound.is_hidden or bound.name not in grouped]
        context = {
            **self.context(form),
            "form": form,
            "hidden": hidden,
            "adminform": helpers.AdminForm(cast("Any", form), cast("Any", shown), {}, (), model_admin=self.admin),
        }
        return self._render(self.template, form, context)

    def _render(self, template: str, form: forms.Form, context: dict[str, Any]) -> HttpResponse:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        common = {
            "title": self.title,
            "media": self.admin.media + form.media,
            # In a popup, the page returns the new object to another page's form.
            "is_popup": IS_POPUP_VAR in given,
            "is_popup_var": IS_POPUP_VAR,
            "to_field": given.get(TO_FIELD_VAR, ""),
            "to_field_var": TO_FIELD_VAR,
        }
        return self.admin.render_page(self.request, template, {**common, **context}, self.crumbs())


class ConfirmationPage(SendingPage, KeyedPage, abstract=True):
    """One request of a page that moves money. The view has checked the permission.

    Two pages with the same content have two keys: the second confirmation is shown again, and names the first
    operation. The confirmation page repeats the values as they were typed, and they are validated again.
    """

    @abstractmethod
    def check(self, form: KeyedForm) -> None:
        """Read what the confirmation page needs. Add an error to the form if the request cannot be carried out."""

    @abstractmethod
    def confirmation(self, form: Any) -> Confirmation: ...

    @abstractmethod
    def waits(self, form: Any) -> bool:
        """Return True if another person must approve it before it is sent."""

    def _page(self, form: KeyedForm) -> HttpResponse:
        # Beside other mistakes too, say at once that the amount is too high.
        if form.errors and not _CHECKED & form.errors.keys():
            self.check(form)
        return super()._page(form)

    def obstacle(self) -> str:
        """Return a sentence that says why nothing must be sent; empty if it may be sent."""
        return ""

    # The steps

    def _posted(self) -> HttpResponse:
        step = self.request.POST.get(STEP, REVIEW)
        if step == CHANGE:
            return self._page(self._unbound(self.request.POST.dict()))
        form = self.form(self.request.POST)
        if form.is_valid():
            self.keys = (form.cleaned_data["idempotency_key"],)
            if step == CONFIRM and self._may_send(form):
                with self.unless_asked_meanwhile(form):
                    return self._send(form)
            self.check(form)
            if obstacle := self.obstacle():
                form.add_error(None, obstacle)
            if not form.errors:
                return self._confirm(form)
        return self._page(form)

    def _may_send(self, form: KeyedForm) -> bool:
        # A form that was sent before gets the outcome of its operation. After a temporary refusal it sends money.
        sent = Operation.objects.filter(idempotency_key=form.cleaned_data["idempotency_key"])
        if sent.exclude(state=OperationState.CLOSED).exists():
            return True
        if self.request.POST.get(ASKS) and not self.waits(form):
            # The limit has gone since the page was made. Its button must not send at once: show what will happen now.
            return False
        return not self.obstacle() and self.may_send([form])

    def _confirm(self, form: KeyedForm) -> HttpResponse:
        found = self.confirmation(form)
        asks = ASKS if self.waits(form) else ""
        context = {"form": form, "title": found.title, "confirmation": found, "asks": asks, **self.warnings([form])}
        return self._render("admin/payments_integration/confirm.html", form, context)

    def _render(self, template: str, form: forms.Form, context: dict[str, Any]) -> HttpResponse:
        return super()._render(template, form, {**context, "made_at": self.made_at})
