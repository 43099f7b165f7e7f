"""Builds whose files a person wants to keep, however old they get."""

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from server.builds.models import Artifact, Build, ConfigFragment, KernelConfig, Toolchain
from server.core.admin import KeptAdmin, PartsInline, ReadOnlyAdmin, each
from server.core.models import Transition
from server.core.reasons import Because


def pin_build(build: Build, *, pinned: bool, actor: str) -> bool:
    """Pin or unpin; returns whether that changed anything. Who did it becomes a line of the build's history."""
    with transaction.atomic():
        if Build.objects.filter(pk=build.pk, pinned=not pinned).update(pinned=pinned) != 1:
            return False
        Transition.objects.create(
            trace=build.trace,
            subject="build",
            subject_id=build.pk,
            before=build.state,
            after=build.state,
            **Because.BY_PERSON(
                "pinned: its files stay" if pinned else "unpinned: its files go when they are old"
            ).columns(),
            actor=actor,
        )
    return True


@admin.register(ConfigFragment)
class ConfigFragmentAdmin(KeptAdmin):
    list_display = ["name", "arch"]
    list_filter = ["arch"]
    search_fields = ["name", "lines"]


@admin.register(KernelConfig)
class KernelConfigAdmin(KeptAdmin):
    list_display = ["name", "arch", "base", "fragments", "layout_of", "perf"]
    list_select_related = ["layout_of"]
    list_filter = ["arch"]
    search_fields = ["name", "fragment"]


@admin.register(Toolchain)
class ToolchainAdmin(KeptAdmin):
    list_display = ["name", "family", "compiler", "cross"]
    search_fields = ["name", "compiler"]


class ArtifactInline(PartsInline):
    model = Artifact
    readonly_fields = ["kind", "sha256", "size", "removed_at", "removal", "checked_at"]


@admin.register(Build)
class BuildAdmin(ReadOnlyAdmin):
    documents = ("log_tail", "first_error", "config__fragment")
    list_display = ["id", "revision", "config", "toolchain", "arch", "state", "reason", "state_since"]
    list_filter = ["state", "config", "toolchain"]
    list_select_related = ["revision", "config", "toolchain"]
    search_fields = ["revision__sha", "tree_sha", "build_id", "text_hash", "=trace"]
    inlines = [ArtifactInline]
    actions = ["pin", "unpin"]

    def has_pin_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("builds.change_build")

    @admin.action(description="Pin: its files are never removed for age or room", permissions=["pin"])
    def pin(self, request: HttpRequest, queryset: QuerySet[Build]) -> None:
        each(self, request, queryset, lambda build: pin_build(build, pinned=True, actor=request.user.get_username()))

    @admin.action(description="Unpin: its files go like all others", permissions=["pin"])
    def unpin(self, request: HttpRequest, queryset: QuerySet[Build]) -> None:
        each(self, request, queryset, lambda build: pin_build(build, pinned=False, actor=request.user.get_username()))


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["build_number", "kind", "sha256", "size", "removed_at", "checked_at"]
    list_filter = ["kind"]
    search_fields = ["sha256"]

    @admin.display(description="build")
    def build_number(self, artifact: Artifact) -> str:
        return f"build {artifact.build_id}"
