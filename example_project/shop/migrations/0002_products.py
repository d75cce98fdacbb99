"""Something to sell from the start."""

from django.db import migrations

# Minor units; CLP has no decimals.
PRODUCTS = [
    ("coffee", "Coffee beans", "A kilo from the south of Colombia, roasted on Tuesday.",
     {"CLP": 14990, "COP": 6200000, "PEN": 5890, "MXN": 28900, "BRL": 8490, "USD": 1590}),
    ("chocolate", "Dark chocolate", "Ten bars of 72 %, from Ecuador.",
     {"CLP": 19990, "COP": 8400000, "PEN": 7990, "MXN": 38900, "BRL": 11490, "USD": 2150}),
    ("blanket", "Alpaca blanket", "Woven in Cusco. Two metres by one and a half.",
     {"CLP": 89900, "COP": 37500000, "PEN": 35900, "MXN": 174900, "BRL": 51900, "USD": 9690}),
    ("hammock", "Hammock", "For two, or for one and a book.",
     {"CLP": 49900, "COP": 20900000, "PEN": 19900, "MXN": 97500, "BRL": 28900, "USD": 5390}),
]  # fmt: skip


def add(apps, schema_editor):
    product_model, price_model = apps.get_model("shop", "Product"), apps.get_model("shop", "Price")
    for slug, name, description, prices in PRODUCTS:
        product = product_model.objects.create(slug=slug, name=name, description=description)
        for currency, amount in prices.items():
            price_model.objects.create(product=product, currency=currency, amount=amount)


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
