from django.urls import path
from django.views.generic import TemplateView

from server.dashboard import (
    build_views,
    finding_views,
    health,
    host_views,
    lab_views,
    series_views,
    timeline_views,
    views,
    watching,
)

urlpatterns = [
    path("", views.home, name="home"),
    path("series/", views.series_list, name="series-list"),
    path("series/<int:series_id>/", series_views.series, name="series"),
    path("series/<int:series_id>/approve/", series_views.approve, name="series-approve"),
    path("sessions/<int:session_id>/", views.session, name="session"),
    path("findings/", finding_views.findings, name="finding-list"),
    path("findings/<int:finding_id>/", finding_views.finding, name="finding"),
    path("builds/<int:build_id>/", build_views.build, name="build"),
    path("builds/<int:build_id>/again/", build_views.again, name="build-again"),
    path("builds/<int:build_id>/files/<slug:kind>/", build_views.artifact, name="artifact"),
    path("machines/", lab_views.machines, name="machines"),
    path("machines/<slug:name>/", lab_views.machine, name="machine"),
    path("machines/<slug:name>/act/", host_views.act_on_machine, name="machine-act"),
    path("builders/", lab_views.builders, name="builders"),
    path("builders/<slug:name>/", lab_views.builder, name="builder"),
    path("builders/<slug:name>/act/", host_views.act_on_builder, name="builder-act"),
    path("queue/", lab_views.waiting, name="queue"),
    path("status/", watching.status, name="status"),
    path("trees/<slug:name>/", watching.tree, name="tree"),
    path("trees/<slug:name>/branches/<path:branch_name>/", timeline_views.branch, name="branch"),
    path("timelines/<int:timeline_id>/", timeline_views.timeline, name="timeline"),
    path("messages/<int:message_id>/", watching.message, name="message"),
    path("messages/<int:message_id>/text/", watching.message_text, name="message-text"),
    path("messages/<int:message_id>/raw/", watching.raw_message, name="message-raw"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("robots.txt", TemplateView.as_view(template_name="robots.txt", content_type="text/plain"), name="robots"),
]
