"""Writes a copy of core/ that contains each small change of it, each behind a switch.

A change is a statement or a loop that is left out, a condition or one operand of it that always or never holds, an end
of a range that belongs to the other side, a summand or a bound that is missing. One build then holds them all ("mutant
schemata"): the environment variable PCCL_MUTANT chooses one.
"""
import json
import re
import shlex
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from clang import cindex
from clang.cindex import CursorKind, TypeKind

# Kernels have tests of their own. The rest is never wrong silently, or is about texts.
LEFT_OUT = ("core/numeric/", "core/base/probe", "core/base/assert", "core/base/format", "core/base/cause")
# Functions for people and for tests only.
OBSERVERS = re.compile(
    r"^(check\w*|explain\w*|leftovers|name_leftovers|describe\w*|mix_into|state_hash|abstract_state|to_text|whereabouts"
    r"|short_name)$")
NO_CHANGE = re.compile(r"^(static_cast<void>|delete |using |[\w.:>-]*reserve\(|turn_\.log\(|text \+?= )")

INTEGERS = {
    TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG, TypeKind.ULONGLONG, TypeKind.SHORT,
    TypeKind.USHORT, TypeKind.UCHAR, TypeKind.SCHAR, TypeKind.CHAR_S, TypeKind.CHAR_U
}
NUMBERS = INTEGERS | {TypeKind.DOUBLE, TypeKind.FLOAT}
NO_STATEMENTS = {
    CursorKind.DECL_STMT, CursorKind.COMPOUND_STMT, CursorKind.IF_STMT, CursorKind.SWITCH_STMT, CursorKind.CASE_STMT,
    CursorKind.DEFAULT_STMT, CursorKind.NULL_STMT, CursorKind.LABEL_STMT
}
LOOPS = {CursorKind.FOR_STMT, CursorKind.CXX_FOR_RANGE_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT}
FUNCTIONS = {
    CursorKind.CXX_METHOD, CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR
}
COMPARISONS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
SUMS = {"+": "plus", "-": "minus"}
# The order of changes that begin and end at the same place: the first one is outermost.
RANK = {"drop": 0, "true": 1, "false": 2, "edge": 3, "left": 3, "min": 3, "max": 3}


@dataclass
class Change:
    path: str
    begin: int
    end: int
    kind: str
    line: int
    text: str
    at: int = 0  # of the operator, for `edge` and `left`
    operator: str = ""
    numbers: list = field(default_factory=list)


