"""How this command can be called from where its caller stands: for what it prints to be copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "lakelog"


def own_command() -> str:
    """Its name where the shell finds it by that, else the path that it was started by, from here."""
    started = Path(sys.argv[0]).absolute()
    if started.name != _NAME:
        # As a module of Python, whose folder holds the command too.
        started = Path(sys.executable).with_name(_NAME)
    if shutil.which(_NAME) == str(started):
        return _NAME
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))
