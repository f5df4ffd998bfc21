#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Python module: its tests on the stand-in, with numpy if a python3 has it; its structs against
# the header's; its wheel.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

sim=$(realpath "${2:?directory of the stand-ins}")
lib=$(realpath "$out")
python_with_numpy || : # tests that need it are skipped
export LD_LIBRARY_PATH=$sim:$lib PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/python
export LD_PRELOAD=$sim/libnvidia_node.so

limit=1200 # s: what takes 30 on an idle machine has taken 290 on a busy one
logged() { # COMMAND...: with its output in $tmp/log, and the reason there if the limit ended it
	timeout "$limit" "$@" >"$tmp/log" 2>&1
	local rc=$?
	[ "$rc" != 124 ] || printf '\ntimed out after %s s\n' "$limit" >>"$tmp/log"
	return "$rc"
}

logged "$python" -X dev -W error -m unittest discover -v -s tests/python
rc=$?
ran=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$tmp/log")
skipped=$(sed -n 's/^OK (skipped=\([0-9]*\))$/\1/p' "$tmp/log")
skipped=${skipped:-0}
passed=$((${ran:-0} - skipped))
# A test with a docstring has that before the result, and the name on the line before.
sed -nE "s/^(.*) \.\.\. skipped ['\"](.*)['\"]\$/ok - \1 # SKIP \2/p" "$tmp/log"
[ "$rc" = 0 ] && [ "$passed" -gt 0 ] || { cat "$tmp/log"; false; }
ok "the module's tests on the stand-in"

# The same with the extension that wheels have.
cp -R python "$tmp/fast" && gcc -std=c11 -O2 -Wall -Wextra -Wshadow -Wmissing-prototypes -Werror -fvisibility=hidden \
	-shared -fPIC -o "$tmp/fast/barcopy/_fast.abi3.so" python/fast.c &&
	PYTHONPATH=$tmp/fast logged "$python" -X dev -W error -c '
import sys, unittest
from barcopy import mapping
assert mapping._fast
sys.argv = ["unittest", "discover", "-s", "tests/python"]
unittest.main(module=None)' || { cat "$tmp/log"; false; }
ok "the same with the extension"

# Every struct of _lib.py: its size and the offset of each member, as the C compiler has them.
"$python" - >"$tmp/layout.c" <<'PY'
import ctypes
from barcopy import _lib
from barcopy.cache import CacheStats
from barcopy.stats import Stats
names = {"Handle": "gdr_mh_t", "Info": "gdr_info_v2_t", "Segment": "barcopy_copy_seg_t",
         "CopyOptions": "barcopy_copy_options_t", "Mem": "barcopy_mem_t", "BarInfo": "barcopy_bar_info_t",
         "CacheOptions": "barcopy_cache_options_t", "CacheRegion": "barcopy_region_t",
         "CacheStats": "barcopy_cache_stats_t", "RawStats": "barcopy_stats_t",
         "QueueOptions": "barcopy_queue_options_t", "QueueView": "barcopy_queue_view_t",
         "PortOptions": "barcopy_port_options_t", "PortView": "barcopy_port_view_t",
         "PortMessage": "barcopy_port_message_t"}
absent = {  # from the module, and why
    "barcopy_handle_seg_t": "no call of the module takes several mappings",
}
mine = {n for n, t in vars(_lib).items()
        if n[0] != "_" and isinstance(t, type) and issubclass(t, ctypes.Structure) and t is not ctypes.Structure}
assert mine == set(names), mine ^ set(names)
with open("tests/packages/layout", encoding="utf-8") as f:
    public = {line.split()[1] for line in f if line.startswith("struct ")}
assert public == set(names.values()) | set(absent), public ^ set(names.values()) ^ set(absent)
for shown, raw in (CacheStats._fields, _lib.CacheStats), (Stats._fields[1:], _lib.RawStats):
    assert set(shown) == {f[0] for f in raw._fields_} - {"struct_size", "flags"}, (shown, raw)
print('#include <stddef.h>\n#include "barcopy_queue.h"\n')
for name, c in names.items():
    struct = getattr(_lib, name)
    print(f'_Static_assert(sizeof({c}) == {ctypes.sizeof(struct)}, "{name}");')
    for field, _, *bits in struct._fields_:
        if not bits:
            print(f'_Static_assert(offsetof({c}, {field.rstrip("_")}) == '
                  f'{getattr(struct, field).offset}, "{name}.{field}");')
PY
[ "$(grep -c offsetof "$tmp/layout.c")" -gt 50 ] && gcc -fsyntax-only -Iinclude "$tmp/layout.c"
ok "structs are those of the headers"

