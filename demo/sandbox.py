"""Whether builds can be shut off here, asked before anything is made."""

import subprocess
from collections.abc import Mapping

from demo.errors import DemoError

# What the agent's sandbox asks of the kernel: namespaces of every kind, and a /proc and /dev of its own.
_COMMAND = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
_SECONDS = 20
_WAY_OUT = (
    "TIDEMARK_BUILD_SANDBOX=none in the environment does without: kernels are then built with all the rights of this "
    "user, so only where the machine is thrown away or every series is trusted, as the demo's own are"
)


def require_sandbox(environ: Mapping[str, str]) -> None:
    """Raise a DemoError that says what is missing, unless the operator does without."""
    if environ.get("TIDEMARK_BUILD_SANDBOX") == "none":
        return
    try:
        done = subprocess.run(
            [*_COMMAND, "true"], capture_output=True, timeout=_SECONDS, check=False, env={**environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise DemoError(f"bwrap, which shuts builds off, is not installed: `make setup`. {_WAY_OUT}") from None
    except subprocess.TimeoutExpired:
        raise DemoError(f"bwrap, which shuts builds off, did not answer in {_SECONDS} seconds. {_WAY_OUT}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
        raise DemoError(
            f"builds cannot be shut off, for this user or container may not make user namespaces (bwrap: {said}). "
            f"Allow them (sysctl kernel.unprivileged_userns_clone or user.max_user_namespaces, or the container's "
            f"seccomp and AppArmor profiles). {_WAY_OUT}"
        )
