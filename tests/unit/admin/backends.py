"""Authentication backends for tests: object permissions, and cached users."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.backends import BaseBackend, ModelBackend


class OnePaymentBackend(BaseBackend):
    """Grants a permission for one object, as packages for object permissions do."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm == "payments_integration.refund_payment" and getattr(obj, "pk", None) == "pay_mine"


class RememberingBackend(ModelBackend):
    """Django's backend, which reads each user and their permissions once."""

    users: ClassVar[dict[Any, Any]] = {}

    def get_user(self, user_id: Any) -> Any:
        if user_id not in self.users:
            self.users[user_id] = super().get_user(user_id)
        return self.users[user_id]
