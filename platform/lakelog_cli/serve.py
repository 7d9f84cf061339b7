"""`lakelog serve` and `lakelog config`: run a gateway, and show the settings that it would run with.

Every setting is a flag here; the flags are made from the settings' own rows, so that none can be forgotten.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ingest_api.settings import ENVIRONMENT_PREFIX, LoadedSettings, all_rows, load_settings
from lakelog.config import ConfigEntry, ConfigRow
from lakelog.errors import LakelogError
from lakelog_cli.called import own_command
from lakelog_cli.maintenance import EVERY_SECONDS, scheduler
from lakelog_cli.output import failure, stdout

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file with settings, and a table named storage for the options of the store."),
]
NoMaintenance = Annotated[
    bool,
    typer.Option(
        "--no-maintenance",
        envvar=f"{ENVIRONMENT_PREFIX}NO_MAINTENANCE",
        help="Leave retention, compaction, merging and vacuum to another schedule.",
    ),
]
MaintenanceEvery = Annotated[
    float,
    typer.Option(
        "--maintenance-every-seconds",
        envvar=f"{ENVIRONMENT_PREFIX}MAINTENANCE_EVERY_SECONDS",
        min=1,
        help="How often to look whether topics want cleaning.",
    ),
]
MaintenanceIo = Annotated[
    float,
    typer.Option(
        "--maintenance-io-bytes-per-second",
        envvar=f"{ENVIRONMENT_PREFIX}MAINTENANCE_IO_BYTES_PER_SECOND",
        min=0,
        help="The most that compaction and merging read and write together; 0 is no limit.",
    ),
]


def _with_setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for every setting, in the form that typer reads flags from: its signature."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_flag(name, row))
        for name, row in all_rows().items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*own, *flags)}
    return command


def _flag(name: str, row: ConfigRow) -> Any:
    doc = f"{row.doc} [{ENVIRONMENT_PREFIX}{name.upper()}; {row.kind.text(row.default) or 'none'}]"
    return Annotated[
        str | None, typer.Option(f"--{name.replace('_', '-')}", help=doc, metavar=row.type.upper(), show_default=False)
    ]


def serve(
    config: ConfigFile = None,
    no_maintenance: NoMaintenance = False,
    maintenance_every_seconds: MaintenanceEvery = EVERY_SECONDS,
    maintenance_io_bytes_per_second: MaintenanceIo = 0.0,
    **flags: str | None,
) -> None:
    """Serve a warehouse over HTTP until told to stop, and keep its topics clean."""
    # Here, because it takes longer to load than most commands take to run.
    from ingest_api.server import serve as serve_until_stopped

    settings = _load(flags, config)
    cleaning = _scheduler(settings, maintenance_every_seconds, maintenance_io_bytes_per_second)
    try:
        serve_until_stopped(settings, beside=None if no_maintenance else cleaning, command=own_command())
    except LakelogError as error:
        raise failure(error.message) from None


def _scheduler(
    settings: LoadedSettings, every_seconds: float, io_bytes_per_second: float
) -> AbstractContextManager[None]:
    return scheduler(
        settings.gateway.warehouse,
        settings.storage,
        every_seconds=every_seconds,
        io_bytes_per_second=io_bytes_per_second,
        fsync=settings.log.fsync,
        offsets_retention_minutes=settings.groups.offsets_retention_minutes,
    )


def show_config(
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a setting.")] = False,
    **flags: str | None,
) -> None:
    """Show every setting: its value, where that came from, and what it does."""
    settings = _load(flags, config)
    if as_json:
        for entry in settings.describe():
            source = settings.sources.get(entry.name, "default")
            typer.echo(json.dumps(_shown(entry, source)))
        return
    table = Table("setting", "value", "from", "what it does", show_lines=False)
    for entry in settings.describe():
        source = settings.sources.get(entry.name, "default")
        table.add_row(*map(Text, (entry.name, entry.value, source, entry.doc)))
    stdout().print(table)


def _shown(entry: ConfigEntry, source: str) -> dict[str, str]:
    return {"name": entry.name, "value": entry.value, "default": entry.default, "source": source, "doc": entry.doc}


def _load(flags: Mapping[str, str | None], config: Path | None) -> LoadedSettings:
    given = {name: text for name, text in flags.items() if text is not None}
    try:
        return load_settings(given, os.environ, config)
    except LakelogError as error:
        # As for a wrong argument: what is wrong is how the command was called.
        raise failure(error.message, 2) from None


def register(app: typer.Typer) -> None:
    app.command("serve")(_with_setting_flags(serve))
    app.command("config")(_with_setting_flags(show_config))
