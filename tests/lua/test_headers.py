"""Holds the header of every script against its code: a header that nothing checks rots."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import redis

from limpet import errors, scripts
from limpet.calls import Call
from limpet.commands import Commands
from limpet.keys import keyspace
from limpet.scripts import NAMES, assemble, script

from .header import FOLDER, body_of, own_text, read_header
from .rig import knows_flags

EACH = pytest.mark.parametrize("name", NAMES)
LIB = sorted(path.stem for path in (FOLDER / "lib").glob("*.lua"))
FIXTURES = Path(__file__).parent / "fixtures"
WRITES = {"SET", "ZADD", "ZREM", "HSET", "HDEL", "PUBLISH"}
READS = {"GET", "HGET", "HMGET", "HGETALL", "HLEN", "ZRANGEBYSCORE", "TIME"}
EPOCHS = r"(?:epoch|fence|deadline|last|now|issued|target|due|previous|floor)"


def code(name: str) -> str:
    """The assembled script without its comments."""
    return body_of(assemble(name))


def test_every_file_is_a_command_and_every_command_a_file() -> None:
    """The list of the loader is the folder's, sorted."""
    assert list(NAMES) == sorted(path.stem for path in FOLDER.glob("*.lua"))


@EACH
def test_the_name_says_subject_and_verb(name: str) -> None:
    """`<subject>_<verb>`, and the title repeats it."""
    assert re.fullmatch(r"[a-z]+_[a-z]+", name)
    assert read_header(name).title.startswith(f"{name}: ")


@EACH
def test_keys_and_arguments_are_all_declared(name: str) -> None:
    """The highest index used is the highest declared, and none in between is missing."""
    text = code(name)
    header = read_header(name)
    for kind, declared in (("KEYS", header.keys), ("ARGV", header.argv)):
        used = {int(n) for n in re.findall(kind + r"\[(\d+)\]", text)}
        loop = re.search(r"for i = 2, math\.min\(#ARGV, (\d+)\)", text)
        if loop:
            used |= {int(loop[1])}
        assert used == set(declared)


@EACH
def test_keys_are_named_once_at_the_top(name: str) -> None:
    """Each key gets its name in the preamble; nothing after it, and nothing in lib/, knows KEYS. ARGV is only taken apart."""
    own = body_of(own_text(name))
    for line in own.splitlines():
        if "KEYS[" in line:
            assert re.fullmatch(r"local [a-z]+_key = KEYS\[\d\]|  local record_key(, member)? = KEYS\[i\](, ARGV\[i\])?", line)
        elif "ARGV[i]" not in line and "ARGV[" in line:
            assert re.match(r"\s*local [a-z_, ]+ = (?:struct\.unpack|cmsgpack\.unpack|tonumber|ARGV)\b", line), line
    for piece in LIB:
        text = body_of((FOLDER / "lib" / f"{piece}.lua").read_text())
        assert "KEYS" not in text
        assert "ARGV" not in text


@EACH
def test_no_key_is_made_up(name: str) -> None:
    """Every key given to redis.call is a name from the preamble, or a parameter of a lib function; never a concatenation."""
    for command, first in re.findall(r"redis\.call\(\s*'([A-Z]+)'(?:,\s*([^,)]+))?", code(name)):
        if command == "TIME":
            assert not first
        else:
            assert re.fullmatch(r"[a-z]+_key|keys\.[a-z]+|key|channel", first), f"{command} {first}"


@EACH
def test_real_calls_have_the_declared_shapes(name: str) -> None:
    """The keys that Commands sends are those of the header, one for one, with the hash tag where it says."""
    call = calls()[name]
    header = read_header(name)
    assert len(call.keys) <= max(header.keys)
    for position, key in enumerate(call.keys, start=1):
        declared = header.keys[min(index for index in header.keys if index >= position)]
        shape = re.escape(declared.split(" (")[0])
        for placeholder, pattern in (
            (r"<ns>", "tenant"),
            (r"<p>", r"\d+"),
            (r"<conv\|sess>", "(?:conv|sess)"),
            (r"<digest>", "[0-9a-f]{32}"),
        ):
            shape = shape.replace(re.escape(placeholder) if placeholder != r"<conv\|sess>" else r"<conv\|sess>", pattern)
        assert re.fullmatch(shape, key), f"{key} is not {declared}"
    assert len({key.partition("}")[0] for key in call.keys}) == 1


@EACH
def test_types_of_keys_are_said(name: str) -> None:
    """`(string: ...)`, `(sorted set: ...)` or `(hash: ...)` follows each shape."""
    for text in read_header(name).keys.values():
        assert re.search(r"\((?:string|sorted set|hash): [^)]+\)$", text)


