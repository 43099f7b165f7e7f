"""Answering questions about machines in the admin: a text, and the name of who is logged in."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import PlainAdmin, each
from server.detection.models import MachineQuestion
from server.detection.noise.questions import answer_question
from server.lab.admin_actions import ReasonForm


class QuestionActions(PlainAdmin):
    action_form = ReasonForm
    actions = ["answer"]

    def has_answer_permission(self, request: HttpRequest) -> bool:
        """The rows are read-only, so that the page's own permission to change them is nobody's."""
        return request.user.has_perm("detection.change_machinequestion")

    @admin.action(description="Answer: what was found", permissions=["answer"])
    def answer(self, request: HttpRequest, queryset: "QuerySet[MachineQuestion]") -> None:
        actor, text = request.user.get_username(), request.POST.get("reason", "").replace("\0", "")
        each(self, request, queryset, lambda question: answer_question(question, actor, text))
