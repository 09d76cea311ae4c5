// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// hooksHeader declares the hand-written hooks and the table of the driver's
// functions.
func hooksHeader(symbols []symbol, cuda, nvml *abi) (string, error) {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	fmt.Fprintf(&out, `#ifndef DIVVY_FRONT_HOOKS_H
#define DIVVY_FRONT_HOOKS_H

#include "cuda_abi.h"
#include "nvml_abi.h"
#include "symbols.h"

#pragma GCC visibility push(hidden)

/* When a thread's count of launches is so many, those of a step go to the client's page. */
#define FRONT_LAUNCH_STEP %du
#define FRONT_THREAD_LAUNCHES %d /* offset of that count in struct front_thread */

/*
 * front_jumps.S: the driver's function of each symbol, spares at the end. An
 * entry starts as a stub that asks front_resolve, so that every entry can be
 * called at any time. front_resolve stores the address (release) once it is final.
 */
extern void *front_real[DIVVY_SYMBOLS + DIVVY_SPARES];

/* Names of the spares, filled in by the preparation; empty: unused. */
extern const char front_spare_names[DIVVY_SPARES][DIVVY_SPARE_NAME_BYTES];

/* Hand-written: the address to call for a symbol or spare; never NULL. */
void *front_resolve(unsigned int symbol);

/* One hook per hooked function; its _ptds/_ptsz twins call it with their own symbol. */
`, launchStep, threadLaunches)
	for _, s := range symbols {
		if s.fate != "hooked" || s.base != "" {
			continue
		}
		prototype, err := abiOf(s, cuda, nvml).prototype("hook_"+s.name, *s.fn, "enum divvy_symbol called")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s;\n", prototype)
	}
	out.WriteString("\n#pragma GCC visibility pop\n\n#endif\n")
	return out.String(), nil
}

func abiOf(s symbol, cuda, nvml *abi) *abi {
	if s.library == "cuda" {
		return cuda
	}
	return nvml
}

// wrappers writes the exported function of each hooked symbol.
func wrappers(symbols []symbol, cuda, nvml *abi) (string, error) {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	out.WriteString("#include \"front_hooks.h\"\n")
	for _, s := range symbols {
		if s.fate != "hooked" {
			continue
		}
		name := s.name
		if counted[s.plain()] {
			name = "counted_" + name
			out.WriteString("\n#pragma GCC visibility push(hidden)")
		}
		prototype, err := abiOf(s, cuda, nvml).prototype(name, *s.fn, "")
		if err != nil {
			return "", err
		}
		if name != s.name {
			fmt.Fprintf(&out, "\n%s;\n#pragma GCC visibility pop\n", prototype)
		}
		arguments := []string{"SYM_" + s.name}
		for _, p := range s.fn.parameters {
			arguments = append(arguments, p.name)
		}
		fmt.Fprintf(&out, "\n%s\n{\n\treturn hook_%s(%s);\n}\n", prototype, s.plain(), strings.Join(arguments, ", "))
	}
	return out.String(), nil
}

// counted are launches with arguments on the stack, which compilers take off it and put
// back on the way to the driver: they are counted in assembler.
var counted = map[string]bool{"cuLaunchKernel": true}

const (
	launchStep     = 64
	threadLaunches = 4 // where struct front_thread has its count, of two bytes
)

