"""Images to stand for the published ones where no registry of images is reached: made of Debian's packages."""

import hashlib
import shutil
from pathlib import Path

from demo.source import _sources
from scripts.e2e_compose.engine import Engine
from scripts.e2e_jenkins.host import StepError

_SUITE = "bookworm"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_APT = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
# What the published image does for a folder without data, as far as docker-compose.yml asks for it.
_POSTGRES_START = r"""#!/bin/sh
set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
    initdb -D $data -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 \
        --auth-local=trust --encoding=UTF8 --locale=C.UTF-8
    echo 'host all all all scram-sha-256' >>$data/pg_hba.conf
    pg_ctl -D $data -w -o "-c listen_addresses=''" start
    createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -D $data -m fast -w stop
fi
exec postgres -D $data -c listen_addresses='*'
"""
_LAYERS = {
    "python": f"RUN {_APT} python3 python3-venv",
    "node": f"RUN {_APT} npm",
    "postgres": (
        "RUN groupadd -g 999 postgres && useradd -u 999 -g 999 -d /var/lib/postgresql postgres\n"
        f"RUN {_APT} postgresql \\\n"
        " && install -d -o 999 -g 999 -m 700 /var/lib/postgresql/data\n"
        "COPY postgres-start /usr/local/bin/postgres-start\n"
        'ENTRYPOINT ["/usr/local/bin/postgres-start"]\n'
        "STOPSIGNAL SIGINT"
    ),
    "redis": (
        f"RUN groupadd -g 999 redis && useradd -u 999 -g 999 redis && {_APT} redis-server \\\n"
        " && install -d -o 999 -g 999 /data\nWORKDIR /data"
    ),
    "proxy": f"RUN {_APT} nginx-light",
}


def base_archive(engine: Engine, cache: Path) -> Path:
    """A minimal Debian as an archive, kept for the next run."""
    archive = cache / "debian.tar"
    if archive.exists():
        return archive
    folder = cache / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    mirror = next(line.split()[0] for line in _sources(_SUITE) if line.split()[1] == _SUITE)
    script = engine.root / "usr/sbin/debootstrap"
    engine.run(script, "--variant=minbase", "--include=ca-certificates", _SUITE, folder, mirror)
    part = archive.with_suffix(".part")
    engine.run("tar", "--exclude=./var/cache/apt/archives/*.deb", "-C", folder, "-cf", part, ".")
    part.rename(archive)
    shutil.rmtree(folder)
    return archive


def make_bases(engine: Engine, cache: Path, scratch: Path) -> dict[str, str]:
    """Each base in the run's registry, which keeps them; the address by the word in the name of its setting."""
    made = {name: f"{engine.registry}/tidemark-e2e/{name}:{_recipe(name)}" for name in _LAYERS}
    missing = [name for name in made if not _is_there(engine, made[name])]
    if not missing:
        return made
    engine.run("docker", "import", base_archive(engine, cache), "tidemark-e2e/debian")
    context = scratch / "bases"
    context.mkdir()
    shutil.copy(_CERTIFICATES, context / "certificates")
    start = context / "postgres-start"
    start.write_text(_POSTGRES_START)
    start.chmod(0o755)
    for name in missing:
        file = context / f"{name}.dockerfile"
        file.write_text(
            # Package indexes are asked with the certificates that this host trusts.
            "FROM tidemark-e2e/debian\nCOPY certificates /etc/ssl/certs/ca-certificates.crt\n"
            "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \\\n"
            "    NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt \\\n"
            "    npm_config_cafile=/etc/ssl/certs/ca-certificates.crt\n"
            f"{_LAYERS[name]}\n"
        )
        engine.run("docker", "build", "--network=host", "--tag", made[name], "--file", file, context)
        engine.run("docker", "push", "--quiet", made[name])
    return made


def _recipe(name: str) -> str:
    text = _LAYERS[name] + (_POSTGRES_START if name == "postgres" else "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_there(engine: Engine, image: str) -> bool:
    try:
        engine.run("docker", "pull", "--quiet", image)
    except StepError:
        return False
    return True
