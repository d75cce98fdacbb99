"""Define the abstract model, manager and queryset for a merchant's orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldError, ImproperlyConfigured, ValidationError
from django.db import models
from django.db.models import F
from django.db.models.query import ModelIterable

from payments_integration import conf
from payments_integration.models import Payment, Refund
from payments_integration.money import TO_MINOR, checked_currency
from payments_integration.payable import attempts, prices, sql
from payments_integration.payable.queries import Key, Referring, conditions, is_deposit, payments_of, totals_by_key
from payments_integration.payable.totals import Totals

OrderT = TypeVar("OrderT", bound="Payable")

#: The attribute in which ``with_totals`` keeps a row's key and totals. A copy of the row may get another key.
_READ_AHEAD = "_payable_totals"


class PayableQuerySet(models.QuerySet[OrderT]):
    _totals_wanted = False

    def with_totals(self) -> Self:
        """Read the totals of all rows together, so that ``totals()`` of a row needs no query.

        Needs two statements for up to 500 rows (per account, if ``payments_account_field`` is set). Has no effect with
        ``values()`` and ``iterator()``.
        """
        clone = self.all()
        clone._totals_wanted = True
        return clone

    def of(self, obj: Referring | Refund | None) -> OrderT | None:
        """Return the row that a payment, a refund's payment or another object with a ``merchant_reference`` is for.

        Returns None if the object has no merchant reference, is a deposit, or belongs to another account, or if the
        refund's payment is not mirrored yet. Raises MultipleObjectsReturned if several rows have the reference.
        """
        found = _payment_of(obj) if isinstance(obj, Refund) else obj
        if found is None or not found.merchant_reference:
            return None
        model = self.model
        if not model.payments_include_deposits and is_deposit(found):
            return None
        asked = [each for _wanted, each in conditions(model, [found.merchant_reference])]
        # The merchant's column may compare loosely: another case (MariaDB), or 7 for "007".
        rows = [row for each in asked for row in self.filter(each) if row._is_of(found)]
        if len(rows) > 1:
            raise model.MultipleObjectsReturned(f"{len(rows)} rows have the reference of {found.pk}")
        return rows[0] if rows else None

    def paid(self) -> Self:
        """Return the rows whose ``is_paid`` is True for their price, in SQL: with filters, ``count()`` and pages.

        ``paid()``, ``unpaid()`` and ``overpaid()`` leave out rows without a price. A price that ``is_paid`` refuses is
        unpaid. Raises ImproperlyConfigured if the model names no ``payments_amount_field``, or if its rows are in
        another database than the payments.
        """
        return sql.paid(self)

    def unpaid(self) -> Self:
        """Return the rows with a price that are not ``paid()``."""
        return sql.unpaid(self)

    def overpaid(self) -> Self:
        """Return the rows with a refundable surplus: their price is kept if it is refunded."""
        return sql.overpaid(self)

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._totals_wanted = self._totals_wanted
        return clone

    def _fetch_all(self) -> None:
        unread = self._result_cache is None
        super()._fetch_all()
        if unread and self._totals_wanted and issubclass(self._iterable_class, ModelIterable):
            _read_ahead(self._result_cache or [])


if TYPE_CHECKING:
    _Manager = models.Manager
else:
    _Manager = models.Manager.from_queryset(PayableQuerySet)


class PayableManager(_Manager[OrderT]):
    """Has the methods of ``PayableQuerySet``."""

    if TYPE_CHECKING:

        def with_totals(self) -> PayableQuerySet[OrderT]: ...
        def of(self, obj: Referring | Refund | None) -> OrderT | None: ...
        def paid(self) -> PayableQuerySet[OrderT]: ...
        def unpaid(self) -> PayableQuerySet[OrderT]: ...
        def overpaid(self) -> PayableQuerySet[OrderT]: ...

        # Django passes these calls on to the queryset, but its stubs return a type without ``with_totals``.
        def get_queryset(self) -> PayableQuerySet[OrderT]: ...
        def all(self) -> PayableQuerySet[OrderT]: ...
        def exclude(self, *args: Any, **kwargs: Any) -> PayableQuerySet[OrderT]: ...
        def filter(self, *args: Any, **kwargs: Any) -> PayableQuerySet[OrderT]: ...
        def order_by(self, *field_names: Any) -> PayableQuerySet[OrderT]: ...
        def select_for_update(self, *args: Any, **kwargs: Any) -> PayableQuerySet[OrderT]: ...
        def using(self, alias: str | None) -> PayableQuerySet[OrderT]: ...


class Payable(models.Model):
    """An order, an invoice, or anything else that payments are made for.

    Pass the value of ``merchant_reference_field`` to ``create_payment`` as ``merchant_reference``. It must be unique
    and not empty, and must not change after that. No other row may get it, also not after a deletion or a restored
    backup: it would count as paid by the first row's payments.
    """

    #: The field with the reference. Numbers and UUIDs are converted by ``str``.
    merchant_reference_field: ClassVar[str] = ""
    #: The account whose payments count; None for all accounts. Another account may have the same reference.
    payments_account: ClassVar[str | None] = conf.DEFAULT_ACCOUNT
    #: The field with the account's alias, if rows are paid through different accounts.
    payments_account_field: ClassVar[str] = ""
    #: True to count transfers to a deposit reference too. Its reference usually names the payer, not an order.
    payments_include_deposits: ClassVar[bool] = False
    #: The field with the price: an integer in minor units, or a DecimalField in whole units. ``payments_price()`` and
    #: the querysets ``paid()``, ``unpaid()`` and ``overpaid()`` read it.
    payments_amount_field: ClassVar[str] = ""
    #: The text field with the price's currency.
    payments_currency_field: ClassVar[str] = ""
    #: The currency of all rows, if no field has it.
    payments_currency: ClassVar[str] = ""
    #: The rows that the project treats as paid, such as ``Q(paid_at__isnull=False)``. With it, the admin's to-do
    #: list shows rows that do not match their payments.
    payments_paid: ClassVar[models.Q | None] = None

    objects: ClassVar[PayableManager[Self]] = PayableManager()

    class Meta:
        abstract = True

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # Totals that a cache or a session has kept would be old.
        state.pop(_READ_AHEAD, None)
        return state

    def payments_price(self) -> tuple[int, str] | None:
        """Return the price: minor units and the currency; None if the model does not know it.

        Reads ``payments_amount_field``, which may be in whole units. Override the method if no field has the price:
        ``return money.to_minor(self.total(), self.currency), self.currency``. Raises ValueError as ``money.to_minor``
        does.
        """
        return prices.of(self)

    @classmethod
    def _knows_price(cls) -> bool:
        return bool(cls.payments_amount_field) or cls._has_own_price()

    @classmethod
    def _has_own_price(cls) -> bool:
        return cls.payments_price is not Payable.payments_price

    @property
    def payments(self) -> models.QuerySet[Payment]:
        """Every attempt to pay for it, newest first."""
        account, reference = self._key()
        return payments_of(account, reference, deposits=self.payments_include_deposits)

    @property
    def refunds(self) -> models.QuerySet[Refund]:
        """The refunds of its payments, newest first."""
        found = Refund.objects.filter(payment__in=self.payments.values("pk"), payment__account=F("account"))
        return found.order_by("-created_at", "-pk")

    def totals(self) -> dict[str, Totals]:
        """Return the totals of each currency that occurs. Reads them each time, except after ``with_totals()``."""
        key = self._key()
        of, totals = self.__dict__.get(_READ_AHEAD, (None, {}))
        if of != key:
            totals = totals_by_key([key], deposits=self.payments_include_deposits).get(key, {})
        return dict(totals)

    def totals_in(self, currency: str) -> Totals:
        """Return the totals in one currency; all zero if there is no payment in it.

        Raises ValueError for a currency that the spec does not have, such as ``"usd"``.
        """
        totals = self.totals()
        # A payment may have a currency that this version does not know.
        return totals[currency] if currency in totals else Totals(checked_currency(currency))

    def is_paid(self, amount: int, currency: str) -> bool:
        """Return True if ``amount`` minor units are paid: see ``Totals.paid``.

        Raises TypeError for an amount that is not an int, such as a Decimal in whole units. Raises ValueError for a
        negative amount and for a currency that the spec does not have.
        """
        return self.totals_in(currency).is_paid(amount)

    def attempt_key(self, signed: str | None = None) -> str:
        """Return the idempotency key for ``create_payment``.

        It stays the same while an attempt is open and after it is paid. It is a new one after an attempt was refused
        or closed, or its payment failed, expired or was canceled. There is none for an unpaid attempt if the order is
        paid in another way, such as before the installation.

        Args:
            signed: The value that ``signed_attempt_key`` gave to the payer's form. The key then comes from the form,
                so a form that is sent twice makes one attempt, even if that attempt failed in between. If the form's
                key was never sent and another attempt is open or paid by now, the key is that attempt's. So it is if
                the form's attempt is open and another one was paid since.

        Returns:
            1 to 255 printable ASCII characters, for any reference.

        Raises:
            ValidationError: ``signed`` is not from this site, or from another order's form. Or the order is paid, or
                it has no price and a paid payment that the ledger does not know.
            ValueError: The row has no reference or no account, or its last attempt was sent with another
                ``merchant_reference``; or what ``payments_price()`` raises, for an unpaid attempt.
            TypeError: The price is not an int in minor units.
        """
        return attempts.attempt_key(
            self._key(), self.payments_price, signed=signed, deposits=self.payments_include_deposits
        )

    async def aattempt_key(self, signed: str | None = None) -> str:
        """Return ``attempt_key``, for async views."""
        return await sync_to_async(self.attempt_key)(signed)

    def signed_attempt_key(self) -> str:
        """Return the key, signed for a hidden field of the payment form. A payer cannot change it."""
        return attempts.sign(attempts.open_key(self._key()))

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.pop(_READ_AHEAD, None)
        super().refresh_from_db(*args, **kwargs)

    def _key(self) -> Key:
        if not self.merchant_reference_field:
            name = type(self).__name__
            raise ImproperlyConfigured(f'Name a field of {name}, such as merchant_reference_field = "number".')
        return (self._account(), _text(self, self.merchant_reference_field))

    def _account(self) -> str | None:
        if not self.payments_account_field:
            return self.payments_account
        # A row without an account has no payments. None would mean all accounts.
        return _text(self, self.payments_account_field)

    def _is_of(self, obj: Referring) -> bool:
        account, reference = self._key()
        return account in (None, obj.account) and reference == obj.merchant_reference

    @classmethod
    def check(cls, **kwargs: Any) -> list[checks.CheckMessage]:
        return [*super().check(**kwargs), *problems(cls, _NAMES)]


def payables(registry: Any = None) -> list[type[Payable]]:
    """Return the project's models of orders. A proxy is one only for a model that is none, of another package."""
    found: list[Any] = [model for model in (registry or apps).get_models() if issubclass(model, Payable)]
    return [model for model in found if not (model._meta.proxy and _is_order(*model.__mro__[1:]))]


