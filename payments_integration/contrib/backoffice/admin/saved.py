"""Save a list's filters under a name for one user, show them as links, and delete them.

A saved filter holds only the parameters of the list's filters: no search text, which may be a payer's name, no order
and no page. A saved filter gives no access, because it is only a link to the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.lists import filters
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import NOTHING_DONE, Tool
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.contrib.backoffice.models import SavedFilter
from payments_integration.permissions import user_id

#: The most saved filters of one user on one list.
MAX_SAVED = 20
#: The longest query string that is saved, in characters.
_MAX_QUERY = 1_000


class NameForm(TypedForm):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=60)


class SavedFilters:
    """A user's saved filters of one list, and the filters that the list has now."""

    def __init__(self, model_admin: Any, request: HttpRequest) -> None:
        self._admin, self._request = model_admin, request
        self._own = SavedFilter.objects.filter(owner=user_id(request.user), listed=model_admin.opts.label_lower)
        self.list_url = display.list_url(model_admin.admin_site, model_admin.model)
        self.query = _query(request.GET, filters.parameters(model_admin.list_filter, request.GET))

    @cached_property
    def rows(self) -> list[SavedFilter]:
        found = list(self._own.order_by("name")[:MAX_SAVED])
        for row in found:
            row.shown = display.text(row.name)  # type: ignore[attr-defined]
        return found

    @property
    def url(self) -> str:
        """The URL to which forms are sent. It has the list's filters, so that the list can be shown as it was."""
        name = f"admin:{self._admin.url_name('saved-filters')}"
        return f"{reverse(name, current_app=self._admin.admin_site.name)}?{self.query}"

    def tools(self) -> Iterable[Tool]:
        """Yield the form to save the list's filters, if it has filters that are not saved."""
        if self.query and all(row.query != self.query for row in self.rows):
            question = _("Only you see them. The search text is not saved.")
            yield Tool(_("Save these filters"), self.url, question=question, form=NameForm(auto_id="pi-saved-%s"))

    def respond(self) -> HttpResponseRedirect:
        if self._request.method != "POST":
            self._say(messages.WARNING, str(NOTHING_DONE))
        elif number := self._request.POST.get("delete"):
            self._delete(number)
        else:
            self._save()
        return HttpResponseRedirect(f"{self.list_url}?{self.query}" if self.query else self.list_url)

    def _delete(self, number: str) -> None:
        is_number = number.isascii() and number.isdecimal() and len(number) < 19
        if is_number and self._own.filter(pk=int(number)).delete()[0]:
            self._say(messages.SUCCESS, _("The saved filter was deleted."))

    def _save(self) -> None:
        form = NameForm(self._request.POST)
        if not form.is_valid():
            self._say(messages.ERROR, _("Give the filters a name of at most 60 characters."))
        elif not self.query or len(self.query) > _MAX_QUERY:
            self._say(messages.ERROR, _("Choose filters first. There is nothing to save."))
        else:
            name = form.cleaned_data["name"]
            others = self._own.exclude(name=name)
            if others.count() >= MAX_SAVED:
                words = _("A list has at most %(most)d saved filters. Delete one first.")
                self._say(messages.ERROR, words % {"most": MAX_SAVED})
                return
            SavedFilter.objects.update_or_create(
                owner=user_id(self._request.user), listed=self._admin.opts.label_lower, name=name,
                defaults={"query": self.query},
            )  # fmt: skip
            self._say(messages.SUCCESS, _("The filters are saved as “%(name)s”.") % {"name": display.text(name)})

    def _say(self, level: int, text: str) -> None:
        self._admin.message_user(self._request, text, level)


def _query(given: QueryDict, known: set[str]) -> str:
    """Return the filters among the parameters, always in the same order."""
    kept = QueryDict(mutable=True)
    for name in sorted(known & set(given)):
        if value := given.get(name, "").strip():
            kept[name] = value
    return kept.urlencode(safe=",")
