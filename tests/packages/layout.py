#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The list of the public types, `layout` beside this file: each struct's size, each member's place and size, each
enumerator's value, and the version that a member or an enumerator came with.

    layout.py check [ROOT]            the headers lay out what the list says; a call's node and BARCOPY_API_VERSION count
                                      the versions that have added to barcopy*.h; a tagged version gets nothing more
    layout.py refresh VERSION [ROOT]  adds what is new, as of VERSION; what moved or went is an error

The versions of calls stand in packaging/debian/libgdrapi2.symbols. ROOT: the tree, by default this one. Exit code 1: a
difference, which is printed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HEADERS = "gdrapi.h", "barcopy.h", "barcopy_queue.h"


def preprocessed(root, header):
    command = ["gcc", "-E", "-x", "c", "-I", root + "/include", f"{root}/include/{header}"]
    text, mine = [], False
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        mark = re.match(r'# \d+ "(.*)"', line)
        if mark:
            mine = os.path.basename(mark[1]) == header
        elif mine:
            text.append(line)
    return " ".join(text)


def declared(root):
    """(header, type, members of a struct or None, enumerators or None) of each type, in the headers' order."""
    for header in HEADERS:
        text = preprocessed(root, header)
        found = re.findall(r"\b(struct|enum|union) (\w+) \{([^{}]*)\} ?(\w*) ?;", text)
        assert len(found) == text.count("{"), f"{header}: a type of a form that this program does not know"
        for kind, tag, body, name in found:
            if kind == "enum":
                yield header, tag, None, [part.split("=")[0].strip() for part in body.split(",") if part.strip()]
                continue
            members = []
            for declaration in body.split(";"):
                if declaration.strip() and ":" not in declaration:  # of bits: tests/build/test_header.sh
                    members += [re.sub(r"\[.*", "", part).split()[-1].strip("* ") for part in declaration.split(",")]
            yield header, name or f"{kind} {tag}", members, None


def measured(root):
    """[header, words of a line] of each line of the list, without a version."""
    lines, asked = [], []
    for header, name, members, values in declared(root):
        if members is None:
            for value in values:
                if not value.endswith("_MAX"):  # it grows
                    lines.append((header, ["value", value]))
                    asked.append(f"(long long){value}")
            continue
        lines.append((header, ["struct", name]))
        asked.append(f"sizeof({name})")
        for member in members:
            lines.append((header, ["member", f"{name}.{member}"]))
            asked += [f"offsetof({name}, {member})", f"sizeof((({name} *)0)->{member})"]
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/ask.c", "w", encoding="utf-8") as f:
            f.write('#include <stddef.h>\n#include <stdio.h>\n#include "barcopy_queue.h"\nint main(void)\n{\n')
            f.writelines(f'\tprintf("%lld\\n", (long long){a});\n' for a in asked)
            f.write("\treturn 0;\n}\n")
        subprocess.run(["gcc", "-I", root + "/include", "-o", tmp + "/ask", tmp + "/ask.c"], check=True)
        answers = subprocess.run(tmp + "/ask", check=True, capture_output=True, text=True).stdout.split()
    for _, words in lines:
        for _ in range(2 if words[0] == "member" else 1):
            words.append(answers.pop(0))
    return lines


def of_name(words):
    return words[0], words[1]


LIST, SYMBOLS = "tests/packages/layout", "packaging/debian/libgdrapi2.symbols"


def read(root, path, tag=None):
    """Of the tree, or of a tag's commit; None: there is no such tag, or no git."""
    if tag and not shutil.which("git"):
        return None
    if tag:
        shown = subprocess.run(["git", "-C", root, "show", f"{tag}:{path}"], capture_output=True, text=True)
        return None if shown.returncode else shown.stdout
    with open(f"{root}/{path}", encoding="utf-8") as f:
        return f.read()


