#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/index.html in a real browser, without a network, at three widths: no text is cut, overlaps
# another or is wider than the window, and the screenshots, which stay in BUILD_DIR/docs, are not
# blank.
#   browser.sh BUILD_DIR
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

if ! command -v chromium >/dev/null; then
	skip "docs/index.html in a browser" "no chromium"
	finish
fi
mkdir -p "$out/docs"
page=$(realpath "$out")/docs/index.html
python3 -B docs/page/make.py >"$page"

# browser ARGS...: one start, with a profile of its own; no sandbox, which root cannot have.
browser() {
	rm -rf "$tmp/profile"
	timeout -k 5 200 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--user-data-dir="$tmp/profile" --host-resolver-rules='MAP * ~NOTFOUND' --hide-scrollbars \
		--virtual-time-budget=2000 "$@" 2>"$tmp/browser.log"
}
# layout PAGE WIDTH: the faults of a copy of the page, into $tmp/layout
layout() {
	{
		sed '/^<\/body>/,$d' "$1"
		echo '<script>'
		cat tests/docs/layout.js
		printf '</script>\n</body>\n</html>\n'
	} >"$tmp/page.html"
	browser --window-size="$2,1000" --dump-dom "file://$tmp/page.html" |
		sed -n '/<section id="layout">/,/<\/section>/p' | sed 's/.*<section id="layout">//; s/<\/section>.*//' >"$tmp/layout"
	grep -E '^fault' "$tmp/layout"
	grep -qE '^pictures 8 texts [0-9]{2,} faults [0-9]+$' "$tmp/layout"
}
# width:height of a window that holds the page
for window in 1200:5400 820:6800 400:9000; do
	width=${window%:*} height=${window#*:}
	layout "$page" "$width" && grep -q ' faults 0$' "$tmp/layout"
	ok "$width px wide: no text is cut, lies on another or sticks out of its box"
	picture=$(realpath "$out")/docs/index-$width.png
	rm -f "$picture"
	browser --force-device-scale-factor=0.5 --window-size="$width,$height" --screenshot="$picture" \
		"file://$page" >/dev/null
	read -r w h colours most <<<"$(python3 -B tests/docs/png.py "$picture")"
	echo "# $picture: $w by $h, $colours colours, $most% of the most frequent"
	[ "$w" = $((width / 2)) ] && [ "$h" = $((height / 2)) ] && [ "$colours" -gt 200 ] && [ "$most" -lt 90 ]
	ok "$width px wide: a screenshot with something on it"
done

# The look itself can fail.
sed 's/GPU memory, through the mapping/GPU memory, through the mapping and much more/' "$page" >"$tmp/fault.html"
layout "$tmp/fault.html" 1200 && grep -q '^fault: out of its box: GPU memory, through' "$tmp/layout"
ok "found: a text wider than its box"
sed 's/x="770"/x="905"/' "$page" >"$tmp/fault.html"
layout "$tmp/fault.html" 1200 && grep -q '^fault: cut' "$tmp/layout"
ok "found: a text that is cut"
sed 's/y="196"/y="165"/' "$page" >"$tmp/fault.html"
layout "$tmp/fault.html" 1200 && grep -q '^fault: .* lies on ' "$tmp/layout"
ok "found: a text on another"
finish
