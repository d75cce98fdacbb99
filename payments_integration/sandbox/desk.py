"""What the parts of one project share: its clock, money, events and terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .catalog import METHODS, Method
from .clock import Clock
from .errors import ApiError
from .events import EventStore
from .ledger import Ledger
from .shapes import COUNTRIES, DAY, Wire, iso


@dataclass
class Terms:
    """What the provider allows this merchant. Change it by hand to reach the errors that go with it."""

    active: bool = True  # False: merchant_not_active
    countries: set[str] = field(default_factory=lambda: set(COUNTRIES))  # others: country_not_allowed
    forbidden_methods: set[str] = field(default_factory=set)  # method_not_allowed
    unavailable_methods: set[str] = field(default_factory=set)  # method_not_available
    broken_methods: set[str] = field(default_factory=set)  # provider_unavailable
    blocked_payers: set[str] = field(default_factory=set)  # e-mails or document numbers: blocked_payer
    require_whitelist: bool = False  # destinations must be whitelisted for 24 hours
    whitelist: dict[str, datetime] = field(default_factory=dict)  # account number -> active from


@dataclass
class Desk:
    """The shared part of one project; ``page_url`` gives the address of a payment's checkout page."""

    clock: Clock
    events: EventStore
    ledger: Ledger
    terms: Terms
    page_url: Callable[[str], str]

    def emit(self, item: Wire) -> None:
        """The event that an object's kind and new status name."""
        self.events.emit(f"{item['object']}.{item['status']}", item)

    def stamp(self) -> str:
        """The time of a change, as it goes into the object."""
        return iso(self.clock.stamp())

    def after(self, seconds: float) -> str:
        """A time from now, as it goes into the object."""
        return iso(self.clock.now() + timedelta(seconds=seconds))

    def method(self, code: str, use: str, country: str, currency: str) -> Method:
        """The method behind a ``method_code``, if this merchant can use it so, there and in that currency."""
        if country not in self.terms.countries:
            raise ApiError("country_not_allowed", "Your agreement does not cover this country.", param="country")
        method = METHODS.get(code)
        if method is None:
            raise ApiError("parameter_invalid", f"There is no payment method {code!r}.", param="method_code")
        if code in self.terms.forbidden_methods:
            raise ApiError("method_not_allowed", "Your agreement does not cover this method.", param="method_code")
        fits = use in method.uses and (method.country, method.currency) == (country, currency)
        if not fits or code in self.terms.unavailable_methods:
            raise ApiError(
                "method_not_available",
                f"{code} is not available for a {use.replace('_', ' ')} in {country} in {currency}.",
                param="method_code",
            )
        if code in self.terms.broken_methods:
            raise ApiError("provider_unavailable")
        return method

    def check_payer(self, payer: Wire | None) -> None:
        """Refuse a payer on the block list, or one whose e-mail begins with ``blocked@``."""
        if payer is None:
            return
        email = payer.get("email", "")
        number = payer.get("document", {}).get("number", "")
        if email.startswith("blocked@") or {email, number} & self.terms.blocked_payers:
            raise ApiError("blocked_payer", "This payer is blocked.", param="payer")

    def check_amount(self, amount: int, method: Method) -> None:
        """Refuse an amount above the method's bound."""
        if amount > method.max_amount:
            raise ApiError(
                "amount_out_of_range",
                f"{method.code} takes at most {method.max_amount} minor units.",
                param="amount",
            )

    def check_destination(self, destination: Wire) -> None:
        """When the merchant needs a whitelist: refuse an account that has not been on it for 24 hours."""
        if not self.terms.require_whitelist:
            return
        active_from = self.terms.whitelist.get(destination["account_number"])
        if active_from is None or active_from > self.clock.now():
            raise ApiError(
                "parameter_invalid",
                "This account is not whitelisted, or was added less than 24 hours ago.",
                param="destination.account_number",
            )

    def whitelist(self, account_number: str) -> None:
        """Add a destination; it is active 24 hours later."""
        self.terms.whitelist[account_number] = self.clock.now() + timedelta(seconds=DAY)

    def check_funds(self, currency: str, needed: int) -> None:
        """Refuse when money is owed, or when less than this is available."""
        if self.ledger.debt(currency) > 0:
            raise ApiError(
                "insufficient_balance",
                f"There is a debt in {currency}; it blocks payouts and refunds.",
                param="amount",
            )
        if self.ledger.available(currency) < needed:
            raise ApiError(
                "insufficient_balance",
                f"The available {currency} balance is lower than amount plus fee.",
                param="amount",
            )
