/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy.h: PTX of a kernel that takes as many nanoseconds as its parameter says.
 * A simulated card goes by its name, divvy_busy; on hardware it spins on the
 * card's clock.
 */
#ifndef DIVVY_TOOLS_BUSY_H
#define DIVVY_TOOLS_BUSY_H

static const char busy_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry divvy_busy(.param .u64 ns)\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .u64 %rd<4>;\n"
	"	ld.param.u64 %rd0, [ns];\n"
	"	mov.u64 %rd1, %globaltimer;\n"
	"again:\n"
	"	mov.u64 %rd2, %globaltimer;\n"
	"	sub.u64 %rd3, %rd2, %rd1;\n"
	"	setp.lt.u64 %p, %rd3, %rd0;\n"
	"	@%p bra again;\n"
	"	ret;\n"
	"}\n";

#endif
