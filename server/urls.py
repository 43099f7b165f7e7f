from django.contrib import admin
from django.urls import include, path

from server.core.access.login import LoginForm
from server.dashboard.frame.access import sign_in
from server.operations.metrics import metrics

admin.autodiscover()
admin.site.login_form = LoginForm

urlpatterns = [
    # The site's own page in place of the admin's.
    path("admin/login/", sign_in),
    path("admin/", admin.site.urls),
    path("api/v1/", include("server.api.v1.urls")),
    path("metrics", metrics, name="metrics"),
    path("", include("server.dashboard.urls")),
]
