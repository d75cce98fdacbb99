"""Keep the index of search terms, which commits with the mirror rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db import connections, router
from django.db.models import Q, QuerySet

from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.contrib.backoffice.terms import terms_of
from payments_integration.db import sizes, statements
from payments_integration.db.transactions import locked, repeatable
from payments_integration.models import MIRRORS, Balance, Mirror

#: Rows per transaction of a rebuild.
_PAGE = 500


def write(rows: Sequence[Mirror]) -> None:
    """Update the terms of these rows. The caller's transaction has inserted or locked the rows.

    Takes at most three statements for any number of rows, and one if no term changes.
    """
    missing = {(str(row.kind), row.object_id, *term) for row in rows for term in terms_of(row).items()}
    gone: list[int] = []
    for pk, *term in _stored(rows).values_list("pk", "object_kind", "object_id", "term", "is_personal"):
        known = tuple(term)
        if known in missing:
            missing.remove(known)
        else:
            gone.append(pk)
    using = router.db_for_write(SearchTerm)
    for keys in sizes.portions(gone, using=using, values=lambda pk: [pk]):
        SearchTerm.objects.filter(pk__in=keys).delete()
    new = [
        SearchTerm(object_kind=kind, object_id=object_id, term=term, is_personal=is_personal)
        for kind, object_id, term, is_personal in sorted(missing)
    ]
    statements.insert_many(new, keys=False)


def delete(rows: Sequence[Mirror]) -> None:
    """Delete the terms of these rows. Skips balances: they have no terms, and their ids repeat between accounts."""
    if named := [row for row in rows if not isinstance(row, Balance)]:
        _stored(named).delete()


def rebuild(account: str, progress: Callable[[int], object] = lambda count: None) -> int:
    """Write the terms of every row of an account again. Returns the number of rows.

    Each transaction writes a page of rows, and ``progress`` is called with the count after each. The rebuild can run
    at any time, be interrupted and be repeated.
    """
    count = 0
    for model in MIRRORS.values():
        last: Any = None
        while page := _rebuild_page(model, account, last):
            count += len(page)
            progress(count)
            last = page[-1].pk
    return count


def _rebuild_page(model: type[Any], account: str, last: Any) -> list[Any]:
    def transact() -> list[Any]:
        rows = model._default_manager.filter(account=account).order_by("pk")
        page = list(locked(rows if last is None else rows.filter(pk__gt=last))[:_PAGE])
        if page:
            write(page)
        return page

    return repeatable(transact, using=router.db_for_write(SearchTerm))


def _stored(rows: Iterable[Mirror]) -> QuerySet[SearchTerm]:
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        ids[str(row.kind)].append(row.object_id)
    of_rows = (Q(object_kind=kind, object_id__in=sorted(found)) for kind, found in ids.items())
    stored = SearchTerm.objects.filter(reduce(or_, of_rows)).order_by()
    # Lock the terms on MariaDB: under REPEATABLE READ, it reads from a snapshot that is older than the rows' lock.
    return locked(stored) if connections[stored.db].vendor == "mysql" else stored
