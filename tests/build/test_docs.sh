#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples of README, docs and the manual pages work (tests/docs/check.py); the README's figures
# are the stored ones; and each check finds a planted fault.
#   test_docs.sh BUILD_DIR SIM_DIR
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

sim=${2:?directory of the stand-ins}
if ! python_with_numpy; then
	skip "what the documents show" "no python3 with numpy"
	finish
fi
check=("$python" -B tests/docs/check.py "$out" "$sim")
mapfile -t documents < <(find . -path ./build -prune -o \( -name '*.md' -o \
	-path './packaging/man/*.[1-8]' \) -print | grep -vE '^\./(build|\.[a-z])' | sed 's,^\./,,' | sort)

"${check[@]}" "${documents[@]}" >"$tmp/log"
rc=$?
grep -v '^ok' "$tmp/log"
passed=$(grep -c '^ok' "$tmp/log") failed=$(grep -c '^not ok' "$tmp/log")
[ "$rc" = 0 ] && [ "${#documents[@]}" -ge 25 ] && [ "$passed" -gt 50 ] && [ "$failed" = 0 ]
ok "${#documents[@]} documents: $passed blocks and references"
grep -q '^ok - README.md:[0-9]*: c$' "$tmp/log" && grep -q '^ok - README.md:[0-9]*: python$' "$tmp/log"
ok "the first program and the Python of the README ran"

[ "$(wc -l <README.md)" -le 170 ]
ok "the README has at most 170 lines"
# What the README says that the doctor prints, it still prints: on the stored machines, figures and the number of GPUs
# aside.
sentences() {
	"$python" -B - "$@" <<'PYTHON'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
if sys.argv[1] == "README.md":
    text = re.search(r"^```text\n(.*?)^mapping:", text, re.M | re.S)[1]
    print(text.count("\n"), file=sys.stderr)
    text = re.sub(r"\n {11}(?! *means:) *", " ", text)
text = re.sub(r"(both GPUs|[0-9a-f:.]+): (?=[a-zA-Z])|^  (ok|note) +|^ +means: ", "", text, flags=re.M)
print("\n".join(re.sub(r"GPUs?\b", "GPU", re.sub(r"\d+", "N", line.strip())) for line in text.splitlines()))
PYTHON
}
sentences tests/doctor/machines.txt >"$tmp/report"
sentences README.md >"$tmp/shown" 2>"$tmp/lines"
grep -vxFf "$tmp/report" "$tmp/shown" | sed 's/^/# the doctor prints no such line: /' >"$tmp/other"
cat "$tmp/other"
[ "$(cat "$tmp/lines")" = 10 ] && [ ! -s "$tmp/other" ]
ok "the doctor's ten lines in the README are lines that it prints"
"$python" -B tests/docs/changes.py
ok "the files that changes.md lists are those of its examples, its tests are tests"
sed '/perf\/compare.c/d; s/`tests\/build\/baseline_isa.sh` and //; s/baseline_isa test_copy /baseline_isa test_copies /' \
	docs/internals/changes.md >"$tmp/changes.md"
! "$python" -B tests/docs/changes.py "$tmp/changes.md" >"$tmp/log" &&
	grep -q '^A call: perf/compare.c has the example and is not in the list' "$tmp/log" &&
	grep -q '^An instruction set: tests/build/baseline_isa.sh has the example and is not in the list' "$tmp/log" &&
	grep -q '^An instruction set: no test has test_copies in its name' "$tmp/log"
ok "a file that a list lacks is found, and a test that there is not"
# The names that GDRCOPY_COPY_IMPL and GDRCOPY_CPU_MASK take: those of a table of the source, those of gdrapi(7).
table_names() {
	sed -n 's/^\t{ "\([a-z0-9.]*\)", .*/\1/p' "$1" | LC_ALL=C sort
}
page_names() { # page_names VARIABLE BEFORE AFTER
	sed -n "/^\.It Ev $1$/,/^\.It Ev GDRCOPY_STATS/p" "${page7:-packaging/man/gdrapi.7}" | paste -sd' ' |
		sed -E "s/.*$2: ([^:]*)$3.*/\1/; s/(,| or| and) /\n/g" | LC_ALL=C sort
}
variables_agree() {
	diff <(table_names src/copy/plan.c) <(page_names GDRCOPY_COPY_IMPL 'finding faults' '[.] A name') &&
		diff <(table_names src/copy/cpu.c) <(page_names GDRCOPY_CPU_MASK 'take it away' ', as [.]Ql') &&
		[ "$(table_names src/copy/plan.c | wc -l)" -gt 4 ] && [ "$(table_names src/copy/cpu.c | wc -l)" -gt 4 ]
}
variables_agree
ok "gdrapi(7) names each implementation of plan.c and each feature of cpu.c"
page7=$tmp/gdrapi.7
sed 's/^sse2, neon or ref/neon or ref/' packaging/man/gdrapi.7 >"$page7" && ! variables_agree >"$tmp/log" && grep -qx '< sse2' "$tmp/log"
ok "... an implementation that the page lacks is found"
sed 's/ movdiri and neon/ movdiri, movdiri2 and neon/' packaging/man/gdrapi.7 >"$page7" && ! variables_agree >"$tmp/log" &&
	grep -qx '> movdiri2' "$tmp/log"