@EACH
def test_packed_arguments_match(name: str) -> None:
    """The struct formats of the header are those of the code, in order, and the MessagePack names as many as it reads."""
    header, own = read_header(name), body_of(own_text(name))
    said = " ".join(header.argv.values())
    formats = re.findall(r"struct '([^']+)'", said)
    used = dict.fromkeys(re.findall(r"struct\.unpack\('([^']+)', ARGV\[1\]", own))
    assert formats == list(used)
    names = re.search(r"MessagePack \{([^}]+)\}", said)
    read = [int(n) for n in re.findall(r"\bargs\[(\d+)\]", own)]
    assert bool(names) == bool(read)
    if names:
        assert len(names[1].split(",")) == max(read) == len(set(read))


@EACH
def test_errors_are_declared(name: str) -> None:
    """Every WORD that the assembled script may answer is in its header, and the other way round."""
    words = set(re.findall(r"redis\.error_reply\('([A-Z0-9_]+) ", assemble(name)))
    assert assemble(name).count("redis.error_reply(") == len(re.findall(r"redis\.error_reply\('[A-Z0-9_]+ [a-z]", assemble(name)))
    assert words == read_header(name).errors


def test_every_word_is_a_type_and_every_type_a_word() -> None:
    """The table of limpet.errors knows the scripts' words, and besides them only the server's own WRONGTYPE."""
    words = {word for name in NAMES for word in read_header(name).errors}
    assert words | {"WRONGTYPE"} == set(errors._WORDS)
    for word in words:
        assert type(errors.error_for_word(f"{word} some text")) is errors._WORDS[word]


@EACH
def test_flags(name: str) -> None:
    """A script with no-writes contains no write command; one without contains one. No command is unknown to this test."""
    commands = set(re.findall(r"redis\.call\(\s*'([A-Z]+)'", code(name)))
    assert code(name).count("redis.call(") == len(re.findall(r"redis\.call\(\s*'[A-Z]+'", code(name)))
    assert commands <= WRITES | READS
    assert ("no-writes" in read_header(name).flags) == (not commands & WRITES)
    assert script(name).flagged.startswith("#!lua flags=no-writes\n") == ("no-writes" in read_header(name).flags)


@EACH
def test_time_is_read_once(name: str) -> None:
    """It advances inside a script on some servers and is frozen on others."""
    assert code(name).count("'TIME'") <= 1


@EACH
def test_loops_are_bounded(name: str) -> None:
    """Only numeric for, over a ring, three fields or a page of members. No pairs, no while, no recursion, no unpack."""
    text = code(name)
    for word in ("while", "repeat", "goto", "pairs", "ipairs"):
        assert not re.search(rf"\b{word}\b", text)
    assert not re.search(r"(?<!\.)\bunpack\(", text)
    for bounds in re.findall(r"\bfor (.+?) do\b", text):
        assert bounds in ("i = 1, #ring", "i = #ring, 1, -1", "i = 1, 3", "i = 1, #members", "i = 2, math.min(#ARGV, 65)")
    for function in re.findall(r"^local function ([a-z_]+)\(", text, re.MULTILINE):
        body = text.split(f"local function {function}(", 1)[1].split("\nend", 1)[0]
        assert f"{function}(" not in body


@EACH
def test_epochs_are_never_rounded(name: str) -> None:
    """tostring, `..` and cjson keep fourteen digits; epochs outgrow them (measured), so none of the three may meet one."""
    text = code(name)
    assert "tostring" not in text
    assert "cjson" not in text
    assert "%d" not in text
    assert not re.search(r"string\.format\('(?!%\.0f')", text)
    for line in text.splitlines():
        if ".." in line:
            # What may be concatenated: a literal, a packed string, a record's bytes, a member's text, a schema of one byte.
            assert not re.search(rf"\.\.\s*(?:record\.)?{EPOCHS}\b|\b{EPOCHS}\s*\.\.(?!\.)", line), line
    for arguments in re.findall(r"redis\.call\('Z(?:ADD)',(.+)$", text, re.MULTILINE):
        assert "string.format('%.0f'" in arguments


@EACH
def test_a_complexity_is_stated(name: str) -> None:
    """Big O, and how many calls at most (held against the server in test_cost)."""
    assert re.match(r"O\(", read_header(name).complexity)
    assert re.search(r"\d.* redis\.calls?\b", read_header(name).complexity)


@EACH
def test_the_server_compiles_it_to_our_sha(name: str, server: redis.Redis) -> None:
    """What EVALSHA will ask for is what SCRIPT LOAD gives, in both variants."""
    made = script(name)
    assert server.script_load(made.text) == made.sha
    if knows_flags(server) or made.flagged == made.text:
        assert server.script_load(made.flagged) == made.flagged_sha
    else:  # what `learn_version` is for
        with pytest.raises(redis.ResponseError, match="unexpected symbol near '#'"):
            server.script_load(made.flagged)


