from django.urls import path
from django.views.generic import TemplateView

from server.dashboard import health, views

urlpatterns = [
    path("", views.home, name="home"),
    path("series/", views.series_list, name="series-list"),
    path("series/<int:series_id>/", views.series, name="series"),
    path("sessions/<int:session_id>/", views.session, name="session"),
    path("machines/", views.machines, name="machines"),
    path("machines/<slug:name>/", views.machine, name="machine"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("robots.txt", TemplateView.as_view(template_name="robots.txt", content_type="text/plain"), name="robots"),
]
