from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "server.dashboard"
    label = "dashboard"
