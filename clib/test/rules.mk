# SPDX-License-Identifier: Apache-2.0
#
# Programs that the tests run. They are built with the other files because the
# Go tests under test/ start them; nothing of it is installed.

test_dir := build/test
test_standin := lib/divvy/standin
test_cflags := -std=gnu17 -O1 -g -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -Iclib/include -I$(test_dir)
test_snippets := $(filter-out clib/test/snippets/snippet.h,$(wildcard clib/test/snippets/*.c))

TEST_PROGRAMS += $(addprefix $(test_dir)/,snippets-linked snippets-named snippets-rpath snippets-runpath \
	procaddress views static-variable timing everylaunch tamper manners gates interposer.so dlopen-go monitor-devices monitor-compute-processes \
	wrongcalls lanes reads front-other/libcuda.so.1 standin/address/reader)

# Drivers differ: what one generation lacks must not keep a program from loading.
$(test_dir)/weak.h: clib/gen/cuda_abi.h clib/gen/nvml_abi.h
	@mkdir -p $(@D)
	@sed -nE 's/^(CUresult|nvmlReturn_t) ((cu|nvml)[A-Za-z0-9_]+)\(.*/#pragma weak \2/p' $^ > $@

# Linked like a program of the vendor's toolkit, with -lcuda.
$(test_dir)/snippets-linked: $(test_snippets) clib/test/snippets/snippet.h $(test_dir)/weak.h $(test_standin)/libcuda.so.1
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $(test_snippets) -Wl,--no-as-needed -L$(test_standin) -l:libcuda.so.1 -ldl

$(test_dir)/wrongcalls $(test_dir)/lanes $(test_dir)/reads: $(test_dir)/%: clib/test/%.c clib/tools/busy.h clib/gen/cuda_abi.h $(test_standin)/libcuda.so.1
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $< -Wl,--no-as-needed -L$(test_standin) -l:libcuda.so.1 -lpthread

$(test_dir)/everylaunch $(test_dir)/tamper $(test_dir)/manners: $(test_dir)/%: clib/test/%.c clib/tools/busy.h clib/gen/cuda_abi.h clib/gen/nvml_abi.h \
		clib/include/divvy_wire.h
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $< -ldl -lm

$(test_dir)/interposer.so: clib/test/manners.c clib/gen/cuda_abi.h
	$(call step,test programs) $(CC) $(test_cflags) -DINTERPOSER -fPIC -shared -o $@ $< -ldl

# The same with a path in the program that leads past LD_LIBRARY_PATH.
$(test_dir)/snippets-rpath: $(test_snippets) clib/test/snippets/snippet.h $(test_dir)/weak.h $(test_standin)/libcuda.so.1
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $(test_snippets) -Wl,--no-as-needed -L$(test_standin) -l:libcuda.so.1 -ldl \
		-Wl,--disable-new-dtags,-rpath,$(abspath $(test_standin))

# The same as most linkers write it today.
$(test_dir)/snippets-runpath: $(test_snippets) clib/test/snippets/snippet.h $(test_dir)/weak.h $(test_standin)/libcuda.so.1
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $(test_snippets) -Wl,--no-as-needed -L$(test_standin) -l:libcuda.so.1 -ldl \
		-Wl,--enable-new-dtags,-rpath,$(abspath $(test_standin))

# Every call found by dlopen and dlsym.
$(test_dir)/snippets-named: $(test_snippets) clib/test/snippets/snippet.h $(test_dir)/weak.h
	$(call step,test programs) $(CC) $(test_cflags) -DSNIPPET_BY_NAME -o $@ $(test_snippets) -ldl

$(test_dir)/procaddress: clib/test/procaddress.c clib/gen/cuda_abi.h
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $< -ldl

# A program that no dynamic linker loads, which says what it finds in CUDA_VISIBLE_DEVICES.
$(test_dir)/static-variable: clib/test/staticvariable.c
	$(call step,test programs) $(CC) $(test_cflags) -static -o $@ $<

$(test_dir)/views: clib/test/views.c clib/gen/cuda_abi.h clib/gen/nvml_abi.h
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $< -ldl -pthread

# Modelled time, over the stand-in.
$(test_dir)/timing: clib/test/timing.c $(test_standin)/libcuda.so.1
	$(call step,test programs) $(CC) $(test_cflags) -o $@ $< -L$(test_standin) -l:libcuda.so.1 -pthread

# A Go program without cgo that finds the driver by dlopen; a module of its own.
$(test_dir)/dlopen-go: $(wildcard test/dlopen/*.go) test/dlopen/go.mod | bin/divvy
	$(call step,test programs) env CGO_ENABLED=0 $(GO) -C test/dlopen build -trimpath -o $(abspath $@) .

# Programs of NVIDIA's own over NVML: the examples of go-nvml, as they are.
$(test_dir)/monitor-%: go.sum | bin/divvy
	$(call step,test programs) $(GO) build -trimpath -o $@ github.com/NVIDIA/go-nvml/examples/$*

# The front of another release: the same sources with another wire version.
other_dir := $(test_dir)/other
other_cflags = $(subst clib/include,$(other_dir)/include,$(front_cflags))
other_objects := $(patsubst clib/front/%.c,$(other_dir)/%.o,$(wildcard clib/front/*.c)) $(other_dir)/symbols.o $(other_dir)/thread.o

$(other_dir)/include/divvy_wire.h: $(wildcard clib/include/*.h)
	@rm -rf $(@D) && mkdir -p $(@D) && cp $^ $(@D)
	@sed -i 's/^#define DIVVY_WIRE_VERSION [0-9]*u/#define DIVVY_WIRE_VERSION 99u/' $@
	@grep -q '^#define DIVVY_WIRE_VERSION 99u' $@

$(other_objects): other_cflags += -fvisibility=hidden
$(other_dir)/%.o: clib/front/%.c $(other_dir)/include/divvy_wire.h $(front_headers)
	$(call step,test programs) $(CC) $(other_cflags) -c -o $@ $<

$(other_dir)/%.o: clib/guest/%.c $(other_dir)/include/divvy_wire.h $(front_headers)
	$(call step,test programs) $(CC) $(other_cflags) -c -o $@ $<

$(other_dir)/%.o: clib/gen/%.c $(other_dir)/include/divvy_wire.h $(front_headers)
	$(call step,test programs) $(CC) $(other_cflags) -c -o $@ $<

$(test_dir)/front-other/libcuda.so.1: $(other_dir)/front_wrappers.o $(other_objects) clib/gen/front_jumps.S clib/gen/front.map
	$(call step,test programs) $(CC) $(other_cflags) $(front_ldflags) -o $@ $(filter-out %.map,$^) -Wl,--no-as-needed $(front_libc)
