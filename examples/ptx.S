/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of one example, as a string; EXAMPLE_PTX is their file. */
	.section .rodata
	.globl example_ptx
	.type example_ptx, @object
example_ptx:
	.incbin EXAMPLE_PTX
	.byte 0
	.size example_ptx, . - example_ptx
	.section .note.GNU-stack, "", @progbits
