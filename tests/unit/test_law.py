"""The number of examples of a law."""

from hypothesis import settings

PROFILE = settings.get_current_profile_name()  # a law reads it at the import of its file


def test_the_laws_of_this_folder_try_all_their_examples_with_smoke_too() -> None:
    assert PROFILE == "busy"
