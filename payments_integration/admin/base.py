"""Provide the base classes of every model page: read-only, with buttons that call services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import AdminForm
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.admin.utils import flatten_fieldsets, quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration import services
from payments_integration.admin.lists.changelist import ListAdmin
from payments_integration.admin.shared import columns, display, twins
from payments_integration.admin.shared.buttons import NOTHING_DONE, Button, Press, Tool, Weight, may, new_key, refused
from payments_integration.admin.shared.display import explain, validation_messages
from payments_integration.admin.shared.sections import Page, Section, about
from payments_integration.db.transactions import locked, outside_transactions, repeatable
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown, PaymentsError, WireError
from payments_integration.models import Event, Operation, StatusChange
from payments_integration.validation.text import StrOrPromise

ObjectView = Callable[[HttpRequest, str], HttpResponse]
#: A breadcrumb: (URL or "", name)
Crumb = tuple[str, StrOrPromise]


class ReadOnlyAdmin(ListAdmin):
    """A model page without Django's forms: rows are written by the provider's answers, by events and by services."""

    #: The buttons on a row's page.
    buttons: tuple[Button, ...] = ()

    class Media:
        css = {"all": ("payments_integration/admin.css",)}
        js = ("payments_integration/admin.js",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Refuse: Django's forms never write a row here, with any permission."""
        raise PermissionDenied

    def log_once(self, request: HttpRequest, obj: Any, entry: str, *, about: object, key: str | None) -> None:
        """Add an entry to a row's history, unless the form with this key left one: it may be sent twice, also at once.

        ``about``: what the entry contains, so that it can be recognized.
        """
        sent = Operation.objects.filter(idempotency_key=key).order_by("created_at")
        # PostgreSQL refuses a NUL character in a key, and the work is done.
        operation = sent.first() if key and "\x00" not in key else None
        if operation is None:
            self.log_change(request, obj, entry)
            return

        def write() -> None:
            # Wait for the other one of two clicks at once, and see its entry.
            list(locked(Operation.objects.filter(pk=operation.pk)))
            logged = LogEntry.objects.filter(
                user_id=cast("int", request.user.pk),
                content_type=get_content_type_for_model(obj),
                object_id=str(obj.pk),
                change_message__contains=str(about),
                action_time__gte=operation.created_at,
            )
            if not logged.exists():
                self.log_change(request, obj, entry)

        repeatable(write, using=router.db_for_write(Operation))

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        """Yield the sections below the fields and above the folded ones."""
        return ()

    def links(self, request: HttpRequest, obj: Any) -> Iterable[Tool]:
        """Yield links to other pages, beside the buttons."""
        return ()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        context["pi_head"] = self.head_template
        if obj is not None:
            # Django's title is "View payment". Nothing here can be changed, so "View" says nothing.
            context["title"] = capfirst(str(self.opts.verbose_name))
            page = Page(display.seen(self.admin_site, request), request)
            tools = [*self.links(request, obj), *self._button_tools(request, obj)]
            context["pi_tools"] = sorted(tools, key=lambda tool: tool.weight)
            context["pi_sections"] = list(self.sections(page, obj))
            context["pi_folded"] = _take_folded(context["adminform"])
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        own = [self.object_path(button.name, self.button_view(button)) for button in self.buttons]
        urls = super().get_urls()
        for url in urls:
            # Django's pages too: a list's action may call receivers, and the add page may send a request.
            outside_transactions(url.callback)
        return [*own, *urls]

    def object_path(self, name: str, view: ObjectView) -> URLPattern:
        """Return the URL pattern of a page or button of one row. Its view runs outside transactions."""
        return self._path(f"<path:object_id>/{name}/", name, view)

    def list_path(self, name: str, view: Callable[[HttpRequest], HttpResponseBase]) -> URLPattern:
        """Return the URL pattern of a page of the whole list. Its view runs outside transactions."""
        return self._path(f"{name}/", name, view)

    def _path(self, route: str, name: str, view: Callable[..., HttpResponseBase]) -> URLPattern:
        def outside(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            return view(request, **kwargs)

        wrapped: Any = self.admin_site.admin_view(outside_transactions(outside))
        # As Django's own views, for what asks which site shows a page.
        wrapped.model_admin = self
        return cast("URLPattern", path(route, wrapped, name=self.url_name(name)))

    def object_url(self, name: str, obj: Any) -> str:
        return reverse(f"admin:{self.url_name(name)}", args=(quote(obj.pk),), current_app=self.admin_site.name)

    def may_press(self, button: Button, request: HttpRequest, obj: Any) -> bool:
        """Return True if the user may use a button of this row. ``obj`` is None if there is no such row."""
        return may(request, button.permission, obj) if button.permission else self.has_view_permission(request, obj)

    def permitted(self, request: HttpRequest, object_id: str, allowed: Callable[[HttpRequest, Any], bool]) -> Any:
        """Return the row of a custom page.

        Raises PermissionDenied if the user may not, even if the row does not exist. Otherwise a missing row raises
        Http404.
        """
        obj = self.get_object(request, unquote(object_id))
        if not allowed(request, obj):
            raise PermissionDenied
        if obj is None:
            raise Http404
        return obj

    def visible_list_url(self, request: HttpRequest) -> str:
        """Return the URL of the list; empty without the view permission."""
        return display.list_url(self.admin_site, self.model) if self.has_view_permission(request) else ""

    def to_list(self, request: HttpRequest) -> HttpResponseRedirect:
        """Redirect to the list; to the index without the view permission."""
        index = reverse("admin:index", current_app=self.admin_site.name)
        return HttpResponseRedirect(self.visible_list_url(request) or index)

    def back(self, request: HttpRequest, obj: Any) -> HttpResponseRedirect:
        """Redirect to the row's page; to the index without the view permission."""
        if self.has_view_permission(request, obj):
            return HttpResponseRedirect(self.object_url("change", obj))
        return HttpResponseRedirect(reverse("admin:index", current_app=self.admin_site.name))

    def render_page(
        self, request: HttpRequest, template: str, context: dict[str, Any], crumbs: Iterable[Crumb] = ()
    ) -> TemplateResponse:
        """Return a page of our own. ``crumbs``: its breadcrumbs below the app, the page itself last."""
        site, opts = self.admin_site, self.opts
        request.current_app = site.name
        each = site.each_context(request)
        # Users who may only do something, such as refund, have no index of the app.
        has_index = any(app["app_label"] == opts.app_label for app in each["available_apps"])
        apps = reverse("admin:app_list", kwargs={"app_label": opts.app_label}, current_app=site.name)
        first = [
            (reverse("admin:index", current_app=site.name), gettext("Home")),
            (apps if has_index else "", opts.app_config.verbose_name),
        ]
        common = {
            **each,
            "opts": opts,
            "crumbs": [*first, *crumbs],
            "media": self.media,
            "pi_head": self.head_template,
        }
        return TemplateResponse(request, template, {**common, **context})

    def _button_tools(self, request: HttpRequest, obj: Any) -> Iterable[Tool]:
        site, made_at = display.seen(self.admin_site, request), twins.made_at(request)
        for button in self.buttons:
            if button.shown(obj) and self.may_press(button, request, obj):
                twin = button.twin(obj, twins.window_start(made_at)) if button.twin else None
                yield Tool(
                    button.label,
                    self.object_url(button.name, obj),
                    question=button.question,
                    key=new_key(),
                    form=button.unbound(request, obj),
                    weight=button.weight,
                    twin=twin.pk if twin else "",
                    warning=twins.warning(site, twin) if twin else "",
                    made_at=made_at if button.twin else None,
                )

    def button_view(self, button: Button) -> ObjectView:
        """Return the view that a button posts to: one service call, then a message on the row's page."""

        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            site = display.seen(self.admin_site, request)
            try:
                obj = self.permitted(request, object_id, partial(self.may_press, button))
            except Http404:
                if not self._was_pressed(request, object_id, button):
                    raise
                # The first click removed the row, as the replay of a quarantined event does.
                self.message_user(request, *button.outcome(None))
                return self.to_list(request)
            if request.method != "POST":
                self.message_user(request, NOTHING_DONE, messages.WARNING)
                return self.back(request, obj)
            form = button.form(request.POST) if button.form else forms.Form(request.POST)
            if not form.is_valid():
                for name, found in form.errors.items():
                    text = f"{form[name].label}: {' '.join(map(str, found))}"
                    self.message_user(request, text, messages.ERROR)
                return self._back_to_form(request, obj, button, form)
            current: Any | None = obj
            key = request.POST.get("idempotency_key") or None
            # The service refuses what the row's status does not allow, so a button that is not shown needs no warning.
            since = twins.window_start(twins.made_at(request))
            twin = button.twin(obj, since) if button.twin and button.shown(obj) else None
            if twin is not None and not twins.is_confirmed(twin, request.POST.getlist(twins.TWIN), [key]):
                self.message_user(request, twins.warning(site, twin), messages.WARNING)
                return self.back(request, obj)
            try:
                button.call(obj, Press(request.user, key, form.cleaned_data))
            except ValidationError as error:
                for _argument, message in validation_messages(error):
                    self.message_user(request, message, messages.ERROR)
                return self._back_to_form(request, obj, button, form)
            except (OutcomeUnknown, ApprovalRequired) as error:
                self.message_user(request, explain(site, error), messages.WARNING)
                if button.logged:
                    entry = f"{button.logged} ({error.operation.pk})"
                    self.log_once(request, obj, entry, about=error.operation.pk, key=key)
            except (PaymentsError, WireError, ImproperlyConfigured) as error:
                self.message_user(request, explain(site, error), messages.ERROR)
                return self._back_to_form(request, obj, button, form)
            else:
                if button.logged:
                    self.log_once(request, obj, str(button.logged), about=button.logged, key=key)
                current = self.model._default_manager.filter(pk=obj.pk).first()
                outcome = button.outcome(current)
                self.message_user(request, outcome.text, outcome.level)
            return self.to_list(request) if current is None else self._after(request, button, current)

        return view

    def _was_pressed(self, request: HttpRequest, object_id: str, button: Button) -> bool:
        """Return True if the newest entry in the history of a row, which may be gone, is this user's click."""
        key = unquote(object_id)
        if not button.logged or "\x00" in key:
            return False
        of_row = {"content_type": get_content_type_for_model(self.model), "object_id": key}
        newest = LogEntry.objects.filter(**of_row).order_by("-pk").first()
        made = (cast("int", request.user.pk), str(button.logged))
        return newest is not None and (newest.user_id, newest.change_message) == made

    def _back_to_form(self, request: HttpRequest, obj: Any, button: Button, form: forms.Form) -> HttpResponse:
        """Show the row's page with what was typed, because nothing was done; redirect to it if nothing was typed."""
        if button.form is None or not self.has_view_permission(request, obj):
            return self.back(request, obj)
        return self.change_view(refused(request, button.name, form), quote(str(obj.pk)))

    def _after(self, request: HttpRequest, button: Button, obj: Any) -> HttpResponseRedirect:
        """Redirect to the page that a button leads to; to the row's own page if the user may not see it."""
        row = button.leads_to(obj)
        if row is not None and self.admin_site.is_registered(type(row)):
            found: Any = self.admin_site.get_model_admin(type(row))
            if found.has_view_permission(request, row):
                return HttpResponseRedirect(display.change_url(self.admin_site, type(row), row.pk))
        return self.back(request, obj)


def _take_folded(form: AdminForm) -> AdminForm:
    """Take the folded fieldsets out of a form. They come last on a page, below its sections."""
    folded = copy(form)
    folded.fieldsets = [(title, options) for title, options in form.fieldsets if _is_folded(options)]
    form.fieldsets = [(title, options) for title, options in form.fieldsets if not _is_folded(options)]
    return folded


def _is_folded(options: Mapping[str, Any]) -> bool:
    return "collapse" in options.get("classes", ())


#: Reads the object from the provider. It changes nothing there, so the view permission is sufficient.
REFRESH = Button(
    name="refresh",
    label=_("Check with the provider"),
    weight=Weight.QUIET,
    permission="",
    call=lambda obj, press: services.refresh(obj),
    shown=display.can_send,
    twin=None,
    done=_("Refreshed from the provider."),
)

#: The fields that say how the mirror row got its values.
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
    """The page of a mirrored object, with its events, status changes and operations below the fields."""

    ordering: ClassVar[Any] = ("-created_at", "-pk")
    sortable_by: ClassVar[Any] = ("created_at",)
    buttons: tuple[Button, ...] = (REFRESH,)
    list_defer: tuple[str, ...] = ("extra",)
    personal: tuple[str, ...] = ("extra_shown",)
    fieldsets: ClassVar[Any] = ()

    extra_shown = columns.fields("extra", _("further fields"))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None and (words := display.removed(obj.account)):
            context["pi_warnings"] = [words]
        return super().render_change_form(request, context, *args, **kwargs)

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        yield from page.events(about(Event, obj).order_by("-created_at", "-pk"), obj.object_id)
        yield from page.changes(about(StatusChange, obj).order_by("-at", "-pk"), obj.object_id)
        yield from page.operations(obj)
