from django.urls import path

from example_project.shop import deposits, order_views, views

app_name = "shop"
urlpatterns = [
    path("", views.products, name="products"),
    path("buy/<slug:slug>/", views.buy, name="buy"),
    path("orders/", order_views.orders, name="orders"),
    path("orders/<str:reference>/", order_views.order, name="order"),
    path("orders/<str:reference>/pay/", order_views.pay_again, name="pay-again"),
    path("orders/<str:reference>/cancel/", order_views.cancel, name="cancel"),
    path("returned/<str:token>/", order_views.Returned.as_view(), name="returned"),
    path("deposits/", deposits.deposits, name="deposits"),
    path("deposits/<str:reference>/", deposits.deposit, name="deposit"),
]
