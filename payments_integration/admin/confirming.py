"""Pages that move money: a form, then in words what will happen, then one call of a service; all on one address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import IS_POPUP_VAR, TO_FIELD_VAR, get_content_type_for_model
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from payments_integration.admin import outcomes
from payments_integration.admin.buttons import new_key
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.models import Operation

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from payments_integration.admin.base import ReadOnlyAdmin

#: What the buttons of a page ask for. Nothing but CONFIRM sends anything that moves money.
STEP, REVIEW, CHANGE, CONFIRM = "step", "review", "change", "confirm"

APPROVAL = gettext_lazy("From this amount on another person must approve it before it is sent.")
ASK = gettext_lazy("Ask for approval")

#: A label and its value.
Fact = tuple["StrOrPromise", str]


class KeyedForm(forms.Form):
    """Its checks are about typing; what may be done, the service decides."""

    #: Made with the page: however often it is sent, it is one intent.
    idempotency_key = forms.CharField(max_length=255, widget=forms.HiddenInput)

    def place(self, argument: str, message: str) -> tuple[str | None, str]:
        """The field that a complaint of the service belongs to, and the complaint without its place."""
        return (argument if argument in self.fields else None), message


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person confirms."""

    #: What will happen, as a sentence.
    sentence: str
    #: The words on the button that does it.
    button: StrOrPromise
    facts: Sequence[Fact]
    #: What else to know before.
    notes: Sequence[StrOrPromise] = ()
    #: The balance that it comes out of.
    balance: Sequence[Fact] = ()


