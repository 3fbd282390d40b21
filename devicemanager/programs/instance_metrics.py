"""``devicemanager instance-metrics``: fetches one sample and prints it, and how it was fetched."""

import sys
from typing import Final

from devicemanager import streams
from devicemanager.clock import SystemClock
from devicemanager.errors import FetchError, printable
from devicemanager.programs import present
from devicemanager.programs.present_usage import usage_text
from devicemanager.settings.instance_metrics import InstanceMetricsSettings
from devicemanager.settings.output import Output
from devicemanager.wire import instance_metrics
from devicemanager.worker.instance_metrics_client import fetch_usage
from devicemanager.worker.outcomes import Answer

_DONE: Final = 0
_FAILED: Final = 1


async def run(settings: InstanceMetricsSettings) -> int:
    """Print one Instance's current sample. Returns the exit code: 1 when there is none, and stderr says why."""
    clock = SystemClock()
    try:
        fetched = await fetch_usage(settings, clock)
    except FetchError as error:
        return _complain(f"{error.state}: {error}")
    if fetched.directly is not None:
        _note(f"no worker answers for {settings.api_group} ({fetched.directly}); read with your own rights instead")
    if not isinstance(fetched.outcome, Answer):
        return _complain(fetched.outcome.message)
    usage = fetched.outcome.usage
    if settings.output is Output.TABLE:
        streams.print_answer(usage_text(usage, clock.now(), streams.width()))
    else:
        document = instance_metrics.document(usage, api_group=settings.api_group)
        streams.print_answer(present.document(document, settings.output))
    return _DONE


def _note(text: str) -> None:
    sys.stderr.write(f"devicemanager instance-metrics: {printable(text)}\n")


def _complain(text: str) -> int:
    _note(text)
    return _FAILED
