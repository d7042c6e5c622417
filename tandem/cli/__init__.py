"""The `tandem` command. Everything heavy is imported by the command that needs it."""


def main() -> None:
    from tandem.cli.app import run

    run()
