"""A whole disk that boots by GRUB, made without root: boot sector, GRUB, one partition with the testbed's system."""

import struct
from pathlib import Path

from tests.testbed.disk import Disk, Files
from tests.testbed.machine import COMMAND_LINE, PSTORE
from tests.testbed.paths import program, run
from tests.testbed.system import system_image

_SECTOR = 512
_PARTITION = 2048
_MODULES_AT = Path("/usr/lib/grub/i386-pc")
# What the configuration below needs: GRUB loads nothing from the disk then but its configuration and the kernels.
_MODULES = (
    "part_msdos", "ext2", "biosdisk", "normal", "linux", "loadenv", "configfile", "test", "echo", "ls", "sleep",
    "serial", "terminal", "search", "gzio", "reboot",
)  # fmt: skip
_CODE_BYTES = 440
_TABLE = 446
_LINUX = 0x83
# The one-shot words are those that Debian's 00_header and 41_custom write.
_CONFIGURATION = """\
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
  set default="${next_entry}"
  set next_entry=
  save_env next_entry
  set boot_once=true
else
  set default="0"
fi
set timeout=0
menuentry 'Safe kernel' --id safe {
  linux /boot/vmlinuz-safe COMMAND_LINE
}
if [ -f ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
elif [ -z "${config_directory}" -a -f $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
"""
ROOT_WORDS = COMMAND_LINE.replace("/dev/vda", "/dev/vda1")


def grub_disk(image: Path, safe: Path, files: Files, *, folder: Path) -> Disk:
    """A disk whose default is the kernel `safe` and which boots `next_entry` of its environment once."""
    # The file system does not care where on the disk it begins.
    run([program("dd"), f"if={system_image()}", f"of={image}", "bs=1M", "seek=1", "conv=sparse", "status=none"])
    size = (image.stat().st_size - _PARTITION * _SECTOR) // _SECTOR
    with image.open("r+b") as stream:
        stream.write(_boot_sector(size))
        stream.write(_core(folder))
    disk = Disk(image, offset=_PARTITION * _SECTOR)
    command_line = f"{ROOT_WORDS} {PSTORE}".replace("$", r"\$")
    environment = folder / "grubenv"
    environment.unlink(missing_ok=True)
    run([program("grub-editenv"), environment, "create"])
    disk.write(
        {
            "/boot/grub/grub.cfg": _CONFIGURATION.replace("COMMAND_LINE", command_line),
            "/boot/grub/grubenv": environment,
            "/boot/vmlinuz-safe": safe,
            **files,
        }
    )
    return disk


def _boot_sector(size: int) -> bytes:
    """GRUB's code, which loads what follows it, and a table of one bootable partition of `size` sectors."""
    code = (_MODULES_AT / "boot.img").read_bytes()[:_CODE_BYTES]
    # Cylinders and heads are at their end: only the sectors' numbers count.
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", _LINUX, b"\xfe\xff\xff", _PARTITION, size)
    return code.ljust(_TABLE, b"\0") + entry.ljust(_SECTOR - 2 - _TABLE, b"\0") + b"\x55\xaa"


def _core(folder: Path) -> bytes:
    """GRUB itself with its modules; knows where on the disk its configuration is."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "core.img"
    run([program("grub-mkimage"), "-O", "i386-pc", "-o", out, "-p", "(hd0,msdos1)/boot/grub", *_MODULES])
    core = out.read_bytes()
    if len(core) > (_PARTITION - 1) * _SECTOR:
        raise ValueError("GRUB does not fit between boot sector and partition")
    return core
