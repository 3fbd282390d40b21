"""The standard library's parser of flags, for programs that are no sub-command of ``devicemanager``."""

import argparse

from devicemanager.streams import print_answer


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose help is an answer like any other: where it cannot be written, an OutputError says so."""

    def print_help(self, file: object = None) -> None:  # type: ignore[explicit-override]  # which would cost 4 ms
        """Print the help to standard output, wherever asked to: nothing here asks for another place."""
        print_answer(self.format_help().rstrip("\n"))
