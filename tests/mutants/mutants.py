#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mutation test: makes one change at a time in a copy of the tree; a test program must fail.

  tests/mutants/mutants.py [-f FILE]... [-s SEED]... [-n COUNT] [-j JOBS] [-o BUILD_DIR]
  tests/mutants/mutants.py [-o BUILD_DIR] --fences
  tests/mutants/mutants.py --stale

The changes of a seed are COUNT (40) first-order mutants of each layer of src/, of include/barcopy_queue.cuh (layer
queue), of python/ and of tools/, chosen by a hash of the seed and the changed line, so that an edit elsewhere in the
tree keeps them; then those of tests/mutants/mutants.txt. They are errors that people make: a condition or one clause of
it wrong, a result or a call dropped, a lock taken late or given up early, two arguments or table entries swapped, a
constant changed and the like; changes() has them all, python_changes.py those of Python. -f limits both to files whose
path begins with FILE. The seed `fresh` is drawn and printed; two of them are the default.

tests/mutants/mutants.alive holds what may live. `floor` lines have the percentage of a layer's mutants that must die,
all seeds together; a layer that -f cuts is not judged. The other lines are equivalents, which are not run: FILE
FUNCTION, the changed line, and the reason, separated by tabs. Survivors are printed in that form. No line number is in
it: an equivalent stays one until its own line changes, and a line that names no mutant any more fails.

A program that exceeds its limit, on a machine that is busy, runs again alone, with a long one. Only a mutant that
exceeds that too is dead by it: column `hangs`.

Python's mutants meet its tests, without and with the extension; a tool's its scripts of tests/tools, the doctor's its program too.

--fences takes out one fence of the copies after another instead: its instruction in fence.h, each call of it, and the
rule that cached mappings need none. test_copy_fences must fail by an assertion.

--stale builds nothing: each line of mutants.alive and mutants.txt has to name a change of this tree.

A mutant's tree is made of hard links; make builds in it what the change asks for. The programs that caught mutants
of the file before run first; BUILD_DIR/mutants.json remembers them. What they all let live runs under the scheduler
(tests/explore/seeds.sh) last.
"""
import argparse, collections, concurrent.futures, glob, hashlib, json, math, os, random, re, shutil, signal
import subprocess, sys, tempfile, threading, time

from python_changes import changes as python_changes, is_python

ERRNO = 'EINVAL ENOMEM ENOENT EACCES EBUSY ENOTSUP EIO ENODEV EAGAIN ETIMEDOUT EPERM EFAULT ENOSYS EMFILE'.split()
# Programs that call a layer by itself, whatever the other layers do.
ONLY = dict(test_copy_fences='copy queue', test_copy_diff='copy', test_copy_discipline='copy', test_copy_cpu='copy',
            test_queue_explorer='queue', test_queue_ports='queue')
WEIGHT = dict(lock=3, release=2, order=3, off=2, flag=2, text=.3, relation=1.5, error=1.5, never=1.5, arith=.7,
              late=3, early=3, constant=.5, swap=.7)
Mutant = collections.namedtuple('Mutant', 'file function line op text source programs')


# Of tools/: which scripts run what is there. The rest of the tools, in perf/, uses tools/common.
TOOL_TESTS = {'doctor': 'doctor tools progress', 'sanity': 'calls sanity inherited tools progress',
              'common': 'tools copy_tools calls sanity inherited doctor progress'}
LONG = 300  # seconds, for a program that runs alone
PYTHON = next((p for p in ('/usr/bin/python3', 'python3') if not subprocess.run(
    [p, '-c', 'import numpy'], stderr=subprocess.DEVNULL).returncode), 'python3')


def tool_tests(file):
    part = re.split('[/.]', file)[1]
    return [f'tools/test_{name}' for name in TOOL_TESTS[part].split()] + ['test_doctor'] * (part == 'doctor')


def layer(file):
    first = file.split('/')[0]
    return {'include': 'queue', 'python': 'python', 'tools': 'tools'}.get(first) or file.split('/')[1]


# ---- mutants ------------------------------------------------------------------------------------------

def masked(text):
    """The text with comments, strings and lines of the preprocessor blank, at the same places."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|^#(?:\\\n|[^\n])*',
                  lambda m: re.sub(r'[^\n]', ' ', m[0]) if m[0][0] != '"' else '"' + '_' * (len(m[0]) - 2) + '"',
                  text, flags=re.S | re.M)


