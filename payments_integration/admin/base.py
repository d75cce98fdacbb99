"""The base of every page: read-only, with buttons that call services."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import flatten_fieldsets, quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from payments_integration import services
from payments_integration.admin import columns, display, outcomes
from payments_integration.admin.buttons import Button, Press, Tool, new_key
from payments_integration.admin.lists import ListAdmin
from payments_integration.admin.sections import Page, Section
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown, PaymentsError

ObjectView = Callable[[HttpRequest, str], HttpResponse]


def outside_transactions(view: Any) -> Any:
    """Mark a view to run outside transactions, also with ATOMIC_REQUESTS, on every database."""
    for alias in connections:
        transaction.non_atomic_requests(using=alias)(view)
    return view


class ReadOnlyAdmin(ListAdmin):
    """Shows rows that a person cannot write: the provider and the app's flows do."""

    #: Further actions on one row.
    buttons: tuple[Button, ...] = ()

    class Media:
        css = {"all": ("payments_integration/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Never: Django's own forms write no row here, whatever permission led to them."""
        raise PermissionDenied

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        """What is shown under the fields."""
        return ()

    def links(self, request: HttpRequest, obj: Any) -> Iterable[Tool]:
        """Links to further pages, shown beside the buttons."""
        return ()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None:
            context["pi_sections"] = list(self.sections(Page(self.admin_site, request), obj))
            context["pi_tools"] = [*self.links(request, obj), *self._button_tools(request, obj)]
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        own = [self.object_path(button.name, self._pressing(button)) for button in self.buttons]
        return [*own, *super().get_urls()]

    def object_path(self, name: str, view: ObjectView) -> URLPattern:
        """A page or button below a row's address, outside transactions: services refuse to send inside one."""

        def outside(request: HttpRequest, object_id: str) -> HttpResponse:
            return view(request, object_id)

        guarded: Any = self.admin_site.admin_view(outside_transactions(outside))
        return cast("URLPattern", path(f"<path:object_id>/{name}/", guarded, name=self.url_name(name)))

    def list_path(self, name: str, view: Callable[[HttpRequest], HttpResponse]) -> URLPattern:
        """A page beside the list, likewise outside transactions."""

        def outside(request: HttpRequest) -> HttpResponse:
            return view(request)

        guarded: Any = self.admin_site.admin_view(outside_transactions(outside))
        return cast("URLPattern", path(f"{name}/", guarded, name=self.url_name(name)))

    def object_url(self, name: str, obj: Any) -> str:
        return reverse(f"admin:{self.url_name(name)}", args=(quote(obj.pk),), current_app=self.admin_site.name)

    def permitted(self, request: HttpRequest, object_id: str, permission: str) -> Any:
        """The row that a custom page is about; 403 without the permission, whether it exists or not, else 404."""
        obj = self.get_object(request, unquote(object_id))
        if not getattr(self, f"has_{permission}_permission")(request, obj):
            raise PermissionDenied
        if obj is None:
            raise Http404
        return obj

    def back(self, request: HttpRequest, obj: Any, *, gone: bool = False) -> HttpResponseRedirect:
        """To the row's page, or the list where the row is gone, for those who may see it."""
        if self.has_view_permission(request, obj):
            return HttpResponseRedirect(
                display.list_url(self.admin_site, self.model) if gone else self.object_url("change", obj)
            )
        return HttpResponseRedirect(reverse("admin:index", current_app=self.admin_site.name))

    def _button_tools(self, request: HttpRequest, obj: Any) -> Iterable[Tool]:
        for button in self.buttons:
            if button.shown(obj) and getattr(self, f"has_{button.permission}_permission")(request, obj):
                url = self.object_url(button.name, obj)
                form = button.unbound(obj)
                yield Tool(button.label, url, question=button.question, key=new_key(), form=form)

    def _pressing(self, button: Button) -> ObjectView:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            obj = self.permitted(request, object_id, button.permission)
            if request.method != "POST":
                return HttpResponseNotAllowed(["POST"])
            form = button.form(request.POST) if button.form else forms.Form(request.POST)
            if not form.is_valid():
                for name, found in form.errors.items():
                    text = f"{form[name].label}: {' '.join(map(str, found))}"
                    self.message_user(request, text, messages.ERROR)
                return self.back(request, obj)
            current: Any | None = obj
            try:
                button.call(obj, Press(request.user, request.POST.get("idempotency_key") or None, form.cleaned_data))
            except ValidationError as error:
                for _argument, message in outcomes.complaints(error):
                    self.message_user(request, message, messages.ERROR)
            except (OutcomeUnknown, ApprovalRequired) as error:
                self.message_user(request, outcomes.explain(self.admin_site, error), messages.WARNING)
                if button.logged:
                    self.log_change(request, obj, f"{button.logged} ({error.operation.pk})")
            except (PaymentsError, ImproperlyConfigured) as error:
                self.message_user(request, outcomes.explain(self.admin_site, error), messages.ERROR)
            else:
                if button.logged:
                    self.log_change(request, obj, str(button.logged))
                current = self.model._default_manager.filter(pk=obj.pk).first()
                outcome = button.outcome(current)
                self.message_user(request, outcome.text, outcome.level)
            return self.back(request, obj, gone=current is None)

        return view


#: GET from the provider. Whoever may see the row may have it read anew: it changes nothing there.
REFRESH = Button(
    name="refresh",
    label=_("Refresh"),
    permission="view",
    call=lambda obj, press: services.refresh(obj),
    done=_("Read anew from the provider."),
)

#: How a mirror row came to be as it is.
MIRROR_FIELDS: Any = (
    _("Mirror"),
    {
        "classes": ("collapse",),
        "fields": (
            "account", "state_at", "state_by", "synced_at", "version", "gone_at", "erased_at", "extra_shown",
        ),
    },
)  # fmt: skip


class MirrorAdmin(ReadOnlyAdmin):
    """A mirrored object with its history."""

    ordering: ClassVar[Any] = ("-created_at", "-pk")
    sortable_by: ClassVar[Any] = ("created_at",)
    aged: tuple[str, ...] = ("created_at",)
    buttons: tuple[Button, ...] = (REFRESH,)
    list_defer: tuple[str, ...] = ("extra",)
    personal: tuple[str, ...] = ("extra_shown",)
    fieldsets: ClassVar[Any] = ()

    extra_shown = columns.json("extra", _("further fields"))

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        yield from page.history(obj)
