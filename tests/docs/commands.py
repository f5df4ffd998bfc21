# SPDX-License-Identifier: MIT
"""Looks up what a document tells its reader to type: targets and variables of make, the tools and
their options, files of this tree, the public calls, the environment's variables."""
import glob
import os
import re
import shlex
import subprocess

# Other projects' programs in the documents. A name that is missing here is a typing error, or new.
OTHERS = set("""apt apt-get bpftrace cc cd chrt cp curl dkms dmesg dnf docker echo export fuser git grep install kubectl
ldconfig lspci modinfo modprobe mokutil mpirun nvidia-ctk nvidia-smi pip pkg-config podman python3 reboot rmmod
rpm setcap sha256sum spack sudo sysctl systemctl tar udevadm uname ucx_info ucx_perftest""".split())
# Variables of NVIDIA's device plugin.
OTHER_VARIABLES = {"GDRCOPY_ENABLED"}
PLAIN_NAMES = ("copybw", "copylat", "apiperf", "pplat", "sanity")


class Unknown(Exception):
    pass


class Here:
    def __init__(self, root, build):
        self.root, self.build, self.options = root, build, {}
        make = subprocess.run(["make", "-C", root, "-pqr", "-f", "Makefile"], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        self.targets = set(re.findall(r"^([a-z][\w-]*):", make, re.M))
        self.sources = ""
        for pattern in ("Makefile", "*/*.mk", "*/*/*.mk", "packaging/*.sh", "packaging/rpm/*", "packaging/dkms/*",
                        "gdrdrv/Makefile", "gdrdrv/Kbuild", "tests/*.sh", "tests/litmus/*.sh", "gdrdrv/tests/*.sh", "src/*/*.[ch]",
                        "include/*.h", "tools/*.c", "tools/*/*.c", "perf/*.sh", "perf/*.py", "perf/*.c", "perf/*/*.c",
                        "gdrdrv/rig/*.sh", "python/barcopy/*.py", "tests/*.[ch]", "tests/*/*.[ch]", "tests/clients/*", "tests/packages/*.sh"):
            for path in glob.glob(os.path.join(root, pattern)):
                if os.path.isfile(path):
                    with open(path, encoding="utf-8") as file:
                        self.sources += file.read() + "\n"
        self.public = ""
        for name in ("gdrapi.h", "barcopy.h", "barcopy_queue.h", "barcopy_queue.cuh"):
            with open(os.path.join(root, "include", name), encoding="utf-8") as file:
                self.public += file.read()
        self.top = set(os.listdir(root)) - {"build"}

    # ---- a block of shell ----

    def script(self, text):
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        if done.returncode:
            raise Unknown(f"bash does not take it: {done.stderr}")
        text = re.sub(r"\\\n\s*", " ", text)
        for line in text.splitlines():
            line = re.sub(r"^[#$] (?=[a-z])", "", line) if line.startswith(("$ ", "# modprobe")) else line
            for words in simple_commands(line):
                self.command(words)

    def command(self, words):
        while words and (words[0] in ("sudo", "env", "timeout", "exec") or re.match(r"\w+=", words[0])):
            if re.match(r"GDR\w+=", words[0]):
                self.variable(words[0].split("=")[0])
            words = words[1:]
        if not words:
            return
        name = words[0]
        tool = re.fullmatch(r"(?:build/)?(gdrcopy_\w+)", name)
        if name == "make":
            self.make(words[1:])
        elif tool or name in PLAIN_NAMES:
            self.tool(tool[1] if tool else "gdrcopy_" + name, words[1:])
        elif "/" in name and name.split("/")[0] in self.top:
            self.path(name)
        elif name not in OTHERS and not name.startswith(("/", "./", "build/", "$")):
            raise Unknown(f"no such command is known here: {name}")

    def make(self, words):
        rest = iter(words)
        for word in rest:
            if word in ("-C", "-f", "-j"):
                next(rest, None)
            elif "=" in word:
                name = word.split("=")[0]
                if not re.search(rf"\b{re.escape(name)}\b", self.sources):
                    raise Unknown(f"make knows no {name}=")
            elif not word.startswith("-") and word not in self.targets:
                raise Unknown(f"make has no target {word}")

    def tool(self, name, words):
        path = os.path.join(self.build, name)
        if not os.path.exists(path):
            raise Unknown(f"there is no tool {name}")
        if name not in self.options:
            help_text = subprocess.run([path, "--help"], text=True, capture_output=True, check=True).stdout
            self.options[name] = set(re.findall(r"(?<![\w-])(--?\w[\w-]*)", help_text))
        for word in words:
            option = re.match(r"(--[a-z][\w-]*|-[A-Za-z])(?![\w-])", word)
            if option and option[1] not in self.options[name]:
                raise Unknown(f"{name} has no option {option[1]}")

    # ---- what a text names ----

    def references(self, path):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"^\.Dt .*$", "", file.read(), flags=re.M)
        # What stood in an earlier version may be named where it is told what changed.
        history = os.path.basename(path) == "CHANGELOG.md" or "/results/" in path
        if path.endswith((".md", ".html")):
            for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text):
                self.link(path, target)
        if path.endswith(".md") and not history:
            prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
            for code in re.findall(r"`([^`\n]+)`", prose):
                self.inline(code)
        if not history:
            for name in sorted(set(re.findall(r"\bgdrcopy_[a-z0-9]+\b(?![*/]|\.[ch0-9])", text))):
                self.tool(name, [])
            for name in sorted(set(re.findall(r"\b((?:gdr|barcopy)_[a-z0-9_]+)\(\)", text))):
                if not re.search(rf"\b{name}\b", self.public):
                    raise Unknown(f"the headers declare no {name}()")
            for name in sorted(set(re.findall(r"\b((?:BARCOPY|GDRCOPY|GDRSIM|GDR_[A-Z]+)_[A-Z0-9_]*[A-Z0-9])\b(?!\*)", text))):
                self.variable(name)

    def variable(self, name):
        # BARCOPY_1 and the like are versions of symbols.
        if name in OTHER_VARIABLES or re.fullmatch(r"BARCOPY_(QUEUE_)?\d+", name):
            return
        if not re.search(rf"\b{name}\b", self.sources):
            raise Unknown(f"nothing here knows {name}")

    def link(self, path, target):
        if re.match(r"[a-z]+:", target):
            return
        name, _, anchor = target.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(place):
            raise Unknown(f"a link to {target}, which is not there")
        if anchor:
            with open(place, encoding="utf-8") as file:
                text = file.read()
            titles = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                      for title in re.findall(r"^#+ (.*)$", text, re.M)]
            if anchor not in titles and f'id="{anchor}"' not in text:
                raise Unknown(f"a link to {target}: no such heading")

    def inline(self, code):
        if re.match(r"(make|gdrcopy_\w+)( |$)", code) and "*" not in code:
            for words in simple_commands(code):
                if words[0].startswith(("make", "gdrcopy_")):
                    self.command([w for w in words if w != "..." and not re.search(r"[\[\]|]", w)])
        elif re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", code) and code.split("/")[0] in self.top:
            self.path(code)

    def path(self, name):
        # A test of tests/check.mk has the name of its script.
        if not any(glob.glob(os.path.join(self.root, form)) for form in (name, f"tests/{name}.sh")):
            raise Unknown(f"there is no {name} in this tree")


def simple_commands(line):
    """The words of each simple command of a line, those in $( ) first, without comments and
    redirections."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from simple_commands(inner)
    line = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words, skip = [], False
    try:
        for word in lexer:
            if re.fullmatch(r"[();|&]+", word):
                if words:
                    yield words
                words = []
            elif re.fullmatch(r"[<>&]+", word):
                skip = True
            elif skip:
                skip = False
            else:
                words.append(word)
    except ValueError as error:
        raise Unknown(f"{line}: {error}") from error
    if words:
        yield words
