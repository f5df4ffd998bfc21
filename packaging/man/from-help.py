#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the manual page of a tool from its --help, which is where its options are described.

    from-help.py TOOL >PAGE

`make` runs it for every tool.
"""
import re
import subprocess
import sys
import textwrap

DATE = "November 20, 2026"


def text(out, words):
    """Plain text: each sentence at the start of a line, nothing that mdoc takes for a request."""
    words = " ".join(words.split()).replace("\\", "\\e")
    words = re.sub(r"(?<!\S)-(?=\w)", r"\\-", words)
    for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z0-9])", words):
        lines = textwrap.wrap(sentence, 78, break_long_words=False, break_on_hyphens=False)
        for line in lines:
            # A name with parentheses is a function; \\& keeps it as the help has it.
            line = re.sub(r"(\w)\(\)", r"\1\\&()", line)
            out.append(("\\&" if line[0] in ".'" else "") + line)


def option(out, left, help_text):
    """One option: '-s, --size SIZE' or '--json'."""
    match = re.match(r"(?:-(\w), )?--([\w-]+)(?: (.+))?$", left)
    letter, name, arg = match.groups()
    arg = f" Ar {arg}" if arg else ""
    forms = ([f"Fl {letter}{arg}"] if letter else []) + [f"Fl Fl {name}{arg}"]
    out.append(".It " + " , ".join(forms))
    text(out, help_text)
    if not out[-1].endswith((".", "!", "?")):
        out[-1] += "."


def rows(out, body):
    """Lines '  N  meaning', each with further lines of its meaning below it, as a tagged list."""
    out.append(".Bl -tag -width Ds")
    words = ""
    for line in body.split("\n") + ["  end  "]:
        start = re.match(r"  (\w+)  (.*)$", line)
        if not start:
            words += " " + line.strip()
            continue
        if words:
            text(out, words.rstrip(".;") + ".")
        if start.group(1) != "end":
            out.append(f".It {start.group(1)}")
        words = start.group(2)
    out.append(".El")


def examples(out, body):
    """Lines '  COMMAND', each with '      MEANING' below it."""
    for part in re.split(r"\n(?=  \S)", body):
        command, *meaning = [line.strip() for line in part.split("\n")]
        words = " ".join(meaning)
        if out[-1] != ".Sh EXAMPLES":
            out.append(".Pp")
        text(out, words[0].upper() + words[1:] + ":")
        # mdoc takes apart what follows a macro: quotes, and words that begin with a dash
        command = command.replace("\\", "\\e").replace('"', "\\(dq")
        out.append(".Dl " + re.sub(r"(?<!\S)-", r"\\-", command))


def main():
    tool = sys.argv[1]
    name = tool.rsplit("/", 1)[-1]
    help_text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
    sections = re.split(r"\n\n", help_text.rstrip("\n"))
    usage = sections.pop(0).split("\n")
    purpose = " ".join(usage[1:])
    synopsis = usage[0].split(None, 2)[2] if len(usage[0].split(None, 2)) > 2 else ""

    # The page's one line: the first sentence, without its full stop.
    one_line = re.split(r"(?<=\.)\s", purpose)[0].rstrip(".")
    out = ['.\\" SPDX-License-Identifier: MIT', '.\\" Made from --help by from-help.py.',
           f".Dd {DATE}", f".Dt {name.upper()} 1", ".Os barcopy", ".Sh NAME", f".Nm {name}",
           f".Nd {one_line[0].lower()}{one_line[1:]}", ".Sh SYNOPSIS", ".Nm"]
    for word in synopsis.split():
        out.append(".Op Ar options" if word == "[options]" else f".Ar {word}")
    out.append(".Sh DESCRIPTION")
    text(out, purpose)

    exit_status, example = None, None
    for section in sections:
        title, _, body = section.partition("\n")
        if title == "Options:":
            out += [".Pp", "The options are:", ".Bl -tag -width Ds"]
            left, words = None, ""
            for line in body.split("\n"):
                # Options begin at column 2; what follows from the column of the texts on is theirs.
                start = re.match(r"  {1,6}(-.*?)(?:\s{2,}(.*))?$", line) \
                    if re.match(r" {2,6}-", line) else None
                if start:
                    if left:
                        option(out, left, words)
                    left, words = start.group(1).strip(), start.group(2) or ""
                else:
                    words += " " + line.strip()
            if left:
                option(out, left, words)
            out.append(".El")
        elif title.startswith("Exit status:"):
            exit_status = section.split(":", 1)[1]
        elif title == "Examples:":
            example = body
        elif body and title.endswith(":") and body.startswith(" "):
            out.append(f".Ss {title[:-1]}")
            text(out, body)
        else:
            out.append(".Pp")
            text(out, section)
    if exit_status:
        out.append(".Sh EXIT STATUS")
        if exit_status.startswith("\n"):
            rows(out, exit_status[1:])
        else:
            text(out, exit_status[1:])
    if example:
        out.append(".Sh EXAMPLES")
        examples(out, example)
    out += [".Sh SEE ALSO", ".Xr gdrapi 7"]
    print("\n".join(out))


main()
