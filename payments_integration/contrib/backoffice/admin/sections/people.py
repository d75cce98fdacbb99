"""Show the payer or recipient of an object beside its page, as far as the user may see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from payments_integration.admin.shared import display, masking, people
from payments_integration.admin.shared.buttons import may
from payments_integration.admin.shared.people import Fact
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.models import Mirror, Payment, Refund
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Facts(Section):
    """Labels and values."""

    template: ClassVar[str] = "admin/payments_backoffice/includes/facts_section.html"

    title: StrOrPromise
    facts: list[Fact]


def facts_section(page: Page, title: StrOrPromise, obj: Mirror, name: str) -> Iterable[Section]:
    """Yield a mirror's JSON field as fields, masked if the user may not see it. Yields nothing if it is empty."""
    if people.is_erased(obj, name):
        yield Facts(title, [(title, str(display.ERASED))])
        return
    value = getattr(obj, name)
    shown = people.facts(value if may(page.request, "view_personal_data") else masking.field(name, value))
    if shown:
        yield Facts(title, shown)


def payment_of(page: Page, refund: Refund) -> Payment | None:
    """Return a refund's payment; None if the user may not see it or it has not arrived yet."""
    return people.known_payment(refund) if page.may_view(Payment) else None
