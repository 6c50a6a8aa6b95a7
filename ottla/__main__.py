"""`python -m ottla` is the `ottla` command."""

from ottla.cli.main import command

if __name__ == "__main__":
    command()
