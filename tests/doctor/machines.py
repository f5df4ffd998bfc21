#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The doctor on the described machines of the table machines.txt beside this file.

    tests/doctor/machines.py BUILD             a line for each machine: the doctor reports what the tables say
    tests/doctor/machines.py BUILD refresh     writes the reports into the tables: read the difference before a commit

Entries of the table; '#' begins a comment line:

    set NAME            lines that machines share: '+ NAME...' puts them in
    [NAME]              a machine, its lines; then `report STATUS` and the report, each text of a finding on one line:
                        the first machine is a healthy one, of the others what differs from its report, by title
    edit NAME EDIT...   names edits: s/REGEX/TEXT/, d/REGEX/ (deletes lines), a/LINE/, or names of others
    WHAT | MACHINE | EDIT... | STATUS | PATTERN [ && PATTERN...]
                        a machine with some things changed; each pattern is in the report, whose white space is
                        single blanks; '!PATTERN' is not. changed.txt has what differs from that machine's report

The lines of a machine are files or probes. A file:

    text PATH WORDS         a file of one line
    file PATH               a file; its lines follow, each behind '| '
    bytes PATH HEX...       a file of these bytes
    fill PATH COUNT TEXT    a file of COUNT times TEXT
    dir PATH                a directory (others are made as needed)
    link PATH TARGET        a symbolic link, its target as it stands
    fifo PATH               a FIFO
    numa NODES              NUMA nodes and their CPUs: '0=0-7 1=8-15'
    pci ADDR BELOW KEY=VALUE...   a PCI function at /sys/devices/BELOW/ADDR; keys:
        id=VVVV:DDDD class=CCCCCC numa=N driver=NAME gone=1 (its header reads as ones)