def closing(m, at):
    """The place of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(m)):
        depth += (m[i] == '(') - (m[i] == ')')
        if not depth:
            return i
    return at


def operand(m, at, step):
    """The end of an operand of && || ?: that begins at `at`; with step -1 the begin of one that ends there."""
    depth = 0
    for i in range(at, len(m)) if step > 0 else range(at - 1, 0, -1):
        depth += step * ((m[i] in '([') - (m[i] in ')]'))
        stop = not depth and re.compile(r'&&|\|\||[?:;,{}]| [-+|&]?= |\breturn\b').match(m, i)
        if stop or depth < 0:
            return i if step > 0 else stop.end() if stop else i + 1
    return at


def entries(m, at):
    """The places of a call's arguments, or of a table's entries, whose opening parenthesis is at `at`."""
    depth, begin, found = 0, at + 1, []
    for i in range(at, len(m)):
        depth += (m[i] in '([{') - (m[i] in ')]}')
        if not depth or depth == 1 and m[i] == ',':
            word = re.compile(r'\S(?:.*\S)?', re.S).search(m, begin, i)
            found += [word.span()] if word else []
            begin = i + 1
        if not depth:
            break
    return found


def blank(m, at):
    return re.compile(r'\s*').match(m, at).end()


def statement(m, at):
    """The end of the statement that begins at `at`."""
    word = re.compile(r'(if|while|for|switch|do)\b').match(m, at)
    if not word:
        depth = 0
        for i in range(at, len(m)):
            depth += (m[i] == '{') - (m[i] == '}')
            if not depth and (m[i] == ';' or m[i] == '}' and m[at] == '{'):
                return i + 1
        return len(m)
    body = word.end() if word[1] == 'do' else closing(m, m.index('(', at)) + 1
    end = statement(m, blank(m, body))
    if word[1] == 'do':
        return m.index(';', end) + 1
    other = re.compile(r'\s*else\b').match(m, end)
    return statement(m, blank(m, other.end())) if word[1] == 'if' and other else end


def neighbours(m, begin, end):
    """Yields each statement of a block with the one behind it: (begin, end, begin, end)."""
    for x in re.compile(r'\{\n').finditer(m, begin, end):
        at, last = blank(m, x.end()), None
        while at < end and m[at] != '}':
            stop = statement(m, at)
            if last:
                yield *last, at, stop
            at, last = blank(m, stop), (at, stop)


def call_kind(name):
    for kind, words in (('lock', 'lock'), ('text', 'gdri_fail|gdri_log|gdri_error|gdri_note'),
                        ('release', 'put|release|unref|free|close|unmap|unpin|destroy|drop|end|undo|leave|stop')):
        if re.search(words, name):
            return kind
    return 'call'


def swapped(s, a, b, c, d):
    """The text of s from a to d with the parts [a, b) and [c, d) in each other's place."""
    return s[c:d] + s[b:c] + s[a:b]


def hint(m, a, b):
    """Whether [a, b) is what __builtin_expect() expects, which no program can see."""
    call = m.rfind('__builtin_expect(', 0, a)
    return call >= 0 and m[b] == ')' and closing(m, m.index('(', call)) == b


def constants(s, m, begin, end):
    """Yields the changes of constants and of tables' entries in [begin, end)."""
    for x in re.compile(r"(?<![\w.'])(0[0-7]*|[1-9]\d*|0x[\da-fA-F]+)([uUlL]*)(?![\w.'])").finditer(m, begin, end):
        if hint(m, x.start(), x.end()):
            continue
        n = int(x[1], 8 if re.fullmatch('0[0-7]+', x[1]) else 0)
        new = n + 1 if n < 8 or n & (n - 1) else 2 * n
        yield 'constant', x.start(), x.end(), f'{new:#x}{x[2]}' if x[1][:2] == '0x' else f'{new}{x[2]}'
    for x in re.compile(r'\{').finditer(m, begin, end):
        rows = entries(m, x.start())
        if not rows or ';' in m[x.start():rows[-1][1]] or re.search(r'\benum (?:\w+ )?$', m[:x.start()]):
            continue
        for (a, b), (c, d) in zip(rows, rows[1:]):
            values = [re.match(r'[.\[][\w.\]\[]* = ', m[i:j]) for i, j in ((a, b), (c, d))]
            a, c = (i + (v.end() if v else 0) for v, i in zip(values, (a, c)))
            if s[a:b] != s[c:d] and bool(values[0]) == bool(values[1]) and s[a] != '{':
                yield 'swap', a, d, swapped(s, a, b, c, d)


