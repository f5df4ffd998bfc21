# SPDX-License-Identifier: MIT
"""The code blocks of a document: Markdown, HTML and mdoc manual pages.

In Markdown a fence names its language, and names that a fragment takes for granted are declared in a
comment before it, which readers do not see: <!-- with: void *ptr, size_t size -->. In a manual page
the same is .\\" with: ... before .Bd. What a complete program prints stands in the text behind its
block: "prints `...`".
"""
import dataclasses
import html
import re

# The languages that are built or run, and those that are data.
CODE = ("c", "python", "sh")
DATA = ("text", "console", "json", "yaml", "ini", "dockerfile", "cmake")


class Unclear(Exception):
    """A block without a known language."""


@dataclasses.dataclass
class Block:
    path: str
    line: int        # of its first line of code
    language: str
    text: str
    given: str = ""  # what its "with:" declares
    prints: str = None

    @property
    def where(self):
        return f"{self.path}:{self.line}"


def blocks_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".md"):
        return list(of_markdown(path, text.splitlines()))
    if path.endswith(".html"):
        return list(of_html(path, text))
    return list(of_mdoc(path, text.splitlines()))


def of_markdown(path, lines):
    block, given, previous = None, "", None
    for number, line in enumerate(lines, 1):
        fence = re.match(r"( *)```(\S*)", line)
        if block and fence:
            previous, block = block, None
            yield previous
        elif fence:
            if fence[2] not in CODE + DATA:
                raise Unclear(f"{path}:{number}: a block of no known language: {line!r}")
            block, indent = Block(path, number + 1, fence[2], "", given), len(fence[1])
            given = ""
        elif block:
            block.text += line[indent:] + "\n"
        elif found := re.fullmatch(r"<!-- with: (.*) -->", line):
            given = found[1]
        elif given:
            raise Unclear(f"{path}:{number}: with: and no block behind it")
        elif re.match(r"( {4}|\t)\S", line) and lines[number - 2] == "":
            raise Unclear(f"{path}:{number}: an indented block: fence it and name its language")
        elif line and previous:
            previous.prints = prints(line)
            previous = None
    if block:
        raise Unclear(f"{block.where}: the block does not end")


def prints(line):
    found = re.match(r"prints `([^`]*)`", line)
    return found[1] + "\n" if found else None


def of_html(path, text):
    for found in re.finditer(r"<pre\b[^>]*>(.*?)</pre>", text, re.S):
        line = text.count("\n", 0, found.start(1)) + 1
        code = re.fullmatch(r'<code class="language-(\w+)">(.*)</code>', found[1], re.S)
        if not code or code[1] not in CODE + DATA:
            raise Unclear(f"{path}:{line}: a block of no known language")
        printed = re.match(r"\s*<p>prints <code>([^<]*)</code>", text[found.end():])
        yield Block(path, line, code[1], html.unescape(code[2]) + "\n",
                    prints=html.unescape(printed[1]) + "\n" if printed else None)


def of_mdoc(path, lines):
    # Pages of calls show C; those of commands and devices, what is typed.
    language = "c" if path[-1] in "37" else "sh"
    block, given, section = None, "", ""
    for number, line in enumerate(lines, 1):
        if block and line == ".Ed":
            yield block
            block = None
        elif block:
            block.text += unescaped(line) + "\n"
        elif line.startswith(".Bd -literal"):
            block, given = Block(path, number + 1, language, "", given), ""
        elif found := re.fullmatch(r'\.\\" with: (.*)', line):
            given = found[1]
        elif found := re.match(r"\.Sh (.*)", line):
            section = found[1]
        elif line.startswith(".Dl ") and section != "SYNOPSIS":
            yield Block(path, number, "sh", unescaped(line[4:]) + "\n")
    if block:
        raise Unclear(f"{block.where}: .Bd without .Ed")


def unescaped(line):
    """Replaces the escapes of mdoc that the pages use in literal text."""
    for escape, character in (("\\-", "-"), ("\\&", ""), ("\\(dq", '"'), ("\\(aq", "'"), ("\\e", "\\")):
        line = line.replace(escape, character)
    return line
