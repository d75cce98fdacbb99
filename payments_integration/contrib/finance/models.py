"""Store movements, which say what each change of the mirror did to the merchant's money, and its balances."""

from __future__ import annotations

from datetime import date, datetime

from django.db import models
from django.utils.translation import gettext_lazy as _

from payments_integration.dates import moment
from payments_integration.db import fields
from payments_integration.models.base import ObjectRef, Row
from payments_integration.money import format_money


class MovementKind(models.TextChoices):
    """The reason for a movement."""

    PAYMENT = "payment", _("payment")
    PAYMENT_FEE = "payment_fee", _("fee of a payment")
    REFUND = "refund", _("refund")
    CHARGEBACK = "chargeback", _("chargeback")
    PAYOUT = "payout", _("payout")
    PAYOUT_FEE = "payout_fee", _("fee of a payout")


class Movement(ObjectRef):
    """A change of the merchant's money that an object's state implies. Rows are never changed or deleted.

    The movements of an object add up to the money that its mirrored state implies: a new row is the difference.
    """

    kind: str = fields.CharField(_("kind"), max_length=16, choices=MovementKind)
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    #: Minor units. Positive: the merchant has more.
    amount: int = fields.BigIntegerField(_("amount"))
    #: By the provider's clock.
    occurred_at: datetime = fields.DateTimeField(_("occurred at"))
    #: By our clock.
    recorded_at: datetime = fields.DateTimeField(_("recorded at"))
    #: The day of ``occurred_at`` in the site's time zone (TIME_ZONE).
    occurred_on: date = fields.DateField(_("occurred on"))
    #: Its day in the journal: ``occurred_on``, or the day of recording if that month was closed in the books by then.
    booked_on: date = fields.DateField(_("booked on"))

    class Meta:
        verbose_name = _("movement")
        verbose_name_plural = _("movements")
        indexes = [
            # For the sum of an object's movements.
            models.Index(fields=["account", "object_kind", "object_id"], name="pf_movement_object"),
            # For the journal and the cash book, of all accounts and of one, and for the admin's list.
            models.Index(fields=["booked_on", "id"], name="pf_movement_booked"),
            models.Index(fields=["account", "booked_on", "id"], name="pf_movement_by_account"),
            # For movements that occurred in a closed month and were recorded later.
            models.Index(fields=["occurred_on", "id"], name="pf_movement_occurred"),
            # For the admin's list of one kind or currency.
            models.Index(fields=["kind", "booked_on", "id"], name="pf_movement_by_kind"),
            models.Index(fields=["currency", "booked_on", "id"], name="pf_movement_by_currency"),
        ]

    def __str__(self) -> str:
        return f"{self.object_id} {self.get_kind_display()} {format_money(self.amount, self.currency)}"

    @property
    def is_recorded_later(self) -> bool:
        """True if its month was closed in the books when it was recorded."""
        return self.booked_on != self.occurred_on


class BalanceChange(Row):
    """The amounts of a balance after a change, in minor units."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    #: By the provider's clock.
    at: datetime = fields.DateTimeField(_("at"))
    available: int = fields.BigIntegerField(_("available"))
    pending: int = fields.BigIntegerField(_("pending"))
    reserve: int = fields.BigIntegerField(_("reserve"))
    hold: int = fields.BigIntegerField(_("hold"))
    debt: int = fields.BigIntegerField(_("debt"))

    class Meta:
        verbose_name = _("balance change")
        verbose_name_plural = _("balance changes")
        default_permissions = ()
        # For the end of a day, and the history on a balance's page.
        indexes = [models.Index(fields=["account", "currency", "at"], name="pf_balancechange_at")]

    def __str__(self) -> str:
        return f"{self.account} {self.currency} {moment(self.at)}"


class ClosingBalance(Row):
    """The provider's balance at the end of a day of a closed month. Rows are never changed or deleted.

    The rows for all days of a month are stored once, when it is closed. So a closed month stays as it is, even if
    TIME_ZONE, and with it the moment at which a day ends, changes later. A day before the first known balance has no
    row.
    """

    account: str = fields.ExactCharField(_("account"), max_length=64)
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    #: A day in the TIME_ZONE that was set when the row was stored.
    day: date = fields.DateField(_("day"))
    #: The amounts of ``BalanceChange``, in minor units.
    available: int = fields.BigIntegerField(_("available"))
    pending: int = fields.BigIntegerField(_("pending"))
    reserve: int = fields.BigIntegerField(_("reserve"))
    hold: int = fields.BigIntegerField(_("hold"))
    debt: int = fields.BigIntegerField(_("debt"))

    class Meta:
        verbose_name = _("closing balance")
        verbose_name_plural = _("closing balances")
        constraints = [
            # Two processes may store the same month.
            models.UniqueConstraint(fields=["account", "currency", "day"], name="pf_closingbalance_day"),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.currency} {self.day}"
