"""Series given to the service as mails, applied, and their bases compared with the true ones."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from bench.archive.corpus import KINDS, MM_LIST, STABLE, STABLE_LIST, Case, ensure_history, make_cases, say
from bench.kit import ROOT, environment_of
from bench.mail.mailboxes import CORPUS, mails_of
from bench.table import table
from demo.processes import git, git_environment
from server.core.reasons import Because
from server.sources.applying.application import apply_series
from server.sources.messages.storage import store_message
from server.sources.mirror import mirror
from server.sources.models import MailingList, Series, Tree
from server.sources.series.formation import group_stale
from server.sources.trees.fetch import fetch_tree

OUTCOMES = ("right", "equivalent", "guessed, said so", "wrong and silent", "refused")
_WANTED = 0.95


@dataclass(frozen=True)
class Result:
    case: Case
    outcome: str
    seconds: float
    series: Series


def main(count: str = "200", seed: str = "6") -> None:
    cache = ROOT / ".cache" / "bench"
    history = ensure_history(cache)
    say("writing series")
    cases = make_cases(history, cache / "bases", count=int(count), seed=int(seed))
    posted = watch(history, "bases")
    results = []
    for case in cases:
        results.append(_measured(case, posted, history))
        _show(results[-1])
    print(_report(results))


def watch(history: Path, name: str) -> MailingList:
    """Two trees of the real history in a mirror of the bench's own, and a list that belongs to none of them."""
    settings.STATE_DIR = history.parent / f"{name}-state"
    shutil.rmtree(settings.STATE_DIR, ignore_errors=True)
    # The mirror borrows what it would fetch: how objects come is not what is measured.
    info = mirror().git_dir / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_text(f"{history / 'objects'}\n")
    stable = Tree(name="stable", url=str(history), branch_patterns=[STABLE], tag_patterns=["v*"])
    stable.addresses = [STABLE_LIST]
    mm = Tree(name="mm", url=str(history), branch_patterns=["mm-*"], addresses=[MM_LIST], paths=["mm/"])
    for tree in (stable, mm):
        tree.save()
        fetch_tree(tree=tree)
        if tree.last_error:
            raise SystemExit(f"{tree}: {tree.last_error}")
    return MailingList.objects.create(name="posted", proof=MailingList.Proof.ARCHIVE)


def _measured(case: Case, posted: MailingList, history: Path) -> Result:
    for mail in case.mails:
        store_message(mailing_list=posted, raw=mail)
    group_stale()
    series = Series.objects.order_by("-pk")[0]
    if series.total != len(case.mails):
        raise SystemExit(f"{series}: {len(case.mails)} mails became {series.total} patches")
    series.advance(Series.State.READY, Because.BY_PERSON("approved for the bench"))
    start = time.monotonic()
    apply_series(series=series)
    series.refresh_from_db()
    return Result(case, _outcome(case, series, history), time.monotonic() - start, series)


def _outcome(case: Case, series: Series, history: Path) -> str:
    if series.base is None:
        return "refused"
    if series.base.sha == case.truth:
        return "right"
    paths = sorted({path for patch in series.patches.select_related("message") for path in patch.message.paths})
    if not git(history, "diff-tree", "-r", case.truth, series.base.sha, "--", *paths):
        return "equivalent"
    return "wrong and silent" if series.base_certain else "guessed, said so"


def _show(result: Result) -> None:
    if result.outcome not in {"right", "equivalent"}:
        case = result.case
        say(f"{result.outcome}: {case.kind} on {case.line} {case.truth[:12]}: {result.series.reason}")


def _report(results: list[Result]) -> str:
    kinds = [*KINDS, "all"]
    head = ["series", "number", *OUTCOMES, "right or equivalent", "certain", "s each", "s most"]
    return "\n".join([table(head, [_row(kind, results) for kind in kinds]), *_verdict(results)])


def _row(kind: str, results: list[Result]) -> list[str]:
    mine = [r for r in results if kind in {"all", r.case.kind}]
    counts = Counter(r.outcome for r in mine)
    good = (counts["right"] + counts["equivalent"]) / max(len(mine), 1)
    certain = sum(bool(r.series.base_certain) for r in mine)
    seconds = [r.seconds for r in mine] or [0.0]
    figures = [str(counts[o]) for o in OUTCOMES]
    times = [f"{sum(seconds) / len(seconds):.2f}", f"{max(seconds):.2f}"]
    return [kind, str(len(mine)), *figures, f"{good:.1%}", str(certain), *times]


def _verdict(results: list[Result]) -> Iterator[str]:
    good = sum(r.outcome in {"right", "equivalent"} for r in results) / max(len(results), 1)
    silent = sum(r.outcome == "wrong and silent" for r in results)
    yield f"right or equivalent at least {_WANTED:.0%}: {good:.1%} {'pass' if good >= _WANTED else 'FAIL'}"
    yield f"wrong and silent none: {silent} {'FAIL' if silent else 'pass'}"


# Real list series applied by the service, and by `b4 am` with `git am -3` in a full checkout: the trees must be
# equal.
#
# python -m bench.scratch_database bench.archive.bases [CORPUS [PART]]: series of the corpus that are known to apply
# to Debian's 6.1, those whose file has PART in its name.

_CONFIG = (
    "[b4]\n\tattestation-policy = off\n\tsend-endpoint-web =\n[user]\n\tname = Bench\n\temail = bench@example.org\n"
)


def beside_b4(corpus: str = str(CORPUS), only: str = "") -> None:
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
