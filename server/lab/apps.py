from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "server.lab"
    label = "lab"
