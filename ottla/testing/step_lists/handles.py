"""Scripts as a test has them in its hands."""

from typing import TYPE_CHECKING

from ottla.testing.step_lists.running import ScriptRun, Scripts
from ottla.testing.step_lists.steps import GivenScript, parse_script
from ottla.testing.waits import Explanation

if TYPE_CHECKING:
    from ottla.testing.testbed import Testbed


async def begun(bed: "Testbed", given: GivenScript) -> "KafkaScript":
    """On the loop of the brokers: a script whose steps for now have run. Raises ScriptError, and OSError for a file."""
    run = bed.scripts.begin(parse_script(given))
    await bed.clock.run_due()
    return KafkaScript(bed, run)


class ScriptDone:
    """A condition to wait for."""

    def __init__(self, scripts: Scripts, run: ScriptRun) -> None:
        self._scripts = scripts
        self._run = run
        self.wanted = "not all steps of the script had run"

    def is_met(self) -> bool:
        return self._run.is_done

    def explain(self) -> Explanation:
        ran = sum(bool(each.runs) for each in self._run.states)
        return Explanation(f"{ran} of {len(self._run.states)} steps have run", self._scripts.failed(self._run))


class KafkaScript:
    """What `kafka.script` gives. Methods may be called from any thread."""

    def __init__(self, bed: "Testbed", run: ScriptRun) -> None:
        self._bed = bed
        self._run = run

    @property
    def runs(self) -> dict[str, int]:
        """How many times each step has run, by its id."""
        return self._bed.call(lambda: {each.step.id: each.runs for each in self._run.states})

    @property
    def is_done(self) -> bool:
        """Each step has run; one with `every` and no `times` once at least."""
        return self._bed.call(lambda: self._run.is_done)

    def unused(self) -> list[str]:
        """In sentences: steps that have never run, and those that failed."""
        return self._bed.call(lambda: self._bed.scripts.failed(self._run))

    def wait(self, *, within: float | None = None) -> None:
        """Until it is done. Raises DeadlineExceeded."""
        self._bed.run(self._bed.wait(ScriptDone(self._bed.scripts, self._run), within))

    async def wait_async(self, *, within: float | None = None) -> None:
        """As `wait`, to await on any loop."""
        await self._bed.loop.wait(self._bed.wait(ScriptDone(self._bed.scripts, self._run), within))

    def cancel(self) -> None:
        """Steps that have not run do not run any more."""
        self._bed.call(self._bed.scripts.cancel, self._run)
