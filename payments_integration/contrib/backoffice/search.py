"""Find the objects that match a typed text, such as a name, an amount or a reference, by the index of search terms.

It takes at most two statements, for any text and any number of rows. The first reads the beginning of each word's
range of the index. The second compares the objects that may match with all words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from django.db import router
from django.db.models import F, IntegerField, Q, QuerySet, Value

from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.contrib.backoffice.terms import matches, readings, separators, without_amounts
from payments_integration.db import statements
from payments_integration.enums import Kind
from payments_integration.models import Refund

#: The most objects of a kind that a search finds.
MAX_OBJECTS = 500
#: The most index entries that are read for the beginning of a word. A word with more entries is only compared.
_MAX_ENTRIES = 2_000
#: The number of words of a reading that are looked up, the longest first. The other words are only compared.
_LOOKED_UP = 3
#: Appended to a word, it sorts after every text that begins with the word.
_LAST = "\U0010ffff"

#: An object as (kind, id).
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Matches:
    """The objects that match, by kind."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    #: True if there may be more.
    is_cut: bool = False


def find(text: str, kinds: Iterable[str], *, personal: bool, amounts: bool = True) -> Matches:
    """Return the objects of these kinds that match a typed text. If ``personal``, personal terms match too."""
    meant = readings(text) if amounts else without_amounts(readings(text))
    words = {word for reading in meant for word in _looked_up(reading)}
    beginnings = sorted({beginning for word in words for beginning in word})
    if not beginnings:
        return Matches()
    using = router.db_for_write(SearchTerm)
    terms = SearchTerm.objects.filter(
        object_kind__in=sorted(map(str, kinds)), is_personal__in=[False, True] if personal else [False]
    ).order_by()
    # Compare with a range of bytes: every database finds it in the index. Not every database uses the index for LIKE.
    parts: list[QuerySet[SearchTerm, tuple[int, str, str]]] = [
        terms.filter(term__gte=beginning, term__lt=beginning + _LAST)
        .annotate(number=Value(number, IntegerField()))
        .values_list("number", "object_kind", "object_id")[: _MAX_ENTRIES + 1]
        for number, beginning in enumerate(beginnings)
    ]
    entries: dict[str, list[Key]] = defaultdict(list)
    for number, kind, object_id in statements.union_of(parts, using=using):
        entries[beginnings[number]].append((kind, object_id))
    found: set[Key] = set()
    to_compare: set[Key] = set()
    is_cut = False
    for reading in meant:
        keys, is_complete, is_exact = _candidates(reading, entries)
        is_cut |= not is_complete
        (found if is_exact else to_compare).update(keys)
    is_cut |= len(to_compare - found) > _MAX_ENTRIES
    compared = sorted(to_compare - found)[:_MAX_ENTRIES]
    for key, known in _terms_of(compared, terms).items():
        if any(matches(reading, known) for reading in meant):
            found.add(key)
    return _grouped(found, is_cut=is_cut)


def refunds_of(text: str, *, personal: bool) -> tuple[list[str], bool]:
    """Return the ids of the refunds whose payment matches, by anything but its amount, and True if there may be more.

    A refund has no terms of its payer: its payment may arrive later, and may be erased.
    """
    found = find(text, [Kind.PAYMENT], personal=personal, amounts=False)
    payments = found.ids.get(Kind.PAYMENT)
    if not payments:
        return [], found.is_cut
    of_payments = Refund.objects.filter(payment_id__in=payments, payment__account=F("account")).order_by()
    refunds = list(of_payments.values_list("pk", flat=True)[: MAX_OBJECTS + 1])
    return refunds[:MAX_OBJECTS], found.is_cut or len(refunds) > MAX_OBJECTS


def example() -> str:
    """Return an amount in the user's format."""
    point, group = separators()
    return f"1{group}234{point}50"


def _looked_up(reading: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted(reading, key=lambda word: -len(word[0]))[:_LOOKED_UP]


def _candidates(reading: Sequence[tuple[str, ...]], entries: dict[str, list[Key]]) -> tuple[set[Key], bool, bool]:
    """Return the objects that may match.

    The second value is True if all matching objects are among them, and the third is True if each of them matches.
    """
    whole: list[set[Key]] = []
    cut: list[set[Key]] = []
    for word in _looked_up(reading):
        of_word = [entries.get(beginning, []) for beginning in word]
        is_whole = all(len(keys) <= _MAX_ENTRIES for keys in of_word)
        (whole if is_whole else cut).append({key for keys in of_word for key in keys})
    if whole:
        return reduce(and_, whole), True, len(whole) == len(reading)
    # Every word is frequent, so return some of the objects with the first one.
    return cut[0], False, len(reading) == 1


def _terms_of(keys: Sequence[Key], terms: QuerySet[SearchTerm]) -> dict[Key, list[str]]:
    """Return the terms of these objects. Takes one statement; none without objects."""
    if not keys:
        return {}
    ids: dict[str, list[str]] = defaultdict(list)
    for kind, object_id in keys:
        ids[kind].append(object_id)
    objects = reduce(or_, (Q(object_kind=kind, object_id__in=found) for kind, found in ids.items()))
    known: dict[Key, list[str]] = defaultdict(list)
    for kind, object_id, term in terms.filter(objects).values_list("object_kind", "object_id", "term"):
        known[kind, object_id].append(term)
    return known


def _grouped(found: Iterable[Key], *, is_cut: bool) -> Matches:
    ids: dict[str, list[str]] = defaultdict(list)
    for kind, object_id in sorted(found):
        ids[kind].append(object_id)
    too_many = any(len(of_kind) > MAX_OBJECTS for of_kind in ids.values())
    return Matches({kind: of_kind[:MAX_OBJECTS] for kind, of_kind in ids.items()}, is_cut or too_many)
