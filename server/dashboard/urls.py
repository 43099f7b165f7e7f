from django.urls import path
from django.views.generic import TemplateView

from server.dashboard import (
    build_page,
    finding_pages,
    home_page,
    host_pages,
    series_pages,
    site,
    status_page,
    tree_pages,
)

urlpatterns = [
    path("", home_page.home, name="home"),
    path("series/", home_page.series_list, name="series-list"),
    path("series/<int:series_id>/", series_pages.series, name="series"),
    path("series/<int:series_id>/approve/", series_pages.approve, name="series-approve"),
    path("sessions/<int:session_id>/", home_page.session, name="session"),
    path("findings/", finding_pages.findings, name="finding-list"),
    path("findings/<int:finding_id>/", finding_pages.finding, name="finding"),
    path("builds/<int:build_id>/", build_page.build, name="build"),
    path("builds/<int:build_id>/again/", build_page.again, name="build-again"),
    path("builds/<int:build_id>/files/<slug:kind>/", build_page.artifact, name="artifact"),
    path("machines/", host_pages.machines, name="machines"),
    path("machines/<slug:name>/", host_pages.machine, name="machine"),
    path("machines/<slug:name>/act/", host_pages.act_on_machine, name="machine-act"),
    path("builders/", host_pages.builders, name="builders"),
    path("builders/<slug:name>/", host_pages.builder, name="builder"),
    path("builders/<slug:name>/act/", host_pages.act_on_builder, name="builder-act"),
    path("queue/", host_pages.waiting, name="queue"),
    path("status/", status_page.status, name="status"),
    path("trees/<slug:name>/", status_page.tree, name="tree"),
    path("trees/<slug:name>/branches/<path:branch_name>/", tree_pages.branch, name="branch"),
    path("timelines/<int:timeline_id>/", tree_pages.timeline, name="timeline"),
    path("messages/<int:message_id>/", status_page.message, name="message"),
    path("messages/<int:message_id>/text/", status_page.message_text, name="message-text"),
    path("messages/<int:message_id>/raw/", status_page.raw_message, name="message-raw"),
    path("healthz", site.healthz, name="healthz"),
    path("readyz", site.readyz, name="readyz"),
    path("robots.txt", TemplateView.as_view(template_name="robots.txt", content_type="text/plain"), name="robots"),
]
