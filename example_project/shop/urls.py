from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.products, name="products"),
    path("buy/<slug:slug>/", views.buy, name="buy"),
    path("orders/", views.orders, name="orders"),
    path("orders/<str:reference>/", views.order, name="order"),
]
