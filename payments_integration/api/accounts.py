"""Which accounts a caller may use. For a caller, an account that they may not use is one that does not exist.

API_ACCOUNT_CHECK decides, for every user. Without it, staff who see all rows may use every account. All other users
may use ``default`` only: API_QUERYSET says which rows they see, and nothing about the accounts that they may act in.
"""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from payments_integration import conf, permissions
from payments_integration.api import errors


def usable(user: Any) -> list[str]:
    """The aliases of the accounts in which the user may act."""
    current = conf.current()
    aliases = list(current.ACCOUNTS)
    if current.API_ACCOUNT_CHECK:
        allows = import_string(current.API_ACCOUNT_CHECK)
        # Only True allows it: a coroutine, for one, is true as well.
        return [alias for alias in aliases if allows(user, alias) is True]
    if permissions.is_staff(user) and current.API_QUERYSET == conf.Settings().API_QUERYSET:
        return aliases
    return [alias for alias in aliases if alias == conf.DEFAULT_ACCOUNT]


def require(user: Any, named: Any) -> None:
    """Raise Problem unless the user may use the account that a request names; None: it names none."""
    if (conf.DEFAULT_ACCOUNT if named is None else named) not in usable(user):
        raise errors.invalid("account", errors.NO_ACCOUNT)
