"""What all parts of the story use: the provider, the shop, the screen, and waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from example_project.demo.closing import Expected
from example_project.demo.processes import Children
from example_project.demo.provider import Books, Provider
from example_project.shop import checkout
from example_project.shop.models import Order, Price, Product
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    DueRefresh,
    Event,
    EventState,
    Operation,
    Payment,
)
from payments_integration.payable import OrderStatus


class Screen:
    """Writes to standard output, at once."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._steps = 0

    def title(self, text: str) -> None:
        print(self._paint(text, "1"), flush=True)

    def step(self, text: str) -> None:
        """A numbered headline."""
        self._steps += 1
        print(f"\n{self._paint(f'{self._steps:2}  {text}', '1;36')}", flush=True)

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def good(self, text: str) -> None:
        print(f"  {self._paint('✓', '32')} {text}", flush=True)

    def bad(self, text: str) -> None:
        print(f"  {self._paint('✗', '1;31')} {text}", flush=True)

    def table(self, title: str, rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as they need be; all but the first are set to the right."""
        rows = [tuple(row) for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        print(f"\n    {self._paint(title, '1')}", flush=True)
        for row in rows:
            first, *others = (
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            print("    " + "   ".join([first, *others]).rstrip(), flush=True)

    def line(self, text: str = "") -> None:
        print(text, flush=True)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


@dataclass(slots=True)
class Stage:
    provider: Provider
    site_url: str
    children: Children
    screen: Screen
    expected: Expected = field(default_factory=Expected)

    def order(self, buyer: str, product: str, country: str, currency: str, method_code: str) -> Order:
        """An order as the shop's form makes it."""
        price = Price.objects.select_related("product").get(product__slug=product, currency=currency)
        order = checkout.place(
            f"demo-{buyer.lower()}",
            product=price.product,
            amount=price.amount,
            currency=currency,
            country=country,
            method_code=method_code,
            name=buyer,
            email=f"{buyer.lower()}@example.com",
        )
        self.expected.orders[order.reference] = OrderStatus.PAID
        return order

    def pay_for(self, order: Order) -> Payment:
        return checkout.pay(order, return_url=f"{self.site_url}{order.get_absolute_url()}")

    def wait(self, what: str, holds: Callable[[], bool], timeout: float = 30.0) -> float:
        """Wait for something; returns the seconds it took. DemoError when it does not happen."""
        begun = time.monotonic()
        self.children.wait_until(what, holds, timeout)
        return time.monotonic() - begun

    def wait_for_order(self, order: Order, status: str) -> float:
        def there() -> bool:
            order.refresh_from_db()
            return order.status == status

        return self.wait(f"order {order.reference} to be {status} (it is {order.status})", there)

    def wait_until_delivered(self) -> Books:
        """Until the provider has sent all current deliveries, so that the next fault hits only its target."""
        self.wait("deliveries", lambda: self.provider.books().is_quiet)
        return self.provider.books()

    def wait_until_settled(self) -> None:
        """Until no delivery is on its way and the worker has nothing left to do."""
        self.wait("everything to settle", lambda: self.provider.books().is_quiet and not self.work_left())

    def work_left(self) -> bool:
        unfinished: tuple[QuerySet[Event] | QuerySet[DueRefresh] | QuerySet[Operation], ...] = (
            Event.objects.filter(state__in=(EventState.PENDING, EventState.APPLIED)),
            DueRefresh.objects.all(),
            Operation.objects.filter(state__in=OPEN_OPERATION_STATES),
        )
        return any(rows.exists() for rows in unfinished)


def product_page(slug: str) -> str:
    return Product.objects.get(slug=slug).get_absolute_url()
