"""``defer`` is refused in a transaction of another database that is written to."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from payments_integration.db import transactions
from payments_integration.exceptions import TransactionRefused


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("written", [True, False])
def test_only_a_transaction_of_a_database_that_is_written_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    monkeypatch.setattr(transactions, "ledger_database", lambda: "money")
    transactions.refuse_transaction_elsewhere()
    # A router writes no model to a replica.
    models: list[Any] = transactions.apps.get_models() if written else []
    monkeypatch.setattr(transactions.apps, "get_models", lambda: models)
    with transaction.atomic():
        if written:
            with pytest.raises(TransactionRefused, match=f"'{connection.alias}', and its record is in 'money'"):
                transactions.refuse_transaction_elsewhere()
        else:
            transactions.refuse_transaction_elsewhere()
