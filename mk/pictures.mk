# The pictures of the documents that programs draw: docs/pictures/NAME.py writes docs/images/NAME.svg.
PICTURES := $(filter-out %/drawing.py %/facts.py,$(wildcard docs/pictures/*.py))

pictures: ## draws the pictures of the documents again: docs/pictures
	@scripts/setup demo
	@for picture in $(PICTURES); do .venv/bin/python $$picture || exit 1; done

.PHONY: pictures
