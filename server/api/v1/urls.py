from django.urls import include, path

urlpatterns = [
    path("agent/", include("server.api.v1.agent_urls")),
]
