"""The root of the command line. It owns the list of commands and nothing that they do."""

from importlib.metadata import version as installed_version

import typer

from lakelog_cli import consume, demo, groups, jobs, offsets, produce, serve, topics
from lakelog_cli.output import Commands

app = typer.Typer(name="lakelog", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """Lakelog: streams with Kafka's model, kept as Delta tables."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(installed_version("lakelog"))


serve.register(app)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(jobs.app, name="jobs")
produce.register(app)
consume.register(app)
offsets.register(app)
demo.register(app)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
