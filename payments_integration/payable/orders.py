"""What a merchant's model inherits to know its payments, and what its manager offers."""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar

from django.core import checks
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.query import ModelIterable

from payments_integration import conf
from payments_integration.models import Payment, Refund
from payments_integration.payable.checking import problems
from payments_integration.payable.matching import Key, is_deposit, payments_of, totals_by_key
from payments_integration.payable.totals import Totals

OrderT = TypeVar("OrderT", bound="Payable")

#: Where ``with_totals`` leaves what it read.
_READ_AHEAD = "_payable_totals"


class PayableQuerySet(models.QuerySet[OrderT]):
    _totals_wanted = False

    def with_totals(self) -> Self:
        """Read the totals of all rows together, so that ``totals()`` of each asks nothing more: two statements for up
        to 500 rows (per account, where ``payments_account_field`` is set). Not with ``values()`` and ``iterator()``.
        """
        clone = self.all()
        clone._totals_wanted = True
        return clone

    def of(self, obj: Payment | Refund | None) -> OrderT | None:
        """The row that a payment, or a refund's payment, belongs to; None where it belongs to none: no reference, the
        operation's id that stands in for one, a deposit, another account, a refund whose payment is not here yet.

        Raises MultipleObjectsReturned where several rows have the reference: money is not given to a guess.
        """
        payment = Payment.objects.filter(pk=obj.payment_id).first() if isinstance(obj, Refund) else obj
        if payment is None or not payment.merchant_reference:
            return None
        model = self.model
        if not model.payments_include_deposits and is_deposit(payment):
            return None
        field: models.Field[Any, Any] = model._meta.get_field(model.merchant_reference_field)  # type: ignore[assignment]
        try:
            value = field.to_python(payment.merchant_reference)
        except ValidationError:
            return None
        # The database may find more than what is the same: another case, or 7 for "007".
        rows = [row for row in self.filter(**{field.name: value}) if row._is_of(payment)]
        if len(rows) > 1:
            raise model.MultipleObjectsReturned(f"{len(rows)} rows have the reference of {payment.pk}")
        return rows[0] if rows else None

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._totals_wanted = self._totals_wanted
        return clone

    def _fetch_all(self) -> None:
        unread = self._result_cache is None
        super()._fetch_all()
        if unread and self._totals_wanted and issubclass(self._iterable_class, ModelIterable):
            _read_ahead(self._result_cache or [])


class PayableManager(models.Manager[OrderT]):
    def get_queryset(self) -> PayableQuerySet[OrderT]:
        return PayableQuerySet(self.model, using=self._db)

    def with_totals(self) -> PayableQuerySet[OrderT]:
        return self.get_queryset().with_totals()

    def of(self, obj: Payment | Refund | None) -> OrderT | None:
        return self.get_queryset().of(obj)


class Payable(models.Model):
    """What is paid for: an order, an invoice. Its field ``merchant_reference_field`` is what ``create_payment`` is
    given as ``merchant_reference``: never empty, unique, and never changed once a payment was asked for.
    """

    #: The field that holds the reference. Numbers and UUIDs are written as ``str`` writes them.
    merchant_reference_field: ClassVar[str] = ""
    #: The account whose payments count; None: every account's. Another account may know the same reference.
    payments_account: ClassVar[str | None] = conf.DEFAULT_ACCOUNT
    #: A field that holds the account's alias, where rows are paid through different ones.
    payments_account_field: ClassVar[str] = ""
    #: Whether transfers to a deposit reference count, too. Its reference names the payer as a rule, not the order.
    payments_include_deposits: ClassVar[bool] = False

    objects: ClassVar[PayableManager[Self]] = PayableManager()

    class Meta:
        abstract = True

    @property
    def payments(self) -> models.QuerySet[Payment]:
        """Every attempt to pay for it, newest first."""
        account, reference = self._key()
        return payments_of(account, reference, deposits=self.payments_include_deposits)

    @property
    def refunds(self) -> models.QuerySet[Refund]:
        """The refunds of its payments, newest first."""
        return Refund.objects.filter(payment__in=self.payments.values("pk")).order_by("-created_at", "-pk")

    def totals(self) -> dict[str, Totals]:
        """Totals by currency, of the currencies that occur; read anew each time but after ``with_totals()``."""
        if _READ_AHEAD not in self.__dict__:
            key = self._key()
            return totals_by_key([key], deposits=self.payments_include_deposits).get(key, {})
        return dict(self.__dict__[_READ_AHEAD])

    def totals_in(self, currency: str) -> Totals:
        """Totals in one currency; all zero where there is no payment in it."""
        return self.totals().get(currency, Totals(currency))

    def is_paid(self, amount: int, currency: str) -> bool:
        """Whether ``amount`` minor units are paid: see ``Totals.paid``."""
        return self.totals_in(currency).is_paid(amount)

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.pop(_READ_AHEAD, None)
        super().refresh_from_db(*args, **kwargs)

    def _key(self) -> Key:
        value = getattr(self, self.merchant_reference_field)
        reference = "" if value is None else str(value)
        return (self._account(), reference)

    def _account(self) -> str | None:
        if not self.payments_account_field:
            return self.payments_account
        # A row that names no account has no payments: None would be everybody's.
        return getattr(self, self.payments_account_field) or ""

    def _is_of(self, payment: Payment) -> bool:
        account, reference = self._key()
        return account in (None, payment.account) and reference == payment.merchant_reference

    @classmethod
    def check(cls, **kwargs: Any) -> list[checks.CheckMessage]:
        return [*super().check(**kwargs), *problems(cls, _NAMES)]


def _read_ahead(rows: list[Any]) -> None:
    """Give every row its totals, as ``with_totals`` does."""
    if rows:
        found = totals_by_key([row._key() for row in rows], deposits=rows[0].payments_include_deposits)
        for row in rows:
            row.__dict__[_READ_AHEAD] = found.get(row._key(), {})


#: What a field of the same name would hide.
_NAMES = frozenset(name for name in vars(Payable) if not name.startswith("_")) - {"objects", "check"}
