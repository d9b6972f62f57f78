"""The README's figures are those of the result files, and its commands exist."""

from scripts import readme


def test_every_table_of_the_readme_is_what_the_result_files_say(monkeypatch):
    monkeypatch.setattr("sys.argv", ["readme", "--check"])
    assert readme.main() == 0, "run: python -m scripts.readme"
