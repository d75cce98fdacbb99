"""Decide which accounts a caller may use. Any other account does not exist for the caller.

API_ACCOUNT_CHECK decides for every user. Without it, staff who see all rows may use every account. All other users
may use only ``default``, because API_QUERYSET says which rows they see but not in which accounts they may act.
"""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from payments_integration import conf, permissions
from payments_integration.api import errors


def usable(user: Any) -> list[str]:
    """Return the aliases of the accounts in which the user may act."""
    current = conf.current()
    aliases = list(current.ACCOUNTS)
    if current.API_ACCOUNT_CHECK:
        allows = import_string(current.API_ACCOUNT_CHECK)
        # Require True itself. Other results are truthy too, such as a coroutine.
        return [alias for alias in aliases if allows(user, alias) is True]
    if permissions.is_staff(user) and current.API_QUERYSET == conf.Settings().API_QUERYSET:
        return aliases
    return [alias for alias in aliases if alias == conf.DEFAULT_ACCOUNT]


def require(user: Any, named: Any) -> None:
    """Raise Problem unless the user may use the account that a request names. None means the default account."""
    if (conf.DEFAULT_ACCOUNT if named is None else named) not in usable(user):
        raise errors.invalid("account", errors.NO_ACCOUNT)
