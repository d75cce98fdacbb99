"""The products' names and descriptions in Spanish and Portuguese."""

from django.db import migrations, models

TEXTS = {
    "coffee": (
        ("Café en grano", "Un kilo del sur de Colombia, tostado el martes."),
        ("Café em grãos", "Um quilo do sul da Colômbia, torrado na terça-feira."),
    ),
    "chocolate": (
        ("Chocolate amargo", "Diez barras de 72 %, de Ecuador."),
        ("Chocolate amargo", "Dez barras de 72 %, do Equador."),
    ),
    "blanket": (
        ("Manta de alpaca", "Tejida en Cusco. Dos metros por uno y medio."),
        ("Manta de alpaca", "Tecida em Cusco. Dois metros por um e meio."),
    ),
    "hammock": (
        ("Hamaca", "Para dos, o para una persona y un libro."),
        ("Rede de descanso", "Para dois, ou para uma pessoa e um livro."),
    ),
}


def add(apps, schema_editor):
    product_model = apps.get_model("shop", "Product")
    for slug, ((name_es, description_es), (name_pt, description_pt)) in TEXTS.items():
        # A product that was renamed has other words.
        product_model.objects.filter(slug=slug).update(
            name_es=name_es, description_es=description_es, name_pt=name_pt, description_pt=description_pt
        )


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_products")]
    operations = [
        migrations.AddField(
            "product", "name_es", models.CharField("name in Spanish", max_length=100, blank=True, default="")
        ),
        migrations.AddField(
            "product", "description_es", models.TextField("description in Spanish", blank=True, default="")
        ),
        migrations.AddField(
            "product", "name_pt", models.CharField("name in Portuguese", max_length=100, blank=True, default="")
        ),
        migrations.AddField(
            "product", "description_pt", models.TextField("description in Portuguese", blank=True, default="")
        ),
        migrations.RunPython(add, migrations.RunPython.noop),
    ]