@EACH
def test_no_global_is_written(name: str, server: redis.Redis) -> None:
    """Every name is local: assigning a global would fail only on the path that does it."""
    text = code(name)
    locals_ = set(re.findall(r"[a-z_0-9A-Z]+", " ".join(re.findall(r"\blocal ([a-zA-Z_0-9, ]+)", text))))
    locals_ |= set(re.findall(r"[a-z_]+", " ".join(re.findall(r"function [a-z_]+\(([^)]*)\)", text))))
    for names in re.findall(r"^\s*([a-z_]+(?:, [a-z_]+)*) = ", text, re.MULTILINE):
        for each in names.split(", "):
            # A table's fields are written `name = value` too.
            assert each in locals_ or re.search(rf"[{{,]\s*(?:[^{{}}]*,\s*)?{each} = ", text), each


@EACH
def test_luacheck(name: str, tmp_path: Path) -> None:
    """Clean of warnings where luacheck is installed; the server's own compiler has looked at it in any case."""
    checker = shutil.which("luacheck")
    assert FOLDER.is_dir()
    if checker is None:
        return
    path = tmp_path / f"{name}.lua"
    path.write_text(assemble(name), encoding="utf-8")
    config = FOLDER.parent / ".luacheckrc"
    done = subprocess.run([checker, "--config", config, "--no-color", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("piece", LIB)
def test_a_lib_file_is_one_function_of_its_name(piece: str) -> None:
    """One function per file, told in a comment, used by somebody."""
    text = (FOLDER / "lib" / f"{piece}.lua").read_text()
    assert text.startswith("-- ")
    assert re.findall(r"^local function ([a-z_]+)\(", text, re.MULTILINE) == [piece]
    everywhere = [own_text(name) for name in NAMES] + [(FOLDER / "lib" / f"{other}.lua").read_text() for other in LIB]
    assert any(f"-- @include {piece}\n" in other for other in everywhere)


@EACH
def test_what_is_used_is_included(name: str) -> None:
    """A file includes itself what it calls, so that no include depends on another's."""
    for text in [own_text(name), *((FOLDER / "lib" / f"{piece}.lua").read_text() for piece in LIB)]:
        used = {piece for piece in LIB if re.search(rf"(?<!function )(?<![a-z_.]){piece}\(", body_of(text))}
        own = set(re.findall(r"^local function ([a-z_]+)\(", text, re.MULTILINE))
        included: set[str] = set()
        todo = re.findall(r"^-- @include ([a-z_]+)$", text, re.MULTILINE)
        while todo:
            piece = todo.pop()
            if piece not in included:
                included.add(piece)
                todo += re.findall(r"^-- @include ([a-z_]+)$", (FOLDER / "lib" / f"{piece}.lua").read_text(), re.MULTILINE)
        assert used - own <= included


@pytest.mark.parametrize("broken", ["circular", "selfish", "missing", "duplicate"])
def test_broken_includes_are_refused(broken: str) -> None:
    """A circle, a file that includes itself, one that is not there, one that is asked for twice."""
    with pytest.raises(ValueError, match=r"circle|not there|twice"):
        assemble(broken, FIXTURES)


def test_a_shared_include_comes_once() -> None:
    """Two files that include a third get one copy of it, before both."""
    text = assemble("diamond", FIXTURES)
    assert text.count("function plain") == 1
    assert text.index("function plain") < text.index("function left") < text.index("function right")


def calls() -> dict[str, Call[object]]:
    """One real call of every script."""
    commands = Commands(namespace="tenant", partitions=8)
    key, session = commands.declared("key"), commands.physical("session")
    space = keyspace("tenant", 8)
    bound = space.bound(space.partition(key.digest))
    found: list[Call[object]] = [
        commands.resolve(key, session_id="s"),
        commands.advance(key, "new"),
        commands.suspend(key),
        commands.forget(key),
        commands.peek(key),
        commands.touch(key, 1, age_us=0),
        commands.confirm(session, 1),
        commands.abort(session, 1),
        commands.release(session, 1),
        commands.renew(session, 1),
        commands.rebind(session, 1, "lost"),
        commands.rewrite(session, 1, 1),
        commands.register("w1", "pool", "http://w1", 1.0, "i1", {}, 15_000),
        commands.heartbeat("w1"),
        commands.mark("w1", "drain"),
        commands.workers(),
        commands.link_response("resp_1", "key"),
        commands.find_response("resp_1"),
        Call(script("binding_prune"), (bound, space.record("conv", key.digest)), (b"",), str),
        Call(script("binding_drain"), (bound, space.record("conv", key.digest)), (b"",), str),
        Call(script("binding_census"), (bound,), (b"",), str),
        Call(script("config_open"), (space.config,), (1, 8, 1000), str),
        Call(script("config_raise"), (space.config,), (2,), str),
    ]
    return {call.script.name: call for call in found}


def test_every_script_is_called_by_somebody() -> None:
    """No script that no command sends."""
    assert set(calls()) == set(NAMES)


def test_the_loader_prefers_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the wheel carries the folder, that is read; in a checkout, the checkout's."""
    assert Path(str(scripts.scripts_root())).resolve() == FOLDER
    (tmp_path / "lua").mkdir()
    monkeypatch.setattr(scripts, "files", lambda _: tmp_path)
    assert scripts.scripts_root() == tmp_path / "lua"
