// SPDX-License-Identifier: Apache-2.0

#if !defined(__x86_64__) || !defined(__linux__)
#error "calls of the vendor's library are passed on for Linux on x86-64 only"
#endif

// go-nvml calls functions of a library that is loaded while the program runs, and leaves
// it to the dynamic linker to find each at its first call. A linker that is to find all at
// the program's start (LD_BIND_NOW, -z now) does not start it. So here is a function of
// each name, which nothing but this program sees: it finds the library's own and goes on
// there, with all arguments where they are.

	.macro	late name
	.globl	\name
	.hidden	\name
	.type	\name, @function
\name:
	endbr64
	leaq	9f(%rip), %rax
	jmp	call_late
	.size	\name, .-\name
	.pushsection .rodata
9:	.asciz	"\name"
	.popsection
	.endm

	.text
	.type	call_late, @function
call_late:
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	subq	$8, %rsp	// aligned as a call wants it
	movq	%rax, %rdi
	call	divvy_nvml_find
	addq	$8, %rsp
	popq	%r9
	popq	%r8
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	jmp	*%rax
	.size	call_late, .-call_late

#include "nvml_late.inc"

	.section .note.GNU-stack, "", @progbits
