# Installing, and Debian packages.
unitdir   ?= $(prefix)/lib/systemd/system
docdir    ?= $(prefix)/share/doc/cbf
sysconfdir = $(if $(filter /usr,$(prefix)),/etc,$(prefix)/etc)
INTO       = $(DESTDIR)$(prefix)
INSTALLED_DOCS = s|docs/\([a-z_-]*\.md\)|$(docdir)/docs/\1|g
DOCUMENTS  = README.md HACKING.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CITATION.cff Dockerfile LICENSE kernels/README.md \
             $(wildcard docs/*.md docs/decisions/*.md docs/reference/*.txt docs/images/*)
CONTROL    = $(wildcard control/cbf-* control/phaseup)
unit       = sed '$(INSTALLED_DOCS); s|@prefix@|$(prefix)|g; s|@engine@|$(3)|g; s|@what@|$(4)|g' systemd/$(2) > $(DESTDIR)$(unitdir)/$(1)

install: all man ## make install DESTDIR= prefix=/usr/local
	install -d $(INTO)/bin $(INTO)/share/cbf/config/demo $(INTO)/share/cbf/config/array $(INTO)/share/cbf/scripts $(INTO)/share/cbf/systemd \
		$(INTO)/share/man/man1 $(INTO)/share/man/man5 $(DESTDIR)$(unitdir) \
		$(INTO)/lib/sysusers.d $(DESTDIR)$(sysconfdir)/sysctl.d $(DESTDIR)$(sysconfdir)/security/limits.d
	install -m 755 $(addprefix $(BUILD)/,$(PROGRAMS) $(COMMANDS)) $(INTO)/bin
	install -d $(INTO)/lib/cbf
	install -m 755 $(BUILD)/clock-state $(INTO)/lib/cbf
	$(if $(CUDA_DEVICE),install -m 644 $(CUDA_DEVICE) $(INTO)/lib/cbf)
	install -m 644 config/*.yaml $(INTO)/share/cbf/config
	sed -i '$(INSTALLED_DOCS)' $(patsubst config/%,$(INTO)/share/cbf/config/%,$(wildcard config/*.yaml))
	install -m 644 config/demo/* $(INTO)/share/cbf/config/demo
	install -m 755 scripts/repair_uvh5.py scripts/array scripts/gnsscal $(INTO)/share/cbf/scripts
	install -m 644 scripts/array_* scripts/gnsscal_* scripts/visfile.py $(INTO)/share/cbf/scripts
	install -m 644 config/array/* $(INTO)/share/cbf/config/array
	install -d $(INTO)/share/cbf/control
	install -m 755 $(CONTROL) $(INTO)/share/cbf/control
	install -m 644 control/*.py control/requirements.txt $(INTO)/share/cbf/control
	install -d $(INTO)/share/cbf/control/page
	install -m 644 control/page/* common/http/page/status.css common/http/page/plot.js $(INTO)/share/cbf/control/page
	sed -i '$(INSTALLED_DOCS)' $(addprefix $(INTO)/share/cbf/,$(CONTROL) control/requirements.txt)
	sed -i '$(INSTALLED_DOCS)' $(INTO)/share/cbf/config/array/*.yaml
	install -m 644 $(filter %.1,$(MAN_PAGES)) $(INTO)/share/man/man1
	install -m 644 $(filter %.5,$(MAN_PAGES)) $(INTO)/share/man/man5
	install -m 644 systemd/*.service systemd/*.target $(DESTDIR)$(unitdir)
	$(call unit,fgpu@.service,engine@.service.in,fgpu,F-engine)
	$(call unit,xbgpu@.service,engine@.service.in,xbgpu,X-engine)
	$(call unit,visrec@.service,engine@.service.in,visrec,recorder)
	$(call unit,beamrec@.service,engine@.service.in,beamrec,beam recorder)
	$(call unit,cbf-control@.service,cbf-control@.service.in)
	$(call unit,gpucbf-clock.service,gpucbf-clock.service.in)
	install -m 644 systemd/realtime.conf systemd/ibverbs.conf $(INTO)/share/cbf/systemd
	install -m 644 systemd/sysusers.conf $(INTO)/lib/sysusers.d/gpucbf.conf
	sed '$(INSTALLED_DOCS)' systemd/sysctl.conf > $(DESTDIR)$(sysconfdir)/sysctl.d/60-gpucbf.conf
	install -m 644 systemd/limits.conf $(DESTDIR)$(sysconfdir)/security/limits.d/60-gpucbf.conf
	for file in $(DOCUMENTS); do install -D -m 644 $$file $(DESTDIR)$(docdir)/$$file || exit 1; done

deb: ## Debian packages of the present tree, in build-deb; docs/operation.md
	@scripts/setup deb
	@scripts/deb

.PHONY: install deb