def _is_order(*classes: Any) -> bool:
    return any(issubclass(each, Payable) and not each._meta.abstract for each in classes)


def _text(row: Payable, name: str) -> str:
    """Return a field's value as the database and the mirror hold it; "" for None, and for what SQL computes."""
    value, field = prices.value(row, name), prices.column(type(row), name)
    if hasattr(value, "resolve_expression"):
        return ""
    # A new row holds what it was given, such as a UUID's hex. Read again, it would be another text.
    value = value if field is None else field.to_python(value)
    if isinstance(value, str):
        return str.__str__(value)  # ``str(…)`` would be "Brand.CHILE" for some enums
    return "" if value is None else str(value)


def _payment_of(refund: Refund) -> Payment | None:
    return Payment.objects.filter(pk=refund.payment_id, account=refund.account).first()


def _read_ahead(rows: list[Any]) -> None:
    """Read the totals of all rows and keep them in the rows."""
    if rows:
        found = totals_by_key([row._key() for row in rows], deposits=rows[0].payments_include_deposits)
        for row in rows:
            row.__dict__[_READ_AHEAD] = (key := row._key()), found.get(key, {})


#: A field with one of these names would hide a part of Payable.
_NAMES = frozenset(name for name in vars(Payable) if not name.startswith("_")) - {"objects", "check", "Meta"}
#: Names that a class may set or override on purpose.
_OVERRIDABLE = frozenset(name for name in _NAMES if name.startswith("payments_")) | {
    "merchant_reference_field", "refresh_from_db",
}  # fmt: skip


