"""The root of the command line. It owns the list of commands and nothing that they do."""

from importlib.metadata import version as installed_version

import typer

app = typer.Typer(name="lakelog", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """Lakelog: streams with Kafka's model, kept as Delta tables."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(installed_version("lakelog"))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
