"""The addresses of version 1 of the API."""

from csp.decorators import csp_update
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.authentication import SessionAuthentication

# drf-spectacular finds extensions among the classes that are loaded.
import server.api.schema  # noqa: F401
from server.api.acts import findings as finding_acts
from server.api.acts import lab as lab_acts
from server.api.acts import reports as report_acts
from server.api.acts import series as series_acts
from server.api.acts import subscriptions as subscription_acts
from server.api.answers import OpenAnswers
from server.api.transitions import TransitionStreamView
from server.api.v1 import (
    agent,
    attempts,
    benchmarks,
    builds,
    findings,
    hosts,
    messages,
    noise,
    pairs,
    reports,
    series,
    sessions,
    timelines,
    trees,
)

agent_patterns = [
    path("attempts/<str:key>/claim", agent.ClaimView.as_view(), name="agent-claim"),
    path("attempts/<str:key>/arrive", agent.ArriveView.as_view(), name="agent-arrive"),
    path("attempts/<str:key>/heartbeat", agent.HeartbeatView.as_view(), name="agent-heartbeat"),
    path("attempts/<str:key>/build", agent.BuildResultView.as_view(), name="agent-build"),
    path("attempts/<str:key>/boots/<int:position>/start", agent.BootStartView.as_view(), name="agent-boot-start"),
    path("attempts/<str:key>/boots/<int:position>", agent.BootResultView.as_view(), name="agent-boot"),
    path("attempts/<str:key>/end", agent.EndView.as_view(), name="agent-end"),
    path("hello", agent.HelloView.as_view(), name="agent-hello"),
    path("work", agent.AskView.as_view(), name="agent-work"),
    path("token", agent.TokenView.as_view(), name="agent-token"),
    path("artifacts/<str:sha256>", agent.ArtifactView.as_view(), name="agent-artifact"),
]


# Swagger UI sets styles from its script. Its view has a template for GET alone: what DRF answers to OPTIONS has none.
docs = csp_update({"style-src": ["'unsafe-inline'"]})(
    SpectacularSwaggerSplitView.as_view(
        url_name="api-schema",
        template_name="api/docs.html",
        # The frame of the page says who is signed in.
        authentication_classes=(SessionAuthentication,),
        http_method_names=["get", "head"],
    )
)


class DescriptionView(OpenAnswers, SpectacularJSONAPIView):
    authentication_classes = ()


class SeriesListOrSubmissionView(series_acts.SubmissionMixin, series.SeriesListView):
    """Reading the list is for everybody, handing a series in is not."""


act_patterns = [
    path("series/<int:pk>/approval/", series_acts.SeriesApprovalView.as_view(), name="api-series-approval"),
    path("series/<int:pk>/retest/", series_acts.SeriesRetestView.as_view(), name="api-series-retest"),
    path("findings/<int:pk>/assign/", finding_acts.FindingAssignView.as_view(), name="api-finding-assign"),
    path("findings/<int:pk>/withdraw/", finding_acts.FindingWithdrawView.as_view(), name="api-finding-withdraw"),
    path("findings/<int:pk>/reopen/", finding_acts.FindingReopenView.as_view(), name="api-finding-reopen"),
    path("findings/<int:pk>/fix/", finding_acts.FindingFixView.as_view(), name="api-finding-fix"),
    path("findings/<int:pk>/retest/", finding_acts.FindingRetestView.as_view(), name="api-finding-retest"),
    path("findings/<int:pk>/duplicate/", finding_acts.FindingDuplicateView.as_view(), name="api-finding-duplicate"),
    path("findings/<int:pk>/accept/", finding_acts.FindingAcceptView.as_view(), name="api-finding-accept"),
    path(
        "acceptances/<int:pk>/withdraw/",
        finding_acts.AcceptanceWithdrawView.as_view(),
        name="api-acceptance-withdraw",
    ),
    path("reports/<int:pk>/approve/", report_acts.ReportApproveView.as_view(), name="api-report-approve"),
    path("reports/<int:pk>/hold/", report_acts.ReportHoldView.as_view(), name="api-report-hold"),
    path("reports/<int:pk>/release/", report_acts.ReportReleaseView.as_view(), name="api-report-release"),
    path("reports/<int:pk>/edit/", report_acts.ReportEditView.as_view(), name="api-report-edit"),
    path("reports/<int:pk>/reject/", report_acts.ReportRejectView.as_view(), name="api-report-reject"),
    path(
        "machines/<slug:name>/maintenance/",
        lab_acts.MachineMaintenanceView.as_view(),
        name="api-machine-maintenance",
    ),
    path("machines/<slug:name>/enrolment/", lab_acts.MachineEnrolmentView.as_view(), name="api-machine-enrolment"),
    path("builds/<int:pk>/again/", lab_acts.BuildAgainView.as_view(), name="api-build-again"),
]

