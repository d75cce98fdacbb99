"""Pages by keyset: each begins behind a row, so that the last costs what the first costs. No COUNT, no OFFSET."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from payments_integration.api.errors import invalid

#: Spec, "Limits".
DEFAULT_LIMIT = 25
MAX_LIMIT = 100
#: Those with an index. Both end in the primary key, so that each row has a place of its own.
ORDERINGS = ("-created_at", "created_at")
PARAMETERS = ("limit", "cursor", "ordering")

_LIMIT = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
#: No cursor of ours is longer.
_MAX_CURSOR = 1000
_MAX_ID = 255


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place in a list."""

    ordering: str
    at: datetime
    pk: str


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Any]
    next_cursor: str | None


def page(queryset: QuerySet[Any], limit: str | None, ordering: str | None, cursor: str | None) -> Page:
    """One page of rows, by one statement. Raises Problem for parameters that mean nothing."""
    wanted = _limit(limit)
    if ordering is not None and ordering not in ORDERINGS:
        raise invalid("ordering", _("This must be one of %(options)s.") % {"options": ", ".join(ORDERINGS)})
    place = _parse(cursor) if cursor is not None else None
    if place is not None and ordering not in (None, place.ordering):
        raise invalid("cursor", _("This cursor belongs to a list in another order."))
    order = place.ordering if place is not None else ordering or ORDERINGS[0]
    found = queryset if place is None else queryset.filter(_behind(place))
    down = "-" if order.startswith("-") else ""
    rows = list(found.order_by(order, f"{down}pk")[: wanted + 1])
    # One row more says whether there is a further page.
    more = len(rows) > wanted
    rows = rows[:wanted]
    return Page(rows, cursor_of(order, rows[-1]) if more else None)


def cursor_of(ordering: str, row: Any) -> str:
    """The cursor of the page that begins behind this row."""
    return _write(Place(ordering, row.created_at, row.pk))


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _LIMIT.fullmatch(text) or int(text) > MAX_LIMIT:
        raise invalid("limit", _("This must be a whole number from 1 to %(max)d.") % {"max": MAX_LIMIT})
    return int(text)


def _behind(place: Place) -> Q:
    # ``a <= 1 AND (a < 1 OR b < 2)``: every database enters its index by the first half.
    beyond = "lt" if place.ordering.startswith("-") else "gt"
    later = Q(**{f"created_at__{beyond}": place.at}) | Q(**{f"pk__{beyond}": place.pk})
    return Q(**{f"created_at__{beyond}e": place.at}) & later


def _write(place: Place) -> str:
    content = json.dumps([place.ordering, place.at.astimezone(UTC).isoformat(), place.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _parse(cursor: str) -> Place:
    """The place that a cursor means. It grants nothing: the rows are those that the caller may see."""
    try:
        raw = base64.b64decode(cursor[: _MAX_CURSOR + 4] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        ordering, at, pk = json.loads(raw)
        place = Place(ordering, datetime.fromisoformat(at).astimezone(UTC), pk)
        is_ours = _write(place) == cursor and ordering in ORDERINGS and 0 < len(pk) <= _MAX_ID and pk.isprintable()
    except (binascii.Error, TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        is_ours = False
    if not is_ours:
        raise invalid("cursor", _("This is not a cursor of this list."))
    return place
