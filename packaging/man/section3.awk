# SPDX-License-Identifier: MIT
# Manual section 3 from the headers' comments, a page for each comment before a function, as mdoc:
#   awk -v out=DIRECTORY -v list=1 -f date.awk -f section3.awk CHANGELOG.md include/*.h
# list=1 prints the pages' names alone.
# A comment has a description, then @param NAME  TEXT and @return VALUE; ERRNO (TEXT); ERRNO ...

FNR == 1 { header = FILENAME; sub(/.*\//, "", header); comment = ""; taking = "" }

!taking && /^\/\*\*/ { in_comment = 1; comment = "" }
in_comment {
	line = $0
	sub(/[ \t]*\*\/.*/, "", line)
	sub(/^(\/\*\*|[ \t]*\*)? ?/, "", line)
	comment = comment "\n" line
	if (/\*\//) end_comment()
	next
}
# A function has no page of its own where it shares the comment of the one before it.
!taking && /^[a-z].*(gdr|barcopy)_[a-z0-9_]*\(/ { taking = "function"; declared = "" }
!taking && /^(typedef (enum|struct) [a-z_0-9]+ \{|(enum|struct) [a-z_0-9]+ \{)/ { taking = "type"; declared = "" }
taking {
	declared = declared (declared ? "\n" : "") $0
	if (taking == "function" && /\);/) { end_function(declared); taking = "" }
	if (taking == "type" && /^\}.*;/) { end_type(declared); taking = "" }
	next
}
/^#define (gdr|barcopy)_[a-z0-9_]* (gdr|barcopy)_/ && pages { names[pages] = names[pages] " " $2 }
/^$/ { comment = "" }

function end_comment()
{
	in_comment = 0
	sub(/^[ \n]+/, "", comment)
	if (comment ~ /^@file/) { about[header] = comment; sub(/^[^\n]*\n/, "", about[header]); comment = "" }
}
function end_function(text,   name)
{
	gsub(/[ \t\n]+/, " ", text)
	match(text, /(gdr|barcopy)_[a-z0-9_]*\(/)
	name = substr(text, RSTART, RLENGTH - 1)
	if (comment != "") {
		pages++
		doc[pages] = comment
		of[pages] = header
		if (!(header in first)) first[header] = pages
		comment = ""
	}
	names[pages] = names[pages] (names[pages] ? " " : "") name
	prototype[name] = text
	page_of[name] = pages
}
function end_type(text,   n)
{
	n = ++types
	type[n] = (comment != "" ? "/* " comment " */\n" : "") text
	match(text, /(enum|struct) [a-z_0-9]+/)
	type_name[n] = substr(text, RSTART, RLENGTH)
	if (match(text, /\} [a-z_0-9]+_t;/)) type_name[n] = substr(text, RSTART + 2, RLENGTH - 3)
	comment = ""
}

# ---- mdoc ----

function flush_line() { if (row != "") print row >file; row = "" }
# One word of text, with the macro that it needs: calls, constants, `parameters`.
function word(w,   before, after, core, macro)
{
	before = after = ""
	while (w ~ /^[[(]/ && w !~ /^\[addr/) { before = before substr(w, 1, 1) " "; w = substr(w, 2) }
	core = w
	while (core ~ /[].,;:)]$/ && core !~ /\(\)$/) {
		after = " " substr(core, length(core)) after
		core = substr(core, 1, length(core) - 1)
	}
	if (core ~ /^[A-Za-z_0-9]+\(\)$/) {
		sub(/\(\)/, "", core)
		macro = ".Fn " before core
		if (core in page_of && page_of[core] != now) {
			macro = ".Xr " before core " 3"
			mentioned[core] = 1
		}
	} else if (core ~ /^(BARCOPY|GDR|CU)_[A-Z0-9_]*\*?$/ || core ~ /^(NULL|SIZE_MAX|UINT64_MAX)$/)
		macro = ".Dv " before core
	else if (core ~ /^`[a-z_0-9]+`$/) {
		gsub(/`/, "", core)
		macro = ".Fa " before core
	} else {
		gsub(/`/, "", w)
		gsub(/\\/, "\\e", w)
		gsub(/ /, "", before)
		w = before w
		if (row == "" && w ~ /^[.']/) w = "\\&" w
		if (length(row) + length(w) > 76) flush_line()
		row = row (row == "" ? "" : " ") w
		# A sentence begins a line.
		if (w ~ /[.!?][)"]*$/) flush_line()
		return
	}
	flush_line()
	print macro after >file
}
function prose(text,   n, i, j, lines, words, m)
{
	n = split(text, lines, "\n")
	for (i = 1; i <= n; i++) {
		if (lines[i] ~ /^[ \t]*$/) {
			flush_line()
			if (i < n && i > 1 && lines[i - 1] !~ /^[ \t]*$/) print ".Pp" >file
			continue
		}
		m = split(lines[i], words, /[ \t]+/)
		for (j = 1; j <= m; j++) if (words[j] != "") word(words[j])
	}
	flush_line()
}
function synopsis(name,   text, args, n, i, list)
{
	list = text = prototype[name]
	sub(/^[^(]*\(/, "", list)
	sub(/\);.*/, "", list)
	sub(/ ?(gdr|barcopy)_[a-z0-9_]*\(.*/, "", text)
	print ".Ft " (text ~ / /? "\"" text "\"" : text) >file
	n = split(list, args, /, */)
	list = ""
	for (i = 1; i <= n; i++) list = list " \"" args[i] "\""
	print ".Fn " name (list == " \"void\"" ? " void" : list) >file
}
# The declarations of the types in the prototypes, and of flags that the text names.
function needed(text,   i, c, again, got, tokens, n)
{
	do {
		again = 0
		for (i = 1; i <= types; i++) {
			if (i in got) continue
			c = type_name[i] !~ / |^gdr_mh_t$/ && index(text, type_name[i])
			n = type_name[i] ~ /flags/ ? split(type[i], tokens, /[ \t\n]+/) : 0
			for (; n > 1 && !c; n--) c = tokens[n] == "=" && index(text, tokens[n - 1])
			if (c) { got[i] = again = 1; text = text "\n" type[i] }
		}
	} while (again)
	text = ""
	for (i = 1; i <= types; i++) if (i in got) text = text "\n" type[i] "\n"
	return text
}
function literal(text,   n, lines, i, at)
{
	n = split(text, lines, "\n")
	for (i = 1; i <= n; i++) {
		gsub(/\/\*\*<?/, "/*", lines[i])
		while ((at = index(lines[i], "\t")))
			lines[i] = substr(lines[i], 1, at - 1) substr("        ", 1, 8 - (at - 1) % 8) substr(lines[i], at + 1)
		gsub(/\\/, "\\e", lines[i])
		sub(/[ ]+$/, "", lines[i])
		if (lines[i] ~ /^[.']/) lines[i] = "\\&" lines[i]
		if (i > 1 && i < n || lines[i] != "") print lines[i] >file
	}
}
# The parts of @return between semicolons outside parentheses: errors have an item each.
function results(text,   i, c, depth, part, n, parts, any, e, value)
{
	gsub(/[ \t\n]+/, " ", text)
	sub(/ $/, "", text)
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		depth += (c == "(") - (c == ")")
		if (c == ";" && !depth) { parts[++n] = part; part = "" } else part = part c
	}
	parts[++n] = part
	value = parts[1]
	sub(/^0[.]?$/, "0 or a positive error number.", value)
	if (value !~ /[.]$/) value = value "."
	print ".Sh RETURN VALUES" >file
	prose(value)
	for (i = 2; i <= n; i++) {
		part = parts[i]
		gsub(/^ +| +$/, "", part)
		if (part !~ /^E[A-Z]+/) { prose(toupper(substr(part, 1, 1)) substr(part, 2)); continue }
		if (!any) print ".Sh ERRORS\n.Bl -tag -width Er" >file
		any = 1
		e = ".It Bq Er"
		while (match(part, /^(, )?E[A-Z]+/)) {
			c = substr(part, 1, RLENGTH)
			part = substr(part, RLENGTH + 1)
			sub(/, /, "", c)
			e = e (e ~ /Er$/ ? " " : " , Er ") c
		}
		print e >file
		sub(/^ +/, "", part)
		sub(/[.]$/, "", part)
		if (part ~ /^\([^()]*(\([^()]*\)[^()]*)*\)$/) part = substr(part, 2, length(part) - 2)
		if (part != "" && part != ".") prose(part (part ~ /[.]$/ ? "" : "."))
	}
	if (any) print ".El" >file
}
function page(p,   name, n, all, i, text, params, m, short, ret, title, refs, k, t)
{
	n = split(names[now = p], all, " ")
	title = all[1]
	if (list) { print title ".3"; return }
	file = out "/" title ".3"
	split("", mentioned)
	text = doc[p]
	if ((i = index(text, "@return"))) { ret = substr(text, i + 8); text = substr(text, 1, i - 1) }
	m = split(text, params, /@param +/)
	text = params[1]
	sub(/[ \n]+$/, "", text)
	short = text
	gsub(/[ \n]+/, " ", short)
	if (match(short, /\. |\.$/)) short = substr(short, 1, RSTART - 1)
	gsub(/`/, "", short)
	if (short !~ /^[A-Z][A-Z]/) short = tolower(substr(short, 1, 1)) substr(short, 2)
	print ".\\\" From include/" of[p] "\n.Dd " date "\n.Dt " toupper(title) " 3\n.Os barcopy\n.Sh NAME" >file
	for (i = 1; i <= n; i++) print ".Nm " all[i] (i < n ? " ," : "") >file
	print ".Nd " short "\n.Sh SYNOPSIS\n.In " of[p] >file
	t = doc[p]
	for (i = 1; i <= n; i++) if (all[i] in prototype) { synopsis(all[i]); t = t prototype[all[i]] }
	print ".Sh DESCRIPTION" >file
	prose(text)
	if (p == first["barcopy_queue.h"]) { print ".Pp" >file; prose(about["barcopy_queue.h"]) }
	if (m > 1) print ".Bl -tag -width Ds" >file
	for (i = 2; i <= m; i++) {
		k = match(params[i], /  /) ? RSTART : length(params[i])
		name = substr(params[i], 1, k - 1)
		gsub(/, /, " , ", name)
		print ".It Fa " name >file
		prose(substr(params[i], k + 2))
	}
	if (m > 1) print ".El" >file
	t = needed(t)
	if (t != "") { print ".Bd -literal" >file; literal(t); print ".Ed" >file }
	if (ret != "") results(ret)
	n = 0
	for (k in mentioned) {
		for (i = ++n; i > 1 && refs[i - 1] > k; i--) refs[i] = refs[i - 1]
		refs[i] = k
	}
	print ".Sh SEE ALSO" >file
	for (i = 1; i <= n; i++) print ".Xr " refs[i] " 3 ," >file
	print ".Xr gdrapi 7" >file
	close(file)
}
END { for (p = 1; p <= pages; p++) page(p) }
