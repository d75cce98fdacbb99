"""Show the page of the to-do list, and do what the forms of its rows ask for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.apps import apps
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden
from payments_integration.admin.shared.sections import Page
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.admin.technical.account_page import Tile
from payments_integration.contrib.backoffice import handling, todo
from payments_integration.contrib.backoffice.admin.days import time_in
from payments_integration.contrib.backoffice.admin.overview import statistics
from payments_integration.contrib.backoffice.admin.overview.todo_rows import Row, TodoRows, problems, url
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.contrib.backoffice.todo import Kind, Thing, View
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    Operation,
    Payment,
    Payout,
    Refund,
)
from payments_integration.validation.text import typed

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

#: The number of people that can be chosen, and the number of done things that are shown, newest first.
PEOPLE, DONE = 200, 50


class NoteForm(TypedForm):
    note = forms.CharField(
        label=gettext_lazy("What did you do?"),
        max_length=handling.MAX_LENGTH,
        error_messages={"required": gettext_lazy("The note is empty. Write what you did.")},
    )


class TodoPage:
    """One request of the page: it shows a view of the list, or handles a row's form."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.site = model_admin.admin_site
        self.request = request
        self.mine = TodoRows(self.site, request, request.POST.get("account"))
        given = (request.POST if request.method == "POST" else request.GET).get("view", "")
        self.view = View(given) if given in View.values else View.OPEN

    # Error reports must not contain the note, neither from this function nor from functions that it calls.
    @sensitive_variables()
    def respond(self) -> HttpResponse:
        if not self.mine.is_open():
            raise PermissionDenied
        if self.request.method == "POST":
            return self._act()
        if self.request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        return self._show()

    def _show(self, note: str = "", name: str = "") -> HttpResponse:
        """Show the list. ``note`` and ``name``: what was typed into a form of a row, if it was refused."""
        account = self.mine.account
        chosen = self.mine._chosen()
        shown: dict[str, Any] = {"rows": [], "done": [], "is_cut": False}
        if account and self.view == View.DONE:
            done = list(self._done())
            shown |= {"done": done[:DONE], "shown": DONE, "is_cut": len(done) > DONE}
        elif account:
            found = todo.things(self.mine.asked(self.view), self.mine.differences())
            rows = self.mine.rows(found[: todo.SHOWN])
            shown |= {"rows": [replace(row, note=note, name=name) if self._is_sent(row) else row for row in rows]}
            shown |= {"is_cut": len(found) > todo.SHOWN, "note": "" if any(map(self._is_sent, rows)) else note.strip()}
        views = [(view.label, url(self.site, view=view.value, **chosen), view == self.view) for view in View]
        context = {
            "title": _("To do"),
            "account": account,
            "accounts": list(self._accounts()),
            "views": views,
            "view": self.view.value,
            "list": {
                "url": url(self.site, view=self.view.value, **chosen),
                "post_to": url(self.site),
                "back": self.view.value,
                "may_handle": self.mine.may_handle,
                "snoozes": handling.SNOOZES,
                "people": self._people() if self.mine.may_handle and shown["rows"] else [],
            },
            "shown": todo.SHOWN,
            "problems": self._problems(),
            "hidden": hidden(self.site, self.request, Payment, Refund, Payout, Operation),
            **shown,
        }
        template = "admin/payments_backoffice/todo.html"
        shell: ReadOnlyAdmin = self._payments()
        return shell.render_page(self.request, template, context, [("", str(_("To do")))])

    def _accounts(self) -> Iterator[tuple[str, str, bool, str]]:
        """Yield each account, if there are several, with the number of open rows if its list is not shown."""
        for alias, (name, address, is_shown) in zip(conf.aliases(), self.mine._accounts(), strict=False):
            count = ""
            if not is_shown:
                other = TodoRows(self.site, self.request, alias)
                orders = statistics.gather(alias, ["differences"]).differences if other.sees(Payment) else []
                found = len(todo.things(other.asked(), orders))
                more = _("%(count)s or more") % {"count": todo.SHOWN}
                count = more if found > todo.SHOWN else str(found or "")
            yield name, address, is_shown, count

    def _is_sent(self, row: Row) -> bool:
        """Return True if this request is the form of the row."""
        given = self.request.POST
        return (row.fields["kind"], row.fields["thing"]) == (given.get("kind"), given.get("thing"))

    def _problems(self) -> list[Tile]:
        if not self.mine.account or self.view != View.OPEN:
            return []
        health = statistics.gather(self.mine.account, ["health"]).health
        return [*self._removed(), *(problems(self.mine, health) if health is not None else [])]

    def _removed(self) -> Iterator[Tile]:
        """Yield the open operations of each account that is no longer in the settings. No list to choose has them."""
        if not self.mine.sees(Operation):
            return
        rows = Operation.objects.filter(state__in=OPEN_OPERATION_STATES).exclude(account__in=conf.aliases())
        accounts = Counter(rows.order_by().values_list("account", flat=True)[: todo.SHOWN])
        for account, count in sorted(accounts.items()):
            words = ngettext(
                "open operation of the account %(account)s, which is not configured any more",
                "open operations of the account %(account)s, which is not configured any more",
                count,
            )
            list_url = f"{display.list_url(self.site, Operation)}?{urlencode({'account': account})}"
            yield Tile(words % {"account": display.text(account)}, count, "", list_url)

    def _payments(self) -> Any:
        """Return the ModelAdmin that renders the page, so that it looks like a page of the core's app."""
        return self.site.get_model_admin(Payment) if self.site.is_registered(Payment) else self.admin

    def _people(self) -> list[str]:
        """Return the names of staff who may handle rows.

        Returns none if ``is_staff`` is a property of the project's user model. A name can still be typed.
        """
        model: Any = get_user_model()
        wanted = {"is_staff", "is_active"} & {field.name for field in model._meta.concrete_fields}
        if "is_staff" not in wanted:
            return []
        users: Any = model._default_manager
        backend = "django.contrib.auth.backends.ModelBackend"
        if hasattr(users, "with_perm"):
            users = users.with_perm(handling.HANDLE, backend=backend)
        found = users.filter(**dict.fromkeys(wanted, True)).order_by(model.USERNAME_FIELD)[:PEOPLE]
        return [display.text(user.get_username()) for user in found]

    def _done(self) -> Iterator[dict[str, Any]]:
        kinds = [kind.value for kind in self.mine.kinds()]
        found = Todo.objects.filter(account=self.mine.account, kind__in=kinds).exclude(done_at=None)
        page = Page(self.site, self.request)
        marks = list(found.order_by("-done_at", "-pk")[: DONE + 1])
        amounts = _amounts(marks)
        for mark in marks:
            note = page.personal(mark.note) if mark.note else str(display.ERASED)
            model = _model(mark.object_kind)
            yield {
                "id": mark.pk,
                "what": Kind(mark.kind).label if mark.kind in Kind.values else display.text(mark.kind),
                "about": display.admin_link(self.site, model, mark.object_id) if model else mark.object_id,
                "amount": amounts.get((mark.object_kind, mark.object_id), ""),
                "by": display.actor(mark.done_by),
                "at": display.moment(mark.done_at),
                "note": note,
            }

    # The forms of a row

    def _act(self) -> HttpResponse:
        if not self.mine.may_handle:
            raise PermissionDenied
        given = self.request.POST
        try:
            if given.get("do") == "put-back":
                mark, said = self._put_back(given.get("id", ""))
            else:
                mark, said = self._do(given.get("do", ""), self._thing())
        except ValidationError as error:
            for _argument, message in display.validation_messages(error):
                self.admin.message_user(self.request, message, messages.ERROR)
        except handling.AlreadyDone as error:
            self.admin.message_user(self.request, display.text(str(error)), messages.WARNING)
        else:
            if mark.is_changed:
                self._log(mark, said)
            self.admin.message_user(self.request, said, messages.SUCCESS)
            return HttpResponseRedirect(self._back())
        note = given.get("note", "") if given.get("do") == "done" else ""
        name = given.get("name", "") if given.get("do") == "assign" else ""
        return self._show(note, name) if note or name else HttpResponseRedirect(self._back())

    def _log(self, mark: Todo, said: str) -> None:
        """Add what was done, without the note, to the history of the object that the row is about."""
        model = _model(mark.object_kind)
        obj = model._default_manager.filter(pk=mark.object_id).first() if model else None
        if obj is not None:
            self.admin.log_change(self.request, obj, f"{_('To do')}: {said}")

    def _back(self) -> str:
        chosen = self.mine._chosen()
        if self.request.POST.get("view") == "overview":
            index = reverse("admin:app_list", args=[Payment._meta.app_label], current_app=self.site.name)
            return f"{index}?{urlencode(chosen)}" if chosen else index
        return url(self.site, view=self.view.value, **chosen)

    def _thing(self) -> Thing:
        """Return the thing that the form names, as it is now. Raises ValidationError if it ended or happened again."""
        given = self.request.POST
        kind, name = given.get("kind", ""), given.get("thing", "")
        found: list[Thing] = []
        if kind in Kind.values and name and "\x00" not in name:
            differences = self.mine.differences() if kind in todo.OF_ORDERS else []
            found = todo.things(self.mine.asked(View.OPEN, [Kind(kind)], name), differences)
        if not found:
            raise ValidationError(_("This is not to be done any more."))
        since = time_in(given.get("since", ""))
        if since is None or found[0].since > since:
            raise ValidationError(_("This happened again after you opened the page. Look at it first."))
        return found[0]

    def _do(self, what: str, thing: Thing) -> tuple[Todo, str]:
        author = self.request.user
        if what == "done":
            form = NoteForm(self.request.POST)
            if not form.is_valid():
                raise ValidationError([error for errors in form.errors.as_data().values() for error in errors])
            mark = handling.done(thing, form.cleaned_data["note"], author=author)
            return mark, _("Done. The note is kept.") if not thing.found.is_erased else _("Done.")
        if what == "snooze":
            days = self.request.POST.get("days", "")
            mark = handling.snooze(thing, int(days) if days.isdecimal() and len(days) < 4 else -1, author=author)
            if mark.snoozed_until is None:
                return mark, _("It is shown again.")
            return mark, _("Snoozed until %(time)s.") % {"time": display.moment(mark.snoozed_until)}
        if what == "assign":
            mark = handling.assign(thing, self._person(), author=author)
            if not mark.assignee:
                return mark, _("It is assigned to nobody.")
            return mark, _("Assigned to %(person)s.") % {"person": display.actor(mark.assignee_name)}
        raise ValidationError(_("Choose what to do."))

    def _person(self) -> Any | None:
        if self.request.POST.get("assignee") == "me":
            return self.request.user
        given = typed(self.request.POST.get("name", "")).strip()
        if not given:
            return None
        model: Any = get_user_model()
        named = model._default_manager.filter(**{model.USERNAME_FIELD: given})
        person = named.first() if "\x00" not in given else None
        if person is None:
            raise ValidationError(
                _("There is no user “%(name)s”. Write the name as it stands in the list.") % {"name": given}
            )
        return person

    def _put_back(self, key: str) -> tuple[Todo, str]:
        kinds = [kind.value for kind in self.mine.kinds()]
        known = Todo.objects.filter(account=self.mine.account, kind__in=kinds)
        mark = known.filter(pk=key).first() if key.isdecimal() and len(key) < 19 else None
        if mark is None:
            raise ValidationError(_("There is no such row."))
        handling.put_back(mark, author=self.request.user)
        mark.done_at = None
        return mark, _("It is on the list again, unless it is over.")


def _amounts(marks: list[Todo]) -> dict[tuple[str, str], str]:
    """Return the amounts of the objects, by kind and id. Takes a statement for each kind."""
    ids: dict[str, set[str]] = defaultdict(set)
    for mark in marks:
        ids[mark.object_kind].add(mark.object_id)
    return {
        (model.kind, row.pk): display.money(row.amount, row.currency)
        for model in (Payment, Payout, Refund)
        for row in model._default_manager.filter(pk__in=ids.get(model.kind, ())).only("amount", "currency")
    }


def _model(kind: str) -> type[Model] | None:
    """Return the model of the object that a row is about; None if it is no longer installed."""
    with suppress(LookupError, ValueError):  # no merchant's model, such as "shop.order"
        return apps.get_model(kind)
    return Operation if kind == "operation" else MIRRORS.get(kind)
