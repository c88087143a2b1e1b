# mpt: see README.md. `make` lists the targets; demo and test need only a C compiler and make.

CC      ?= cc
CXX     ?= c++
CFLAGS  ?= -O2
PREFIX  ?= /usr/local
B       := build
HEADERS := mpt_half.h mpt.h mpt_cuda.h
COMPILE  = $(CC) -std=c99 -Wall -Wextra -Wpedantic -Wshadow $(CPPFLAGS) $(CFLAGS) -I.
LIBM     = $(LDFLAGS) -lm
VERSION := $(shell awk '/define MPT_VERSION_(MAJOR|MINOR|PATCH) /{v = v s $$3; s = "."} END{print v}' mpt_half.h)

EXAMPLES := 01_anatomy 02_where_fp16_dies 03_loss_scale 04_train_digits 07_dialects 12_reports 08_amp_graph 09_policy_mlp \
            11_gpu_advice 13_recompute 14_paper_effects 16_embeddings 15_gpt \
            $(foreach way,scaler fused adam double gpt,dropin/before_$(way) dropin/after_$(way))
TESTS    := $(sort $(patsubst tests/%.c,%,$(wildcard tests/test_*.c)))
INSPECT  := examples/inspect.c $(wildcard examples/inspect/*.[ch])
# flags for OpenBLAS, if it is installed; only bench_gemm uses it
BLAS      = $(shell pkg-config --exists openblas 2>/dev/null && \
                    echo -DMPT_USE_CBLAS $$(pkg-config --cflags --libs openblas))
BENCHES  := $(sort $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c)))

.PHONY: help demo test check examples inspect bench test-long gpu-report test-cuda bench-threads bench-torch bench-cuda \
        test-emu fuzz lint check-torch check-tensorflow mutate check-toc check-readme install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(B)/examples/04_train_digits $(B)/examples/12_reports ## train on real digits in FP32, FP16, BF16: table, histogram, pictures in build/demo
	@mkdir -p $(B)/demo
	@$(B)/examples/04_train_digits --data examples/data/digits.csv --out $(B)/demo > $(B)/demo/report.txt
	@cat $(B)/demo/report.txt
	@$(B)/examples/12_reports $(B)/demo > $(B)/demo/reports.txt
	@if command -v gnuplot >/dev/null 2>&1; then \
	    gnuplot -e "dir='$(B)/demo'" examples/04_plot.gp && \
	    gnuplot -e "dir='$(B)/demo'" examples/12_plot.gp && \
	    echo "wrote $(B)/demo/results.csv, histogram, curve, accuracy, growth, heat .png"; \
	else echo "wrote $(B)/demo/results.csv (install gnuplot to get the pictures too)"; fi

test: $(TESTS:%=run-%) ## run the tests: a minute or two, most of which is compiling (make -j2 test: half of it)
run-%: $(B)/tests/%
	@said=$$($< 2>&1); code=$$?; printf '%s\n' "== $*" "$$said"; case $$said in *" skipped") exit $$code;; esac; exit 1

check: ## run all checks: compilers, sanitizers, architectures, CUDA compile and emulation, examples, README
	@sh tests/check.sh $(B)

examples: $(EXAMPLES:%=$(B)/examples/%) $(B)/examples/inspect ## build the example programs into build/examples

inspect: $(B)/examples/inspect ## build the tool that reads weight files: build/examples/inspect (needs cJSON)

bench: $(BENCHES:%=$(B)/bench/%) ## measure speed, each row beside a loop that moves as many bytes; tables in build/bench
	@mkdir -p $(B)/bench; for b in $(BENCHES); do echo "== $$b"; $(B)/bench/$$b $(B)/bench || exit 1; done

bench-threads: $(B)/bench/threads ## measure passes on 1, 2, 4 ... OpenMP threads, beside a copy loop on as many threads
	@$(B)/bench/threads

bench-torch: $(B)/bench/threads.so ## measure passes beside PyTorch's on as many threads (PYTHON=a Python with torch)
	@$${PYTHON:-python3} tests/bench/torch_cpu.py $<

test-long: $(TESTS:%=$(B)/tests/%) ## run the tests over all inputs: every float, every pair of halves (hours)
	@for t in $(TESTS); do echo "== $$t"; $(B)/tests/$$t --long || exit 1; done
	@sh tests/run_cuda_emu.sh $(B) --long

gpu-report: ## on a machine with an NVIDIA GPU and nvcc: tests, speed, sanitizers in ten minutes; writes to tests/bench/results
	@sh tests/gpu_report.sh $(B)

test-cuda bench-cuda: ## of gpu-report, only the tests and sanitizers; only the speed
	@sh tests/gpu_report.sh $(B) $(@:-cuda=)

test-emu: ## run the CUDA source under a CPU emulation, and check that planted bugs are caught
	@sh tests/run_emu_bugs.sh $(B) && sh tests/run_cuda_emu.sh $(B)

fuzz: ## fuzz numbers, text, arrays, graphs and files, with ASan and UBSan (needs clang; FUZZ_SECONDS=10 each)
	@sh tests/run_fuzz.sh $(B)

lint: ## check line lengths, tabs, unfinished marks, doc blocks, shell syntax
	@sh tests/lint.sh

check-torch: ## compare steps, loss scale, casts and policies with PyTorch's (PYTHON=a Python with torch and ml_dtypes)
	@sh tests/run_judges.sh $(B) torch

check-tensorflow: ## compare the graph rewrite with TensorFlow's (PYTHON=a Python with tensorflow and ml_dtypes)
	@sh tests/run_judges.sh $(B) tensorflow

mutate: ## mutation test: do the tests notice COUNT changes in a section? SECTION=M18 [COUNT=40] (hours for all sections)
	@python3 tests/mutate.py $(SECTION) $(COUNT)

check-toc: ## compare each header's contents list with its section marks
	@sh tests/check_toc.sh $(HEADERS)

check-readme: ## run the programs whose output the README shows, and compare
	@sh tests/check_readme.sh README.md $(B)

install: ## copy the headers, a pkg-config file and a CMake package to PREFIX (default /usr/local; DESTDIR is honoured)
	@umask 022; mkdir -p "$(DESTDIR)$(PREFIX)/include" "$(PKG_CONFIG_DIR)" "$(CMAKE_DIR)"
	install -m 644 $(HEADERS) "$(DESTDIR)$(PREFIX)/include/"
	@umask 022; printf '%s\n' "$$PKG_CONFIG_FILE" > "$(PKG_CONFIG_DIR)/mpt.pc"
	@umask 022; printf '%s\n' "$$CMAKE_CONFIG" > "$(CMAKE_DIR)/mptConfig.cmake"
	@umask 022; printf '%s\n' "$$CMAKE_VERSION" > "$(CMAKE_DIR)/mptConfigVersion.cmake"

uninstall: ## remove what make install copied
	cd "$(DESTDIR)$(PREFIX)" && rm -f $(HEADERS:%=include/%) lib/pkgconfig/mpt.pc && rm -rf lib/cmake/mpt
PKG_CONFIG_DIR = $(DESTDIR)$(PREFIX)/lib/pkgconfig
CMAKE_DIR      = $(DESTDIR)$(PREFIX)/lib/cmake/mpt

define PKG_CONFIG_FILE
prefix=$(PREFIX)
includedir=$${prefix}/include

Name: mpt
Description: Mixed-precision toolkit: small floats, loss scaling, FP16/FP32 training
Version: $(VERSION)
Cflags: -I"$${includedir}"
Libs: -lm
endef
# It finds the headers relative to its own place (/lib -> /usr/lib resolved), so that the whole may be moved.
define CMAKE_CONFIG
get_filename_component(_mpt_prefix "$${CMAKE_CURRENT_LIST_FILE}" REALPATH)
get_filename_component(_mpt_prefix "$${_mpt_prefix}/../../../.." ABSOLUTE)
if(NOT TARGET mpt::mpt)
    add_library(mpt::mpt INTERFACE IMPORTED)
    set_target_properties(mpt::mpt PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "$${_mpt_prefix}/include")
    if(UNIX)
        set_target_properties(mpt::mpt PROPERTIES INTERFACE_LINK_LIBRARIES m)
    endif()
endif()
unset(_mpt_prefix)
endef
# Before 1.0 a new minor version may change calls, so only the same minor version is compatible.
define CMAKE_VERSION
set(PACKAGE_VERSION $(VERSION))
if("$${PACKAGE_FIND_VERSION_MAJOR}.$${PACKAGE_FIND_VERSION_MINOR}" STREQUAL "$(basename $(VERSION))" AND
        NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
    if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
        set(PACKAGE_VERSION_EXACT TRUE)
    endif()
endif()
endef
export PKG_CONFIG_FILE CMAKE_CONFIG CMAKE_VERSION

clean: ## remove build/
	rm -rf $(B)

$(B)/examples/%: examples/%.c $(wildcard examples/*.h) $(HEADERS)
	@mkdir -p $(@D)
	$(COMPILE) $< -o $@ $(LIBM)

$(B)/examples/inspect: $(INSPECT) $(HEADERS)
	@mkdir -p $(@D)
	@if pkg-config --exists libcjson 2>/dev/null; then \
	    echo "$(CC) -o $@"; $(COMPILE) examples/inspect.c examples/inspect/*.c -o $@ $(LIBM) \
	        $$(echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c - -o $@ 2>/dev/null && \
	        echo "-fopenmp -DMPT_USE_OPENMP") $$(pkg-config --cflags --libs libcjson) \
	        $$(pkg-config --exists minizip && echo "-DINSPECT_ZIP $$(pkg-config --cflags --libs minizip)"); \
	else echo "inspect is left out: install cJSON and pkg-config (libcjson-dev pkg-config)"; fi

# -O1 is fast enough for this program, and shortens the build of `make demo`.
$(B)/examples/12_reports: CFLAGS := -O1

# The implementation, compiled once; tests and benchmarks link to it.
$(B)/tests/impl.o: tests/impl.c tests/impl.h $(HEADERS)
	@mkdir -p $(@D)
	$(COMPILE) -c $< -o $@

$(B)/tests/%: tests/%.c $(wildcard tests/*.h) $(HEADERS) $(B)/tests/impl.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(B)/tests/impl.o -o $@ $(LIBM)

$(B)/bench/threads.so: SHARED = -shared -fPIC
$(B)/bench/threads $(B)/bench/threads.so: tests/bench/threads.c tests/bench/traffic.h tests/bench/bench.h $(HEADERS)
	@mkdir -p $(@D)
	$(COMPILE) $(SHARED) -fopenmp -DMPT_USE_OPENMP $< -o $@ $(LIBM)

$(B)/bench/bench_gemm: LIBRARIES = $(BLAS)
# loops as trainers have them, to compare with, compiled with the flags that trainers use
$(B)/bench/user.o: tests/bench/user.c tests/bench/user.h
	@mkdir -p $(@D)
	$(CC) -std=c99 -O3 -march=native -ffast-math -c $< -o $@
$(B)/bench/bench_rows: $(B)/bench/user.o
$(B)/bench/bench_rows: LIBRARIES = $(B)/bench/user.o
$(B)/bench/%: tests/bench/%.c tests/bench/bench.h tests/bench/traffic.h tests/impl.h $(HEADERS) $(B)/tests/impl.o
	@mkdir -p $(@D)
	$(COMPILE) $< $(B)/tests/impl.o -o $@ $(LIBM) $(LIBRARIES)