class Planter:

    def __init__(self, tree: Path):
        self.tree = tree
        self.texts = {}
        self.changes = {}

    def text(self, path: str) -> bytes:
        if path not in self.texts:
            self.texts[path] = Path(path).read_bytes()
        return self.texts[path]

    # ---- what a cursor spans

    @staticmethod
    def span(cursor):
        begin, end = cursor.extent.start, cursor.extent.end
        if begin.file is None or end.file is None or begin.file.name != end.file.name:
            return None
        return begin.file.name, begin.offset, end.offset

    def source(self, cursor) -> str:
        span = self.span(cursor)
        return self.text(span[0])[span[1]:span[2]].decode() if span else ""

    # Inside an assertion or a macro, or a comparison that the compiler writes.
    def is_fixed(self, span) -> bool:
        text, begin = self.text(span[0]), span[1]
        before = re.split(r"[;{}]", text[max(0, begin - 600):begin].decode(errors="replace"))[-1]
        if re.search(r"\b(ASSERT\w*|PROBE\w*|static_assert)\s*\(", before) or re.search(r"\bfriend\b", before):
            return True
        line = text[begin:begin + 200].decode(errors="replace").split("\n")[0]
        return line.startswith(("ASSERT", "PROBE")) or "= default;" in line

    def add(self, cursor, kind, span=None, **more):
        span = span or self.span(cursor)
        if span is None or self.is_fixed(span):
            return
        path, begin, end = span
        text = " ".join(self.text(path)[begin:end].decode().split())
        self.changes.setdefault((path, begin, end, kind),
                                Change(path, begin, end, kind, cursor.extent.start.line, text, **more))

    # ---- which changes there are

    @staticmethod
    def without_parentheses(cursor):
        while cursor.kind in (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR):
            inside = list(cursor.get_children())
            if len(inside) != 1:
                break
            cursor = inside[0]
        return cursor

    # (operator, its offset, left, right) of a binary operator.
    def parts(self, cursor):
        sides = list(cursor.get_children())
        if len(sides) != 2:
            return None
        left, right = self.span(sides[0]), self.span(sides[1])
        if not left or not right:
            return None
        between = self.text(left[0])[left[2]:right[1]].decode()
        found = re.match(r"^\)*\s*(&&|\|\||<=|>=|<|>|\+|-)\s*\(*$", between)
        return (found[1], left[2] + between.index(found[1]), *sides) if found else None

    def condition(self, cursor):
        if self.source(cursor) not in ("true", "false"):
            self.add(cursor, "true")
            self.add(cursor, "false")

    def operand(self, cursor, operator):
        inner = self.without_parentheses(cursor)
        if inner.kind == CursorKind.BINARY_OPERATOR:
            parts = self.parts(inner)
            if parts and parts[0] == operator:
                return
        self.add(cursor, "true" if operator == "&&" else "false")

    def statement(self, cursor):
        if cursor.kind in NO_STATEMENTS:
            return
        if cursor.kind == CursorKind.RETURN_STMT and self.source(cursor).strip() != "return":
            return
        span = self.span(cursor)
        if not span:
            return
        path, begin, end = span
        text = self.text(path)
        if not (cursor.kind in LOOPS and text[end - 1:end] in b"};"):
            rest = re.match(rb"\s*;", text[end:end + 10])
            if not rest:
                return
            end += rest.end()
        if not NO_CHANGE.match(text[begin:end].decode()):
            self.add(cursor, "drop", (path, begin, end))

    def if_statement(self, cursor):
        if self.source(cursor).startswith("if constexpr"):
            return
        children = list(cursor.get_children())
        declared = [c for c in children if c.kind in (CursorKind.DECL_STMT, CursorKind.VAR_DECL)]
        rest = [c for c in children if c.kind not in (CursorKind.DECL_STMT, CursorKind.VAR_DECL)]
        if not rest:
            return
        at = self.span(rest[0])
        of_declaration = at and any(
            self.span(d) and self.span(d)[1] <= at[1] < self.span(d)[2] for d in declared)
        only_counts = len(rest) == 2 and self.source(rest[1]).startswith("PROBE")
        if at and not of_declaration and not only_counts:
            self.condition(rest[0])
        for body in rest[1:]:
            self.statement(body)

    def binary(self, cursor):
        parts = self.parts(cursor)
        if not parts:
            return
        operator, at, left, right = parts
        if operator in ("&&", "||"):
            self.operand(left, operator)
            self.operand(right, operator)
            return
        kinds = [c.type.get_canonical().kind for c in (left, right)]
        if all(kind in NUMBERS for kind in kinds):
            self.add(cursor, "edge" if operator in COMPARISONS else "left", at=at, operator=operator)

    def call(self, cursor):
        found = re.match(r"^std::(min|max)\((?!\{)", self.source(cursor))
        if found and len(list(cursor.get_arguments())) == 2:
            self.add(cursor, found[1])

    def visit(self, cursor):
        kind = cursor.kind
        children = list(cursor.get_children())
        if kind == CursorKind.IF_STMT:
            self.if_statement(cursor)
        elif kind == CursorKind.WHILE_STMT and len(children) == 2:
            self.condition(children[0])
            self.statement(children[1])
        elif kind in LOOPS or kind in (CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT):
            if children:
                self.statement(children[-1])
        elif kind == CursorKind.CONDITIONAL_OPERATOR and children:
            self.condition(children[0])
        elif kind == CursorKind.COMPOUND_STMT:
            for child in children:
                self.statement(child)
        elif kind == CursorKind.RETURN_STMT:
            if len(children) == 1 and children[0].type.get_canonical().kind == TypeKind.BOOL:
                self.condition(children[0])
        elif kind == CursorKind.BINARY_OPERATOR:
            self.binary(cursor)
        elif kind == CursorKind.CALL_EXPR:
            self.call(cursor)

    def walk(self, cursor):
        for child in cursor.get_children():
            where = child.location.file
            if where is not None:
                name = where.name
                if not name.startswith(f"{self.tree}/core/") or any(f"/{part}" in name for part in LEFT_OUT):
                    continue
                if child.kind in FUNCTIONS and OBSERVERS.match(child.spelling):
                    continue
                self.visit(child)
            self.walk(child)

    def find(self, build: Path):
        index = cindex.Index.create()
        headers = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
        for unit in json.loads((build / "compile_commands.json").read_text()):
            if not unit["file"].startswith(f"{self.tree}/core/") or any(f"/{part}" in unit["file"] for part in LEFT_OUT):
                continue
            words = shlex.split(unit["command"])
            options = [w for w in words if w.startswith(("-I", "-D", "-std"))]
            for i, word in enumerate(words):
                if word == "-isystem":
                    options += [word, words[i + 1]]
            parsed = index.parse(unit["file"], args=[*options, "-isystem", headers.stdout.strip(), "-w", "-fno-exceptions"])
            for message in parsed.diagnostics:
                if message.severity >= cindex.Diagnostic.Error:
                    raise SystemExit(f"{unit['file']}: {message.spelling} ({message.location})")
            self.walk(parsed.cursor)

    # ---- the copy

    # Gives the changes their numbers, from 1 on.
    def number(self):
        ordered = sorted(self.changes.values(), key=lambda c: (c.path, c.begin, -c.end, RANK[c.kind]))
        last = 0
        for change in ordered:
            count = 2 if change.kind in ("min", "max") else 1
            change.numbers = list(range(last + 1, last + 1 + count))
            last += count
        return ordered, last

    @staticmethod
    def around(change):
        number = change.numbers[0]
        if change.kind == "drop":
            return f"{{ if (!::mutation::is({number})) {{ ", " } }"
        if change.kind == "true":
            return f"(::mutation::is({number}) || (", "))"
        if change.kind == "false":
            return f"(!::mutation::is({number}) && (", "))"
        if change.kind in ("edge", "left"):
            return f"::mutation::{(COMPARISONS | SUMS)[change.operator]}({number}, ", ")"
        return "", ""

    def switched(self, path: str, changes) -> bytes:
        text = self.text(path)
        opens, closes, replaced = defaultdict(list), defaultdict(list), {}
        for order, change in enumerate(changes):
            before, behind = self.around(change)
            if before:
                opens[change.begin].append(before)
                closes[change.end].append((order, behind))
            if change.kind in ("edge", "left"):
                replaced[change.at] = (len(change.operator), ",")
            elif change.kind in ("min", "max"):
                replaced[change.begin] = (len("std::min("), f"::mutation::{change.kind}({change.numbers[0]}, ")
        result, done = bytearray(), 0
        for at in sorted({*opens, *closes, *replaced}):
            result += text[done:at]
            done = at
            for _, behind in sorted(closes[at], reverse=True):  # what began last ends first
                result += behind.encode()
            for before in opens[at]:
                result += before.encode()
            if at in replaced:
                length, instead = replaced[at]
                result += instead.encode()
                done = at + length
        return bytes(result + text[done:])