// jumps writes the passed symbols, the counted ones, the spares, the table of the driver's
// functions and the lazy stubs that fill it.
func jumps(symbols []symbol) string {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	fmt.Fprintf(&out, `
	.set	SYMBOLS, %d
	.set	SPARES, %d
	.set	SPARE_NAME_BYTES, %d
	.set	LAUNCH_STEP, %d
	.set	LAUNCHES, %d /* in struct front_thread */

	.macro	BEGIN name
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	.cfi_startproc
	endbr64
	.endm

	/* It ends with a jump to where the table says. */
	.macro	END name, index
	jmp	*front_real+8*\index(%%rip)
	.cfi_endproc
	.size	\name, .-\name
	.endm

	/* An exported function that does nothing else. */
	.macro	PASS name, index
	BEGIN	\name
	END	\name, \index
	.endm

	/* A launch: on to its hook where a step ends or launches are gated (front_launched in
	 * front.h), else to where the table says, as it came. */
	.macro	COUNT name, index
	BEGIN	\name
	movq	front_thread@gottpoff(%%rip), %%rax
	movzwl	%%fs:LAUNCHES(%%rax), %%r10d
	addl	$1, %%r10d
	movw	%%r10w, %%fs:LAUNCHES(%%rax)
	movq	front_gated(%%rip), %%r11
	cmpl	$LAUNCH_STEP, %%r10d
	jae	counted_\name
	cmpl	$0, (%%r11)
	jne	counted_\name
	END	\name, \index
	.endm

	.text

`, len(symbols), spareSlots, spareNameBytes, launchStep, threadLaunches)
	for i, s := range symbols {
		if s.fate == "passed" {
			fmt.Fprintf(&out, "\tPASS\t%s, %d\n", s.name, i)
		}
	}
	out.WriteString("\n")
	for i, s := range symbols {
		if s.fate == "hooked" && counted[s.plain()] {
			fmt.Fprintf(&out, "\tCOUNT\t%s, %d\n", s.name, i)
		}
	}
	out.WriteString("\n\t/* For driver exports that the list lacks; the preparation names them. */\n")
	for i := range spareSlots {
		fmt.Fprintf(&out, "\tPASS\t%s, %d\n", spareName(i), len(symbols)+i)
	}
	out.WriteString(lazyStubs)
	out.WriteString("\n\t/* Names that the preparation never passes on, each with its terminating zero. */\n\t.section .divvy.absent, \"a\", @progbits\n")
	for _, name := range neverPassed {
		fmt.Fprintf(&out, "\t.asciz\t\"%s\"\n", name)
	}
	for _, s := range symbols {
		if s.fate == "absent" {
			fmt.Fprintf(&out, "\t.asciz\t\"%s\"\n", s.name)
		}
	}
	out.WriteString("\n\t.section .note.GNU-stack, \"\", @progbits\n")
	return out.String()
}

// neverPassed are exports of a driver library that are not its interface.
var neverPassed = []string{"_init", "_fini", "divvy_standin"}

// lazyStubs keeps the argument registers over front_resolve. A stub of 16
// bytes per entry pushes its index; on entry of front_lazy the stack holds the
// index and the caller's return address, so rsp is 16-byte aligned.
const lazyStubs = `
	/* Stub of each table entry: push the index, ask, jump. */
	.p2align 4
	.type	front_stubs, @function
front_stubs:
	.cfi_startproc
	.set	stub, 0
	.rept	SYMBOLS + SPARES
	.p2align 4
	endbr64
	pushq	$stub
	.cfi_adjust_cfa_offset 8
	jmp	front_lazy
	.cfi_adjust_cfa_offset -8
	.set	stub, stub + 1
	.endr
	.cfi_endproc
	.size	front_stubs, .-front_stubs

	.p2align 4
	.type	front_lazy, @function
front_lazy:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	subq	$192, %rsp
	.cfi_adjust_cfa_offset 192
	movq	%rdi, 0(%rsp)
	movq	%rsi, 8(%rsp)
	movq	%rdx, 16(%rsp)
	movq	%rcx, 24(%rsp)
	movq	%r8, 32(%rsp)
	movq	%r9, 40(%rsp)
	movq	%rax, 48(%rsp)
	movups	%xmm0, 64(%rsp)
	movups	%xmm1, 80(%rsp)
	movups	%xmm2, 96(%rsp)
	movups	%xmm3, 112(%rsp)
	movups	%xmm4, 128(%rsp)
	movups	%xmm5, 144(%rsp)
	movups	%xmm6, 160(%rsp)
	movups	%xmm7, 176(%rsp)
	movl	192(%rsp), %edi
	call	front_resolve
	movq	%rax, %r11
	movq	0(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	16(%rsp), %rdx
	movq	24(%rsp), %rcx
	movq	32(%rsp), %r8
	movq	40(%rsp), %r9
	movq	48(%rsp), %rax
	movups	64(%rsp), %xmm0
	movups	80(%rsp), %xmm1
	movups	96(%rsp), %xmm2
	movups	112(%rsp), %xmm3
	movups	128(%rsp), %xmm4
	movups	144(%rsp), %xmm5
	movups	160(%rsp), %xmm6
	movups	176(%rsp), %xmm7
	addq	$200, %rsp
	.cfi_adjust_cfa_offset -200
	jmp	*%r11
	.cfi_endproc
	.size	front_lazy, .-front_lazy
	.hidden	front_resolve

	.section .data.rel.local, "aw", @progbits
	.p2align 6
	.globl	front_real
	.hidden	front_real
	.type	front_real, @object
front_real:
	.set	stub, 0
	.rept	SYMBOLS + SPARES
	.quad	front_stubs + 16 * stub
	.set	stub, stub + 1
	.endr
	.size	front_real, .-front_real

	.section .divvy.spares, "a", @progbits
	.p2align 4
	.globl	front_spare_names
	.hidden	front_spare_names
	.type	front_spare_names, @object
front_spare_names:
	.zero	SPARES * SPARE_NAME_BYTES
	.size	front_spare_names, .-front_spare_names
`