def changes(s, m, begin, end):
    """Yields (operator, from, to, new text) for the function body [begin, end) of s, whose masked text is m."""
    def each(pattern):
        return re.compile(pattern, re.M).finditer(m, begin, end)

    for x in each(r'\bif \('):
        shut = closing(m, x.end() - 1)
        cond = s[x.end():shut]
        for op, new in (('negated', f'!({cond})'), ('never', f'0 && ({cond})'), ('always', f'1 || ({cond})')):
            yield op, x.end(), shut, new
    for x in each(r' (&&|\|\|)(?=\s)'):
        yield 'logic', x.start(1), x.end(1), '||' if x[1] == '&&' else '&&'
    for x in each(r' (<|<=|>|>=|==|!=) '):
        new = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '=='}[x[1]]
        yield 'relation', x.start(1), x.end(1), new
    for x in each(r' [+-] 1\b(?![.x])'):
        yield 'off', x.start(), x.end(), ''
    for x in each(r'\w (\+|-) (?!1\b)[\w(]'):
        yield 'arith', x.start(1), x.end(1), '-' if x[1] == '+' else '+'
    for x in each(r'memory_order_(acquire|release|acq_rel|seq_cst)\b'):
        yield 'order', x.start(1), x.end(1), 'relaxed'
    statement = r'(?:(?<=[;{}:)])|(?<=else))\s*\n(?:\t+)'
    for x in each(statement + r'((?:\(void\))?(\w+))\('):
        shut = closing(m, x.end() - 1)
        if m[shut + 1] == ';' and x[2] not in ('if', 'while', 'for', 'switch', 'return', 'sizeof'):
            yield call_kind(x[2]), x.start(1), shut + 2, None
    for x in each(statement + r'([*\w.>\[\]()-]*(?:->|\.|\]|\*)[\w.>\[\]-]* (?:=|[-+|&]=) [^;]*;)'):
        yield 'field', x.start(1), x.end(1), None
    for x in each(statement + r'([^;\s]*(?:\+\+|--)[^;\s]*;)'):
        yield 'count', x.start(1), x.end(1), None
    for x in each(r'(?<=[{,])\s*(\.\w+ = [^,{}]*[,\n ])(?=[^{]*})'):
        yield 'field', x.start(1), x.end(1) - (x[1][-1] != ','), None
    for x in each(r'\breturn ([^;]*);'):
        swap = {'true': 'false', 'false': 'true', 'err': '0', 'rc': '0', 'ret': '0', '-errno': '0'}
        if x[1] in swap:
            yield 'error', x.start(1), x.end(1), swap[x[1]]
    for x in each(r'\bE[A-Z]{3,}\b'):
        if x[0] in ERRNO:
            yield 'errno', x.start(), x.end(), ERRNO[(ERRNO.index(x[0]) + 1) % len(ERRNO)]
    for x in each(r'\bgoto (\w+);'):
        labels = re.findall(r'^(\w+):', m[x.end():end], re.M)
        if x[1] in labels[:-1]:
            yield 'error', x.start(1), x.end(1), labels[labels.index(x[1]) + 1]
    for x in each(r' \| [A-Z][A-Z_]+\b'):
        yield 'flag', x.start(), x.end(), ''
    for x in each(r' (&&|\|\|)(?=\s)'):
        yield 'clause', x.start(), operand(m, x.end(), 1), ''
        left = operand(m, x.start(), -1)
        yield 'clause', left, blank(m, x.end()), ' ' if m[left] == ' ' else ''
    for x in each(r'(?<=\w) (&|\|)(?=\s)'):
        yield 'bit', x.start(1), x.end(1), '|' if x[1] == '&' else '&'
    for x in each(r'!(?=[\w(])'):
        yield 'no_not', x.start(), x.end(), ''
    for x in each(r'(\} )?\bwhile \('):
        shut = closing(m, x.end() - 1)
        loop = not x[1] and m[shut + 1] != ';'
        yield 'once', *((x.start(), x.end(), 'if (') if loop else (x.end(), shut, f'0 && ({s[x.end():shut]})'))
    for x in each(r' = (\w+\()[^;]*;|\breturn (\w+\()[^;]*;'):  # what it returned is 0
        a = x.start(1) if x[1] else x.start(2)
        shut = closing(m, a + len(x[1] or x[2]) - 1) + 1
        if m[shut] == ';':
            yield 'ignored', a, shut, f'({s[a:shut]}, 0)'
    for x in each(r'\bif \('):
        shut = closing(m, x.end() - 1)
        if '(' in m[x.end():shut]:
            yield 'ignored', x.end(), shut, f'({s[x.end():shut]}, 0)'
    for x in each(r' \? '):
        colon = operand(m, x.end(), 1)
        last = blank(m, colon + 1)
        shut = operand(m, last, 1)
        if m[colon] == ':' and m[shut] != '?':
            yield 'swap', x.end(), shut, swapped(s, x.end(), colon - 1, last, shut)
    for x in each(r'\b(?!(?:if|for|while|switch|return|sizeof|strn?cmp|memcmp)\b)\w+\('):
        parts = entries(m, x.end() - 1)
        for (a, b), (c, d) in zip(parts, parts[1:]):
            strings = (s[a] == '"') + (s[c] == '"')
            if s[a:b] != s[c:d] and strings != 1 and 'memory_order' not in s[a:d]:
                yield 'swap', a, d, swapped(s, a, b, c, d)
    for a, b, c, d in neighbours(m, begin, end):
        late = re.match(r'\w*((?<!un)lock|fork_hold)\(', m[a:])
        early = re.match(r'\w*(unlock|fork_release)\(', m[c:])
        if late or early:
            yield 'late' if late else 'early', a, d, swapped(s, a, b, c, d)
    yield from constants(s, m, begin, end)


