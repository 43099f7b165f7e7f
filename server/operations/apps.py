from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "server.operations"
    label = "operations"