A probe is what is no file: a member of struct probes (tools/doctor/probe.h) and its value. An element of a list is one
line: the list's name, then members and their values, all separated by two blanks; a trial is the last GPU's. For a
machine that exists, `gdrcopy_doctor --json` names most probes; copy the files that matter by hand, and leave out what
names the machine or its owner.
"""
import difflib, errno, json, os, re, struct, subprocess, sys, tempfile

TABLE = os.path.dirname(os.path.abspath(__file__)) + '/machines.txt'
CHANGED = os.path.dirname(TABLE) + '/changed.txt'
WIDTH = 96  # of a report
ALWAYS = '/dev/nvidiactl /dev/nvidia-uvm /dev/gdrdrv /dev/nvmap'.split()
KINDS = 'ok note unknown warning fault'.split()


class Machine:
    """The files of a machine, below `top`, and its probes in the form of test_doctor.c."""

    def __init__(self, top, lines):
        self.top, self.probes, self.count = top, [], {}
        for line in lines:
            word, *rest = line.split('\n')[0].split()
            make = getattr(self, 'make_' + word, None)
            if make:
                make(line, *rest)
            else:
                self.probe(*line.split('  '))
        for path in ALWAYS:  # as add_node() of tools/doctor/probe.c: an absent one is an entry too
            if f'path {path}' not in [member for line in lines for member in line.split('  ')]:
                self.probe('node', f'path {path}', f'error {errno.ENOENT}')

    def probe(self, name, *members):
        place = f'gpu/{self.count["gpu"]}/trial' if name == 'trial' else name
        self.count[place] = self.count.get(place, -1) + bool(members)
        self.probes += [f'{place}/{self.count[place]}/{m}' for m in members] or [name]

    def put(self, name, data):
        self.make_dir(None, os.path.dirname(name))
        with open(self.top + name, 'wb') as out:
            out.write(data if isinstance(data, bytes) else data.encode() + b'\n')

    def make_text(self, line, name, *_):
        self.put(name, line.strip().split(None, 2)[2])

    def make_file(self, line, name):
        self.put(name, ''.join(x[2:] + '\n' for x in line.split('\n')[1:]).encode())

    def make_bytes(self, _, name, *words):
        self.put(name, bytes.fromhex(''.join(words)))

    def make_fill(self, _, name, count, text):
        self.put(name, text.encode() * int(count))

    def make_dir(self, _, name):
        os.makedirs(self.top + name, exist_ok=True)

    def make_link(self, _, name, target):
        self.make_dir(_, os.path.dirname(name))
        os.symlink(target, self.top + name)

    def make_fifo(self, _, name):
        self.make_dir(_, os.path.dirname(name))
        os.mkfifo(self.top + name)

    def make_numa(self, _, *words):
        for word in words:
            node, cpus = word.split('=')
            self.put(f'/sys/devices/system/node/node{node}/cpulist', cpus)

    def make_pci(self, _, addr, below, *words):
        keys = dict(w.split('=', 1) for w in words)
        assert not keys.keys() - set('id class numa driver gone'.split()), words
        vendor, device = (int(v, 16) for v in keys['id'].split(':'))
        base = f'/sys/devices/{below}/{addr}'
        up = '../' * base.count('/')
        header = struct.pack('<HHHHI', vendor, device, 0x0406, 0, int(keys['class'], 16) << 8)
        self.put(base + '/config', b'\xff' * 64 if 'gone' in keys else header.ljust(64, b'\0'))
        for name, value in (('vendor', f'0x{vendor:04x}'), ('device', f'0x{device:04x}'),
                            ('class', '0x' + keys['class']), ('numa_node', keys.get('numa', '-1'))):
            self.put(f'{base}/{name}', value)
        if 'driver' in keys:
            self.make_dir(_, f'/sys/bus/pci/drivers/{keys["driver"]}')
            self.make_link(_, base + '/driver', f'{up}sys/bus/pci/drivers/{keys["driver"]}')
        self.make_link(_, f'/sys/bus/pci/devices/{addr}', f'../../../devices/{below}/{addr}')


class Table:
    def __init__(self):
        self.sets, self.machines, self.edits, self.rows = {}, {}, {}, []
        with open(TABLE, encoding='utf-8') as f:
            for line in f.read().split('\n'):
                self.line(line)

    def line(self, line):
        kind, _, rest = line.partition(' ')
        if kind == 'set':
            self.lines = self.sets[rest] = []
        elif line.startswith('['):
            self.lines = []
            self.machines[line.strip('[]')] = [self.lines, 0, []]
        elif kind == 'report':
            machine = list(self.machines.values())[-1]
            machine[1], self.lines = int(rest), machine[2]
        elif kind == '+':
            self.lines += [x for name in rest.split() for x in self.sets[name]]
        elif kind == 'edit':
            name, _, edits = rest.partition(' ')
            self.edits[name] = self.parsed(edits)
        elif line.count(' | ') == 4:
            self.rows.append(line.split(' | '))
        elif line.startswith('|'):  # of the file above
            self.lines[-1] += '\n' + line
        elif line.strip() and not line.startswith('#'):
            self.lines.append(line)

    def parsed(self, edits):
        """The list of (operator, regular expression, text)."""
        found = []
        for name, op, a, b in re.findall(r'(?<!\S)(?:(\w+)|([sda])/((?:\\.|[^/])*)/(?:((?:\\.|[^/])*)/)?)(?!\S)', edits):
            found += self.edits[name] if name else [(op, a.replace(r'\/', '/'), b.replace(r'\/', '/'))]
        return found

    def changed(self, machine, edits):
        lines = self.machines[machine][0]
        for op, a, b in self.parsed(edits):
            old = lines
            if op == 'a':
                lines = [a] + lines
            elif op == 'd':
                lines = [x for x in lines if not re.search(a, x)]
            else:
                lines = [re.sub(a, b, x, count=1) for x in lines]
            assert lines != old, f'{a} changes nothing'
        return lines


def wrapped(line):
    """As the doctor cuts a long line of a report."""
    lead = re.match(r'  \w+ +|  \d\. | +(?:means|to do): |', line)[0]
    lines = [lead]
    for word in line[len(lead):].split(' '):
        if lines[-1] != lead and len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(' ' * len(lead) + word)
        else:
            lines[-1] += ' ' * (lines[-1] != lead) + word
    return '\n'.join(lines) if lead else line


def unwrapped(text):
    """The lines of a report, each text on one line; fails if it was cut elsewhere than it should be."""
    lines = []
    for line in text.split('\n'):
        if line.startswith('     ') and not line.startswith(('           means: ', '           to do: ')):
            lines[-1] += ' ' + line.strip()
        else:
            lines.append(line)
    assert '\n'.join(map(wrapped, lines)) == text, 'wrapped wrongly:\n' + text
    titles = [i for i, line in enumerate(lines) if i and line and line[0] != ' ']
    assert [i for i, line in enumerate(lines) if not line] == [i - 1 for i in titles] + [len(lines) - 1], text
    return [line for line in lines if line]


def differing(report, healthy):
    """The lines of a report that the healthy machine's lacks below that title, and the titles above them."""
    def titled(lines):
        title = None
        for line in lines:
            title = title if line[0] == ' ' else line
            yield title, line

    found, shown, known = [], None, set(titled(healthy))
    for title, line in titled(report):
        if (title, line) not in known:
            found += [title] * (title not in (shown, line)) + [line]
            shown = title
    return found


