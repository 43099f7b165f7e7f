from django.apps import AppConfig


class ResultsConfig(AppConfig):
    name = "server.results"
    label = "results"
