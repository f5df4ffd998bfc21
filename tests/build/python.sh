#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Python module: its tests on the stand-in, by a python3 with numpy where there is one; its structs
# against the header's; and its wheel.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

sim=$(realpath "${2:?directory of the stand-ins}")
lib=$(realpath "$out")
python=python3
for p in python3 /usr/bin/python3; do
	if command -v "$p" >/dev/null && "$p" -c 'import numpy' 2>/dev/null; then
		python=$p
		break
	fi
done
export LD_LIBRARY_PATH=$sim:$lib PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/python
export LD_PRELOAD=$sim/libnvidia_node.so

# One line for each test; those that need numpy say so where it is missing.
timeout 250 "$python" -X dev -W error -m unittest -v tests/python/test_barcopy.py >"$tmp/log" 2>&1
rc=$?
ran=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$tmp/log")
if [ "$rc" = 0 ] && [ "${ran:-0}" -gt 0 ]; then
	skipped=$(sed -n 's/^OK (skipped=\([0-9]*\))$/\1/p' "$tmp/log")
	skipped=${skipped:-0}
	passed=$((ran - skipped))
	sed -n "s/^\(test[a-z_]*\) .*skipped '\(.*\)'$/ok - \1 # SKIP \2/p" "$tmp/log"
	[ "$passed" -gt 0 ]
	ok "the module's tests on the stand-in"
else
	cat "$tmp/log"
	false
	ok "the module's tests on the stand-in"
fi

# Every struct of _lib.py: its size and the offset of each member, as the C compiler has them.
"$python" - >"$tmp/layout.c" <<'PY'
import ctypes
from barcopy import _lib
names = {"Handle": "gdr_mh_t", "Info": "gdr_info_v2_t", "Segment": "barcopy_copy_seg_t",
         "CopyOptions": "barcopy_copy_options_t", "Mem": "barcopy_mem_t", "BarInfo": "barcopy_bar_info_t",
         "CacheOptions": "barcopy_cache_options_t", "CacheRegion": "barcopy_region_t",
         "CacheStats": "barcopy_cache_stats_t", "RawStats": "barcopy_stats_t"}
mine = {n for n, t in vars(_lib).items()
        if n[0] != "_" and isinstance(t, type) and issubclass(t, ctypes.Structure) and t is not ctypes.Structure}
assert mine == set(names), mine ^ set(names)
print('#include <stddef.h>\n#include "barcopy.h"\n')
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

# What `pip install ./python` installs, made without pip and without a network.
cp -R python "$tmp/python" && (cd "$tmp/python" && "$python" - "$tmp" <<'PY'
import sys, zipfile
sys.path.insert(0, ".")
import backend
first = open(sys.argv[1] + "/" + backend.build_wheel(sys.argv[1]), "rb").read()
name = sys.argv[1] + "/" + backend.build_wheel(sys.argv[1])
assert open(name, "rb").read() == first, "two wheels differ"
zipfile.ZipFile(name).extractall(sys.argv[1] + "/site")
PY
) && [ "$(cd "$tmp/site" && find barcopy -type f | sort)" = "$(cd python && find barcopy -name '*.py' | sort)" ] &&
	(cd / && PYTHONPATH=$tmp/site "$python" -c 'import barcopy; barcopy.open().close()') &&
	grep -q '^barcopy/_life.py,sha256=' "$tmp"/site/barcopy-*.dist-info/RECORD
ok "the wheel"

if "$python" -m venv --system-site-packages "$tmp/venv" >/dev/null 2>&1 &&
	"$tmp/venv/bin/python" -m pip --version >/dev/null 2>&1; then
	"$tmp/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check "$tmp/python" &&
		(cd / && PYTHONPATH='' "$tmp/venv/bin/python" -c 'import barcopy; barcopy.open().close()')
	ok "pip install ./python without a network"
else
	skip "pip install ./python without a network" "no venv and pip here"
fi
finish
