import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client

from server.builds.models import Toolchain
from server.core.models import Transition
from tests.builders import build_build

pytestmark = pytest.mark.django_db


def test_person_pins_and_unpins_a_build_and_is_named_in_its_history(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    build = build_build()
    for action, pinned in (("pin", True), ("pin", True), ("unpin", False)):
        client.post("/admin/builds/build/", {"action": action, "_selected_action": [build.pk]})
        build.refresh_from_db()
        assert build.pinned is pinned
    steps = Transition.objects.filter(subject="build", subject_id=build.pk, actor="ada").order_by("id")
    assert [step.reason.partition(":")[0] for step in steps] == ["pinned", "unpinned"]


@pytest.mark.parametrize("cross", [["aarch64-linux-gnu-"], {"arm64": 1}])
def test_toolchain_s_prefixes_are_a_table_of_words(cross: object) -> None:
    with pytest.raises(ValidationError, match="table of prefixes"):
        Toolchain(name="gcc", compiler="gcc", cross=cross).full_clean()
