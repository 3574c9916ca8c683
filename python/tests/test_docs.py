"""What the documentation states is true: its programs run, its commands exist, its links lead somewhere, its messages
are those of our programs.

A Python block has a line ``<!-- test: ... -->`` before it:

``member``            a fragment, run by two members of a run (``communicator``, ``weights``, ``gradient``, ...)
``peers=N``           run by N processes at a time; without it by one
``replicas=R shards=S``  run by R times S processes, as torchrun starts them
``preamble=NAME``     code that the block needs, from doc_preambles.py
``equal=NAME``        a name that holds the same bytes at the end in all of them (``NAME()`` if it can be called)
``prints="TEXT"``     a text that one of them prints
``lost``              one of them is removed from the run, in an ``update_topology()`` and in a ``sync_shared_state()``

The master's address in a block is replaced by that of a master of the test, and sleeps become short.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import importlib
import importlib.util
import inspect
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pccl
import pytest
from doc_pages import PAGES, TREE, Block, anchors, blocks, first_cells, languages, links
from doc_preambles import PREAMBLES
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]

BUILD = Path(os.environ.get("PCCL_BUILD_DIR", TREE / "build"))
ADDRESS = "127.0.0.1:48148"


def named(found: Iterator[Block]) -> list[Any]:
    return [pytest.param(block, id=block.name) for block in found]


# ---- programs --------------------------------------------------------------------------------------------------------
def lose_the_run() -> None:
    """Removes this process from the run in its third topology update, and in its sixth synchronization."""

    def losing(call: Callable[..., Any], fatal: int) -> Callable[..., Any]:
        calls = itertools.count(1)

        def made(self: pccl.Communicator, *arguments: Any) -> Any:
            if next(calls) == fatal:
                self.abort()
            return call(self, *arguments)

        return made

    for name, fatal in (("update_topology", 3), ("sync_shared_state", 6)):
        setattr(pccl.Communicator, name, losing(getattr(pccl.Communicator, name), fatal))


def run_block(
    _: Channel, name: str, source: str, equal: str, environment: dict[str, str], folder: str, lost: bool = False
) -> tuple[str, str]:
    """Returns what it printed, and a digest of what must be equal."""
    if lost:
        lose_the_run()
    os.environ |= environment
    os.chdir(folder)
    nap = time.sleep
    time.sleep = lambda seconds: nap(min(seconds, 0.002))
    names: dict[str, Any] = {"__name__": "__main__"}
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, name, "exec"), names)
    if not equal:
        return output.getvalue(), ""
    value = names[equal]() if callable(names[equal]) else names[equal]
    content = hashlib.sha256()
    for array in value if isinstance(value, list) else [value]:
        content.update((array.numpy() if hasattr(array, "numpy") else array).tobytes())
    return output.getvalue(), content.hexdigest()


@pytest.mark.parametrize("block", named(blocks("python")))
def test_python(block: Block, start: Start, master: str, tmp_path: Path) -> None:  # noqa: F811
    mark = block.mark
    assert mark is not None, f"{block.name}: say in a line before it how it is run: <!-- test: ... -->"
    preamble = PREAMBLES.get("member" if "member" in mark else mark.get("preamble", ""), "")
    source = "\n" * (block.line - 1) + block.text
    if "shards" in mark or re.search(r"\btorch\b|pccl\.diloco", preamble + source):
        pytest.importorskip("torch")
    # Lines of the block keep their numbers, because the preamble becomes part of the first line.
    source = f"exec({preamble.replace(ADDRESS, master)!r})" + source.replace(ADDRESS, master)

    peers, digests = [], 1
    if "shards" in mark:
        import torch.distributed as dist

        digests = int(mark["shards"])
        stores = []
        for _ in range(int(mark["replicas"])):
            stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
            common = {"WORLD_SIZE": mark["shards"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(stores[-1].port)}
            common["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            environments = [{**common, "RANK": str(rank)} for rank in range(digests)]
            peers += [start(run_block, block.name, source, mark["equal"], one, str(tmp_path)) for one in environments]
    else:
        count = 2 if "member" in mark else int(mark.get("peers", "1"))
        equal, folder = mark.get("equal", ""), str(tmp_path)
        lost = [index == 0 and "lost" in mark for index in range(count)]
        peers = [start(run_block, block.name, source, equal, {}, folder, one) for one in lost]
    results = [peer.result() for peer in peers]
    for shard in range(digests):
        assert len({digest for _, digest in results[shard::digests]}) == 1
    assert any(mark.get("prints", "") in output for output, _ in results), results


@pytest.mark.parametrize("block", named(block for block in blocks("c") if block.page.name != "api.md"))
def test_c(block: Block, master: str, tmp_path: Path) -> None:
    assert block.mark == {"program": ""}, f"{block.name}: <!-- test: program --> before it"
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source = tmp_path / "program.c"
    source.write_text(block.text.replace("48148", master.rsplit(":", 1)[1]))
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{TREE / 'include'}", str(source)]
    system = {"PATH": os.defpath, **os.environ}  # the compiler finds the linker there
    if not (BUILD / "lib/libpccl.so").exists():
        subprocess.run([*command, "-fsyntax-only"], check=True, timeout=120, env=system)
        pytest.skip("it compiles; libpccl.so is not built, so it was not run")
    program = str(tmp_path / "program")
    subprocess.run([*command, "-o", program, f"-L{BUILD / 'lib'}", "-lpccl"], check=True, timeout=120, env=system)
    environment = {**system, "LD_LIBRARY_PATH": str(BUILD / "lib")}
    peers = [subprocess.Popen([program], env=environment) for _ in range(2)]
    try:
        assert [peer.wait(120) for peer in peers] == [0, 0]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()


def test_every_fence_names_its_language() -> None:
    """No test would run a fence without a language. Names in braces are directives of the site."""
    for page in PAGES:
        for language in languages(page):
            assert language in ("c", "python", "sh", "text", "{toctree}", "{eval-rst}"), f"{page.name}: ```{language}"


# ---- commands --------------------------------------------------------------------------------------------------------
OF_THE_SYSTEM = set(". cd cc chromium cmake curl git journalctl ninja pip pngquant python3 systemctl torchrun".split())


def commands(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        current: list[str] = []
        for word in [*words, "|"]:
            if word in ("|", "&", "&&", ";"):
                if current:
                    yield current
                current = []
            elif current or not re.fullmatch(r"\w+=.*", word):
                current.append(word)


def help_of(*command: str) -> str:
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=120, cwd=TREE)
    assert done.returncode == 0, f"{shlex.join(command)} --help: {done.stderr}"
    return done.stdout


def has_options(words: list[str], text: str) -> bool:
    """Whether a help text contains the long options of a command."""
    wanted = [word.split("=")[0] for word in words if word.startswith("--")]
    return all(re.search(rf"(?<![\w-]){option}(?![\w-])", text) for option in wanted)


@pytest.mark.parametrize("block", named(blocks("sh")))
def test_commands(block: Block) -> None:
    saved_by_reader = set(re.findall(r"Save this as `([^`]+)`", block.page.read_text()))
    for program, *words in commands(block.text):
        if program == "./dev":
            known = re.findall(r"^  (\w+) ", help_of("./dev"), re.MULTILINE)
            assert words[0] in [*known, "--help"], f"./dev {words[0]}"
            if words[0] == "nightly":
                assert set(words[1:]) <= set(re.findall(r"^  (\w+) ", help_of("./dev", "nightly"), re.MULTILINE)), words
        elif program == "python" and words[0] == "-m":
            tool = [sys.executable, "-B", "-m", words[1], *(one for one in words[2:3] if not one.startswith("-"))]
            assert has_options(words, help_of(*tool)), words
        elif program == "python":
            assert words[0] in saved_by_reader or (TREE / words[0]).is_file(), words[0]
        elif program == "pccl_master":
            assert has_options(words, help_of(sys.executable, "-B", "-m", "pccl.master")), words
        elif program.startswith("build/bin/") or program in ("pccl-master", "ccoip_master"):
            binary = BUILD / "bin" / Path(program).name
            if not binary.exists():
                pytest.skip(f"{binary.name} is not built")
            subcommand = [one for one in words[:1] if program == "pccl-master" and re.fullmatch("[a-z]+", one)]
            assert has_options(words, help_of(str(binary), *subcommand)), words
        else:
            assert program in OF_THE_SYSTEM or program.startswith("./"), program


# ---- words -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links(page: Path) -> None:
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {file} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {target.name} has no heading for #{anchor}"


def program_text(*, tests: bool) -> str:
    """All program text of the tree, with string literals of several lines put together."""
    text = [(TREE / "dev").read_text()]
    for folder in "bench cmake core examples harness include net-real packaging python tests".split():
        for path in (TREE / folder).rglob("*"):
            kind = path.suffix in (".c", ".cmake", ".cpp", ".h", ".hpp", ".in", ".py", ".service", ".sh", ".txt")
            if kind and (tests or "tests" not in path.parts) and path != Path(__file__):
                text.append(path.read_text())
    return re.sub(r'"[\s\\]*f?"', "", "\n".join(text)).replace('\\"', '"')


def test_variables_exist() -> None:
    text = program_text(tests=True)
    for page in PAGES:
        for name in set(re.findall(r"\bPCCL_[A-Z_]*[A-Z]\b", page.read_text())):
            if name not in text:
                pytest.fail(f"{page.name}: {name} is in no program")


# Messages of Python itself.
OF_OTHERS = ("cannot import name '_native' from partially initialized module 'pccl'", "No module named 'pccl'")
# Parts that differ each time, because of the program or of what the system adds.
CHANGES = r"'?\.\.\.'?|\b\d+ s\b|: Connection refused|: Address already in use"


def test_messages_exist() -> None:
    """Messages that are quoted in the first column of the tables of symptoms."""
    text = program_text(tests=False)
    seen = 0
    for cell in first_cells(TREE / "docs/troubleshooting.md"):
        for message in re.findall(r"`([^`]+)`", cell):
            if len(message.split()) < 3 or message in OF_OTHERS or message.startswith("./dev"):
                continue
            for part in re.split(CHANGES, message):
                part = part.strip(" ()':")
                seen += 1
                if part not in text:
                    pytest.fail(f"no program says {part!r} (of {message!r})")
    assert seen > 50


# ---- the site --------------------------------------------------------------------------------------------------------
def test_every_page_is_in_the_contents() -> None:
    contents = (TREE / "docs/index.md").read_text()
    entries = re.findall(r"^([\w-]+)$|^\w[^<>\n]*<([\w-]+)>$", contents, re.MULTILINE)
    listed = {name or titled for name, titled in entries}
    assert listed == {page.stem for page in (TREE / "docs").glob("*.md")} - {"index"}


def test_pictures_are_those_of_their_program(tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("draw", TREE / "docs/pictures/draw.py")
    assert specification is not None and specification.loader is not None
    draw = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(draw)
    pictures = {path.stem: path.read_text() for path in (TREE / "docs/pictures").glob("*.svg")}
    assert pictures == {name: function() for name, function in draw.PICTURES.items()}, "run docs/pictures/draw.py"


def test_site(tmp_path: Path) -> None:
    """The site builds without a warning, and its pages need no network."""
    for tool in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed (./dev docs installs it)")
    command = [sys.executable, "-B", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(tmp_path / "doctrees"), "docs", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=500)
    assert made.returncode == 0, made.stdout + made.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {page.name for page in pages} >= {f"{page.stem}.html" for page in (TREE / "docs").glob("*.md")}
    outside = r"(?:https?:)?//"
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|link|iframe|source|object|embed)\b[^>]*>", text)
        assert not [tag for tag in loaded if re.search(rf"""(?:src|href|data)\s*=\s*["']?{outside}""", tag)], page.name
        assert not re.search(rf"url\(\s*[\"']?{outside}|@import", text), page.name
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(rf"url\(\s*[\"']?{outside}|@import\s+[\"']{outside}", style.read_text()), style.name