def all_of(file):
    """Every mutant of a file."""
    with open(file) as f:
        s = f.read()
    m = masked(s) if not file.endswith('.py') else s
    seen, sources = collections.Counter(), set()

    def mutant(function, op, a, b, new):
        if new is None:
            new = f'; /* {" ".join(re.sub(r"/[*].*?[*]/", "", s[a:b]).split())} */'
            new = new[2:] if m[b - 1] != ';' else new  # a member of an initializer
        from_, to = s.rfind('\n', 0, a) + 1, s.find('\n', b)
        text = ' '.join((s[from_:a] + new + s[b:to]).split())
        text = text if len(text) < 240 else text[:230] + ' ...'
        source = s[:a] + new + s[b:]
        if source in sources:
            return
        sources.add(source)
        seen[function, text] += 1
        if seen[function, text] > 1:
            text += f' #{seen[function, text]}'
        yield Mutant(file, function, s.count('\n', 0, a) + 1, op, text, source, ())

    if file.endswith('.py'):
        for change in python_changes(s):
            yield from mutant(*change)
        return
    for body in re.finditer(r'^\{\n.*?^\}', m, re.S | re.M):
        head = m[max(m.rfind('\n}', 0, body.start()), m.rfind(';\n', 0, body.start()), 0):body.start()]
        names = [n for n in re.findall(r'(\w+)\s*\(', head) if not n.startswith('__')]
        for change in changes(s, m, body.start(), body.end()):
            yield from mutant(names[0] if names else '?', *change)
    for table in re.finditer(r'^(?:[^\s#}][^;(){}]*?(\w+)(?:\[[^]]*\])* = |enum (?:\w+ )?)\{.*?\};', m, re.S | re.M):
        for change in constants(s, m, table.start(), table.end()):
            yield from mutant(table[1] or 'enum', *change)
    for x in re.finditer(r'^#define (\w+) +(.*\d.*)', s, re.M):
        for change in constants(s, s, x.start(2), x.end(2)):
            yield from mutant(x[1], *change)


def chosen(mutants, seed, count):
    """The first `count` of each layer by rank; a line has one of them."""
    def rank(x):
        h = hashlib.sha256(f'{seed} {x.file} {x.function} {x.op} {x.text}'.encode()).digest()
        return -math.log((int.from_bytes(h[:7], 'big') + 1) / 2**56) / WEIGHT.get(x.op, 1)

    best, share = {}, collections.Counter()
    for x in sorted(mutants, key=rank):
        if share[layer(x.file)] < count and (x.file, x.line) not in best and (
                not x.file.endswith('.py') or is_python(x.source)):
            best[x.file, x.line] = x
            share[layer(x.file)] += 1
    return list(best.values())


def by_hand():
    """The mutations of tests/mutants/mutants.txt."""
    with open('tests/mutants/mutants.txt') as f:
        rows = [l.rstrip('\n').split('\t') for l in f if l.strip() and l[0] != '#']
    for name, file, expression, programs in rows:
        source = subprocess.run(['sed', '-E', expression, file], stdout=subprocess.PIPE, text=True, check=True).stdout
        with open(file) as f:
            yield Mutant(file, 'by hand', 0, name, name, None if source == f.read() else source, programs.split())


