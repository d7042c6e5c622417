"""`python -m tandem`, the same as the `tandem` command."""

from tandem.cli import main

if __name__ == "__main__":
    main()
