"""`python -m tunescope`: the command line."""

from tunescope.cli.app import main

if __name__ == "__main__":
    main()