ok "... and a feature that the source lacks"
"$python" -B perf/tables.py --check
ok "the figures of the pages are the stored ones"
# changed WHAT PAGE SED-EXPRESSION MESSAGE: a copy of the pages with that change fails so.
changed() {
	rm -rf "$tmp/pages"
	mkdir -p "$tmp/pages/perf" && cp -r README.md docs "$tmp/pages" && cp perf/figures.txt "$tmp/pages/perf" &&
		sed -i "$3" "$tmp/pages/$2" && ! cmp -s "$2" "$tmp/pages/$2" &&
		! "$python" -B perf/tables.py --check "$tmp/pages" 2>"$tmp/err" && grep -q "$4" "$tmp/err"
	ok "$1"
}
changed "a wrong figure is found" README.md '/^| write 8 bytes/s/| 0\.[0-9]* |/| 0.11 |/' 'the run has'
"$python" -B perf/tables.py --refresh "$tmp/pages" && cmp README.md "$tmp/pages/README.md"
ok "... and mended"
changed "a figure without a record" docs/performance.md '$a A poll takes 7.77 ns.' '7.77 is in no record'
changed "a place that is not there" docs/faq.md 's/share the link/share a link/' '0 places are like'

# ---- docs/index.html, which `make docs` and `make dist` make ----

mkdir "$tmp/tree" && cp -r ./*.md docs src "$tmp/tree" && page=$tmp/tree/docs/index.html &&
	"$python" -B docs/page/make.py "$tmp/tree" >"$page" && "${check[@]}" "$page"
ok "the page's blocks and references"
[ "$(grep -c '<svg' "$page")" = 4 ] && [ "$(grep -cE '(lower|higher) is better</i>' "$page")" = 4 ] &&
	! grep -nE '[^-]min-width: *[0-9]' "$page" && ! grep -nE '@[A-Z]|<(script|img|link|iframe)|[a-z]+://|url\([^#]' "$page"
ok "... four pictures, and nothing from elsewhere"
grep -oE 'href="[^"]*"' "$page" | cut -d'"' -f2 >"$tmp/links"
while read -r link; do [ -e "$tmp/tree/docs/$link" ] || echo "# no such file: $link"; done <"$tmp/links" >"$tmp/lost"
cat "$tmp/lost"
[ "$(grep -c '[.]md$' "$tmp/links")" -ge 8 ] && [ ! -s "$tmp/lost" ]
ok "... whose links lead to files of the tree"
ticks=$(sed -nE 's/.*class="tick" x="([0-9.]+)"[^>]*text-anchor="end">([^<]*)<.*/\1 \2/p' "$page")
[ -n "$ticks" ] && awk '$1 < 12.1 * length($2) { print "# cut: " $2; bad = 1 } END { exit bad }' <<<"$ticks"
ok "... whose labels at the left fit in digits of 12.1, as a phone shows them"

# ---- the README's picture, which `make refresh-figures` makes ----

"$python" -B docs/page/make.py --picture "$tmp/tree" && cmp "$tmp/tree/docs/latency.svg" docs/latency.svg &&
	[ "$(wc -c <docs/latency.svg)" -lt 30000 ] && grep -q '](docs/latency.svg)' README.md
ok "the README's picture is that of the stored run, and smaller than 30 KB"

# ---- planted faults, one in each document ----

# found NAME FILE TEXT: the check of a document with this text fails, and says TEXT
found() {
	! "${check[@]}" "$2" >"$tmp/log" && grep -q "$3" "$tmp/log"
	ok "found: $1"
}
# fault NAME LANGUAGE LINE TEXT, in a block of that language
fault() {
	printf '# One fault\n\n```%s\n%s\n```\n' "$2" "$3" >"$tmp/fault.md"
	found "$1" "$tmp/fault.md" "$4"
}
fault "a fragment that does not compile" c 'gdr_pin_buffer(g, 0);' "undeclared"
fault "a block of Python that raises" python 'import barcopy; barcopy.open().nonsuch()' "AttributeError"
fault "a write before queued work" python 'import barcopy
with barcopy.open() as gdr, gdr.map(tensor) as m: m.write(numpy_array)' "did not wait"
fault "no such target" sh 'make nonsuch' "no target nonsuch"
fault "no such option" sh 'gdrcopy_copybw -s 1M --nonsuch' "no option --nonsuch"
for text in '`gdr_nonsuch()`' '[link](nonsuch.md)' '`GDRCOPY_NONSUCH=1`'; do
	printf '# One fault\n\n%s\n' "$text" >"$tmp/fault.md"
	found "$text" "$tmp/fault.md" '^not ok'
done
printf '.Sh EXAMPLES\n.Dl gdrcopy_sanity --nonsuch\n' >"$tmp/fault.1"
found "a manual page's option" "$tmp/fault.1" "no option --nonsuch"
finish
