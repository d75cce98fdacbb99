"""Writes the search terms of mirror rows, in the transaction that writes the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any

from django.db import router
from django.db.models import Q

from payments_integration.db import statements
from payments_integration.db.transactions import locked, repeatable
from payments_integration.models import MIRRORS, Mirror, Searched, SearchTerm, searched, terms_from, terms_of

#: Rows per transaction of a rebuild.
_PAGE = 500


def write_terms(new: Iterable[Mirror], changed: Mapping[Mirror, Searched] | None = None) -> None:
    """Make the terms of these rows what the rows say now. The caller's transaction has inserted or locked them.

    ``changed``: what their terms were made of before the change (``searched``), so that nothing is read: the stored
    terms are those of the row before. At most two statements for any number of rows; none if no term changes.
    """
    missing = [_term(row, *item) for row in new for item in terms_of(row).items()]
    gone: dict[Mirror, set[str]] = {}
    kept: dict[Mirror, set[tuple[str, bool]]] = {}
    for row, previous in (changed or {}).items():
        if previous == searched(row):
            continue
        old, now = terms_from(row.personal, previous).items(), terms_of(row).items()
        missing += [_term(row, *item) for item in now - old]
        if old - now:
            gone[row], kept[row] = {term for term, _ in old - now}, now & old
    if gone:
        every: set[str] = set().union(*gone.values())
        SearchTerm.objects.filter(_of_objects(gone), term__in=sorted(every)).delete()
        # One row may keep a term that another one loses: it was deleted of both.
        missing += [_term(row, *item) for row, items in kept.items() for item in items if item[0] in every]
    statements.insert_many(missing, keys=False)


def erase_terms(kind: str, object_id: str) -> None:
    """Delete the terms that come from personal data."""
    SearchTerm.objects.filter(object_kind=kind, object_id=object_id, is_personal=True).delete()


def rebuild_terms(account: str) -> int:
    """Write the terms of every row of an account again; returns how many rows there are.

    A page of rows per transaction. It can run at any time, be interrupted and be repeated.
    """
    count = 0
    for model in MIRRORS.values():
        last: Any = None
        while page := _rebuild_page(model, account, last):
            count += len(page)
            last = page[-1].pk
    return count


def _rebuild_page(model: type[Any], account: str, last: Any) -> list[Any]:
    def write() -> list[Any]:
        rows = model._default_manager.filter(account=account).order_by("pk")
        page = list(locked(rows if last is None else rows.filter(pk__gt=last))[:_PAGE])
        if page:
            SearchTerm.objects.filter(_of_objects(page)).delete()
            write_terms(page)
        return page

    return repeatable(write, using=router.db_for_write(SearchTerm))


def _term(row: Mirror, term: str, is_personal: bool) -> SearchTerm:
    return SearchTerm(object_kind=str(row.kind), object_id=row.object_id, term=term, is_personal=is_personal)


def _of_objects(rows: Iterable[Mirror]) -> Q:
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        ids[row.kind].append(row.object_id)
    return reduce(or_, (Q(object_kind=kind, object_id__in=sorted(found)) for kind, found in ids.items()))
