"""The file of tokens: what a line may be, who has which token, and what happens when the file changes."""

import hashlib
import logging
import os
from pathlib import Path

import pytest

from specpair.errors import InvalidFieldError, UnauthenticatedError
from specpair.security.tokens import KnownTokens, parse_tokens, read_token

ALICE = "alice-has-this-token"
BOB = "bob:has:another:one"
DIGEST = hashlib.sha256(BOB.encode()).hexdigest()


def test_a_token_names_its_client() -> None:
    table = parse_tokens(["# people", "", f"alice:{ALICE}", f"  bob:sha256:{DIGEST}  ", "alice:another-of-hers-too"])
    assert [table.name_of(token) for token in (ALICE, BOB, "another-of-hers-too")] == ["alice", "bob", "alice"]
    for wrong in ("", ALICE[:-1], ALICE + "x", ALICE.upper(), DIGEST, f"sha256:{DIGEST}", "\ud800" * 20, "\x00" * 20):
        with pytest.raises(UnauthenticatedError):
            table.name_of(wrong)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("only-one-word-without-colon", "line 2 must have a token of 16"),
        (":a-token-of-nobody", "line 2 must be name:token"),
        ("x" * 65 + ":a-token-of-somebody", "line 2 must be name:token"),
        ("alice:short", "line 2 must have a token of 16"),
        ("alice:" + "x" * 5000, "line 2 must have a token of 16"),
        ("alice:a token with spaces", "line 2 must have a token of printable"),
        ("alice:töken-that-is-not-ascii", "line 2 must have a token of printable"),
        ("alice:sha256:abc", "line 2 must have the 64 hexadecimal digits"),
        ("alice:sha256:" + "g" * 64, "line 2 must have the 64 hexadecimal digits"),
        ("mallory:first-token-of-all", "line 2 has the token of another name"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_tokens(["first:first-token-of-all", line])
    assert line.partition(":")[2] not in str(caught.value) or not line.partition(":")[2]


def test_a_file_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFieldError, match="holds no token"):
        KnownTokens(str(written(tmp_path / "tokens", "# nobody\n")))
    with pytest.raises(InvalidFieldError, match=r"--tokens-file: .*/missing cannot be read: No such file"):
        KnownTokens(str(tmp_path / "missing"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidFieldError, match="not UTF-8 text"):
        KnownTokens(str(tmp_path / "bytes"))


@pytest.mark.parametrize("header", [f"Bearer {ALICE}", f"bearer {ALICE}", f"BEARER  {ALICE} "])
def test_the_header(header: str, tmp_path: Path) -> None:
    known = KnownTokens(str(written(tmp_path / "tokens", f"alice:{ALICE}")))
    assert known.client_of(header) == "alice"


@pytest.mark.parametrize("header", [None, "", ALICE, f"Basic {ALICE}", "Bearer", "Bearer ", f"Bearer {ALICE} x"])
def test_no_header_that_counts(header: str | None, tmp_path: Path) -> None:
    known = KnownTokens(str(written(tmp_path / "tokens", f"alice:{ALICE}")))
    with pytest.raises(UnauthenticatedError):
        known.client_of(header)


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = written(tmp_path / "tokens", f"alice:{ALICE}")
    known = KnownTokens(str(path))
    written(path, f"bob:{BOB}")
    assert known.client_of(f"Bearer {BOB}") == "bob"
    with pytest.raises(UnauthenticatedError):
        known.client_of(f"Bearer {ALICE}")


def test_a_change_that_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "tokens", f"alice:{ALICE}")
    known = KnownTokens(str(path))
    written(path, "broken-secret-line")
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert known.client_of(f"Bearer {ALICE}") == "alice"
    assert caplog.text.count("a changed file is unusable") == 1 and "broken-secret" not in caplog.text
    path.unlink()
    assert known.client_of(f"Bearer {ALICE}") == "alice"
    written(path, f"carol:{ALICE}")
    assert known.client_of(f"Bearer {ALICE}") == "carol"


def test_an_emptied_file_lets_nobody_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "tokens", f"alice:{ALICE}")
    known = KnownTokens(str(path))
    for nothing in ("", "# nobody\n"):
        written(path, nothing)
        with pytest.raises(UnauthenticatedError):
            known.client_of(f"Bearer {ALICE}")
    assert caplog.text.count("holds no token any more: all clients are refused") == 2
    written(path, f"alice:{ALICE}")
    assert known.client_of(f"Bearer {ALICE}") == "alice"


def test_a_file_that_takes_the_place_of_another_counts_though_it_is_as_long_and_as_old(tmp_path: Path) -> None:
    """As a Kubernetes secret changes: a link points elsewhere."""
    old, new = (written(tmp_path / name, f"{name}:{ALICE}") for name in ("aaa", "bbb"))
    os.utime(old, ns=(0, 0))
    os.utime(new, ns=(0, 0))
    link = tmp_path / "tokens"
    link.symlink_to(old)
    known = KnownTokens(str(link))
    link.unlink()
    link.symlink_to(new)
    assert known.client_of(f"Bearer {ALICE}") == "bbb"


def test_the_file_of_one_token(tmp_path: Path) -> None:
    assert read_token(str(written(tmp_path / "token", f"{ALICE}\n"))) == ALICE
    with pytest.raises(InvalidFieldError, match="token_file") as caught:
        read_token(str(written(tmp_path / "two", f"{ALICE}\n{BOB}\n")))
    assert ALICE not in str(caught.value)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