def types(text):
    """The list's lines by kind and name: (words without the version, version or None)."""
    listed = {}
    for words in (line.split() for line in text.splitlines() if line[0] != "#"):
        version = None if words[0] == "struct" else words.pop()
        listed[of_name(words)] = words, version
    return listed


def calls(text):
    """(call, node, version) of barcopy.h and barcopy_queue.h."""
    return re.findall(r"^ (barcopy_\w+)@(BARCOPY_\d+) (\S+)$", text, re.M)


def versions(root, now, listed):
    """The versions that have added to those headers, the oldest first."""
    added = {version for _, _, version in calls(read(root, SYMBOLS))}
    added |= {listed[of_name(w)][1] for header, w in now if header != "gdrapi.h" and w[0] != "struct" and of_name(w) in listed}
    return sorted(added, key=lambda version: [int(n) for n in version.split(".")])


def after_the_tag(root, listed, newest):
    """What names a version that is tagged, and stands in no list of the tag."""
    tag = "v" + newest
    symbols, of_types = read(root, SYMBOLS, tag), read(root, LIST, tag)
    if symbols is None or of_types is None:
        return []
    had = {c[0] for c in calls(symbols)} | {name for _, name in types(of_types)}
    mine = {c[0] for c in calls(read(root, SYMBOLS)) if c[2] == newest}
    mine |= {name for (_, name), (_, version) in listed.items() if version == newest}
    return [f"{name}: {tag} is tagged and lacks it; raise VERSION in the Makefile, and give its line that version"
            for name in sorted(mine - had)]


def level(root):
    return int(re.search(r"^#define BARCOPY_API_VERSION (\d+)$", read(root, "include/barcopy.h"), re.M)[1])


def check(root):
    now, listed, bad = measured(root), types(read(root, LIST)), []
    for _, words in now:
        old = listed.get(of_name(words))
        if not old:
            bad.append(f"{' '.join(words)}: not in the list; make refresh-abi adds it")
        elif old[0] != words:
            bad.append(f"{' '.join(words)}: was {' '.join(old[0][2:])}")
    for kind, name in set(listed) - {of_name(words) for _, words in now}:
        bad.append(f"{kind} {name}: the headers lack it")
    added = versions(root, now, listed)
    for name, node, version in calls(read(root, SYMBOLS)):
        wanted = f"BARCOPY_{added.index(version) + 1}"
        if node != wanted:
            bad.append(f"{name} came with {version}: its node in src/libgdrapi.map is {wanted}, not {node}")
    if level(root) != len(added):
        bad.append(f"BARCOPY_API_VERSION is {level(root)}: {len(added)} versions have added to barcopy*.h ({' '.join(added)})")
    return bad + after_the_tag(root, listed, added[-1])


def refresh(root, version):
    now, listed, lines, bad = measured(root), types(read(root, LIST)), [], []
    for _, words in now:
        old, since = listed.get(of_name(words), (None, version))
        grown = words[0] == "struct" and old and int(words[2]) > int(old[2])
        if old and old != words and not grown:
            bad.append(f"{' '.join(words)}: was {' '.join(old[2:])}; a published type only grows at its end")
        lines.append(" ".join(words) + ("" if words[0] == "struct" else " " + since))
    gone = set(listed) - {of_name(words) for _, words in now}
    bad += [f"{kind} {name}: the headers lack it" for kind, name in sorted(gone)]
    if not bad:
        with open(f"{root}/{LIST}", "r+", encoding="utf-8") as f:
            head = [line for line in f if line[0] == "#"]
            f.seek(0)
            f.truncate()
            f.writelines(head + [line + "\n" for line in lines])
    return bad


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    if sys.argv[1:2] == ["check"]:
        bad = check(*sys.argv[2:] or [here])
    elif sys.argv[1:2] == ["refresh"] and len(sys.argv) > 2:
        bad = refresh(*sys.argv[3:] or [here], sys.argv[2])
    else:
        sys.exit(__doc__)
    print("\n".join(bad), end="\n" if bad else "")
    sys.exit(bool(bad))


main()
