# The documents as a site.
docs: ## the documents as a site, build-docs/html/index.html; a dead link fails
	@scripts/setup docs
	@scripts/check-links
	@.venv-docs/bin/sphinx-build -q -W --keep-going -b html -d build-docs/doctrees -c docs . build-docs/html
	@echo "  build-docs/html/index.html"

.PHONY: docs