def fences():
    """Each fence of the copies taken out."""
    sources = {f: open(f).read().split('\n') for f in
               ['src/copy/fence.h'] + [f'src/copy/{n}.c' for n in ('copy', 'copyv', 'words')]}
    x86 = os.uname().machine == 'x86_64'
    calls = ''.join(open(f).read() for f in glob.glob('src/copy/*.c'))
    for file, lines in sources.items():
        for i, line in enumerate(lines):
            new = line
            if file.endswith('.h') and line.startswith('GDRI_FENCE('):
                name = re.search(r'gdri_fence_[a-z_]*', line)[0]
                a, b = [x.span() for x in re.finditer('"[^"]*"', line)][0 if x86 else 1]
                if name + '(' in calls:
                    new, name = line[:a] + '""' + line[b:], f'the instruction of {name}'
            elif file.endswith('.h') and x86 and re.match(r'#define gdri_fence_wanted\(type\).*gdri_fence_weak', line):
                new, name = '#define gdri_fence_wanted(type) 1', 'the rule that cached mappings need none'
            elif file.endswith('.c') and re.match(r'[^*]*\bgdri_fence_(?!wanted|weak|push|gathered)\w+\(', line):
                name = f'{re.search("gdri_fence_[a-z_]+", line)[0]} at {os.path.basename(file)}:{i + 1}'
                new = re.sub(r'gdri_fence_[a-z_]+\(', '(void)(', line)
            if new != line:
                source = '\n'.join(lines[:i] + [new] + lines[i + 1:])
                yield Mutant(file, 'fences', i + 1, name, name, source, ['test_copy_fences'])


# ---- runs ---------------------------------------------------------------------------------------------

def kill_session(leader):
    """Kills the processes of a session: a program of Check gives each test a process group."""
    found = True
    while found:  # one may fork meanwhile
        found = False
        for stat in glob.glob('/proc/[0-9]*/stat'):
            try:
                with open(stat) as f:
                    words = f.read().rsplit(')', 1)[1].split()
                if int(words[3]) == leader.pid and words[0] not in 'XZ':
                    os.kill(int(stat.split('/')[2]), signal.SIGKILL)
                    found = True
            except (OSError, IndexError):
                pass


