"""What ``devicemanager instance-metrics`` does: ask, print, and say how it was asked."""

import sys
from typing import Final

from devicemanager import streams
from devicemanager.clock import SystemClock
from devicemanager.errors import FetchError
from devicemanager.programs import present
from devicemanager.programs.present_usage import usage_text
from devicemanager.settings.instance_metrics import InstanceMetricsSettings
from devicemanager.settings.node import Output
from devicemanager.wire import instance_metrics
from devicemanager.worker.ask import ask
from devicemanager.worker.outcomes import Answer

_DONE: Final = 0
_FAILED: Final = 1


async def look(settings: InstanceMetricsSettings) -> int:
    """Print one Instance's current sample. Returns the exit code: 1 when there is none, and stderr says why."""
    clock = SystemClock()
    try:
        asked = await ask(settings, clock)
    except FetchError as error:
        return _complain(f"{error.state}: {error.message}")
    if asked.directly is not None:
        _note(f"no worker answers for {settings.api_group} ({asked.directly}); read with your own rights instead")
    if not isinstance(asked.outcome, Answer):
        return _complain(asked.outcome.message)
    usage = asked.outcome.usage
    if settings.output is Output.TABLE:
        streams.say(usage_text(usage, clock.now(), streams.width()))
    else:
        document = instance_metrics.document(usage, api_group=settings.api_group)
        streams.say(present.document(document, settings.output))
    return _DONE


def _note(text: str) -> None:
    sys.stderr.write(f"devicemanager instance-metrics: {text}\n")


def _complain(text: str) -> int:
    _note(text)
    return _FAILED