# Every call of the headers is one of the module's, or stands here.
"$python" - <<'PY'
import re
from barcopy import _lib
absent = {
    "barcopy_copyv_to_mappings": "as barcopy_handle_seg_t above",
    "barcopy_copyv_from_mappings": "as barcopy_handle_seg_t above",
    "barcopy_get_api_version": "a call that the library lacks says so by its name",
    "gdr_get_attribute": "Mapping's properties have what depends on a mapping",
    "gdr_get_info": "gdr_get_info_v2",
    "gdr_get_mapping_type_string": "an enum has names",
    "gdr_map": "gdr_map_v2",
    "gdr_open": "barcopy_open",
    "gdr_pin_buffer": "gdr_pin_buffer_v2",
}
with open("packaging/debian/libgdrapi2.symbols", encoding="utf-8") as f:
    public = set(re.findall(r"^ ((?:gdr|barcopy)_\w+)@", f.read(), re.M))
mine = set(_lib._PROTOTYPES)
assert public == mine | set(absent), public ^ mine ^ set(absent)
PY
ok "the module has every call, or says why not"

# The types for checkers: each public function, method and property names those of its parameters and of its result.
"$python" - <<'PY'
import inspect, sys
import barcopy
bad = []

def typed(where, function):
    of = inspect.signature(function)
    for p in of.parameters.values():
        if p.annotation is p.empty and p.name != "self":
            bad.append(f"{where}: {p.name} has no type")
    if of.return_annotation is of.empty:
        bad.append(f"{where}: the result has no type")

assert {n for n in vars(barcopy) if n[0].isupper()} == {n for n in barcopy.__all__ if n[0].isupper()}
for name in ["open", *barcopy.__all__]:
    thing = getattr(barcopy, name)
    if inspect.isfunction(thing):
        typed(name, thing)
    elif inspect.isclass(thing) and thing.__module__ != "barcopy._lib":
        for n, v in [*vars(thing).items(), *vars(barcopy.Pin.__mro__[1]).items()]:
            v = v.fget if isinstance(v, property) else v
            if inspect.isfunction(v) and (n[0] != "_" or n in ("__enter__", "__array__", "__buffer__", "__dlpack__")):
                typed(f"{name}.{n}", v)
print("\n".join("# " + b for b in bad), end="\n" if bad else "")
sys.exit(bool(bad))
PY
ok "every public call has types"

# The error of a missing library names its sources.
BARCOPY_LIBRARY=/nowhere.so "$python" -c 'import barcopy; barcopy.open()' 2>"$tmp/text"
grep -q 'BARCOPY_LIBRARY names it' "$tmp/text" &&
	! LD_LIBRARY_PATH='' "$python" -c 'import barcopy; barcopy.open()' 2>"$tmp/text" &&
	grep -q 'libgdrapi.so.2: cannot open.*wheel.*package libgdrapi2.*make install' "$tmp/text" || {
		ldconfig -p | grep -q 'libgdrapi.so.2 ' # this machine has one of its own
	}
ok "an error that says where the library comes from"
ignores() { # OPTION
	BARCOPY_LIBRARY=/nowhere.so "$python" "$1" -B -c '
import sys
sys.path.insert(0, "python")
import barcopy
barcopy.library_version()'
}
ignores -E && ignores -I
ok "python3 -E and -I: the environment names no library"

# The wheel of `pip install ./python`, made without pip and without a network.
cp -R python "$tmp/python" && (cd "$tmp/python" && "$python" - "$tmp" <<'PY'
import sys, zipfile
sys.path.insert(0, ".")
import backend
first = open(sys.argv[1] + "/" + backend.build_wheel(sys.argv[1]), "rb").read()
name = sys.argv[1] + "/" + backend.build_wheel(sys.argv[1])
assert open(name, "rb").read() == first, "two wheels differ"
zipfile.ZipFile(name).extractall(sys.argv[1] + "/site")
PY
) && [ "$(cd "$tmp/site" && find barcopy -type f | sort)" = "$(cd python && find barcopy -type f ! -name '*.pyc' | sort)" ] &&
	(cd / && PYTHONPATH=$tmp/site "$python" -c 'import barcopy; barcopy.open().close()') &&
	grep -q '^barcopy/_life.py,sha256=' "$tmp"/site/barcopy-*.dist-info/RECORD
ok "the wheel"

