# SPDX-License-Identifier: MIT
"""Changes of a Python source, one place at a time, as mutants.py makes them of C."""
import ast

RELATIONS = {ast.Lt: '<=', ast.LtE: '<', ast.Gt: '>=', ast.GtE: '>', ast.Eq: '!=', ast.NotEq: '==', ast.Is: 'is not',
             ast.IsNot: 'is', ast.In: 'not in', ast.NotIn: 'in'}
ARITHMETIC = {ast.Add: '-', ast.Sub: '+', ast.Mult: '//', ast.FloorDiv: '*', ast.BitAnd: '|', ast.BitOr: '&',
              ast.LShift: '>>', ast.RShift: '<<', ast.Mod: '//'}
ERRORS = {'ValueError': 'TypeError', 'TypeError': 'ValueError', 'BufferError': 'ValueError', 'Closed': 'TypeError',
          'AttributeError': 'ValueError', 'Timeout': 'ValueError', 'OSError': 'ValueError', 'Error': 'ValueError'}
RELEASES = 'close leave release free unmap discard clear pop _leave_parents _end_if_due refuse_closed'.split()


class Source:
    def __init__(self, text):
        self.text, self.starts = text, [0]
        for line in text.split('\n'):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.lines = text.split('\n')
        self.found, self.function, self.same = [], [], set()

    def at(self, line, column):
        """The place of a column, which ast counts in bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node):
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def of(self, node):
        a, b = self.span(node)
        return self.text[a:b]

    def add(self, op, node, new, end=None):
        a, b = self.span(node)
        self.found.append(('.'.join(self.function) or 'module', op, a, self.span(end)[1] if end else b, new))

    def condition(self, test, loop=False):
        if isinstance(test, ast.Constant):  # while True
            return
        text = self.of(test)
        self.add('negated', test, f'not ({text})')
        self.add('never', test, f'False and ({text})')
        if not loop:
            self.add('always', test, f'True or ({text})')

    # ---- statements ----

    def body(self, statements):
        for i, statement in enumerate(statements):
            if i == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and \
                    isinstance(statement.value.value, str):
                continue  # a docstring
            self.statement(statement)

    def statement(self, s):
        if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.function.append(s.name)
            if not isinstance(s, ast.ClassDef):
                for default in s.args.defaults + [d for d in s.args.kw_defaults if d]:
                    self.expression(default)
            self.body(s.body)
            self.function.pop()
        elif isinstance(s, ast.If):
            if self.of(s.test) == 'TYPE_CHECKING':
                return
            self.condition(s.test)
            self.expression(s.test)
            self.body(s.body)
            self.body(s.orelse)
        elif isinstance(s, ast.While):
            self.condition(s.test, True)
            self.expression(s.test)
            self.body(s.body)
        elif isinstance(s, ast.For):
            self.expression(s.iter)
            self.body(s.body)
            self.body(s.orelse)
        elif isinstance(s, ast.Try):
            self.body(s.body)
            for handler in s.handlers:
                if not isinstance(handler.body[0], ast.Raise):
                    self.add('error', handler.body[0], 'raise', handler.body[-1])
                self.body(handler.body)
            self.body(s.orelse)
            if s.finalbody:
                self.add('release', s.finalbody[0], 'pass', s.finalbody[-1])
            self.body(s.finalbody)
        elif isinstance(s, ast.With):
            for item in s.items:
                if item.optional_vars is None:
                    self.add('lock', item.context_expr, '__import__("contextlib").nullcontext()')
                self.expression(item.context_expr)
            self.body(s.body)
        elif isinstance(s, ast.Return):
            if s.value is not None:
                if not (isinstance(s.value, ast.Constant) and s.value.value in (None, True, False)):
                    self.add('ignored', s.value, 'None')
                self.expression(s.value)
        elif isinstance(s, ast.Raise):
            if s.exc is not None:
                self.add('error', s, 'pass')
                self.expression(s.exc)
        elif isinstance(s, ast.Expr):
            if isinstance(s.value, ast.Call):
                name = s.value.func.attr if isinstance(s.value.func, ast.Attribute) else getattr(s.value.func, 'id', '')
                self.add('release' if name in RELEASES else 'call', s, 'pass')
            self.expression(s.value)
        elif isinstance(s, ast.Assign):
            if self.function and any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in s.targets):
                self.add('field', s, 'pass')
            self.expression(s.value)
        elif isinstance(s, ast.AugAssign):
            self.add('count', s, 'pass')
            self.expression(s.value)
        elif isinstance(s, ast.AnnAssign):
            if s.value is not None:
                self.expression(s.value)

    # ---- expressions ----

    def unordered(self, e):
        """The parts whose order no program can see: of `x in (a, b)`, of isinstance(x, (a, b)), of max(a, b)."""
        if isinstance(e, ast.Compare):
            return [right for op, right in zip(e.ops, e.comparators) if isinstance(op, (ast.In, ast.NotIn))]
        name = isinstance(e, ast.Call) and getattr(e.func, 'id', '')
        return e.args[1:] if name == 'isinstance' else [e] if name in ('min', 'max') else []

    def swaps(self, parts):
        for a, b in zip(parts, parts[1:]):
            if not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred) and self.of(a) != self.of(b) and \
                    not (isinstance(a, ast.Constant) and isinstance(a.value, str)):
                between = self.text[self.span(a)[1]:self.span(b)[0]]
                self.add('swap', a, self.of(b) + between + self.of(a), b)

    def constant(self, e):
        if isinstance(e.value, bool):
            self.add('flag', e, str(not e.value))
        elif isinstance(e.value, int):
            n, text = e.value, self.of(e)
            new = n + 1 if n < 8 or n & (n - 1) else 2 * n
            self.add('constant', e, hex(new) if text[:2] == '0x' else str(new))

    def expression(self, e):
        self.same.update(map(id, self.unordered(e)))
        if isinstance(e, ast.JoinedStr):
            return  # a text
        if isinstance(e, ast.Constant):
            self.constant(e)
        elif isinstance(e, ast.BoolOp):
            word = 'or' if isinstance(e.op, ast.And) else 'and'
            values = e.values
            joined = f' {word} '.join(f'({self.of(v)})' for v in values)
            self.add('logic', e, f'({joined})')
            for i, value in enumerate(values):
                rest = values[:i] + values[i + 1:]
                old = 'and' if isinstance(e.op, ast.And) else 'or'
                self.add('clause', e, '(' + f' {old} '.join(f'({self.of(v)})' for v in rest) + ')')
        elif isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            self.add('no_not', e, f'({self.of(e.operand)})')
        elif isinstance(e, ast.Compare):
            left = e.left
            for op, right in zip(e.ops, e.comparators):
                self.add('relation', left, f'{self.of(left)} {RELATIONS[type(op)]} {self.of(right)}', right)
                left = right
        elif isinstance(e, ast.BinOp) and type(e.op) in ARITHMETIC:
            if not any(isinstance(side, (ast.JoinedStr,)) or isinstance(side, ast.Constant) and
                       isinstance(side.value, (str, bytes)) for side in (e.left, e.right)):
                self.add('arith', e, f'({self.of(e.left)} {ARITHMETIC[type(e.op)]} {self.of(e.right)})')
        elif isinstance(e, ast.IfExp):
            self.add('swap', e, f'({self.of(e.orelse)} if {self.of(e.test)} else {self.of(e.body)})')
            self.condition(e.test)
        elif isinstance(e, ast.Call):
            if id(e) not in self.same:
                self.swaps(e.args)
            for keyword in e.keywords:
                if keyword.arg is not None and (e.args or len(e.keywords) > 1):
                    a = self.at(keyword.value.end_lineno, keyword.value.end_col_offset)
                    b = self.text.rfind(keyword.arg, 0, self.span(keyword.value)[0])
                    comma = self.text.rfind(',', 0, b)
                    if self.text[comma + 1:b].strip() == '' and comma > self.span(e)[0]:
                        self.found.append(('.'.join(self.function) or 'module', 'flag', comma, a, ''))
            if isinstance(e.func, ast.Name) and e.func.id in ERRORS:
                self.add('errno', e.func, ERRORS[e.func.id])
        elif isinstance(e, (ast.Tuple, ast.List)) and self.function and id(e) not in self.same:
            self.swaps(e.elts)
        elif isinstance(e, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            for generator in e.generators:
                for test in generator.ifs:
                    self.condition(test)
        for child in ast.iter_child_nodes(e):
            if isinstance(child, ast.expr):
                self.expression(child)
            elif isinstance(child, ast.comprehension):
                for part in [child.iter, *child.ifs]:
                    self.expression(part)
            elif isinstance(child, ast.keyword):
                self.expression(child.value)


def changes(text):
    """Yields (function, operator, from, to, new text) of each change; not all are Python still: is_python()."""
    source = Source(text)
    source.body(ast.parse(text).body)
    yield from source.found


def is_python(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