ID = "payments_integration"


def problems(model: Any, names: frozenset[str]) -> Iterator[checks.CheckMessage]:
    """Yield the problems of a model's declaration.

    E020: an option names something that does not exist. E021: a field, property or method hides a part of ``Payable``
    (``names``). W020: two rows may have the same reference, in one model or in two, or one row two references. W021:
    the model has amounts that are not in minor units.
    """
    raw = getattr(settings, conf.NAME, {})
    account = model.payments_account
    if account is not None and not model.payments_account_field and not list(conf.problems(raw)):
        accounts = ", ".join(conf.aliases())
        if accounts and account not in conf.aliases():  # W001 says that there is none
            yield prices.wrong(
                model,
                f"payments_account names the account {account!r}, which does not exist.",
                f"Name one of {accounts}, or None for every account's payments.",
            )
    for name in hidden_names(model, names):
        yield checks.Error(
            f"{name!r} is a name of Payable.",
            hint="Give the field, property, method or related_name another one.",
            obj=model,
            id=f"{ID}.E021",
        )
    missing = [name for name in _named(model) if prices.column(model, name) is None]
    for name in missing:
        hint = 'Name a field of the model: merchant_reference_field = "number".'
        yield prices.wrong(model, f"The model has no field {name!r}.", hint)
    for option in ("merchant_reference_field", "payments_account_field"):
        name = getattr(model, option)
        field = model._meta.get_field(name) if name and name not in missing else None
        if field is not None and field.is_relation and field.attname != name:
            yield prices.wrong(
                model,
                f"{option} names the relation {field.name!r}, whose value is an object.",
                f'Name its column: {option} = "{field.attname}".',
            )
    if not callable(model.payments_price):
        yield prices.wrong(model, "payments_price is no method.", "Remove @property from it.")
    if not any(_finds_orders(manager) for manager in model._meta.managers):
        yield checks.Warning(
            "No manager of the model has of(), paid() and unpaid().",
            hint="Derive it from PayableManager, and a queryset of your own from PayableQuerySet. Or add one: "
            "payables = PayableManager().",
            obj=model,
            id=f"{ID}.W022",
        )
    yield from prices.problems(model)
    yield from _wrong_condition(model)
    yield from _whole_units(model)
    if not missing and not _is_unique(model):
        yield checks.Warning(
            f"Two rows may have the same {model.merchant_reference_field}, and would share their payments.",
            hint="Make it unique.",
            obj=model,
            id=f"{ID}.W020",
        )
    if not missing and (others := _with_same_numbers(model)):
        yield checks.Warning(
            f"Its references are numbers, as those of {', '.join(others)}: two rows with the same number would share "
            "their payments.",
            hint="Give each model another account, or one of them a text field as its reference, with a prefix.",
            obj=model,
            id=f"{ID}.W020",
        )
    if others := _with_other_payments(model):
        yield checks.Warning(
            f"Its rows are also rows of {', '.join(others)}, with another account or reference: such a row has other "
            "payments there, and can be paid twice.",
            hint="Set payments_account, payments_account_field and merchant_reference_field in the parent only.",
            obj=model,
            id=f"{ID}.W020",
        )