def judge_json(name, d, words, status):
    """The JSON document says what the text says."""
    assert list(d) == ('tool version simulated date kernel machine container virtual_machine '
                       'ordinary_memory verdict next gpus findings').split(), list(d)
    assert d['tool'] == 'gdrcopy_doctor' and d['simulated'] is False
    assert d['ordinary_memory'] == ('yes', 'no', 'unknown')[status]
    for g in d['gpus']:
        assert [k for k in g if k != 'bar1'] == 'id name ordinary_memory backends cuda_malloc place'.split(), list(g)
        assert list(g['place']) == ['numa', 'cpus'], g
        served = [b for b in g['cuda_malloc'] if g['backends'][b]]
        assert served == g['cuda_malloc'], g
        assert g['ordinary_memory'] == 'yes' or not served or 'a program started here fails' in words, g
    for f in d['findings']:
        assert list(f) == 'subject severity gpu found means todo'.split(), list(f)
        assert f['found'] and f['subject'], f
        assert f['gpu'] is None or f['gpu'] in [g['id'] for g in d['gpus']], f
        for text in f['found'], f['means'], f['todo']:
            assert not text or ' '.join(text.split()) in words, text
    counts = [sum(f['severity'] == s for f in d['findings']) for s in KINDS]
    assert counts == [int(n) for n in re.findall(f'([0-9]+) (?:{"|".join(KINDS)})', words)[-5:]], counts
    if name == 'container-compute':
        assert d['gpus'][1]['ordinary_memory'] == 'unknown', d['gpus']
    if name == 'h200x2-captured':
        assert d['container'] and d['virtual_machine'] and d['kernel'] == '6.18.44', d
        assert [g['bar1'] for g in d['gpus']] == \
            2 * [{'total': 274877906944, 'used': 1703936, 'free': 274876203008}], d['gpus']
        assert d['gpus'][1]['place'] == {'numa': None, 'cpus': None}, d['gpus']
        assert d['gpus'][0]['backends'] == {'gdrdrv': False, 'dmabuf': False, 'rm': True, 'host': True}


def examine(name, lines):
    """The exit status of the doctor on a machine, and the lines of the report."""
    with tempfile.TemporaryDirectory() as top:
        probes = '\n'.join(Machine(top, lines).probes)
        text, document = (subprocess.run([sys.argv[1] + '/tests/test_doctor', top, *form], input=probes, text=True,
                                         timeout=60, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                          for form in ([], ['json']))
    assert not text.stderr, \
        text.stderr.strip() + '; tools/doctor/probe.h has the names of probes, the head of this file those of files'
    assert text.returncode in (0, 1, 2) and document.returncode == text.returncode, text.returncode
    judge_json(name, json.loads(document.stdout), ' '.join(text.stdout.split()), text.returncode)
    return text.returncode, unwrapped(text.stdout)


def judge_row(report, rc, status, patterns):
    words = ' '.join(' '.join(report).split())
    for pattern in patterns.split(' && '):
        found = re.search(pattern.lstrip('!'), words)
        assert bool(found) == (pattern[0] != '!'), f'{pattern}\nis {"" if found else "not "}in\n{words}'
    assert rc == int(status), f'exit status {rc}'


def refresh(reports):
    with open(TABLE, encoding='utf-8') as f:
        text = f.read()
    for machine, (rc, report) in reports.items():
        text = re.sub(rf'^(\[{machine}\]\n(?:.*\n)*?)report .*\n(?:.+\n)*', lambda m: f'{m[1]}report {rc}\n' + ''.join(
            x + '\n' for x in report), text, flags=re.M)
    with open(TABLE, 'w', encoding='utf-8') as f:
        f.write(text)


def main():
    table, healthy, reports, whole_reports, changed, failed = Table(), [], {}, {}, [], False
    with open(CHANGED, encoding='utf-8') as f:
        stored = [entry.split('\n') for entry in f.read().rstrip('\n').split('\n\n')]

    def whole(name, lines, status, wanted):
        rc, report = examine(name, lines)
        whole_reports[name] = report
        reports[name] = rc, differing(report, healthy)
        healthy.extend(report if not healthy else [])
        if len(sys.argv) == 2:
            assert reports[name][1] == wanted, '\n'.join(difflib.ndiff(wanted, reports[name][1]))
            assert rc == status, f'exit status {rc}'

    def row(number, name, machine, edits, status, patterns):
        rc, report = examine('', table.changed(machine, edits))
        lines = differing(report, whole_reports[machine])
        end = lines.index('In short') if 'In short' in lines else len(lines)  # of it the counts alone
        changed.append([f'[{name}]', *lines[:end], report[-1]])
        judge_row(report, rc, status, patterns)
        if len(sys.argv) == 2:
            wanted = stored[number] if number < len(stored) else []
            assert changed[-1] == wanted, '\n'.join(difflib.ndiff(wanted, changed[-1]))

    tests = [(name, lambda n=name, m=machine: whole(n, *m)) for name, machine in table.machines.items()]
    tests += [(words[0], lambda n=number, w=words: row(n, *w)) for number, words in enumerate(table.rows)]
    for name, test in tests:
        try:
            test()
            print('ok -', name)
        except Exception as error:
            failed = True
            print(f'not ok - {name}\n{type(error).__name__}: {error}')
    if sys.argv[2:] == ['refresh']:
        refresh(reports)
        with open(CHANGED, 'w', encoding='utf-8') as f:
            f.write('\n\n'.join('\n'.join(entry) for entry in changed) + '\n')
    return failed


if __name__ == '__main__':
    sys.exit(main())
