# Renders the documents as a web site.
docs: ## the documents as a site, build-docs/html/index.html; a dead link fails
	@scripts/setup docs
	@scripts/check-links
	@.venv-docs/bin/sphinx-build -q -W --keep-going -b html -d build-docs/doctrees -c docs . build-docs/html
	@echo "  build-docs/html/index.html"

.PHONY: docs
# Draws the pictures of the documents: the program docs/pictures/NAME.py writes docs/images/NAME.svg.
PICTURES := $(filter-out %/drawing.py %/facts.py,$(wildcard docs/pictures/*.py))

pictures: ## draws the pictures of the documents again: docs/pictures
	@scripts/setup demo
	@for picture in $(PICTURES); do .venv/bin/python $$picture || exit 1; done

.PHONY: pictures
