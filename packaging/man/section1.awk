# SPDX-License-Identifier: MIT
# Manual section 1: a tool's page from its --help, which is where its options are described, as mdoc.
#   awk -f date.awk -f section1.awk CHANGELOG.md RS= HELP
# HELP has paragraphs: usage and purpose; those that begin with "Options:", "Exit status:", "Examples:"; others, with
# or without a title.

{ sub(/\n+$/, "") } # some awks leave them
FNR == 1 {
	name = $2
	sub(/^[^\n]*\n/, "")
	short = tolower(substr($0, 1, 1)) substr($0, 2)
	sub(/\.([ \n].*)?$/, "", short)
	print ".\\\" Made from --help by section1.awk.\n.Dd " date "\n.Dt " toupper(name) " 1\n.Os barcopy"
	print ".Sh NAME\n.Nm " name "\n.Nd " short "\n.Sh SYNOPSIS\n.Nm\n.Op Ar options\n.Sh DESCRIPTION"
	text($0)
	next
}
/^Exit status:/ { status = $0; next }
/^Examples:/ { examples = $0; next }
/^Options:/ {
	print ".Pp\nThe options are:"
	list($0, "^  (    )?-")
	next
}
/^[A-Z][a-z ]*:\n/ {
	print ".Ss " substr($0, 1, index($0, ":") - 1)
	sub(/^[^\n]*\n/, "")
	text($0)
	next
}
{
	print ".Pp"
	text($0)
}
END {
	print ".Sh EXIT STATUS"
	list(status, "^  [0-9]")
	print ".Sh EXAMPLES"
	n = split(examples, lines, "\n")
	for (i = 2; i <= n; i = j) {
		meaning = ""
		for (j = i + 1; j <= n && lines[j] ~ /^   /; j++) meaning = meaning " " lines[j]
		sub(/^ +/, "", meaning)
		if (i > 2) print ".Pp"
		text(toupper(substr(meaning, 1, 1)) substr(meaning, 2) ":")
		# mdoc takes apart what follows a macro: quotes, and words that begin with a dash.
		gsub(/"/, "\\(dq", lines[i])
		gsub(/ -/, " \\-", lines[i])
		print ".Dl" substr(lines[i], 2)
	}
	print ".Sh SEE ALSO\n.Xr gdrapi 7"
}

# Words in lines of at most 78 bytes, where a sentence begins a line; nothing is taken for a request.
function text(words,   n, i, w, word, row) {
	n = split(words, w, /[ \n]+/)
	for (i = 1; i <= n; i++) {
		word = w[i]
		if (word == "") continue
		sub(/^-/, "\\-", word)
		gsub(/\(\)/, "\\\\\\&()", word) # not a function's name
		if (row != "" && (length(row) + length(word) > 77 || (row ~ /[.!?:]$/ && word ~ /^[A-Z0-9]/))) {
			print row
			row = ""
		}
		if (row == "" && word ~ /^[.']/) word = "\\&" word
		row = row (row == "" ? "" : " ") word
	}
	print row
}
# The lines of a paragraph behind its title: those that match `begin` have an item and its text, others more text.
function list(lines, begin,   n, i, l, at, words) {
	print ".Bl -tag -width Ds"
	n = split(lines, l, "\n")
	for (i = 2; i <= n; i++) {
		if (l[i] ~ begin) {
			sub(/^ +/, "", l[i])
			at = match(l[i], /  +/) ? RSTART : length(l[i]) + 1
			print ".It " (l[i] ~ /^-/ ? option(substr(l[i], 1, at - 1)) : substr(l[i], 1, at - 1))
			words = substr(l[i], at)
		} else
			words = words " " l[i]
		if (i == n || l[i + 1] ~ begin) {
			sub(/[.;]?$/, ".", words)
			text(words)
		}
	}
	print ".El"
}
# Of "-s, --size SIZE".
function option(left,   n, w, i, arg, dashes, form) {
	n = split(left, w, /,? /)
	arg = w[n] ~ /^-/ ? "" : " Ar " w[n]
	for (i = 1; i <= n && w[i] ~ /^-/; i++) {
		dashes = w[i] ~ /^--/ ? "Fl Fl " : "Fl "
		sub(/^--?/, "", w[i])
		form = form (form ? " , " : "") dashes w[i] arg
	}
	return form
}
