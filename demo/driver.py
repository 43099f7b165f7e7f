"""The demo from beginning to end. It makes the outside world and watches; all work is the service's own."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from demo import world as demo_world
from demo.postings import OUTCOMES, Outcome, Posting, discussion, ensure_posting, find_posting, make_mails, remark
from demo.processes import Claim, DemoError, Patience, only_writer, undisturbed
from demo.progress import Display
from demo.source import ensure_tree
from demo.world import ROOT, Times, World, forget_world, is_comparable, open_world
from scripts.stack import Stack, StackError, stack_down, stack_status

if TYPE_CHECKING:
    from demo.watch import View

TITLES = {
    "tree": "kernel sources as a git tree",
    "service": "service, archive and mail sink run",
    "mirror": "the service fetches the tree",
    "mails": "it reads the series in the archive",
    "apply": "it finds the base and applies",
    "builds": "it builds base and patched kernel",
    "sessions": "machines boot and measure both",
    "verdict": "it compares, machine by machine",
    "report": "it answers the thread",
    "check": "everything is checked",
}
_LOOK_SECONDS = 1.0
_INTERRUPTED = 130


@dataclass(frozen=True)
class Options:
    kind: str = "slow"
    once: bool = False
    fresh: bool = False
    again: bool = False
    minutes: float = 60.0
    pull: bool = False
    flush_seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.kind]


class Demo:
    def __init__(self, options: Options, local: Path, claim: Claim, out: TextIO) -> None:
        self._options = options
        self._local = local
        self._claim = claim
        self._out = out
        self._stack: Stack | None = None
        self._stage = "tree"
        self._forgetting: demo_world.Forgetting | None = None

    def run(self) -> int:
        """Go through all stages; the exit status is 0 only when every check holds."""
        if self._options.fresh:
            stack_down(ROOT, local=self._local)
            forget_world(self._local, os.environ)
        is_running = stack_status(ROOT, local=self._local)[0] is not None
        world = open_world(self._local, running=is_running, pull=self._options.pull)
        times = Times(world.cache)
        display = Display(TITLES, times.expected(), self._out)
        code = _INTERRUPTED
        try:
            code = self._to_the_end(world, display, times)
            if not self._options.once:
                self._stay()
        except KeyboardInterrupt:
            if code == _INTERRUPTED:
                display.close()
                self._say("\ninterrupted; the same command goes on from here")
        finally:
            display.close()
            self._stop()
        return code

    def _to_the_end(self, world: World, display: Display, times: Times) -> int:
        try:
            posting, new = self._reach_the_series(world, display)
            view = self._follow(posting, display)
            if view.state != ("done" if self._options.outcome.mailed else "held"):
                display.close()
                self._tell_failure(view)
                return 1
            return self._check(world, posting, display, times if new else None)
        except (DemoError, StackError, OSError) as error:
            display.fail(self._stage, str(error))
            display.close()
            self._say(f"\ndemo: {TITLES[self._stage]}: {error}")
            return 1

    def _reach_the_series(self, world: World, display: Display) -> tuple[Posting, bool]:
        """The outside world up to the mails in the archive; tells whether they are posted for the first time."""

        def say(text: str) -> None:
            display.tell("tree", text)

        with self._staged("tree", display), only_writer(world.cache, say):
            tree = ensure_tree(world.cache, say)
            before = find_posting(world.folder, self._options.kind)
            posting = ensure_posting(world.folder, self._options.kind, tree.repository, again=self._options.again)
            display.finish("tree", f"{tree.head[:12]} on {posting.branch}")
        with self._staged("service", display):
            world.archive.prepare(discussion(posting.posted_at))
            self._stack = demo_world.start_service(world, self._local)
            self._claim.tell_url(self._stack.url)
            demo_world.join_service(self._stack)
            demo_world.register_site(world, posting.branch)
            if world.pull:
                world.hosts.enrol(ROOT)
            if self._options.flush_seconds:
                self._forgetting = demo_world.Forgetting(self._local, self._options.flush_seconds)
                self._forgetting.start()
            display.finish("service", self._stack.url)
        from demo import watch  # noqa: PLC0415 (needs the service's settings)

        with self._staged("mirror", display):
            self._await_tree(world, posting, display)
        with self._staged("mails", display):
            if demo_world.ask(lambda: watch.has_arrived(posting)) is not True:
                mails = make_mails(world.linux, posting)
                for mail in [*mails, remark(posting, mails[-1])]:
                    world.archive.deliver(mail)
        return posting, before != posting

    @contextmanager
    def _staged(self, name: str, display: Display) -> Iterator[None]:
        self._stage = name
        display.start(name)
        yield

    def _await_tree(self, world: World, posting: Posting, display: Display) -> None:
        from demo import watch  # noqa: PLC0415

        patience = self._patience()
        wanted = demo_world.tree_head(world, posting.branch)
        while demo_world.ask(lambda: watch.branch_head(posting.branch)) != wanted:
            trouble = demo_world.ask(watch.trouble) or ""
            display.tell("mirror", trouble)
            patience.feel(trouble)
            time.sleep(_LOOK_SECONDS)
        display.finish("mirror", f"{posting.branch} is {wanted[:12]}")

    def _follow(self, posting: Posting, display: Display) -> "View":
        from demo import watch  # noqa: PLC0415

        patience = self._patience()
        while True:
            view = demo_world.ask(lambda: watch.look(posting))
            if view is not None:
                self._show(view, display)
                if view.ended:
                    return view
            patience.feel(view.pulse if view else "the database does not answer")
            time.sleep(_LOOK_SECONDS)

    def _show(self, view: "View", display: Display) -> None:
        if view.series_id is None:
            display.tell("mails", "; ".join(part for part in (view.reason, view.trouble) if part))
        for stage in view.stages:
            if stage.state == "waiting":
                continue
            display.start(stage.name)
            if stage.state == "done":
                display.finish(stage.name, stage.detail, seconds=stage.seconds)
            elif stage.state == "failed":
                display.fail(stage.name, stage.detail)
            else:
                self._stage = stage.name
                display.tell(stage.name, stage.detail)

    def _check(self, world: World, posting: Posting, display: Display, times: Times | None) -> int:
        from demo import checks, watch  # noqa: PLC0415
        from demo.world import planned_machines  # noqa: PLC0415

        stack, series, outcome = self._stack, watch.find_series(posting), self._options.outcome
        if stack is None or series is None:
            raise DemoError("the series is gone")
        if outcome.ends:
            raise DemoError(f"the series reached a verdict, but {outcome.ends}")
        with self._staged("check", display):
            machines = planned_machines()
            sent = world.store.mails()
            mails = len(make_mails(world.linux, posting))
            found = [
                *checks.kernel_checks(series, outcome, base=posting.base, mails=mails),
                *checks.measured_checks(series, outcome, machines),
                *checks.verdict_checks(series, outcome, machines),
                *checks.culprit_checks(series, outcome),
                *checks.mail_checks(series, outcome, sent),
                *checks.page_checks(series, outcome, stack.url),
            ]
            wrong = [one for one in found if not one.ok]
            if wrong:
                display.fail("check", f"{len(wrong)} of {len(found)} checks failed")
            else:
                display.finish("check", f"{len(found)} checks hold")
        display.close()
        if self._forgetting is not None:
            self._say(f"\nRedis was emptied {self._forgetting.times} times")
        replies = checks.replies_to(posting.root_message_id, sent)
        self._say("", *watch.verdict_table(series), "", *watch.search_lines(series))
        self._say("", *watch.mail_lines(replies), *watch.check_lines(found))
        self._say("", *watch.time_lines(TITLES, display.seconds(), display.total()))
        self._say("", self._address(stack, series.pk))
        if times is not None and not wrong and is_comparable(self._options.kind, self._local):
            times.remember(display.seconds())
        return 1 if wrong else 0

    def _tell_failure(self, view: "View") -> None:
        page = [self._address(self._stack, view.series_id)] if self._stack and view.series_id is not None else []
        self._say(
            f"\ndemo: the series is {view.state}: {view.reason}",
            *page,
            f"each process's log is in {self._local / 'log'}, the series' lines have the trace {view.trace}",
            "`--again` posts it once more, `--fresh` forgets everything first",
        )

    def _address(self, stack: Stack, series_id: int) -> str:
        """The page of the series, in words that are still true when this run has ended."""
        url = f"{stack.url}/series/{series_id}/"
        shown_again = "; the same command without --once shows it again"
        return f"the page was at {url}{shown_again}" if self._options.once else f"the page: {url}"

    def _patience(self) -> Patience:
        return Patience(self._options.minutes * 60, str(self._local / "log"))

    def _stay(self) -> None:
        """Keep the service until Ctrl-C, or until somebody else ends it."""
        if self._stack is None:
            return
        self._say(f"\nthe service goes on at {self._stack.url}; Ctrl-C ends it")
        while stack_status(ROOT, local=self._local)[0] is not None:
            time.sleep(1)
        self._say("the service was ended")

    def _stop(self) -> None:
        if self._forgetting is not None:
            self._forgetting.done.set()
        if self._stack is None:
            return
        try:
            with undisturbed():
                stack_down(ROOT, local=self._local)
        except StackError as error:
            print(f"demo: {error}", file=sys.stderr)

    def _say(self, *lines: str) -> None:
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
