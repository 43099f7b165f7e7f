from django.urls import path

from server.api.v1 import agent

urlpatterns = [
    path("attempts/<str:key>/claim", agent.ClaimView.as_view(), name="agent-claim"),
    path("attempts/<str:key>/arrive", agent.ArriveView.as_view(), name="agent-arrive"),
    path("attempts/<str:key>/heartbeat", agent.HeartbeatView.as_view(), name="agent-heartbeat"),
    path("attempts/<str:key>/build", agent.BuildResultView.as_view(), name="agent-build"),
    path("attempts/<str:key>/boots/<int:position>/start", agent.BootStartView.as_view(), name="agent-boot-start"),
    path("attempts/<str:key>/boots/<int:position>", agent.BootResultView.as_view(), name="agent-boot"),
    path("attempts/<str:key>/end", agent.EndView.as_view(), name="agent-end"),
    path("hello", agent.HelloView.as_view(), name="agent-hello"),
    path("token", agent.TokenView.as_view(), name="agent-token"),
    path("artifacts/<str:sha256>", agent.ArtifactView.as_view(), name="agent-artifact"),
]
