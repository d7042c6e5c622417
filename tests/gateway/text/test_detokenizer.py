"""Joined pieces equal the whole, however tokens and bytes are split (B-12, B-20)."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.base import Tokenizer
from gateway.text.byte_level import ByteLevelTokenizer
from gateway.text.files import FileTokenizer
from tests.gateway.text.conftest import byte_level, sentence_piece, word_piece, write

HARD = "naïve 日本語 😀👩‍👩‍👧‍👦 한국어 \u202e rtl \x00 tab\t end"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    base = tmp_path_factory.mktemp("tokenizers")
    return {
        "byte_level": FileTokenizer(write(base / "b", byte_level())),
        "sentence_piece": FileTokenizer(write(base / "s", sentence_piece())),
        "word_piece": FileTokenizer(write(base / "w", word_piece())),
        "built_in": ByteLevelTokenizer(1000, special=(257,)),
    }


def streamed(tokenizer: Tokenizer, tokens: list[int], cuts: list[int], *, skip: bool = True) -> str:
    stream = tokenizer.detokenizer(skip_special_tokens=skip)
    edges = sorted({0, len(tokens), *(cut % (len(tokens) + 1) for cut in cuts)})
    text = "".join(stream.push(tokens[a:b]) for a, b in itertools.pairwise(edges) if a < b)
    return text + stream.flush()


@pytest.mark.parametrize("name", ["byte_level", "built_in"])
@given(text=st.text(max_size=60), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_b20_text_survives_any_split_of_its_tokens(
    tokenizers: dict[str, Tokenizer], name: str, text: str, cuts: list[int]
) -> None:
    tokenizer = tokenizers[name]
    tokens = list(tokenizer.encode(text, add_special_tokens=False))
    assert streamed(tokenizer, tokens, cuts, skip=False) == text


@pytest.mark.parametrize("skip", [True, False])
@given(tokens=st.lists(st.integers(0, 410), max_size=40), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_b12_random_tokens_stream_to_what_the_library_decodes_at_once(
    tokenizers: dict[str, Tokenizer], skip: bool, tokens: list[int], cuts: list[int]
) -> None:
    tokenizer = tokenizers["byte_level"]
    assert streamed(tokenizer, tokens, cuts, skip=skip) == tokenizer.decode(tokens, skip_special_tokens=skip)


@given(tokens=st.lists(st.integers(0, 264), max_size=30), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_byte_fallback_pieces_do_not_depend_on_the_split(
    tokenizers: dict[str, Tokenizer], tokens: list[int], cuts: list[int]
) -> None:
    tokenizer = tokenizers["sentence_piece"]
    whole = b"".join(tokenizer.token_bytes(t) for t in tokens if t not in (256, 257)).decode(errors="replace")
    assert streamed(tokenizer, tokens, cuts) == whole


@given(tokens=st.lists(st.integers(0, 7), max_size=30), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_decoders_that_look_at_neighbours_stream_exactly(
    tokenizers: dict[str, Tokenizer], tokens: list[int], cuts: list[int]
) -> None:
    tokenizer = tokenizers["word_piece"]
    assert streamed(tokenizer, tokens, cuts) == tokenizer.decode(tokens, skip_special_tokens=True)


def test_b20_every_byte_of_cjk_and_emoji_as_its_own_token(tokenizers: dict[str, Tokenizer]) -> None:
    stream = tokenizers["built_in"].detokenizer(skip_special_tokens=True)
    pieces = [stream.push((byte,)) for byte in HARD.encode()]
    assert "".join(pieces) == HARD
    assert not any("\ufffd" in piece for piece in pieces)
    assert stream.flush() == ""


def test_an_answer_cut_inside_a_character_ends_with_a_replacement(tokenizers: dict[str, Tokenizer]) -> None:
    stream = tokenizers["built_in"].detokenizer(skip_special_tokens=True)
    assert stream.push(tuple("日".encode()[:2])) == ""
    assert stream.flush() == "\ufffd"


def test_an_answer_keeps_the_space_that_joins_it_to_its_prompt(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["sentence_piece"]
    fox = 260
    assert tokenizer.token_string(fox) == "\u2581fox"
    assert tokenizer.detokenizer(skip_special_tokens=True, context=(259,)).push((fox,)) == " fox"


def test_special_tokens_show_only_when_asked(byte_level_dir: Path) -> None:
    tokenizer = FileTokenizer(byte_level_dir)
    tokens = tokenizer.encode("<|im_start|>hi<think>", add_special_tokens=False)
    assert tokenizer.detokenizer(skip_special_tokens=True).push(tokens) == "hi<think>"
    assert tokenizer.detokenizer(skip_special_tokens=False).push(tokens) == "<|im_start|>hi<think>"


@pytest.mark.parametrize("exact", [True, False])
def test_marks_of_a_parser_show_though_they_are_special(byte_level_dir: Path, exact: bool) -> None:
    tokenizer = FileTokenizer(byte_level_dir)
    tokenizer._exact = exact
    tokens = tokenizer.encode("<|im_start|>hi<|im_end|>", add_special_tokens=False)
    kept = frozenset(["<|im_end|>", "<no token>"])
    shown = [tokenizer.detokenizer(skip_special_tokens=True, kept=marks) for marks in (kept, frozenset[str](), kept)]
    assert [one.push(tokens) for one in shown] == ["hi<|im_end|>", "hi", "hi<|im_end|>"]


def test_ids_of_a_padded_vocabulary_have_no_text(byte_level_dir: Path) -> None:
    assert FileTokenizer(byte_level_dir).detokenizer(skip_special_tokens=False).push((99_999,)) == ""
