#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a command on a terminal of 80 columns, and prints what stands there at the end.

    term.py FILE COMMAND...     FILE gets the lines that were removed again, in their order

COLUMNS= is another width; BEHIND=1 runs the command in the terminal's background. The exit status is the command's.
"""
import fcntl, os, pty, struct, sys, termios, time

pid, master = pty.fork()
if not pid:
    size = struct.pack('HHHH', 24, int(os.environ.get('COLUMNS', 80)), 0, 0)
    fcntl.ioctl(1, termios.TIOCSWINSZ, size)
    if os.environ.get('BEHIND') and not (child := os.fork()):
        os.setpgid(0, 0)
    elif os.environ.get('BEHIND'):
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.environ.setdefault('TERM', 'xterm')
    os.execvp(sys.argv[2], sys.argv[2:])
data = b''
while True:
    try:
        part = os.read(master, 65536)
    except OSError:  # the last process has closed it
        break
    if not part:
        break
    data += part
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

text = data.decode(errors='replace').replace('\033[K', '\0')
lines, line, column, removed = [], '', 0, []
for c in text:
    if c == '\n':
        lines.append(line)
        line, column = '', 0
    elif c == '\r':
        column = 0
    elif c == '\0':
        if line[column:]:
            removed.append(line[column:])
        line = line[:column]
    else:
        line = line[:column] + c + line[column + 1:]
        column += 1
with open(sys.argv[1], 'w') as out:
    out.writelines(x + '\n' for x in removed)
print('\n'.join(lines + [line] * bool(line)))
sys.exit(status)
