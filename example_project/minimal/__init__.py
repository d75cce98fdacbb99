"""What most shops need of the app, in three files: ``models``, ``views`` and ``payment_handlers``.

$ export DJANGO_SETTINGS_MODULE=example_project.minimal.settings
$ python manage.py payments_sandbox &
$ python manage.py migrate
$ python manage.py runserver &
$ python manage.py payments_endpoints create http://127.0.0.1:8000/payments/webhook/

Then open http://127.0.0.1:8000/.
"""
