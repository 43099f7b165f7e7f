"""Archives of modules, good and hostile."""

import io
import tarfile
from pathlib import Path

import pytest
from tidemark_agent.boot.install import install_modules, remove_modules, unpack_modules
from tidemark_agent.errors import InfrastructureError

RELEASE = "7.3.4-test"
GOOD = {
    f"lib/modules/{RELEASE}/kernel/fs/ext4.ko": b"ext4",
    f"lib/modules/{RELEASE}/modules.dep": b"",
    "tidemark/folio-copy-0123.ko": b"bench",
}


def archive(path: Path, files: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
        for about in extra:
            tar.addfile(about)
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.type, about.linkname = kind, target
    return about


def test_modules_and_benchmarks_are_unpacked_in_their_places(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert unpack_modules(archive(tmp_path / "a", GOOD), target) == RELEASE
    assert {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()} == set(GOOD)


def test_archive_of_benchmark_modules_alone_has_no_release(tmp_path: Path) -> None:
    assert unpack_modules(archive(tmp_path / "a", {"tidemark/x-1.ko": b""}), tmp_path / "out") == ""


def test_links_into_the_build_machine_are_left_out(tmp_path: Path) -> None:
    link = special(f"lib/modules/{RELEASE}/build", tarfile.SYMTYPE, "/build/linux")
    assert unpack_modules(archive(tmp_path / "a", GOOD, link), tmp_path / "out") == RELEASE
    assert not (tmp_path / "out/lib/modules" / RELEASE / "build").is_symlink()


@pytest.mark.parametrize(
    "extra",
    [
        special("../outside", tarfile.REGTYPE),
        special("/etc/shadow", tarfile.REGTYPE),
        special(f"lib/modules/{RELEASE}/../../../etc/x", tarfile.REGTYPE),
        special("lib/modules/../x", tarfile.REGTYPE),
        special("etc/cron.d/x", tarfile.REGTYPE),
        special("lib/firmware/x", tarfile.REGTYPE),
        special("tidemark/not-a-module.sh", tarfile.REGTYPE),
        special("tidemark/sub/x-1.ko", tarfile.REGTYPE),
        special("lib/modules/.hidden/x", tarfile.REGTYPE),
        special(f"lib/modules/{RELEASE}/kernel/l.ko", tarfile.SYMTYPE, "/etc/shadow"),
        special(f"lib/modules/{RELEASE}/l.ko", tarfile.LNKTYPE, "../../../etc/shadow"),
        special(f"lib/modules/{RELEASE}/f", tarfile.FIFOTYPE),
        special(f"lib/modules/{RELEASE}/d", tarfile.CHRTYPE),
        special(f"lib/modules/{RELEASE}/{'d/' * 30}x.ko", tarfile.REGTYPE),
        special("lib/modules/another-release/x.ko", tarfile.REGTYPE),
        special(f"lib/modules/{RELEASE}/modules.dep", tarfile.REGTYPE),
    ],
    ids=lambda about: f"{about.name[-60:]}-{about.type.decode()}",
)
def test_hostile_member_refuses_the_whole_archive(tmp_path: Path, extra: tarfile.TarInfo) -> None:
    with pytest.raises(InfrastructureError, match="archive of modules"):
        unpack_modules(archive(tmp_path / "a", GOOD, extra), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "outside").exists()


def test_archive_with_more_than_its_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.boot.install._MOST_BYTES", 6)
    with pytest.raises(InfrastructureError, match="6 bytes"):
        unpack_modules(archive(tmp_path / "a", GOOD), tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\0\0\0\0\0"])
def test_what_is_no_archive_is_infrastructure(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InfrastructureError, match="cannot be unpacked"):
        unpack_modules(tmp_path / "a", tmp_path / "out")


def test_truncated_archive_is_infrastructure(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a", {"tidemark/x-1.ko": bytes(range(256)) * 400}).read_bytes()
    (tmp_path / "b").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InfrastructureError, match="cannot be unpacked"):
        unpack_modules(tmp_path / "b", tmp_path / "out")


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    unpack_modules(archive(tmp_path / "a", GOOD), tmp_path / "out")
    return tmp_path / "out"


def test_modules_are_installed_once_for_each_archive(unpacked: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    install_modules(unpacked, RELEASE, mark="one", root=root)
    module = root / "lib/modules" / RELEASE / "kernel/fs/ext4.ko"
    assert module.read_bytes() == b"ext4"
    module.write_bytes(b"touched")
    install_modules(unpacked, RELEASE, mark="one", root=root)
    assert module.read_bytes() == b"touched"
    install_modules(unpacked, RELEASE, mark="two", root=root)
    assert module.read_bytes() == b"ext4"


def test_modules_of_an_installed_kernel_are_never_replaced(unpacked: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "root/lib/modules" / RELEASE / "kernel"
    theirs.mkdir(parents=True)
    with pytest.raises(InfrastructureError, match="belongs to an installed kernel"):
        install_modules(unpacked, RELEASE, mark="one", root=tmp_path / "root")
    remove_modules(tmp_path / "root")
    assert theirs.is_dir()


def test_power_cut_while_installing_is_mended_by_the_next_try(unpacked: Path, tmp_path: Path) -> None:
    place = tmp_path / "root/lib/modules"
    install_modules(unpacked, RELEASE, mark="one", root=tmp_path / "root")
    (place / RELEASE).rename(place / f".{RELEASE}.tidemark-old")
    (place / f".{RELEASE}.tidemark-new").mkdir()
    install_modules(unpacked, RELEASE, mark="two", root=tmp_path / "root")
    assert [path.name for path in place.iterdir()] == [RELEASE]
    remove_modules(tmp_path / "root")
    assert list(place.iterdir()) == []
