"""A backend that grants a permission for one object, as packages for row-level permissions do."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import BaseBackend


class OnePaymentBackend(BaseBackend):
    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm == "payments_integration.refund_payment" and getattr(obj, "pk", None) == "pay_mine"