# The source distribution: reproducible, without traces of the builder, with the licence; a wheel
# made from it equals the one made here.
mkdir -p "$tmp/sdist" "$tmp/other" && (
	cp LICENSE "$tmp/"
	cd "$tmp/python" && "$python" -c 'import backend, sys; backend.build_sdist(sys.argv[1])' "$tmp/sdist" &&
		find . -exec touch -d 2001-01-01 {} + && chmod -R go-rwx . && cd / && umask 077 &&
		PYTHONPATH=$tmp/python "$python" -c 'import backend, sys; backend.build_sdist(sys.argv[1])' "$tmp/other"
) && cmp "$tmp"/sdist/barcopy-*.tar.gz "$tmp"/other/barcopy-*.tar.gz &&
	[ "$(ls "$tmp/sdist")" = "$(cd "$tmp/other" && ls barcopy-*.tar.gz)" ] &&
	[ "$(tar -tvf "$tmp"/sdist/barcopy-*.tar.gz | awk '{ print $1, $2 }' | sort -u)" = "-rw-r--r-- 0/0" ] &&
	tar -xf "$tmp"/sdist/barcopy-*.tar.gz -C "$tmp/other" &&
	(cd "$tmp"/other/barcopy-*/ && cmp LICENSE "$tmp/LICENSE" &&
		"$python" -c 'import backend, sys; backend.build_wheel(sys.argv[1])' "$tmp/other") &&
	(cd "$tmp/python" && "$python" -c 'import backend, sys; backend.build_wheel(sys.argv[1])' "$tmp/sdist") &&
	cmp "$tmp"/sdist/barcopy-*.whl "$tmp"/other/barcopy-*.whl &&
	"$python" -m zipfile -l "$tmp"/other/barcopy-*.whl | grep '\.dist-info/LICENSE' >/dev/null
ok "the source distribution, and the wheel made of it"

if "$python" -m venv --system-site-packages "$tmp/venv" >/dev/null 2>&1 &&
	"$tmp/venv/bin/python" -m pip --version >/dev/null 2>&1; then
	"$tmp/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check "$tmp/python" &&
		(cd / && PYTHONPATH='' "$tmp/venv/bin/python" -c 'import barcopy; barcopy.open().close()')
	ok "pip install ./python without a network"
	# -e: what is changed in the directory is changed for its user.
	"$tmp/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check -e "$tmp/python" &&
		echo 'changed = True' >>"$tmp/python/barcopy/__init__.py" &&
		(cd / && PYTHONPATH='' "$tmp/venv/bin/python" -c 'import barcopy; barcopy.changed') &&
		"$tmp/venv/bin/python" -m pip uninstall -q -y barcopy &&
		! (cd / && PYTHONPATH='' "$tmp/venv/bin/python" -c 'import barcopy' 2>/dev/null)
	ok "pip install -e ./python"
else
	skip "pip install ./python without a network, and -e" "no venv and pip here"
fi

# Programs of a user, by the types alone: every public call, and wrong uses, which a checker has to refuse.
"$python" - <<'PY'
import re
import barcopy
names = set(barcopy.__all__)
for kind in filter(lambda kind: isinstance(kind, type) and hasattr(kind, "close"), vars(barcopy).values()):
    names |= {n for n in dir(kind) if n[0] != "_"} | {"__cuda_array_interface__", "__dlpack__", "__dlpack_device__"}
used = set()
for name in "use", "numpy":
    with open(f"tests/python/typed_{name}.py", encoding="utf-8") as f:
        used |= set(re.findall(r"\.(\w+)", f.read()))
assert names <= used, names - used
PY
ok "the typed programs make every public call"
if command -v mypy >/dev/null; then
	MYPYPATH=$PWD/python mypy --strict --follow-imports=silent --ignore-missing-imports --cache-dir=/dev/null \
		tests/python/typed_*.py >"$tmp/log" || { cat "$tmp/log"; false; }
	ok "mypy, strict"
else
	skip "mypy, strict" "no mypy here"
fi
by_pyright() { # PYTHON PROGRAM...
	local interpreter=$1
	rm -rf "$tmp/typed" && mkdir "$tmp/typed" && shift && cp "$@" "$tmp/typed" &&
		printf '{ "extraPaths": ["%s"] }\n' "$PWD/python" >"$tmp/typed/pyrightconfig.json" &&
		pyright --pythonpath "$interpreter" -p "$tmp/typed" >"$tmp/log" && grep -q '^0 errors' "$tmp/log" ||
		{ cat "$tmp/log"; false; }
}
if command -v pyright >/dev/null; then
	printf '#!/bin/sh\nexec %s -S "$@"\n' "$python" >"$tmp/bare" && chmod +x "$tmp/bare" # no site-packages, so no numpy
	by_pyright "$tmp/bare" tests/python/typed_use.py
	ok "Pyright, strict, without numpy"
	if "$python" -c 'import numpy' 2>/dev/null; then
		by_pyright "$(command -v "$python")" tests/python/typed_*.py
		ok "Pyright, strict, with numpy"
	fi
else
	skip "Pyright, strict" "no pyright here"
fi
finish
