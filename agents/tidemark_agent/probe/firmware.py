"""Firmware and board, as DMI or the device tree tells."""

from collections.abc import Mapping

from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import clean, raw_text, text

# The same directory by both its names: a recorded tree may have only one of them.
_DMI = ("sys/class/dmi/id", "sys/devices/virtual/dmi/id")
_DEVICE_TREE = ("proc/device-tree", "sys/firmware/devicetree/base")
# What boards show that nobody filled in.
_PLACEHOLDERS = frozenset({"", "default string", "to be filled by o.e.m.", "not specified", "none", "n/a", "unknown"})
_FIRMWARE = {
    "vendor": "bios_vendor",
    "version": "bios_version",
    "date": "bios_date",
    "release": "bios_release",
    "controller": "ec_firmware_release",
}
# Serial numbers are left out: they name a single machine to everyone who reads its facts.
_BOARD = {
    "vendor": "sys_vendor",
    "product": "product_name",
    "product_version": "product_version",
    "board_vendor": "board_vendor",
    "board": "board_name",
    "board_version": "board_version",
    "chassis": "chassis_type",
}


def dmi(tree: Tree, name: str) -> str:
    """One string of DMI, "" if nobody filled it in."""
    told = next(filter(None, (text(tree, f"{where}/{name}") for where in _DMI)), "")
    return "" if told.lower() in _PLACEHOLDERS else told


def device_tree(tree: Tree, name: str) -> tuple[str, ...]:
    """The strings of one property of the device tree; they end with NUL."""
    told = next(filter(None, (raw_text(tree, f"{where}/{name}") for where in _DEVICE_TREE)), "")
    return tuple(filter(None, map(clean, told.split("\0"))))


def firmware(tree: Tree) -> Mapping[str, str]:
    """Who made it, its version and date; `boot` is efi, bios or devicetree, where it is known."""
    told = {name: dmi(tree, file) for name, file in _FIRMWARE.items()}
    if tree.names("sys/firmware/efi"):
        told["boot"] = "efi"
    elif told["vendor"]:
        told["boot"] = "bios"
    elif device_tree(tree, "compatible"):
        told["boot"] = "devicetree"
    return {name: said for name, said in told.items() if said}


def board(tree: Tree) -> Mapping[str, str]:
    told = {name: dmi(tree, file) for name, file in _BOARD.items()}
    told["model"] = " ".join(device_tree(tree, "model"))
    told["compatible"] = " ".join(device_tree(tree, "compatible"))
    return {name: said for name, said in told.items() if said}