class Runner:
    def __init__(self, out, programs):
        self.programs, self.base, self.lock, self.seen = programs, {}, threading.Lock(), f'{out}/mutants.json'
        self.scripts = ['explore/seeds'] if 'test_rm' in programs else []
        # --fences: the case that looks at fences; the others cost three seconds for each mutant.
        self.env = dict(CK_RUN_CASE='calls') if programs == ['test_copy_fences'] else {}
        self.hits = collections.Counter()
        self.turn, self.running, self.alone = threading.Condition(), 0, False
        self.children, self.ended = set(), False
        if os.path.exists(self.seen):
            with open(self.seen) as f:
                self.hits.update(json.load(f))
        os.makedirs(out, exist_ok=True)
        self.out, self.dir = out, tempfile.mkdtemp(prefix='mutants.', dir=out)
        self.tree = f'{self.dir}/tree'

    def copy(self):
        """Copies the tree, with what is built in `out`."""
        out = self.out
        os.mkdir(self.tree)
        for name in ('Makefile', 'CHANGELOG.md', 'LICENSE', 'README.md', 'src', 'include', 'tests', 'sim', 'perf',
                     'tools', 'docs', 'python', 'packaging', 'examples'):
            if os.path.exists(name):
                subprocess.run(['cp', '-a', name, self.tree], check=True)
        os.mkdir(f'{self.tree}/build')
        for name in 'libgdrapi.*', 'flags', 'src', 'tests', 'perf', 'tools', 'sim', 'explore', 'gdrcopy_*', 'copybench':
            for part in glob.glob(f'{out}/{name}'):
                subprocess.run(['cp', '-a', part, f'{self.tree}/build'], check=True)
        prefix = '|'.join(map(re.escape, (out, os.path.relpath(out))))
        for name in glob.glob(f'{self.tree}/build/**/*.d', recursive=True):  # they name that directory
            with open(name) as f:
                text = f.read()
            with open(name, 'w') as f:
                f.write(re.sub(rf'(?<!\S)(?:{prefix})/', 'build/', text))

    def make(self, tree, targets):
        env = {k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL')}
        return self.child(['make', '-s', '-C', tree, 'O=build', *targets], None, env=env, stdout=subprocess.PIPE)

    def child(self, words, limit, **options):
        """Runs a command in a session of its own, and ends what is left of that; None if it exceeds the limit."""
        with self.lock:
            if self.ended:
                raise SystemExit(1)
            p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True,
                                 start_new_session=True, **options)
            self.children.add(p)
        try:
            text, _ = p.communicate(timeout=limit)
            return subprocess.CompletedProcess(words, p.returncode, text)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_session(p)
            p.wait()
            with self.lock:
                self.children.remove(p)

    def end(self):
        """Ends each child; none begins any more."""
        with self.lock:
            self.ended = True
            for p in self.children:
                kill_session(p)

    def command(self, tree, program):
        """Its words and its environment: a program of build/tests, a script tests/DIR/NAME.sh, or a file of
        tests/python without or with (+) the extension."""
        sim = f'{tree}/build/sim'
        env = dict(os.environ, LD_LIBRARY_PATH=sim, GDRSIM_DIR=sim, GDRCOPY_TEST_QUICK='1', TMPDIR=f'{tree}/tmp',
                   **self.env)
        if program.startswith('python/'):
            module = f'{tree}/fast' if program[-1] == '+' else f'{tree}/python'
            env.update(LD_LIBRARY_PATH=f'{sim}:{tree}/build', LD_PRELOAD=f'{sim}/libnvidia_node.so',
                       PYTHONPATH=f'{module}:{tree}/tests/python', PYTHONDONTWRITEBYTECODE='1')
            fast = 'from barcopy import mapping; assert mapping._fast; ' if program[-1] == '+' else ''
            words = [PYTHON, '-X', 'dev', '-W', 'error', '-c', f'{fast}import unittest; unittest.main(module=None)']
            return words + ['-f', f'tests/{program.rstrip("+")}.py'], env
        if '/' in program:
            return ['bash', f'tests/{program}.sh', 'build', 'build/sim'], dict(os.environ, TMPDIR=f'{tree}/tmp')
        return [f'{tree}/build/tests/{program}'], env

    def run(self, tree, program, limit, wanted=None):
        """Whether the program fails, with `wanted` and prints that; 'hangs' if it exceeds the limit, and LONG alone."""
        with self.turn:
            self.turn.wait_for(lambda: not self.alone)
            self.running += 1
        try:
            result = self.once(tree, program, limit, wanted)
        finally:
            with self.turn:
                self.running -= 1
                self.turn.notify_all()
        if result != 'hangs':
            return result
        with self.turn:
            self.turn.wait_for(lambda: not self.alone)
            self.alone = True
            self.turn.wait_for(lambda: not self.running)
        try:
            return self.once(tree, program, max(LONG, limit), wanted)
        finally:
            with self.turn:
                self.alone = False
                self.turn.notify_all()

    def once(self, tree, program, limit, wanted):
        os.makedirs(f'{tree}/tmp', exist_ok=True)
        words, env = self.command(tree, program)
        p = self.child(words, limit, cwd=tree, env=env, stdout=subprocess.PIPE if wanted else subprocess.DEVNULL)
        return 'hangs' if not p else p.returncode not in (0, 77) and (not wanted or wanted in p.stdout)

    def begin(self):
        """Builds the tree without a change, and times the programs; one that fails serves no more."""
        others = ['tools', 'build/tests/test_doctor'] if any('/' in p for p in self.programs) else []
        others += ['build/tests/explore'] if self.scripts else []
        # In a thread: SIGTERM's exception ends the main one at any place.
        built = pool.submit(self.make, self.tree, [f'-j{jobs}', 'lib', 'sim', *others, *(
            f'build/tests/{p}' for p in self.programs if '/' not in p)]).result()
        if built.returncode or not self.extension(self.tree):
            sys.exit(built.stdout or 'the extension is not built')

        def one(program):
            start = time.time()
            failed = self.run(self.tree, program, 300)
            self.base[program] = time.time() - start
            return program if failed else None

        failed = set(pool.map(one, self.programs + self.scripts))
        self.programs = [p for p in self.programs if p not in failed]
        self.scripts = [p for p in self.scripts if p not in failed]
        return sorted(failed - {None})

    def extension(self, tree):
        """Whether the module with the extension is built, in the tree's fast/."""
        shutil.rmtree(f'{tree}/fast', ignore_errors=True)
        shutil.copytree(f'{tree}/python', f'{tree}/fast')
        words = ['gcc', '-std=c11', '-O2', '-fvisibility=hidden', '-shared', '-fPIC', f'{tree}/python/fast.c']
        return not subprocess.run(words + ['-o', f'{tree}/fast/barcopy/_fast.abi3.so'],
                                  stderr=subprocess.DEVNULL).returncode

    def same(self, tree):
        """Whether the objects that were built anew are those of the tree without the change."""
        for name in glob.glob(f'{tree}/build/**/*.o', recursive=True):
            old = self.tree + name[len(tree):]
            if not os.path.exists(old):
                return False
            if os.path.samefile(name, old):
                continue
            for f, to in ((name, 'new'), (old, 'old')):
                subprocess.run(['strip', '-g', '-o', f'{tree}/{to}', f], check=True)
            with open(f'{tree}/new', 'rb') as a, open(f'{tree}/old', 'rb') as b:
                if a.read() != b.read():
                    return False
        return True

    def order(self, x):
        stem = os.path.splitext(os.path.basename(x.file))[0]

        def value(p):
            with self.lock:
                hits = 20 * self.hits[f'{x.file} {p}'] + 5 * self.hits[f'{layer(x.file)} {p}']
            return ((p in x.programs) * 1e6 + hits + 3 * (stem in p) + (layer(x.file) in p) + .5) / (self.base[p] + .2)
        if layer(x.file) == 'python':
            fit = [p for p in self.programs if p.startswith('python/') and (p[-1] == '+' or not x.file.endswith('.c'))]
        elif layer(x.file) == 'tools':
            fit = [p for p in tool_tests(x.file) if p in self.programs]
        else:
            fit = [p for p in self.programs if '/' not in p and layer(x.file) in ONLY.get(p, layer(x.file)).split() or
                   p in x.programs]
        return sorted(fit, key=value, reverse=True)

    def fate(self, x):
        """What becomes of a mutant: a program's name, or None: it lives, or a reason why it does not count."""
        tree = tempfile.mkdtemp(dir=self.dir)
        try:
            subprocess.run(['cp', '-al', f'{self.tree}/.', tree], check=True)
            os.unlink(f'{tree}/{x.file}')
            with open(f'{tree}/{x.file}', 'w') as f:
                f.write(x.source)
            kind = layer(x.file)
            if kind == 'python' and not self.extension(tree):
                return '(invalid)'
            if kind == 'tools':
                built = self.make(tree, ['tools', 'build/tests/test_doctor'])
                if built.returncode:
                    return '(invalid)'
                if self.same(tree):
                    return '(same)'
            if x.file.endswith('.c') and kind not in ('python', 'tools'):
                built = self.make(tree, [f'build/{x.file[:-1]}o'])
                if built.returncode or re.search('-W(int-conversion|incompatible-pointer-types)', built.stdout):
                    return '(invalid)'
                # A program that a row names may compile the file by itself: test_queue_ports sees each fence.
                if not x.programs and self.same(tree):
                    return '(same)'
            order = x.programs if x.function == 'fences' else self.order(x)
            for first, last in ((0, 6), (6, len(order))):
                sim = ['sim'] if x.file.startswith('include/') else []
                programs = [f'build/tests/{p}' for p in order[first:last] if '/' not in p]
                if programs and self.make(tree, sim + programs).returncode:
                    return '(invalid)'
                for p in order[first:last]:
                    fails = self.run(tree, p, max(10, 3 * self.base[p]), ':F:' if x.function == 'fences' else None)
                    if fails:
                        with self.lock:
                            self.hits.update((f'{x.file} {p}', f'{layer(x.file)} {p}'))
                        return f'{p} hangs' if fails == 'hangs' else p
            if kind in ('python', 'tools'):
                return None
            # explore/seeds alone sees a lock that is taken late or given up early.
            scripts = [p for p in x.programs if '/' in p] + self.scripts
            for p in scripts if not self.make(tree, ['lib', 'build/tests/explore']).returncode else []:
                fails = self.run(tree, p, max(60, 3 * self.base.get(p, 200)))
                if fails:
                    return f'{p} hangs' if fails == 'hangs' else p
            return '(same)' if self.same(tree) else None
        finally:
            shutil.rmtree(tree, ignore_errors=True)


