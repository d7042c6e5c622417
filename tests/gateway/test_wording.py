from gateway.wording import counted


def test_one_is_said_as_one_and_many_in_full() -> None:
    assert [counted(count, "token") for count in (0, 1, 1.0, 2, 1_234_567.0)] == [
        "0 tokens",
        "1 token",
        "1 token",
        "2 tokens",
        "1,234,567 tokens",
    ]
