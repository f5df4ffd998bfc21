# SPDX-License-Identifier: MIT
"""The documents' examples work: compiles every C block, runs every complete program and every block
of Python on the stand-ins, and looks up every command, option, path, call and variable.

    check.py BUILD_DIR SIM_DIR FILE...     a line "ok - ..." or "not ok - ..." for each block and file

A C block that begins with #include is a file of its own; one that begins with typedef is what the
header declares; any other stands inside a function. One with main() is a program: it is built and
started by the command line in the block of shell behind it, word for word but for the toolkit's
directories, and prints what the text
says. Blocks of Python find `tensor`, device memory at an address that is no multiple of a page, and
`numpy_array`.
"""
import os
import re
import subprocess
import sys
import tempfile

import commands
from blocks import Unclear, blocks_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CC = os.environ.get("CC", "gcc")
WARN = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
INCLUDE = [os.path.join(ROOT, "include"), HERE]


class Broken(Exception):
    pass


class Checker:
    def __init__(self, build, sim):
        self.build, self.sim = os.path.abspath(build), os.path.abspath(sim)
        self.here = commands.Here(ROOT, self.build)
        self.env = dict(os.environ, LD_LIBRARY_PATH=f"{self.sim}:{self.build}",
                        LD_PRELOAD=os.path.join(self.sim, "libnvidia_node.so"),
                        GDRSIM_ASYNC_DELAY_US="300000",  # queued longer than a block runs on a busy machine
                        PYTHONPATH=os.path.join(ROOT, "python"), PYTHONDONTWRITEBYTECODE="1")

    def run(self, words, **more):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, check=False, **more)
        if done.returncode:
            raise Broken(f"exit status {done.returncode} of {words}\n{done.stdout}")
        return done.stdout

    def same_output(self, block, got):
        if block.prints is not None and got != block.prints:
            raise Broken(f"the text says that it prints {block.prints!r}, it prints {got!r}")

    def check(self, block, behind):
        if block.language == "c" and re.search(r"\bint main\(", block.text):
            self.program(block, behind)
        elif block.language == "c" and block.text.startswith("typedef"):
            self.declaration(block)
        elif block.language == "c":
            self.fragment(block)
        elif block.language == "python":
            self.same_output(block, self.run([sys.executable, os.path.join(HERE, "given.py"), "-"],
                                             input=block.text, env=self.env))
        elif block.language == "sh":
            self.here.script(block.text)

    # ---- C ----

    def program(self, block, behind):
        """Writes the text to the file that the command line names, and runs that line."""
        line = next((found[0] for found in [re.search(r"^cc .*", b.text, re.M) for b in behind
                                            if b.language == "sh"] if found), None)
        if line is None or block.prints is None:
            raise Broken("a program needs its command line (cc ...) and what it prints in the text")
        with tempfile.TemporaryDirectory() as work:
            self.runtime(work)
            with open(os.path.join(work, re.search(r"\w+\.c\b", line)[0]), "w", encoding="utf-8") as file:
                file.write(block.text)
            env = dict(self.env, CPATH=":".join(INCLUDE), LIBRARY_PATH=f"{self.build}:{work}")
            env["LD_LIBRARY_PATH"] += ":" + work
            self.run([CC, *WARN, "-fsyntax-only", *[w for w in line.split() if w.endswith(".c")]],
                     cwd=work, env=self.tools(env))
            line = re.sub(r" -[IL]/usr/local/cuda\S*", "", line)  # the stand-in is in the toolkit's place
            self.same_output(block, self.run(["bash", "-ec", line], cwd=work, env=env))

    def runtime(self, work):
        """The CUDA runtime's stand-in, under the name that -lcudart finds."""
        self.run([CC, *WARN, "-I" + HERE, "-I" + os.path.join(ROOT, "src/abi"), "-shared", "-fPIC",
                  "-o", os.path.join(work, "libcudart.so"), os.path.join(HERE, "cudart.c"),
                  os.path.join(self.sim, "libcuda.so.1")])

    @staticmethod
    def tools(env):
        """For a compiler alone: nothing is preloaded into it."""
        return {name: value for name, value in env.items() if name != "LD_PRELOAD"}

    def fragment(self, block):
        if block.text.startswith("#include"):
            text = f'#line {block.line} "{block.path}"\n{block.text}'
        else:
            given = block.given or "void"
            text = ("#include <barcopy.h>\n#include <cuda_runtime_api.h>\n#include <err.h>\n"
                    "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
                    f"void fragment({given});\nvoid fragment({given})\n{{\n"
                    f'#line {block.line} "{block.path}"\n{block.text}}}\n')
        self.run([CC, *WARN, *["-I" + path for path in INCLUDE], "-fsyntax-only", "-x", "c", "-"],
                 input=text)

    def declaration(self, block):
        def bare(text):
            return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())
        headers = ""
        for name in ("gdrapi.h", "barcopy.h", "barcopy_queue.h"):
            with open(os.path.join(ROOT, "include", name), encoding="utf-8") as file:
                headers += bare(file.read()) + " "
        if bare(block.text) not in headers:
            raise Broken("the headers declare it otherwise, or not at all")


def main():
    build, sim, *paths = sys.argv[1:]
    checker, failed = Checker(build, sim), False

    def judge(name, call, *args):
        nonlocal failed
        try:
            call(*args)
            print(f"ok - {name}")
        except (Broken, Unclear, commands.Unknown, subprocess.TimeoutExpired) as error:
            failed = True
            print(f"not ok - {name}")
            print("# " + str(error).rstrip().replace("\n", "\n# "))

    for path in paths:
        judge(f"{path}: what it names is there", checker.here.references, path)
        try:
            blocks = blocks_of(path)
        except Unclear as error:
            failed = True
            print(f"not ok - {error}")
            continue
        for number, block in enumerate(blocks):
            judge(f"{block.where}: {block.language}", checker.check, block, blocks[number + 1:])
    sys.exit(failed)


if __name__ == "__main__":
    main()
