import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
_django = get_wsgi_application()

from server.core.database import refuse_unknown_pooler  # noqa: E402 (these need the settings and the models)
from server.core.files import keep_from_others  # noqa: E402
from server.web.application import Application  # noqa: E402

keep_from_others()
refuse_unknown_pooler()
application = Application(_django)
