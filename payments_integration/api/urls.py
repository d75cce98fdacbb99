"""Below ``api/`` of the app's own URLs."""

from django.urls import path, re_path

from payments_integration.api.views.base import Nothing
from payments_integration.api.views.deposits import DepositReferencesView, DepositReferenceView
from payments_integration.api.views.funds import BalancesView, PaymentMethodsView
from payments_integration.api.views.ledger import EventsView, EventView, OperationsView, OperationView
from payments_integration.api.views.payments import PaymentCancelView, PaymentRefundsView, PaymentsView, PaymentView
from payments_integration.api.views.payouts import PayoutCancelView, PayoutsView, PayoutView
from payments_integration.api.views.refunds import RefundsView, RefundView
from payments_integration.api.views.schema import SchemaView

described = (
    path("payments/", PaymentsView.as_view(), name="api-payment-list"),
    path("payments/<str:id>/", PaymentView.as_view(), name="api-payment-detail"),
    path("payments/<str:id>/cancel/", PaymentCancelView.as_view(), name="api-payment-cancel"),
    path("payments/<str:id>/refunds/", PaymentRefundsView.as_view(), name="api-payment-refunds"),
    path("payouts/", PayoutsView.as_view(), name="api-payout-list"),
    path("payouts/<str:id>/", PayoutView.as_view(), name="api-payout-detail"),
    path("payouts/<str:id>/cancel/", PayoutCancelView.as_view(), name="api-payout-cancel"),
    path("refunds/", RefundsView.as_view(), name="api-refund-list"),
    path("refunds/<str:id>/", RefundView.as_view(), name="api-refund-detail"),
    path("deposit-references/", DepositReferencesView.as_view(), name="api-deposit-reference-list"),
    path("deposit-references/<str:id>/", DepositReferenceView.as_view(), name="api-deposit-reference-detail"),
    path("balances/", BalancesView.as_view(), name="api-balance-list"),
    path("payment-methods/", PaymentMethodsView.as_view(), name="api-payment-method-list"),
    path("events/", EventsView.as_view(), name="api-event-list"),
    path("events/<str:id>/", EventView.as_view(), name="api-event-detail"),
    path("operations/", OperationsView.as_view(), name="api-operation-list"),
    path("operations/<str:id>/", OperationView.as_view(), name="api-operation-detail"),
)
urlpatterns = [
    *described,
    path("schema/", SchemaView.as_view(patterns=described), name="api-schema"),
    # Here and not Django's page for it; nor its redirect to the slash, which loses what was posted.
    re_path("", Nothing.as_view()),
]
