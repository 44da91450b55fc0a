# Benchmarks and measuring scripts: scripts/bench.  docs/performance.md has the results.
BENCHES      := arrivals count_heaps $(patsubst scripts/bench/%.c,%,$(wildcard scripts/bench/bench_*.c))
BENCH_COMMON := $(addprefix scripts/bench/,bench.c ceilings.c fgpu_runs.c matrix_product.c)

$(addprefix $(BUILD)/bench/,$(BENCHES)): $(BUILD)/bench/%: $(OBJ)/scripts/bench/%.o $(call objects,$(BENCH_COMMON)) $(ARCHIVES)
	$(call link,$(HDF5_LIBS))

bench-cpu: $(BUILD)/bench/bench_cpu ## the kernels' CPU time on this machine (a minute)
	@$<

bench-fgpu: $(BUILD)/bench/bench_fgpu ## rates of the F-engine on the device; FGPU_FLAGS="--device cpu --channels 1024"
	@$< --json $(BUILD)/bench-fgpu.json $(FGPU_FLAGS)

bench-xbgpu: $(BUILD)/bench/bench_xbgpu ## rates of the X-engine's kernels; XBGPU_FLAGS="--shapes --antennas 80 --bits 8"
	@$< $(XBGPU_FLAGS)

bench-ddc: $(BUILD)/bench/bench_ddc ## rates of the down-converter; DDC_FLAGS="--shapes --subsampling 8"
	@$< $(DDC_FLAGS)

bench-beam: $(BUILD)/bench/bench_beam ## rates of the beamformer; BEAM_FLAGS="--antennas 80 --beams 8,64"
	@$< $(BEAM_FLAGS)

bench-gnss: $(BUILD)/bench/bench_gnss ## rates of correlation with satellites' replicas; GNSS_FLAGS="--device cpu --antennas 8"
	@$< $(GNSS_FLAGS)

bench-search: $(BUILD)/bench/bench_search ## times of searches for a satellite; SEARCH_FLAGS="--device cpu"
	@$< $(SEARCH_FLAGS)

bench-control: ## cbf-control: 10000 random requests to 24 engines, and delays of 64 antennas; CONTROL_FLAGS="--requests 1000"
	@CBF_BUILD=$(BUILD) .venv/bin/python scripts/bench/bench_control.py $(CONTROL_FLAGS)

bench-phaseup: ## time of phaseup's solution, on one core; PHASEUP_FLAGS="--antennas 80 --channels 4096"
	@.venv/bin/python scripts/bench/bench_phaseup.py $(PHASEUP_FLAGS)

bench-kill: all ## kill -9 of both engines to the next good heap; KILL_FLAGS="--device cuda --kills 100"
	@CBF_BUILD=$(BUILD) .venv/bin/python scripts/bench/kill.py $(KILL_FLAGS)

soak: all ## the demonstration's array under random faults for T=3600 seconds, every visibility compared; SOAK_FLAGS="--seed 7"
	@CBF_BUILD=$(BUILD) .venv/bin/python scripts/bench/soak.py --seconds $(or $(T),3600) $(SOAK_FLAGS)

bench-recv: ## receiving packets, beside spead2 (3 minutes, and 2 more to build spead2 the first time)
bench-send: ## sending packets, beside spead2 (2 minutes); PACKETS_FLAGS="--all --rounds 3" for both
bench-recv bench-send:
	@scripts/setup bench
	@$(SUBMAKE) $(addprefix $(BUILD)/bench/bench_,machine feed receive send)
	@.venv/bin/python scripts/bench/bench_packets.py $(@:bench-%=%) --build $(BUILD) $(PACKETS_FLAGS)

# The packet benchmarks compare this project with spead2.  This target builds spead2 from source, with GRO and GSO.
# PyPI's wheel of spead2 is measured, too.
bench-peers: ## builds spead2, the peer of the packet benchmarks, and tries it
	@scripts/setup bench
	@.venv/bin/python scripts/bench/peer_check.py

# Builds all programs that scripts/gpu starts.
gpu-programs: all unit-programs $(addprefix $(BUILD)/bench/,$(BENCHES))

.PHONY: bench-cpu bench-fgpu bench-xbgpu bench-ddc bench-beam bench-gnss bench-search bench-control bench-phaseup bench-kill soak bench-recv bench-send bench-peers gpu-programs
