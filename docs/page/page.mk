# SPDX-License-Identifier: MIT
# docs/index.html from the README, the stored results and the source: docs/page/make.py; make dist packs it.
# refresh-figures: the figures of other pages, perf/figures.txt, and the README's picture.
.PHONY: docs refresh-figures
refresh-figures:
	$(need_python)
	$(Q)$(PYTHON) -B perf/tables.py --refresh
	$(Q)$(PYTHON) -B docs/page/make.py --picture

docs:
	$(need_python)
	$(call say,PAGE,docs/index.html)
	$(Q)mkdir -p $(O) && $(PYTHON) -B docs/page/make.py >$(O)/index.html && mv $(O)/index.html docs/index.html
