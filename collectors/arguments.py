"""The flags of ``python -m collectors``."""

import argparse

from devicemanager.argument_parser import ArgumentParser
from devicemanager.model.accelerator import DeviceKey
from devicemanager.rules.duration import parse_duration


def parser() -> ArgumentParser:
    """All flags, with what they mean."""
    arguments = ArgumentParser(
        prog="python -m collectors",
        description="Sample one manufacturer's accelerators and write one JSON line a card.",
    )
    arguments.add_argument(
        "name", metavar="NAME", help="manufacturer, as devicemanager serve --manufacturer takes it"
    )
    arguments.add_argument(
        "--period", type=_period_s, default=15.0, help="between samples, 15s or in seconds (15s)"
    )
    arguments.add_argument("--once", action="store_true", help="one sample; without --fd, printed for a person")
    for flag, what in (("--only", "touch this device alone"), ("--skip", "never touch this device")):
        spelled = "index:<n>, <id>, or <id of the card>/<id of the partition>"
        arguments.add_argument(
            flag, action="append", type=_key, default=[], metavar="KEY", help=f"{what}: {spelled}"
        )
    arguments.add_argument(
        "--assume",
        action="append",
        type=_assumption,
        default=[],
        metavar="INDEX=ID",
        help="take the card at this index for the one with this id until it is read",
    )
    arguments.add_argument("--fd", type=int, help="descriptor to write to, inherited (standard output)")
    arguments.add_argument("--scenario", metavar="FILE", help="what simulated cards do: docs/simulated.md")
    return arguments


def _key(written: str) -> DeviceKey:
    try:
        return DeviceKey.parse(written)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _assumption(written: str) -> tuple[int, str]:
    index, _, card_id = written.partition("=")
    if not (index.isascii() and index.isdigit() and card_id):
        raise argparse.ArgumentTypeError("must be <index>=<id>")
    return int(index), card_id


def _period_s(written: str) -> float:
    """Any period above 0: benches and tests use shorter ones than the settings allow."""
    try:
        period_s = float(written)
    except ValueError:
        try:
            period_s = parse_duration(written)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < period_s <= 86_400:
        raise argparse.ArgumentTypeError("must be above 0 and at most a day")
    return period_s
