from django.contrib import admin

from server.builds.models import Artifact, Build, ConfigFragment, KernelConfig, Toolchain
from server.core.admin import KeptAdmin, PartsInline, ReadOnlyAdmin


@admin.register(ConfigFragment)
class ConfigFragmentAdmin(KeptAdmin):
    list_display = ["name", "arch"]
    list_filter = ["arch"]
    search_fields = ["name", "lines"]


@admin.register(KernelConfig)
class KernelConfigAdmin(KeptAdmin):
    list_display = ["name", "arch", "base"]
    list_filter = ["arch"]
    search_fields = ["name", "fragment"]


@admin.register(Toolchain)
class ToolchainAdmin(KeptAdmin):
    list_display = ["name", "compiler"]
    search_fields = ["name", "compiler"]


class ArtifactInline(PartsInline):
    model = Artifact
    readonly_fields = ["kind", "sha256", "size"]


@admin.register(Build)
class BuildAdmin(ReadOnlyAdmin):
    list_display = ["id", "revision", "config", "toolchain", "arch", "state", "reason", "state_since"]
    list_filter = ["state", "config", "toolchain"]
    list_select_related = ["revision", "config", "toolchain"]
    search_fields = ["revision__sha", "tree_sha", "build_id", "=trace"]
    inlines = [ArtifactInline]


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["build_number", "kind", "sha256", "size"]
    list_filter = ["kind"]
    search_fields = ["sha256"]

    @admin.display(description="build")
    def build_number(self, artifact: Artifact) -> str:
        return f"build {artifact.build_id}"
