"""Real list series applied by the service, and by `b4 am` with `git am -3` in a full checkout: the trees must be equal.

python -m bench.scratch_database bench.bases_b4 [CORPUS [PART]]: series of the corpus that are known to apply to
Debian's 6.1, those whose file has PART in its name.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench.bases_run import watch
from bench.history import STABLE, ensure_history
from bench.kit import ROOT
from bench.mailboxes import CORPUS, mails_of
from bench.peers import environment_of
from demo.processes import git, git_environment
from server.sources.applying.application import apply_series
from server.sources.messages.storing import store_message
from server.sources.models import Series
from server.sources.series.grouping import group_stale

_CONFIG = (
    "[b4]\n\tattestation-policy = off\n\tsend-endpoint-web =\n[user]\n\tname = Bench\n\temail = bench@example.org\n"
)


def main(corpus: str = str(CORPUS), only: str = "") -> None:
    lists = Path(corpus) / "lists"
    history = ensure_history(ROOT / ".cache" / "bench")
    posted = watch(history, "bases-b4")
    tool = str(Path(environment_of("b4==0.16.0", ())).with_name("b4"))
    known = [row for row in json.loads((lists / "index.json").read_text()) if _ids(row) and only in row["file"]]
    equal = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "linux"
        git(history, "worktree", "prune")
        git(history, "clone", "--quiet", "--shared", "--branch", STABLE, str(history), str(checkout))
        for row in known:
            for raw in mails_of(lists / row["file"]):
                store_message(mailing_list=posted, raw=raw)
            group_stale()
            series = Series.objects.get(patches__message__message_id=_ids(row)[0], patches__index=1)
            # Also what a newer version of the same corpus replaced: all that is asked is what git makes of the mails.
            Series.objects.filter(pk=series.pk).update(state=Series.State.READY)
            apply_series(series=series)
            series.refresh_from_db()
            theirs = _by_b4(tool, lists / row["file"], series, checkout)
            ours = series.head.tree_sha if series.head else f"{series.state}: {series.reason}"
            equal += ours == theirs
            how = f"{series.base_how}{' (certain)' if series.base_certain else ''}"
            print(
                f"{'equal' if ours == theirs else 'OTHER'} {row['file']}: {ours[:60]} {theirs[:60]}; {how}", flush=True
            )
    print(f"{equal} of {len(known)} trees equal")


def _ids(row: dict[str, dict[str, list[str]]]) -> list[str]:
    return row.get("applies_to_debian_source", {}).get("6.1", [])


def _by_b4(tool: str, thread: Path, series: Series, checkout: Path) -> str:
    """The tree of the last patch as b4 writes the series and git applies it to the same base."""
    if series.base is None:
        return "no base"
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / ".gitconfig").write_text(_CONFIG)
        words = [tool, "--no-interactive", "am", "-T", "-C", "-m", str(thread), "-o", home]
        words += ["-v", str(series.version), series.root_message_id]
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CACHE_HOME": home}
        done = subprocess.run(words, cwd=home, env=environment, capture_output=True, timeout=120, check=False)
        boxes = list(Path(home).glob("*.mbx"))
        if not boxes:
            return f"b4 wrote nothing: {done.stderr.decode(errors='replace')[-200:]}"
        git(checkout, "checkout", "--quiet", "--detach", "--force", series.base.sha)
        done = subprocess.run(
            ["git", "-C", str(checkout), "am", "--quiet", "-3", str(boxes[0])],
            env=git_environment(),
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            git(checkout, "am", "--abort")
            return f"git am failed: {done.stderr.decode(errors='replace')[-200:]}"
        return git(checkout, "rev-parse", "HEAD^{tree}")
