"""agent.toml."""

from pathlib import Path

import pytest
from tidemark_agent.config import ConfigError, read_config

LEAST = 'server = "https://t.example.org"\ntoken_file = "/etc/tidemark/token"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.toml"
    path.write_text(text)
    return path


def test_least_configuration_has_the_documented_defaults(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, LEAST))
    assert (config.server, config.token_file) == ("https://t.example.org", Path("/etc/tidemark/token"))
    assert config.state_dir == Path("/var/lib/tidemark-agent")
    assert (config.boot.command_line, config.boot.words, config.boot.away_seconds) == (None, "panic=10 oops=panic", 900)
    assert config.boot.grub_environment == Path("/boot/grub/grubenv")
    assert (config.prepare.quiet_services, dict(config.programs), config.counters) == ((), {}, False)


def test_everything_can_be_chosen(tmp_path: Path) -> None:
    config = read_config(
        write(
            tmp_path,
            LEAST
            + """
state_dir = "/srv/tidemark"
ca_file = "/etc/tidemark/ca.pem"
counters = true
[boot]
command_line = "root=/dev/vda1 ro"
initramfs = ["mkinitramfs", "-o", "{initramfs}", "{release}"]
reboot = ["systemctl", "kexec"]
watchdog = "/dev/watchdog0"
away_seconds = 1800
[prepare]
housekeeping_cpus = "0"
quiet_services = ["cron.service"]
tolerate = ["boost"]
[build]
ccache = "/var/cache/tidemark/ccache"
jobs = 16
git_credentials = "/etc/tidemark/git-credentials"
[power]
command = ["/etc/tidemark/power-cycle", "{machine}"]
timeout_seconds = 300
[programs]
perf = "/opt/tidemark/perf"
usemem = {path = "/opt/usemem", sha256 = "%s"}
"""
            % ("ab" * 32),
        )
    )
    assert config.boot.initramfs[-1] == "{release}"
    assert (config.ca_file, config.boot.away_seconds) == (Path("/etc/tidemark/ca.pem"), 1800)
    assert (config.prepare.housekeeping_cpus, config.prepare.tolerate) == ("0", frozenset({"boost"}))
    assert config.programs == {"perf": Path("/opt/tidemark/perf"), "usemem": Path("/opt/usemem")}
    assert (config.build.ccache, config.build.jobs) == (Path("/var/cache/tidemark/ccache"), 16)
    assert config.build.git_credentials == Path("/etc/tidemark/git-credentials")
    assert config.power.command == ("/etc/tidemark/power-cycle", "{machine}")
    assert config.power.timeout_seconds == 300
    assert config.pins == {"usemem": "ab" * 32}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('token_file = "/t"', "server is missing"),
        (LEAST + "sever = 1", "unknown key sever"),
        (LEAST + "[boot]\ncommandline = 'x'", "unknown key boot.commandline"),
        (LEAST + "[boot]\ninitramfs = 'mkinitramfs'", "boot.initramfs must be a list"),
        (LEAST + "[boot]\naway_seconds = 3601", "from 0 to 3600"),
        (LEAST + "[boot]\naway_seconds = true", "from 0 to 3600"),
        (LEAST + "boot = 3", r"\[boot\] must be a table"),
        (LEAST + "[build]\nccache = 'cache'", "no absolute path"),
        (LEAST + "[build]\njobs = -1", "build.jobs must be a number"),
        (LEAST + "[power]\ncommand = ['ipmitool', '{machine}']", "no absolute path"),
        (LEAST + "[power]\ntimeout_seconds = 0", "above 0"),
        (LEAST + "counters = 1", "true or false"),
        (LEAST + "[prepare]\nhousekeeping_cpus = 'all'", "no list of CPUs"),
        (LEAST + "[prepare]\ntolerate = ['noise']", "no setting is called noise"),
        (LEAST + "[programs]\nperf = 'perf'", "no absolute path"),
        (LEAST + "[programs]\nperf = {path = '/p', sha256 = 'AB'}", "no SHA-256"),
        (LEAST + "[programs]\nperf = {path = '/p', hash = 'ab'}", "unknown key programs.perf.hash"),
        ('server = "ftp://x"\ntoken_file = "/t"', "no address of a service"),
        ("server = ", "cannot be read"),
    ],
)
def test_mistake_is_named_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_config(write(tmp_path, text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.toml"):
        read_config(tmp_path / "agent.toml")
