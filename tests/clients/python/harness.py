# SPDX-License-Identifier: MIT
"""
What the programs of this directory share. A program is a list of functions with @test(NAME), each of which gets a
context of its own. It prints one line a test and `N passed, N failed, N skipped`; exit status 77 where its framework
or a GPU is missing. With words as arguments it runs the tests whose names have one of them.
"""
import contextlib
import ctypes
import faulthandler
import importlib
import os
import subprocess
import sys
import traceback
import warnings

warnings.simplefilter("ignore")  # the frameworks' own
faulthandler.enable()

TESTS = []
BUSY = 20_000_000  # cycles, about 10 ms: longer than any call of barcopy takes


class Skip(Exception):
    pass


def need(*names):
    """The modules, or the end of the program."""
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except Exception as why:  # some raise RuntimeError without a driver
            print(f"no {name}: {type(why).__name__}: {why}")
            sys.exit(77)
    return found[0] if len(found) == 1 else found


def absent(why):
    print(why)
    sys.exit(77)


def test(name):
    def add(function):
        TESTS.append((name, function))
        return function
    return add


def note(text):
    print(f"#   {text}", flush=True)


def refused(kinds, call, text=""):
    """The call raises one of these, with that text in it. Returns the exception's text."""
    try:
        result = call()
    except kinds as why:
        assert text in str(why), f"{type(why).__name__}: {why}"
        return f"{type(why).__name__}: {why}"
    raise AssertionError(f"not refused: {result!r}")


def outcome(call):
    """What the call returns, or the exception itself."""
    try:
        return call()
    except Exception as why:
        return why


def equal(got, want, what=""):
    assert got == want, f"{what}{': ' if what else ''}{str(got)[:200]}, not {str(want)[:200]}"


def reads_that_wait(m, number, store, wait):
    """`store` starts a kernel that stores its argument in the first word, as `number` makes it: after `wait` it is read.
    Notes how many reads before the wait were stale."""
    stale = 0
    for i in range(1, 11):
        store(i)
        stale += m.read(4) != number(i).tobytes()
        wait()
        equal(m.read(4), number(i).tobytes())
    note(f"{stale} of 10 reads without a wait are stale")


def name_of(dtype):
    """Of "float32", numpy's float32 and torch.float32: "float32"."""
    return str(dtype).rsplit(".", 1)[-1]


def bytes_of(mapping):
    return len(mapping.read())


def takes(call, option):
    """Whether this barcopy's call has the option: some came later than these tests."""
    import inspect
    return option in inspect.signature(call).parameters


def served(call, why):
    """Ends the program where this kind of memory cannot be mapped on this machine at all."""
    import barcopy
    try:
        with barcopy.open() as gdr:
            call(gdr)
    except barcopy.Error as error:
        absent(f"{why}: {error}")


_cuda = None


def driver(name, *arguments):
    """A call of CUDA's driver that must succeed."""
    global _cuda
    _cuda = _cuda or ctypes.CDLL("libcuda.so.1")
    equal(getattr(_cuda, name)(*arguments), 0, name)


def python(source, *arguments, **env):
    """Runs a Python program of these lines beside the tests; its CompletedProcess."""
    here = os.path.dirname(os.path.abspath(__file__))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]), **env)
    return subprocess.run([sys.executable, "-W", "ignore", "-c", source, *arguments], env=env, timeout=100,
                          capture_output=True, text=True)


def main(title):
    import barcopy
    passed = failed = skipped = 0
    print(f"# {title}", flush=True)
    wanted = sys.argv[1:]
    for name, function in TESTS:
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            with contextlib.closing(barcopy.open()) as gdr:
                function(gdr)
            print(f"ok - {name}", flush=True)
            passed += 1
        except Skip as why:
            print(f"ok - {name} # SKIP {why}", flush=True)
            skipped += 1
        except BaseException as why:
            lines = [f.lineno for f in traceback.extract_tb(why.__traceback__)
                     if os.path.basename(f.filename) == os.path.basename(sys.argv[0])]
            text = " ".join(str(why).split())[:400]
            print(f"not ok - {name}: {type(why).__name__}: {text} (lines {lines})", flush=True)
            failed += 1
            if isinstance(why, (SystemExit, GeneratorExit)):
                break
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.stdout.flush()
    return 1 if failed else 0