urlpatterns = [
    path("agent/", include(agent_patterns)),
    path("enrolments/", hosts.EnrolmentView.as_view(), name="agent-enrolment"),
    path("", include(act_patterns)),
    path("series/", SeriesListOrSubmissionView.as_view(), name="api-series-list"),
    path("series/<int:pk>/", series.SeriesView.as_view(), name="api-series-detail"),
    path("series/<int:pk>/patches/", series.SeriesPatchesView.as_view(), name="api-series-patches"),
    path("series/<int:pk>/history/", series.SeriesHistoryView.as_view(), name="api-series-history"),
    path(
        "series/<int:pk>/cases/<slug:benchmark>/<slug:case>/", series.SeriesCaseView.as_view(), name="api-series-case"
    ),
    path(
        "findings/<int:pk>/cases/<slug:benchmark>/<slug:case>/",
        pairs.FindingCaseView.as_view(),
        name="api-finding-case",
    ),
    path("sessions/", sessions.SessionListView.as_view(), name="api-session-list"),
    path("sessions/<int:pk>/", sessions.SessionView.as_view(), name="api-session-detail"),
    path("sessions/<int:pk>/cells/", sessions.SessionCellsView.as_view(), name="api-session-cells"),
    path("sessions/<int:pk>/samples/", sessions.SamplesView.as_view(), name="api-session-samples"),
    path("uarchs/", hosts.UarchListView.as_view(), name="api-uarch-list"),
    path("machines/", hosts.MachineListView.as_view(), name="api-machine-list"),
    path("machines/<slug:name>/", hosts.MachineView.as_view(), name="api-machine-detail"),
    path("machines/<slug:name>/noise/", noise.MachineNoiseView.as_view(), name="api-machine-noise"),
    path("what-if/", noise.WhatIfView.as_view(), name="api-what-if"),
    path("machine-questions/", noise.MachineQuestionListView.as_view(), name="api-machine-question-list"),
    path("builders/", hosts.BuilderListView.as_view(), name="api-builder-list"),
    path("builders/<slug:name>/", hosts.BuilderView.as_view(), name="api-builder-detail"),
    path("findings/", findings.FindingListView.as_view(), name="api-finding-list"),
    path("findings/<int:pk>/", findings.FindingView.as_view(), name="api-finding-detail"),
    path("findings/<int:pk>/patchwork/", reports.FindingPatchworkView.as_view(), name="api-finding-patchwork"),
    path("findings/<int:pk>/kcidb/", reports.FindingKcidbView.as_view(), name="api-finding-kcidb"),
    path("findings/<int:pk>/regzbot/", reports.FindingRegzbotView.as_view(), name="api-finding-regzbot"),
    path("findings/<int:pk>/trailers/", reports.FindingTrailersView.as_view(), name="api-finding-trailers"),
    path("transitions/", TransitionStreamView.as_view(), name="api-transitions"),
    path("compare/", pairs.PairView.as_view(), name="api-compare"),
    path("reports/", reports.ReportListView.as_view(), name="api-report-list"),
    path("deliveries/", reports.DeliveryListView.as_view(), name="api-delivery-list"),
    path("commands/", reports.MailCommandListView.as_view(), name="api-mail-command-list"),
    path("acceptances/", reports.AcceptanceListView.as_view(), name="api-acceptance-list"),
    path("subscriptions/", subscription_acts.SubscriptionListView.as_view(), name="api-subscription-list"),
    path(
        "subscriptions/<int:pk>/change/",
        subscription_acts.SubscriptionChangeView.as_view(),
        name="api-subscription-change",
    ),
    path(
        "subscriptions/<int:pk>/secret/",
        subscription_acts.SubscriptionSecretView.as_view(),
        name="api-subscription-secret",
    ),
    path("subscriptions/<int:pk>/end/", subscription_acts.SubscriptionEndView.as_view(), name="api-subscription-end"),
    path("catalogue/", benchmarks.CatalogueView.as_view(), name="api-catalogue"),
    path("benchmarks/", benchmarks.BenchmarkListView.as_view(), name="api-benchmark-list"),
    path("cases/", benchmarks.CaseListView.as_view(), name="api-case-list"),
    path("metrics/", benchmarks.MetricListView.as_view(), name="api-metric-list"),
    path("measurements/", benchmarks.MeasurementListView.as_view(), name="api-measurement-list"),
    path("timeline/", timelines.CaseTimelineView.as_view(), name="api-timeline"),
    path("timelines/", timelines.TimelineListView.as_view(), name="api-timeline-list"),
    path("timelines/<int:pk>/", timelines.TimelineView.as_view(), name="api-timeline-detail"),
    path("builds/", builds.BuildListView.as_view(), name="api-build-list"),
    path("builds/<int:pk>/", builds.BuildView.as_view(), name="api-build-detail"),
    path("attempts/", attempts.AttemptListView.as_view(), name="api-attempt-list"),
    path("attempts/<slug:key>/", attempts.AttemptView.as_view(), name="api-attempt-detail"),
    path("power-cycles/", attempts.PowerCycleListView.as_view(), name="api-power-cycle-list"),
    path("queue/", attempts.QueueView.as_view(), name="api-queue"),
    path("trees/", trees.TreeListView.as_view(), name="api-tree-list"),
    path("trees/<slug:name>/", trees.TreeView.as_view(), name="api-tree-detail"),
    path("branches/", trees.BranchListView.as_view(), name="api-branch-list"),
    path("head-moves/", trees.HeadMoveListView.as_view(), name="api-head-move-list"),
    path("wanted-revisions/", trees.WantedRevisionListView.as_view(), name="api-wanted-revision-list"),
    path("tags/", trees.TagListView.as_view(), name="api-tag-list"),
    path("messages/", messages.MessageListView.as_view(), name="api-message-list"),
    path("messages/<int:pk>/", messages.MessageView.as_view(), name="api-message-detail"),
    path("lists/", trees.MailingListListView.as_view(), name="api-list-list"),
    path("schema/", DescriptionView.as_view(), name="api-schema"),
    path("docs/", docs, name="api-docs"),
    re_path(r"", trees.nothing_here, name="api-nothing-here"),
]
