from django.apps import AppConfig


class DetectionConfig(AppConfig):
    name = "server.detection"
    label = "detection"
