from csp.decorators import csp_update
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from server.api.v1 import findings, lab, messages, places, series

# Swagger UI sets styles from its script.
docs = csp_update({"style-src": ["'unsafe-inline'"]})(
    SpectacularSwaggerSplitView.as_view(url_name="api-schema", authentication_classes=())
)

urlpatterns = [
    path("agent/", include("server.api.v1.agent_urls")),
    path("series/", series.SeriesListView.as_view(), name="api-series-list"),
    path("series/<int:pk>/", series.SeriesView.as_view(), name="api-series-detail"),
    path("series/<int:pk>/history/", series.SeriesHistoryView.as_view(), name="api-series-history"),
    path(
        "series/<int:pk>/cases/<slug:benchmark>/<slug:case>/", series.SeriesCaseView.as_view(), name="api-series-case"
    ),
    path("sessions/<int:pk>/", lab.SessionView.as_view(), name="api-session-detail"),
    path("sessions/<int:pk>/samples/", lab.SamplesView.as_view(), name="api-session-samples"),
    path("machines/", lab.MachineListView.as_view(), name="api-machine-list"),
    path("machines/<slug:name>/", lab.MachineView.as_view(), name="api-machine-detail"),
    path("findings/", findings.FindingListView.as_view(), name="api-finding-list"),
    path("findings/<int:pk>/", findings.FindingView.as_view(), name="api-finding-detail"),
    path("builds/<int:pk>/", lab.BuildView.as_view(), name="api-build-detail"),
    path("trees/", places.TreeListView.as_view(), name="api-tree-list"),
    path("trees/<slug:name>/", places.TreeView.as_view(), name="api-tree-detail"),
    path("branches/", places.BranchListView.as_view(), name="api-branch-list"),
    path("head-moves/", places.HeadMoveListView.as_view(), name="api-head-move-list"),
    path("wanted-revisions/", places.WantedRevisionListView.as_view(), name="api-wanted-revision-list"),
    path("tags/", places.TagListView.as_view(), name="api-tag-list"),
    path("messages/", messages.MessageListView.as_view(), name="api-message-list"),
    path("messages/<int:pk>/", messages.MessageView.as_view(), name="api-message-detail"),
    path("lists/", places.MailingListListView.as_view(), name="api-list-list"),
    path("schema/", SpectacularJSONAPIView.as_view(authentication_classes=()), name="api-schema"),
    path("docs/", docs, name="api-docs"),
    re_path(r"", places.nothing_here, name="api-nothing-here"),
]
