from django.contrib import admin
from django.urls import include, path

from server.core.access.login import LoginForm

admin.site.login_form = LoginForm

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", include("server.api.v1.urls")),
    path("", include("server.dashboard.urls")),
]
