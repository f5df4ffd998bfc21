# SPDX-License-Identifier: MIT
# docs/index.html from the README, the stored results and the source: docs/page/make.py.

.PHONY: docs
docs:
	$(call say,PAGE,docs/index.html)
	$(Q)mkdir -p $(O) && $(PYTHON) -B docs/page/make.py >$(O)/index.html && mv $(O)/index.html docs/index.html
