"""Read the entries that people's actions leave in the history of a row."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry

from payments_integration.admin.shared.sections import Page
from payments_integration.enums import kind_of
from payments_integration.models import MIRRORS, OPERATION_PREFIX, Operation


def may_read(page: Page, own_id: str, entry: LogEntry) -> bool:
    """Return True if the user may view each object that the entry names: it may tell of another one's money.

    ``own_id`` is the id of the row whose page is shown.
    """
    others = ids_in(entry) - {own_id}
    named: set[Any] = {MIRRORS[kind] for kind in map(kind_of, others) if kind is not None}
    if any(each.startswith(OPERATION_PREFIX) for each in others):
        named.add(Operation)
    return all(map(page.may_view, named))


def ids_in(entry: LogEntry) -> set[str]:
    """Return the words of an entry in the history. They include the ids of created objects."""
    return {word.strip(".,:;()") for word in entry.get_change_message().split()}