def _finds_orders(manager: Any) -> bool:
    """Return True if ``of()`` works. A ``PayableManager`` hands it to its queryset, which may be of another class."""
    try:
        return hasattr(manager, "of") and hasattr(manager.get_queryset(), "of")
    except Exception:  # a manager that asks for the tenant of a request, for example
        return True


def _wrong_condition(model: Any) -> Iterator[checks.CheckMessage]:
    if model.payments_paid is None:
        return
    try:
        # Building the query resolves every name in it. Nothing is read.
        model._base_manager.filter(model.payments_paid)
    except (FieldError, TypeError, ValueError, ValidationError) as error:
        yield prices.wrong(
            model,
            f"payments_paid is not a condition of the model: {error}",
            "Give a Q with fields of the model: payments_paid = Q(paid_at__isnull=False).",
        )


def _whole_units(model: Any) -> Iterator[checks.CheckMessage]:
    """Yield W021 for a model with decimals or floats, unless it knows its price and so converts them."""
    if model._knows_price():
        return
    # A field's name does not tell if it is an amount.
    names = [field.name for field in model._meta.fields if isinstance(field, models.DecimalField | models.FloatField)]
    if names:
        yield checks.Warning(
            f"{', '.join(names)}: not whole numbers, and every amount of a payment is an int in minor units.",
            hint=f"Name the price's field, {prices.DECLARE}, or define payments_price() to convert the price, as "
            f"{TO_MINOR} does. Use payments_price() for create_payment() and is_paid(). If none of these fields is a "
            "price, silence this check.",
            obj=model,
            id=f"{ID}.W021",
        )


