"""Loading, special tokens, chat templates and the thread pool."""

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.request.errors import Reason, RequestError
from gateway.text import pool as pool_module
from gateway.text.files import FileTokenizer
from gateway.text.pool import BYTE_LEVEL, SMALL, TextPool
from gateway.text.template import JinjaTemplate
from tests.gateway.text.conftest import byte_level, write
from tests.waiting import HANG_S


def test_completions_get_the_bos_token_and_chat_prompts_do_not(byte_level_dir: Path) -> None:
    tokenizer = FileTokenizer(byte_level_dir)
    bare = tokenizer.encode("the fox", add_special_tokens=False)
    assert tokenizer.encode("the fox", add_special_tokens=True) == (0, *bare)
    assert 0 not in bare


def test_the_chat_template_of_the_directory_is_used(byte_level_dir: Path) -> None:
    template = FileTokenizer(byte_level_dir).chat_template
    assert template is not None
    text = template.render([{"role": "user", "content": "hé"}], add_generation_prompt=True)
    assert text == "<|im_start|>user\nhé<|im_end|>\n<|im_start|>assistant\n"


def test_a_jinja_file_wins_over_the_configuration(tmp_path: Path) -> None:
    directory = write(tmp_path, byte_level(), chat_template="old")
    (directory / "chat_template.jinja").write_text("{{ bos_token }}new", encoding="utf-8")
    (directory / "special_tokens_map.json").write_text('{"bos_token": {"content": "<|begin|>"}}', encoding="utf-8")
    template = FileTokenizer(directory).chat_template
    assert template is not None
    assert template.render([], add_generation_prompt=False) == "<|begin|>new"


def test_published_template_idioms_render() -> None:
    source = (
        "{%- for m in messages %}{%- if m.role == 'skip' %}{%- continue %}{%- endif %}"
        "{% generation %}{{ m.content | trim }}{% endgeneration %}{%- endfor %}"
        "{{ {'k': 'é<'} | tojson }}{{ strftime_now('%Y') | length }}{{ thinking }}"
    )
    messages = [{"role": "skip", "content": "no"}, {"role": "user", "content": " yes "}]
    text = JinjaTemplate(source).render(messages, add_generation_prompt=False, extra={"thinking": False})
    assert text == 'yes{"k": "é<"}4False'


@pytest.mark.parametrize(
    ("source", "extra", "param"),
    [
        ("{{ raise_exception('only user and assistant') }}", {}, "messages"),
        ("{{ messages.__class__.__mro__ }}", {}, "messages"),
        ("{{ messages[0].content + 1 }}", {}, "messages"),
        ("x", {"messages": []}, "chat_template_kwargs"),
        ("x", {"self": 1}, "messages"),
    ],
)
def test_a_template_that_fails_is_the_clients_400(source: str, extra: dict[str, object], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        JinjaTemplate(source).render([{"role": "user", "content": "x"}], add_generation_prompt=True, extra=extra)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.param == param


async def test_b58_a_failed_load_is_cached_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []

    def counted(directory: Path) -> FileTokenizer:
        loads.append(directory)
        return FileTokenizer(directory)

    monkeypatch.setattr(pool_module, "FileTokenizer", counted)
    (tmp_path / "tokenizer.json").write_text("{broken", encoding="utf-8")
    pool = TextPool(1, HANG_S)
    for _ in range(100):
        with pytest.raises(RequestError, match="tokenizer"):
            await pool.tokenizer(str(tmp_path))
    assert len(loads) == 1
    await asyncio.sleep(0.01)
    write(tmp_path, byte_level())
    assert (await pool.tokenizer(str(tmp_path))).vocab_size > 256
    pool.close()


async def test_concurrent_first_requests_load_once(byte_level_dir: Path) -> None:
    pool = TextPool(2, HANG_S)
    loaded = await asyncio.gather(*(pool.tokenizer(str(byte_level_dir)) for _ in range(8)))
    assert len({id(tokenizer) for tokenizer in loaded}) == 1
    pool.close()


@pytest.mark.slow
async def test_b58_the_loop_breathes_while_a_huge_prompt_is_tokenized(byte_level_dir: Path) -> None:
    pool = TextPool(2, HANG_S)
    tokenizer = await pool.tokenizer(str(byte_level_dir))
    text = "the quick brown fox 日本語 " * 60_000
    work = asyncio.ensure_future(pool.run(lambda: tokenizer.encode(text, add_special_tokens=True)))
    breaths = 0
    while not work.done():
        await asyncio.sleep(0.001)
        breaths += 1
    assert len(await work) > 300_000
    assert breaths > 10  # a loop that is held up for the whole of the work takes one or two
    pool.close()


async def test_text_work_that_takes_too_long_is_a_504_not_a_hang() -> None:
    pool, going_on = TextPool(1, 0.02), threading.Event()
    with pytest.raises(RequestError) as caught:
        await pool.run(going_on.wait)
    assert caught.value.status == 504
    going_on.set()
    pool.close()


async def test_without_files_the_built_in_tokenizer_round_trips() -> None:
    pool = TextPool(1, HANG_S)
    tokenizer = await pool.tokenizer(BYTE_LEVEL, vocab_size=128_256, special=(128_009,))
    text = "naïve 日本語 😀"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=True), skip_special_tokens=False) == text
    assert tokenizer.decode((100_000, 128_009), skip_special_tokens=True) == " w100000"
    assert tokenizer.vocab_size == 128_256
    pool.close()


async def test_small_work_is_done_at_once_and_work_of_unknown_size_in_a_thread() -> None:
    pool = TextPool(1, HANG_S)
    here = threading.get_ident()
    assert await pool.run(threading.get_ident, size=SMALL) == here
    assert await pool.run(threading.get_ident, size=SMALL + 1) != here
    assert await pool.run(threading.get_ident) != here
    pool.close()