# ---- docstrings ------------------------------------------------------------------------------------------------------
def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Names of a module, and of its classes. An inherited name is documented where it is defined."""
    names = set(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        # This class is a backend of torch, which documents its methods.
        if inspect.isclass(value) and name != "ProcessGroupPCCL":
            # Parts of a class that are not public themselves.
            inherited = [one for one in value.__mro__[1:] if one.__module__.startswith("pccl")]
            parts = [one for one in inherited if one.__name__ not in names]
            members = itertools.chain.from_iterable(vars(one).items() for one in [value, *parts])
            for inner, member in members:
                if not inner.startswith("_"):
                    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                    if inspect.isfunction(function):
                        yield f"{module.__name__}.{name}.{inner}", function


@pytest.mark.parametrize("name", ["pccl", "pccl.torch", "pccl.diloco"])
def test_every_public_name_and_argument_is_described(name: str) -> None:
    if name != "pccl":
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    page = (TREE / "docs" / {"pccl": "python-api.md"}.get(name, f"{name[5:]}-api.md")).read_text()
    for where, value in public(module):
        text = inspect.getdoc(value) or ""
        assert text, f"{where} has no docstring"
        if inspect.isclass(value):
            listed = rf"^\.\. auto\w+:: {value.__name__}(\(.*\))?$"
            assert re.search(listed, page, re.MULTILINE), f"{where} is not in the reference"
            not_made_by_users = ("AsyncHandle", "AsyncReduceHandle", "Gathered", "ProcessGroupPCCL")
            if issubclass(value, (enum.Enum, BaseException)) or value.__name__ in not_made_by_users:
                continue
            text += inspect.getdoc(value.__init__) or ""
        for parameter in inspect.signature(value).parameters:
            if parameter not in ("self", "cls") and not parameter.startswith("_"):
                assert f":param {parameter}:" in text, f"{where} does not say what {parameter} is"


# Objects of a run: a user has to know which of their methods wait for other peers or for a master.
OF_A_RUN = "AsyncHandle AsyncReduceHandle Communicator DiLoCo MasterNode ReplicaGrid Run SparseLoCo".split()
NEVER_FAIL = ("pccl.Communicator.close", "pccl.MasterNode.wait", "pccl.MasterNode.interrupt", "pccl.MasterNode.close",
              "pccl.torch.ReplicaGrid.close")  # fmt: skip


@pytest.mark.parametrize("name", ["pccl", "pccl.torch", "pccl.diloco"])
def test_it_is_said_what_blocks_and_how_that_fails(name: str) -> None:
    if name != "pccl":
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    properties = {
        f"{name}.{one}.{inner}"
        for one in module.__all__
        for inner, _ in inspect.getmembers(getattr(module, one), lambda member: isinstance(member, property))
    }
    seen = 0
    for where, value in public(module):
        owner = where.removeprefix(name + ".").split(".")[0]
        if inspect.isclass(value) or where in properties:
            continue
        text = " ".join((inspect.getdoc(value) or "").split())
        blocks_somehow = re.search(r"\b[Bb]locks?\b", re.sub("[Nn]ever blocks", "", text))
        if owner in OF_A_RUN or "timeout" in inspect.signature(value).parameters or owner == value.__name__:
            seen += 1
            free = re.search("Never blocks|at once|[Ww]aits for no other peer", text)
            assert blocks_somehow or free, f"{where} does not say whether it blocks"
        if blocks_somehow and where not in NEVER_FAIL:
            assert ":raises " in text, f"{where} blocks, and does not say how that fails"
    assert seen >= {"pccl": 40, "pccl.torch": 9, "pccl.diloco": 6}[name]


@pytest.mark.parametrize("name", ["pccl", "pccl.torch", "pccl.diloco"])
def test_examples_in_docstrings_are_python(name: str) -> None:
    """Examples are fragments of the programs on the pages, so they are compiled and not run."""
    if name != "pccl":
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    for where, value in [(name, module), *public(module)]:
        for example in re.findall(r"::\n\n((?:    .*\n|\n)+)", (inspect.getdoc(value) or "") + "\n"):
            compile(textwrap.dedent(example), where, "exec")