def rate(n):
    return 100 * (n['dead'] + n['hangs']) / ((n['dead'] + n['hangs'] + n['alive']) or 1)


def table(title, count):
    print(f'{title:12} {"layer":8} dead hangs alive  rate equivalent  same invalid')
    for l, n in sorted(count.items()) + [('all', sum(count.values(), collections.Counter()))]:
        print(f'{"":12} {l:8} {n["dead"]:4} {n["hangs"]:5} {n["alive"]:5} {rate(n):4.0f}% {n["(equivalent)"]:10} '
              f'{n["(same)"]:5} {n["(invalid)"]:7}', flush=True)


def main():
    global jobs, pool
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('-o', metavar='BUILD_DIR', default='build')
    a.add_argument('-f', metavar='FILE', action='append')
    a.add_argument('-s', metavar='SEED', action='append')
    a.add_argument('-n', metavar='COUNT', type=int, default=40)
    a.add_argument('-j', metavar='JOBS', type=int, default=os.cpu_count())
    a.add_argument('--fences', action='store_true')
    a.add_argument('--stale', action='store_true')
    a = a.parse_args()
    a.o = os.path.abspath(a.o)
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + '/../..')
    jobs, pool = a.j, concurrent.futures.ThreadPoolExecutor(a.j)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = lambda x: not a.f or x.file.startswith(tuple(a.f))
    passed = failed = 0
    both = collections.defaultdict(collections.Counter)

    def ok(good, name):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        print('ok -' if good else 'not ok -', name, flush=True)

    floors, equivalents = {}, {}
    if not a.fences:
        files = sorted(glob.glob('src/*/*.[ch]')) + ['include/barcopy_queue.cuh', 'python/fast.c'] + sorted(
            glob.glob('python/barcopy/*.py') + glob.glob('tools/*.c') + glob.glob('tools/*/*.c'))
        with open('tests/mutants/mutants.alive') as f:
            for words in (l.rstrip('\n').split('\t') for l in f if l.strip() and l[0] != '#'):
                if words[0] == 'floor':
                    floors[words[1]] = int(words[2])
                else:
                    equivalents[tuple(words[0].split(' ', 1)) + (words[1],)] = words[2]
        named = {x[0] for x in equivalents}
        everything = [x for f in files if (f in named if a.stale else wanted(Mutant(f, *6 * [0]))) for x in all_of(f)]

    def judge_equivalents():
        known = {(x.file, x.function, x.text) for x in everything}
        for x in filter(lambda e: e not in known and wanted(Mutant(e[0], *6 * [0])), equivalents):
            ok(False, f'tests/mutants/mutants.alive: no such mutant: {" ".join(x)}')

    if a.stale:
        judge_equivalents()
        for x in filter(lambda x: x.source is None, by_hand()):
            ok(False, f'tests/mutants/mutants.txt: its expression changes nothing: {x.op}')
        return 1 if failed else 0
    rounds = {}
    if a.fences:
        rounds['fences'] = list(fences())
    else:
        for seed in a.s or ['fresh', 'fresh']:
            seed = str(random.randrange(1000, 10**6)) if seed == 'fresh' else seed
            rounds[seed] = chosen(filter(wanted, everything), seed, a.n)
        rounds['by hand'] = list(filter(wanted, by_hand()))

    where = [('tests/unit/test_', 'test_'), ('tests/attack/attack_', 'test_attack_'), ('tests/model/test_', 'test_'),
             ('tests/gpu/test_', 'gpu_test_'),
             (f'tests/unit/{"arm64" if os.uname().machine == "aarch64" else "x86"}/test_', 'test_')]
    programs = sorted(to + f[len(at):-2] for at, to in where for f in glob.glob(at + '*.c'))
    layers = {layer(x.file) for mutants in rounds.values() for x in mutants}
    programs = programs if layers - {'python', 'tools'} else []
    if 'python' in layers:
        tests = [f[len('tests/'):-len('.py')] for f in sorted(glob.glob('tests/python/test_*.py'))]
        programs += tests + [f'{name}+' for name in tests]
    programs += sorted({p for mutants in rounds.values() for x in mutants if layer(x.file) == 'tools'
                        for p in tool_tests(x.file)})
    runner = Runner(a.o, ['test_copy_fences'] if a.fences else programs)
    try:
        runner.copy()
        bad = runner.begin()
        ok(not bad, 'without a change the programs pass' + ''.join(f'; not {p}' for p in bad))
        for seed, mutants in rounds.items():
            count = collections.defaultdict(collections.Counter)

            def one(x):
                if (x.file, x.function, x.text) in equivalents:
                    return x, '(equivalent)'
                return x, '(not found)' if x.source is None else runner.fate(x)

            print(f'\n{seed if seed in ("by hand", "fences") else f"seed {seed}"}', flush=True)
            try:
                for done in concurrent.futures.as_completed([pool.submit(one, x) for x in mutants]):
                    x, fate = done.result()
                    if x.function in ('by hand', 'fences'):
                        ok(fate and fate[0] != '(', f'{x.op}: {fate or "lives"}')
                    elif not fate:
                        print(f'lives\t{x.file}:{x.line}\t{x.op}\n{x.file} {x.function}\t{x.text}\t', flush=True)
                    count[layer(x.file)]['alive' if not fate else fate if fate[0] == '(' else
                                         'hangs' if fate.endswith(' hangs') else 'dead'] += 1
            except SystemExit:
                table('not ended', count)
                raise
            with open(runner.seen, 'w') as f:
                json.dump(runner.hits, f)
            if seed in ('by hand', 'fences'):
                continue
            both.update({l: both[l] + n for l, n in count.items()})
            table(f'seed {seed}', count)
        if both:
            table('all seeds', both)
        for l, n in both.items():
            if l in floors and all(wanted(Mutant(f, *6 * [0])) for f in files if layer(f) == l):
                ok(rate(n) >= floors[l], f'{l}: {rate(n):.0f}% die, at least {floors[l]}% must')
    finally:
        runner.end()
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(runner.dir, ignore_errors=True)
    if equivalents:
        judge_equivalents()
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
