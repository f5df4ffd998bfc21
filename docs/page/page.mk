# SPDX-License-Identifier: MIT
# docs/index.html from the README, the stored results and the source: docs/page/make.py. refresh-figures: and
# the figures of other pages, dev/figures.txt.
.PHONY: docs refresh-figures
refresh-figures:
	$(Q)$(PYTHON) -B dev/tables.py --refresh
	+$(Q)$(MAKE) --no-print-directory docs

docs:
	$(call say,PAGE,docs/index.html)
	$(Q)mkdir -p $(O) && $(PYTHON) -B docs/page/make.py >$(O)/index.html && mv $(O)/index.html docs/index.html
