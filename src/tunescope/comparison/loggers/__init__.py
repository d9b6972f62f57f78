"""One file a logger, named for what it writes to: `tunescope compare ... --report-to NAME`."""
