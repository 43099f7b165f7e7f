"""`make pins`: names the images of docker-compose.yml by their digests, in `.env`, which Compose reads.

Each name is the setting's value in the environment, else the default in docker-compose.yml. The images are pulled: what
is written is what was got. Lines of `.env` for other settings stay.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NAMED = re.compile(r"\$\{(TIDEMARK_\w+_IMAGE):-([^}]+)\}")
_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")


class PinError(Exception):
    pass


def wanted(compose: str, environ: dict[str, str]) -> dict[str, str]:
    """The image that each setting names."""
    return {name: environ.get(name) or default for name, default in _NAMED.findall(compose)}


def pinned(lines: list[str], digests: dict[str, str]) -> list[str]:
    """The lines of an env file with these settings in them, once each."""
    kept = [line for line in lines if line.partition("=")[0] not in digests]
    return [*kept, *(f"{name}={digest}" for name, digest in digests.items())]


def digest_of(image: str) -> str:
    if _DIGEST.fullmatch(image):
        return image
    _docker("pull", "--quiet", image)
    found = _docker("image", "inspect", "--format", '{{join .RepoDigests "\\n"}}', image).split()
    repository = re.sub(r":[^:/]+$", "", image)
    own = [digest for digest in found if digest.partition("@")[0].removeprefix("docker.io/") == repository]
    if not own:
        raise PinError(f"{image} has no digest: it came from no registry")
    return own[0]


def _docker(*words: str) -> str:
    try:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PinError("docker is not installed") from error
    if done.returncode:
        raise PinError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.pins", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".env", help="default: .env beside docker-compose.yml")
    parser.add_argument(
        "--only", nargs="*", help="settings to pin, else all: those of profiles that you do not use need no pull"
    )
    options = parser.parse_args()
    images = wanted((ROOT / "docker-compose.yml").read_text(encoding="utf-8"), dict(os.environ))
    if options.only:
        images = {name: image for name, image in images.items() if name in options.only}
    try:
        digests = {name: digest_of(image) for name, image in images.items()}
    except PinError as error:
        print(f"pins: {error}", file=sys.stderr)
        return 1
    before = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    part = options.out.with_name(f"{options.out.name}.part")
    part.unlink(missing_ok=True)
    if options.out.exists():
        # It may hold secrets of other settings: never readable for more than before, nor for fewer.
        part.touch(mode=0o600)
        shutil.copymode(options.out, part)
    part.write_text("\n".join(pinned(before, digests)) + "\n", encoding="utf-8")
    part.replace(options.out)
    for name, digest in digests.items():
        print(f"{name}={digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
