"""The controller, its nodes and jobs, and runs there, for inspection."""

from django.contrib import admin

from server.core.admin import ReadOnlyAdmin
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob, JenkinsNode, JenkinsRun


@admin.register(JenkinsRun)
class JenkinsRunAdmin(ReadOnlyAdmin):
    list_display = ["attempt", "job", "number", "queue_id", "result", "why", "seen_at"]
    documents = ("console", "attempt__log")
    list_filter = ["job", "result"]
    list_select_related = ["attempt"]
    search_fields = ["attempt__key"]


@admin.register(JenkinsController)
class JenkinsControllerAdmin(ReadOnlyAdmin):
    list_display = ["url", "version", "answered_at", "unreachable_since", "alarm"]


@admin.register(JenkinsNode)
class JenkinsNodeAdmin(ReadOnlyAdmin):
    list_display = ["name", "online", "connected", "temporarily_offline", "offline_reason", "held_for", "seen_at"]


@admin.register(JenkinsJob)
class JenkinsJobAdmin(ReadOnlyAdmin):
    list_display = ["name", "problem", "checked_at"]