def plant(tree: Path, build: Path, to: Path):
    """Writes the switched core of `tree` into `to`; returns rows (number, file, line, kind, text)."""
    planter = Planter(tree)
    planter.find(build)
    ordered, last = planter.number()
    by_file = defaultdict(list)
    for change in ordered:
        by_file[change.path].append(change)
    for path, changes in by_file.items():
        target = to / Path(path).relative_to(tree)
        switched = planter.switched(path, changes)
        if not target.exists() or target.read_bytes() != switched:
            target.write_bytes(switched)
    here = Path(__file__).parent
    for name, content in (("switch.hpp", (here / "switch.hpp").read_text()), ("switch.cpp", SWITCH % (last + 2))):
        target = to / "core/base" / name
        if not target.exists() or target.read_text() != content:
            target.write_text(content)
    return [(number, str(Path(c.path).relative_to(tree)), c.line, c.kind + ("" if len(c.numbers) == 1 else f" {i + 1}"),
             c.text[:200]) for c in ordered for i, number in enumerate(c.numbers)]


SWITCH = """#include "core/base/switch.hpp"

#include <cstdio>
#include <cstdlib>

namespace mutation {

int chosen = std::getenv("PCCL_MUTANT") != nullptr ? std::atoi(std::getenv("PCCL_MUTANT")) : 0;
unsigned char reached[%d];

static const bool written_at_exit = [] {
    if (std::getenv("PCCL_REACHED") == nullptr) return false;
    return std::atexit([] {
               if (std::FILE* file = std::fopen(std::getenv("PCCL_REACHED"), "wb")) {
                   std::fwrite(reached, 1, sizeof reached, file);
                   std::fclose(file);
               }
           }) == 0;
}();

}  // namespace mutation
"""
