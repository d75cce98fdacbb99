"""``python manage.py demo``: sandbox, site, worker and beat as processes, and a story played against them."""