def _named(model: Any) -> list[str]:
    account_field = [model.payments_account_field] if model.payments_account_field else []
    return [model.merchant_reference_field, *account_field]


def hidden_names(model: type[models.Model], names: frozenset[str] = _NAMES) -> list[str]:
    """Return the names of fields, properties, methods and relations to the model that hide a part of ``Payable``."""
    found = [
        field.name if isinstance(field, models.Field) else getattr(field, "get_accessor_name", lambda: "")()
        for field in model._meta.get_fields()
    ]
    own = [cls for cls in model.__mro__ if cls not in Payable.__mro__]
    found += [name for cls in own for name in vars(cls) if name not in _OVERRIDABLE]
    return list(dict.fromkeys(name for name in found if name in names))


def _with_same_numbers(model: Any) -> list[str]:
    """Return what ``sharing_numbers`` does. Each pair is found once, from the model later in the alphabet."""
    if model not in payables(model._meta.apps):
        return []
    found = sharing_numbers(model, model.merchant_reference_field)
    return [label for label in found if label < model._meta.label]


def sharing_numbers(model: Any, reference: str) -> list[str]:
    """Return the labels of other models whose references are numbers too and may be of the same account.

    ``reference`` names the field of ``model``, which need not be a Payable yet.
    """
    if (field := _number(model, reference)) is None:
        return []
    found = []
    for other in payables(model._meta.apps):
        number = _number(other, other.merchant_reference_field)
        if number is None or number.model._meta.concrete_model is field.model._meta.concrete_model:
            continue
        if _may_share_account(model if issubclass(model, Payable) else Payable, other):
            found.append(other._meta.label)
    return sorted(found)


def _with_other_payments(model: Any) -> list[str]:
    """Return the labels of models that share rows with this one, as parent, child or proxy, and find other payments.

    Each pair is found once, from the model that comes later in the alphabet.
    """
    return sorted(
        other._meta.label
        for other in model._meta.apps.get_models()
        if issubclass(other, Payable)
        and other._meta.label < model._meta.label
        and (issubclass(model, other._meta.concrete_model) or issubclass(other, model._meta.concrete_model))
        and _found_by(other) != _found_by(model)
    )


def _found_by(model: Any) -> tuple[Any, Any]:
    """Return what finds the payments of a model's rows: the account, or the field with it, and the reference's field.

    The column of a relation has the same values as the field that the relation refers to.
    """
    account = model.payments_account_field or (model.payments_account,)
    return account, prices.target(prices.column(model, model.merchant_reference_field))


def _number(model: Any, reference: str) -> Any:
    """Return the field that a reference is read from if its values are whole numbers, otherwise None.

    For the column of a relation, it is the field that the relation refers to: such models share payments on purpose.
    """
    if prices.column(model, reference) is None:
        return None
    field = prices.target(model._meta.get_field(reference))
    return field if isinstance(field, models.IntegerField) else None


def _may_share_account(model: Any, other: Any) -> bool:
    if model.payments_account_field or other.payments_account_field:
        return True
    return None in (model.payments_account, other.payments_account) or model.payments_account == other.payments_account


def _is_unique(model: Any) -> bool:
    field = model._meta.get_field(model.merchant_reference_field)
    if field.unique:
        return True
    options = field.model._meta
    together = [set(names) for names in options.unique_together]
    together += [set(constraint.fields) for constraint in options.total_unique_constraints]
    together += [{each.name for each in options.pk_fields}]  # a composite key
    # A relation's column has another name than its field.
    enough = {model._meta.get_field(name).name for name in _named(model)}
    return any(field.name in names and names <= enough for names in together)