class ConfirmedPage(ABC):
    """One request of such a page; the view has checked the permission.

    The form is given out with an idempotency key, which goes with it through every step: however often it is
    confirmed, it is done once. What the confirmation page carries is checked anew, as it was typed.
    """

    template: ClassVar[str]
    title: ClassVar[StrOrPromise]
    #: Titles of the form's groups and the fields in them; what is not listed is hidden.
    groups: ClassVar[tuple[tuple[StrOrPromise | None, tuple[str, ...]], ...]]

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request

    @abstractmethod
    def form(self, *args: Any, **kwargs: Any) -> KeyedForm: ...

    @abstractmethod
    def initial(self) -> dict[str, Any]:
        """What stands in the form at first, besides its key."""

    @abstractmethod
    def consider(self, form: KeyedForm) -> None:
        """Look up what a person should know before; what cannot be done becomes an error of the form."""

    @abstractmethod
    def confirmation(self, form: Any) -> Confirmation: ...

    @abstractmethod
    def call(self, form: Any) -> Any:
        """Call the service; returns the mirror row."""

    @abstractmethod
    def done(self, row: Any) -> tuple[Any, str, str]:
        """The row in whose history it stands, what stands there, and what the person is told."""

    @abstractmethod
    def kept(self, operation: Operation) -> tuple[Any, str]:
        """The row in whose history an operation stands that is open yet, and what stands there."""

    @abstractmethod
    def back(self, row: Any = None) -> HttpResponse:
        """Where the person goes afterwards; ``row``: what was made."""

    @abstractmethod
    def crumbs(self) -> list[tuple[str, StrOrPromise]]:
        """Addresses (or nothing) and names of the pages above."""

    def account(self, form: Any) -> str | None:
        """The account that was chosen; None where there is nothing to choose."""
        return None

    def context(self, form: KeyedForm) -> dict[str, Any]:
        """What the form's page shows besides."""
        return {}

    def complaint(self, form: KeyedForm, name: str | None, message: str) -> str:
        """The service's complaint in words for people."""
        return message

    # The steps

    # With all that it calls: error reports must not repeat where money goes.
    @sensitive_variables()
    def respond(self) -> HttpResponse:
        if self.request.method in ("GET", "HEAD"):
            return self._page(self._unbound(self.initial()))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        step = self.request.POST.get(STEP, REVIEW)
        if step == CHANGE:
            return self._page(self._unbound(self.request.POST.dict()))
        form = self.form(self.request.POST)
        if form.is_valid():
            if step == CONFIRM:
                return self._send(form)
            self.consider(form)
            if not form.errors:
                return self._ask(form)
        return self._page(form)

    def _unbound(self, values: dict[str, Any]) -> KeyedForm:
        return self.form(initial={**values, "idempotency_key": values.get("idempotency_key") or new_key()})

    def _send(self, form: KeyedForm) -> HttpResponse:
        site, key = self.admin.admin_site, form.cleaned_data["idempotency_key"]
        # Asked before: a repeated page gets the first one's outcome, and its history has it already.
        repeated = Operation.objects.filter(idempotency_key=key).exists()
        account = self.account(form)
        if account is not None and was_sent_for_another(key, account):
            self.admin.message_user(self.request, outcomes.SENT_BEFORE, messages.WARNING)
            return self.back()
        try:
            row = self.call(form)
        except ValidationError as error:
            for argument, message in outcomes.complaints(error):
                name, shown = form.place(argument, message)
                form.add_error(name, self.complaint(form, name, shown))
            return self._page(form)
        except (OutcomeUnknown, ApprovalRequired) as error:
            # Away from the form: it must not be sent again.
            log(self.admin, self.request, *self.kept(error.operation), about=error.operation.pk, repeated=repeated)
            self.admin.message_user(self.request, outcomes.explain(site, error), messages.WARNING)
            return self.back()
        except IdempotencyMismatch as error:
            self.admin.message_user(self.request, outcomes.explain(site, error), messages.WARNING)
            return self.back()
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, outcomes.explain(site, error))
            # This refusal is this key's for ever; another try is another intent.
            form.data = {**self.request.POST.dict(), "idempotency_key": new_key()}
            return self._page(form)
        subject, entry, told = self.done(row)
        log(self.admin, self.request, subject, entry, about=row.pk, repeated=repeated)
        self.admin.message_user(self.request, told, messages.SUCCESS)
        return self.back(row)

    # The pages

    def _page(self, form: KeyedForm) -> HttpResponse:
        shown = [
            (title, {"fields": [name for name in names if name in form.fields]})
            for title, names in self.groups
            if any(name in form.fields for name in names)
        ]
        # Of the fields in no group there is nothing to be seen but what is wrong with them.
        hidden = [bound for bound in form if not any(bound.name in names for _title, names in self.groups)]
        context = {
            **self.context(form),
            "form": form,
            "hidden": hidden,
            "adminform": helpers.AdminForm(cast("Any", form), cast("Any", shown), {}, (), model_admin=self.admin),
        }
        return self._render(self.template, form, context)

    def _ask(self, form: KeyedForm) -> HttpResponse:
        context = {"form": form, "confirmation": self.confirmation(form)}
        return self._render("admin/payments_integration/confirm.html", form, context)

    def _render(self, template: str, form: forms.Form, context: dict[str, Any]) -> HttpResponse:
        site = self.admin.admin_site
        self.request.current_app = site.name
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        common = {
            **site.each_context(self.request),
            "title": self.title,
            "opts": self.admin.opts,
            "crumbs": [*first_crumbs(self.admin), *self.crumbs()],
            "media": self.admin.media + form.media,
            # In a window of its own, where another page's form wants what is made here.
            "is_popup": IS_POPUP_VAR in given,
            "is_popup_var": IS_POPUP_VAR,
            "to_field": given.get(TO_FIELD_VAR, ""),
            "to_field_var": TO_FIELD_VAR,
        }
        return TemplateResponse(self.request, template, {**common, **context})


def was_sent_for_another(key: str, account: str) -> bool:
    """Whether a page's key stands for an operation of another account.

    Keys are unique per account: a page whose account alone is changed would be sent once more, from the other one.
    """
    return Operation.objects.filter(idempotency_key=key).exclude(account=account).exists()


def first_crumbs(model_admin: ReadOnlyAdmin) -> list[tuple[str, StrOrPromise]]:
    """The way to a model, as on Django's own pages."""
    opts, site = model_admin.opts, model_admin.admin_site.name
    apps = reverse("admin:app_list", kwargs={"app_label": opts.app_label}, current_app=site)
    return [(reverse("admin:index", current_app=site), _("Home")), (apps, opts.app_config.verbose_name)]


def log(model_admin: Any, request: HttpRequest, subject: Any, entry: str, *, about: object, repeated: bool) -> None:
    """An entry in a row's admin history; where a page was repeated only if the first has left none."""
    if repeated:
        known = LogEntry.objects.filter(
            user_id=cast("int", request.user.pk),
            content_type=get_content_type_for_model(subject),
            object_id=str(subject.pk),
            change_message__contains=str(about),
        )
        if known.exists():
            return
    model_admin.log_change(request, subject, entry)
